//! Converts requests and responses of `wasi:http`, without interpreting them.

use std::future::Future;
use std::pin::pin;

use futures::future::{Either, select};
use http::header::{CONTENT_LENGTH, HOST};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use rollcall_api::{BODY_TIMEOUT, BodyError, Reply};
use wasip3::http::types::{ErrorCode, Fields, Method as WasiMethod, Request, Response};
use wasip3::wit_bindgen::{StreamResult, StreamWriter, spawn};
use wasip3::{wit_future, wit_stream};

use crate::edge::{Head, HostCalls, answer, misconfigured};
use crate::subscribe::retry_ms;
use crate::{Answer, Setup, Streaming, Trigger, clock};

/// How much of a body is read at once: one beat fits, a batch takes a few reads.
const CHUNK_BYTES: usize = 16 * 1024;

/// Serves one request through this trigger.
pub async fn serve<D: Trigger>(request: Request) -> Result<Response, ErrorCode> {
    let head = head(&request)?;
    let answer = match Setup::of_instance() {
        Some(setup) => {
            let host_calls = HostCalls { now: clock::unix_now, retry_ms };
            let read = async |limit| read(request, &head.headers, limit).await;
            answer::<D>(&setup, &head, host_calls, read).await
        }
        None => misconfigured(),
    };
    Ok(match answer {
        Answer::Whole(reply) => whole(reply, head.method == Method::HEAD),
        Answer::Stream(response) => {
            let (parts, streaming) = response.into_parts();
            sent(&parts, Some(streaming))
        }
    })
}

fn head(request: &Request) -> Result<Head, ErrorCode> {
    let method = method(request.get_method()).ok_or(ErrorCode::HttpRequestMethodInvalid)?;
    let target = request.get_path_with_query().unwrap_or_default();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target, None),
    };
    let mut headers = headers(request.get_headers().copy_all());
    // Some hosts remove the `Host` header and pass its value as the authority.
    if let (false, Some(authority)) = (headers.contains_key(HOST), request.get_authority()) {
        headers.extend(HeaderValue::try_from(authority).ok().map(|host| (HOST, host)));
    }
    Ok(Head { method, path, query, headers })
}

fn method(method: WasiMethod) -> Option<Method> {
    Some(match method {
        WasiMethod::Get => Method::GET,
        WasiMethod::Head => Method::HEAD,
        WasiMethod::Post => Method::POST,
        WasiMethod::Put => Method::PUT,
        WasiMethod::Delete => Method::DELETE,
        WasiMethod::Connect => Method::CONNECT,
        WasiMethod::Options => Method::OPTIONS,
        WasiMethod::Trace => Method::TRACE,
        WasiMethod::Patch => Method::PATCH,
        WasiMethod::Other(name) => Method::from_bytes(name.as_bytes()).ok()?,
    })
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

async fn read(request: Request, headers: &HeaderMap, limit: usize) -> Result<Vec<u8>, BodyError> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(BodyError::TooLarge(limit));
    }
    match within(BODY_TIMEOUT, collect(request, announced, limit)).await {
        Some(collected) => collected,
        None => Err(BodyError::Timeout),
    }
}

async fn collect(request: Request, announced: Option<usize>, limit: usize) -> Result<Vec<u8>, BodyError> {
    // Dropping it reports that the body was received.
    let (_received, result) = wit_future::new(|| Ok(()));
    let (mut body, end) = Request::consume_body(request, result);
    let mut bytes = Vec::new();
    loop {
        let (status, chunk) = body.read(Vec::with_capacity(CHUNK_BYTES)).await;
        bytes.extend(chunk);
        if bytes.len() > limit {
            return Err(BodyError::TooLarge(limit));
        }
        // The announced length is complete. Only trailers could follow, which are not used. Waiting for them takes two turns of
        // the host's event loop, and a whole beat takes about ten.
        if announced == Some(bytes.len()) {
            return Ok(bytes);
        }
        match status {
            StreamResult::Complete(_) => {}
            StreamResult::Dropped | StreamResult::Cancelled => break,
        }
    }
    match end.await {
        Ok(_trailers) => Ok(bytes),
        Err(_) => Err(BodyError::Incomplete),
    }
}

/// The output of a future; none after the timeout.
pub(crate) async fn within<T>(timeout: std::time::Duration, outcome: impl Future<Output = T>) -> Option<T> {
    match select(pin!(outcome), pin!(clock::wait(timeout))).await {
        Either::Left((outcome, _)) => Some(outcome),
        Either::Right(((), _)) => None,
    }
}

/// A complete response with its length.
fn whole(reply: Reply, head_only: bool) -> Response {
    let (mut parts, bytes) = reply.into_parts();
    // 204 has no body, and must not have a length.
    if parts.status != StatusCode::NO_CONTENT {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    }
    if head_only || bytes.is_empty() {
        return sent(&parts, None::<Streaming>);
    }
    let written = |mut writer: StreamWriter<u8>| async move {
        // A reader that went away leaves the rest unread.
        writer.write_all(bytes).await;
    };
    sent(&parts, Some(written))
}

/// The headers for the host: all at once, or, if it refuses one, all others. A host forbids some that it sets itself, such as
/// `connection`.
fn fields(headers: &HeaderMap) -> Fields {
    let lines = headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
    let lines: Vec<_> = lines.collect();
    Fields::from_list(&lines).unwrap_or_else(|_| {
        let fields = Fields::new();
        for (name, value) in &lines {
            let _ = fields.append(name, value);
        }
        fields
    })
}

/// Makes a response and starts the task that writes its body.
fn sent<F: Future<Output = ()> + 'static>(
    parts: &Parts,
    body: Option<impl FnOnce(StreamWriter<u8>) -> F + 'static>,
) -> Response {
    let fields = fields(&parts.headers);
    // Dropping it reports that there are no trailers.
    let (trailers, none) = wit_future::new(|| Ok(None));
    let contents = body.map(|body| {
        let (writer, contents) = wit_stream::new();
        spawn(async move {
            body(writer).await;
            // Not earlier: a host that gets the trailers first spends a turn on them and sends the head alone. Then the body
            // waits until the client acknowledges the head, which it may delay by 40 ms.
            drop(trailers);
        });
        contents
    });
    let (response, _transmitted) = Response::new(fields, contents, none);
    // The default is 200. Only an invalid status is refused, and this one is valid.
    if parts.status != StatusCode::OK {
        let _ = response.set_status_code(parts.status.as_u16());
    }
    response
}
