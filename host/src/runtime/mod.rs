//! Runs the functions: components compiled ahead of time, kept warm, with many calls in flight in one instance. A function
//! that traps, loops or exceeds its memory costs the calls its instance held and nothing else.
//!
//! A worker thread has one [`InstanceQueue`] per function. When the instance traps, the calls it held fail with
//! `unavailable`, and a new instance continues with the queue.

mod catalog;
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
pub use limits::{EPOCH_TICK, MAX_TICKS, MEMORY_LIMIT_BYTES, engine, tick};
pub use platform::Platform;
pub use restriction_check::{Checker, CheckerInstance};
pub use worker_functions::Functions;
