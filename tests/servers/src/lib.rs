//! Real servers for tests: each has its own folder and loopback port, and is killed when it is dropped.
//!
//! No test is retried or skipped: a server that does not start within its deadline is an error that contains its log.
//! Deliberately absent: any client library. Tests query servers with the tools that come with them, so that results do not
//! depend on the client under test.

pub mod postgres;
mod process;
pub mod redis;

pub use postgres::Postgres;
pub use process::{Process, free_port, wait_until};
