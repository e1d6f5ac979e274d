//! The host on Redis: the cost of a beat, and how late offline events are with a million users online.

mod beats;
mod hosts;
mod lag;
mod plot;

use anyhow::{Context, Result};
use rollcall_servers::redis::Redis;

pub(crate) use beats::{over_http, run as beats};
pub(crate) use hosts::run as hosts;
pub(crate) use lag::run as lag;

/// A number of the server's INFO.
pub(crate) fn info(server: &Redis, section: &str, name: &str) -> Result<f64> {
    let text = server.ask(&["INFO", section])?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("no `{name}` in INFO {section}"))?.trim().parse()?)
}
