//! `GET /v1/stats` and `GET /v1/people/{user}`: what this host counted, and what the store knows.

mod metrics_stats;
mod shared_stats;

pub(crate) use metrics_stats::MetricsStats;
pub(crate) use shared_stats::{HostInfo, OnlineCounter, SharedStats};
