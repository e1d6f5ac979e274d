//! `GET /v1/stats` and `GET /v1/people/{user}`: what this host counted, and what the store knows.

mod metrics_text;
mod overview;

pub(crate) use metrics_text::Figures;
pub(crate) use overview::{About, Census, Overview};
