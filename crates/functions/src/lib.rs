//! The functions: what a heartbeat, a query, a watch, a check or a sweep does, over capabilities that somebody else provides.
//!
//! Each is a short async procedure: ask the store, let [`rollcall_core`] decide, tell the store. Nothing here performs
//! I/O or knows a transport, and but for what [`restrictions`] remembers, nothing holds state between calls. The components in `components/` wrap these for WebAssembly; the
//! simulation runs the very same procedures against a store that crashes and reorders; the benchmark links them
//! natively to know what the sandbox costs.
//!
//! Every `await` is a call of a capability: a crash or a race can come between any two of them, and nowhere else.

#[cfg(test)]
mod at_once;
pub mod capabilities;
pub mod columns;
pub mod heartbeat;
pub mod query;
pub mod restrictions;
mod settling;
pub mod subscribe;
pub mod sweep;
pub mod typing;

pub use settling::Standing;
