//! Pages about the server itself, in plain text.

use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::problem::Reply;

/// The process is alive.
pub fn healthz() -> Reply {
    text("text/plain; charset=utf-8", "ok\n")
}

/// A request would succeed. Otherwise the server answers with a problem.
pub fn readyz() -> Reply {
    text("text/plain; charset=utf-8", "ready\n")
}

/// The metrics, in the OpenMetrics text format.
pub fn metrics(metrics: &str) -> Reply {
    text("application/openmetrics-text; version=1.0.0; charset=utf-8", metrics)
}

/// A response of this media type.
pub(crate) fn text(format: &'static str, text: &str) -> Reply {
    let mut reply = Reply::new(text.as_bytes().to_vec());
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format));
    reply
}
