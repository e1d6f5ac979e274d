//! Runs the functions: components compiled ahead, kept warm, many calls in flight in one instance. What one of them does
//! — trap, loop, eat memory — costs the calls that its instance held, and nothing else.
//!
//! A worker thread has one [`InstanceQueue`] per function. A instance queue owns one instance and feeds it calls; when the instance traps,
//! the calls it held fail with `unavailable`, and a fresh one goes on with the queue.

pub mod bindings;
mod catalog;
mod codec;
mod feed;
mod functions;
mod instance_queue;
mod limits;
mod platform;
mod policy;
mod restriction_check;
mod topics;
mod worker_functions;

pub use catalog::{Catalog, Misfit, Source};
pub use feed::Feed;
pub use instance_queue::InstanceQueue;
pub use limits::{EPOCH_TICK, MEMORY_LIMIT_BYTES, PATIENCE_TICKS, engine, tick};
pub use platform::Platform;
pub use restriction_check::{Checker, CheckerInstance};
pub use worker_functions::Functions;
