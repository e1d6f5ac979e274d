//! Converts requests and responses of `wasi:http`, without interpreting them.

use std::future::Future;

use http::response::Parts;
use http::{HeaderMap, Method, StatusCode};
use rollcall_api::{BODY_TIMEOUT, BodyError, Reply};
use rollcall_wasi::{unix_now, within};
use wasip3::http::types::{ErrorCode, Fields, Method as WasiMethod, Request, Response};
use wasip3::wit_bindgen::{StreamResult, StreamWriter, spawn};
use wasip3::{wit_future, wit_stream};

use crate::edge::{Head, HostCalls, answer, misconfigured};
use crate::http_parts::{self, announced_length, lines};
use crate::subscribe::retry_ms;
use crate::{Answer, Setup, Trigger};

/// Writes a body.
pub type BodyWriter = StreamWriter<u8>;

/// How much of a body is read at once: one beat fits, a batch takes a few reads.
const CHUNK_BYTES: usize = 16 * 1024;

/// Serves one request through this trigger.
pub async fn serve<D: Trigger>(request: Request) -> Result<Response, ErrorCode> {
    let head = head(&request)?;
    let answer = match Setup::of_instance() {
        Some(setup) => {
            let host_calls = HostCalls { now: unix_now, retry_ms };
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
    Ok(http_parts::head(
        method,
        request.get_path_with_query(),
        request.get_authority(),
        request.get_headers().copy_all(),
    ))
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

async fn read(request: Request, headers: &HeaderMap, limit: usize) -> Result<Vec<u8>, BodyError> {
    let announced = announced_length(headers, limit)?;
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

/// A complete response.
fn whole(reply: Reply, head_only: bool) -> Response {
    let (parts, body) = http_parts::whole(reply, head_only);
    let written = body.map(|bytes| {
        |mut writer: BodyWriter| async move {
            // A reader that went away leaves the rest unread.
            writer.write_all(bytes).await;
        }
    });
    sent(&parts, written)
}

/// The headers for the host: all at once, or, if it refuses one, all others. A host forbids some that it sets itself, such as
/// `connection`.
fn fields(headers: &HeaderMap) -> Fields {
    let lines = lines(headers);
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
    body: Option<impl FnOnce(BodyWriter) -> F + 'static>,
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
