//! `GET /v1/stats` and `GET /v1/people/{user}`: what this host counted, and what the store knows.

mod host_stats;
mod metrics_text;

pub(crate) use host_stats::{HostInfo, OnlineCounter, SharedStats};
pub(crate) use metrics_text::Figures;
