//! The functions: what a heartbeat, a query, a subscription, a check or a sweep does, over capability traits.
//!
//! Each is a short async procedure: read the store, let [`rollcall_core`] decide, write the store. Nothing here performs I/O
//! or knows a transport, and only [`restrictions`] holds state between calls. The components in `components/` wrap these for
//! WebAssembly, the simulation runs them against a store that crashes and reorders, and the benchmark links them natively to
//! measure the cost of the sandbox.
//!
//! Every `await` is a call of a capability: a crash or a race can happen between any two of them, and nowhere else.

pub mod batch;
pub mod capabilities;
mod commit_loop;
pub mod heartbeat;
#[cfg(test)]
mod poll_once;
pub mod query;
mod read;
pub mod restrictions;
pub mod subscribe;
pub mod sweep;
pub mod typing;

pub use commit_loop::Standing;
