//! Runs the functions: components compiled ahead, kept warm, many calls in flight in one instance, and nothing that one
//! of them does — trap, loop, eat memory — reaches beyond its own calls.
//!
//! A worker thread has one [`Lane`] per function. A lane owns one instance and feeds it calls; when the instance traps,
//! the calls it held fail with `unavailable`, a fresh one takes over, and the queue behind it never notices.

pub mod bindings;
mod catalog;
mod codec;
mod crew;
mod functions;
mod lane;
mod limits;
mod platform;

pub use catalog::{Catalog, Misfit, Source};
pub use crew::Crew;
pub use lane::Lane;
pub use limits::{EPOCH_TICK, MEMORY_LIMIT_BYTES, PATIENCE_TICKS, engine, tick};
pub use platform::Platform;
