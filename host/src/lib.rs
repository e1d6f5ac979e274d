//! The Rollcall host: runs the functions in wasmtime, gives them their store, and opens them to HTTP.
//!
//! A request meets, in this order, the edge, a worker's function handles of warm functions, and the store. Every decision on the way
//! is made inside a component; this crate only carries.

mod backing;
pub mod cli;
pub mod config;
pub mod console;
mod edge;
pub mod engine;
mod figures;
mod following;
mod gateway;
pub mod metrics;
mod origins;
mod overview;
mod patient;
mod rounds;
pub mod serve;
mod worker;

/// A call takes and gives back hundreds of small pieces of memory on the same thread; the system's allocator spends a
/// quarter of a heartbeat on that (docs/adr/0009).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
