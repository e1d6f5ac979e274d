//! HTTP: listening and signals, the worker threads that serve connections, the routes, and the console's files.

pub mod console;
pub(crate) mod edge;
pub(crate) mod origins;
pub mod serve;
mod worker;
pub(crate) mod write_timeout;
