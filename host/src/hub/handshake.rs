//! The responses that turn a request into an upgraded connection. The connection is then taken over from the HTTP library, so
//! that an idle one costs only a socket, a task and its subscription.

use http::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderValue};
use rollcall_api::{Kind, Problem};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::http::origins::allow_origin;

/// The length of a key: 16 bytes in base64.
const KEY_BYTES: usize = 24;

/// A checked WebSocket handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    accept: String,
}

/// Checks a WebSocket handshake as RFC 6455 §4.2.1 requires.
pub(crate) fn handshake(headers: &HeaderMap) -> Result<Handshake, Problem> {
    let lists = |name, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case(wanted))
    };
    if !lists(UPGRADE, "websocket") || !lists(CONNECTION, "upgrade") {
        let detail = "this path is a WebSocket: open it with `Connection: Upgrade` and `Upgrade: websocket`";
        return Err(Problem::new(Kind::UpgradeRequired, detail));
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(Problem::new(Kind::UpgradeRequired, "the header `Sec-WebSocket-Version` must be `13`"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| key.len() == KEY_BYTES);
    let Some(key) = key else {
        return Err(Problem::new(
            Kind::Malformed,
            "the header `Sec-WebSocket-Key` is missing, or is not 16 bytes in base64",
        ));
    };
    Ok(Handshake { accept: derive_accept_key(key.as_bytes()) })
}

impl Handshake {
    /// The head of the response.
    pub(super) fn head(&self) -> String {
        let accept = &self.accept;
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-accept: {accept}\r\n\r\n"
        )
    }
}

/// The head of an event stream, for a page of this origin. The body ends with the connection, which needs no framing.
/// `x-accel-buffering` stops nginx from buffering events.
pub(super) fn event_stream_head(origin: Option<&HeaderValue>) -> String {
    let mut headers = HeaderMap::new();
    for (name, value) in
        [("content-type", "text/event-stream"), ("cache-control", "no-store"), ("x-accel-buffering", "no")]
    {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    origin.into_iter().for_each(|origin| allow_origin(&mut headers, origin));
    let mut head = "HTTP/1.1 200 OK\r\n".to_owned();
    for (name, value) in &headers {
        // Only an origin that is text is allowed.
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
    }
    head + "\r\n"
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    const GOOD: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn example_of_rfc_6455_is_accepted() {
        let head = handshake(&headers(&GOOD)).unwrap().head();
        assert!(head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    }

    #[test]
    fn incomplete_handshake_is_refused() {
        for (place, status) in [(0, 426), (1, 426), (2, 426), (3, 400)] {
            let mut lines = GOOD.to_vec();
            lines.remove(place);
            assert_eq!(handshake(&headers(&lines)).unwrap_err().status(), status);
        }
    }
}
