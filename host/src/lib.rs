//! The Rollcall host: runs the functions in wasmtime, gives them their store, and opens them to HTTP.
//!
//! A request meets, in this order, the edge, a worker's function handles of warm functions, and the store. Every decision on the way
//! is made inside a component; this crate only carries.

pub mod cli;
pub mod config;
pub mod http;
mod hub;
mod jobs;
pub mod metrics;
pub mod runtime;
mod stats;
mod storage;

/// A call takes and gives back hundreds of small pieces of memory on the same thread; the system's allocator spends a
/// quarter of a heartbeat on that (docs/adr/0009).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
