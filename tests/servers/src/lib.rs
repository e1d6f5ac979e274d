//! Real servers for tests: each in a folder and on a loopback port of its own, killed when it is dropped.
//!
//! Nothing here retries a test or skips one: a server that does not come up within its deadline is an error with what
//! it wrote. Deliberately absent: any client library. Servers are asked by the tools that come with them, so that what
//! a test finds is not filtered by the client under test.

pub mod postgres;
mod process;
pub mod redis;

pub use postgres::Postgres;
pub use process::{Process, free_port, wait_until};
