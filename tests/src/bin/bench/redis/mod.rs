//! The host on Redis: what a beat costs there, and how late an offline event is among a million people online.

mod beats;
mod hosts;
mod lag;
mod plot;

use anyhow::{Context, Result};
use rollcall_servers::redis::Redis;

pub(crate) use beats::{over_http, run as beats};
pub(crate) use hosts::run as hosts;
pub(crate) use lag::run as lag;

/// A number that the server tells about itself.
fn info(server: &Redis, section: &str, name: &str) -> Result<f64> {
    let text = server.ask(&["INFO", section])?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("no `{name}` in INFO {section}"))?.trim().parse()?)
}
