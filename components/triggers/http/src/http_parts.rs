//! What the conversions of both versions of `wasi:http` share.

use http::header::{CONTENT_LENGTH, HOST};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use rollcall_api::{BodyError, Reply};

use crate::edge::Head;

/// A request without its body. Some hosts remove the `Host` header and pass its value as the authority.
pub(crate) fn head(
    method: Method,
    target: Option<String>,
    authority: Option<String>,
    lines: Vec<(String, Vec<u8>)>,
) -> Head {
    let target = target.unwrap_or_default();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target, None),
    };
    let mut headers = headers(lines);
    if let (false, Some(authority)) = (headers.contains_key(HOST), authority) {
        headers.extend(HeaderValue::try_from(authority).ok().map(|host| (HOST, host)));
    }
    Head { method, path, query, headers }
}

/// The headers. Invalid ones are dropped; a host passes none.
fn headers(lines: Vec<(String, Vec<u8>)>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(lines.len());
    for (name, value) in lines {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    headers
}

/// The announced length of a body. Fails if that is over the limit.
pub(crate) fn announced_length(headers: &HeaderMap, limit: usize) -> Result<Option<usize>, BodyError> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) { Err(BodyError::TooLarge(limit)) } else { Ok(announced) }
}

/// A complete response with its length, and its body; without one if only the head is asked for.
pub(crate) fn whole(reply: Reply, head_only: bool) -> (Parts, Option<Vec<u8>>) {
    let (mut parts, bytes) = reply.into_parts();
    // 204 has no body, and must not have a length.
    if parts.status != StatusCode::NO_CONTENT {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    }
    (parts, Some(bytes).filter(|bytes| !head_only && !bytes.is_empty()))
}

/// The headers for the host.
pub(crate) fn lines(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
}
