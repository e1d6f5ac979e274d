//! The Rollcall host: runs the functions in wasmtime, provides their capabilities, and serves them over HTTP.
//!
//! A request passes `http`, a warm function in `runtime`, and `storage`. Watchers are served by `hub`, background work is in
//! `jobs`. Every decision is made inside a component; this crate only carries data.

pub mod cli;
pub mod config;
pub mod http;
mod hub;
mod jobs;
pub mod metrics;
pub mod runtime;
mod stats;
mod storage;

/// A call makes hundreds of small allocations on one thread. The system's allocator takes a quarter of a heartbeat's time for
/// them (docs/adr/0009).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
