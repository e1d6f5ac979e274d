//! Converts requests and responses of `wasi:http` 0.2, without interpreting them.
//!
//! The response is handed to the host before its body is written, so that events of a stream arrive as they are sent.

use std::rc::Rc;

use http::response::Parts;
use http::{HeaderMap, Method};
use rollcall_api::{BODY_TIMEOUT, BodyError};
use rollcall_wasi::{ready, unix_now, within, write_all};
use wasip2::http::types::{
    ErrorCode, Fields, IncomingRequest, Method as WasiMethod, OutgoingBody, OutgoingResponse, ResponseOutparam,
};
use wasip2::io::poll::Pollable;
use wasip2::io::streams::{OutputStream, StreamError};

use crate::edge::{Head, HostCalls, answer, misconfigured};
use crate::http_parts::{self, announced_length, lines};
use crate::subscribe::retry_ms;
use crate::{Answer, Setup, Trigger};

/// How much of a body is read at once: one beat fits, a batch takes a few reads.
const CHUNK_BYTES: u64 = 16 * 1024;

/// Writes a body. The fields are dropped in this order: a host refuses to drop a stream before its pollable.
pub struct BodyWriter {
    writable: Rc<Pollable>,
    stream: OutputStream,
}

impl BodyWriter {
    /// Writes and sends all bytes. Returns what the reader did not take: nothing, or all if it went away.
    pub(crate) async fn write_all(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        if write_all(&self.stream, &self.writable, &bytes).await { Vec::new() } else { bytes }
    }
}

/// Serves one request through this trigger.
pub async fn serve<D: Trigger>(request: IncomingRequest, out: ResponseOutparam) {
    let Some(head) = head(&request) else {
        return ResponseOutparam::set(out, Err(ErrorCode::HttpRequestMethodInvalid));
    };
    let answer = match Setup::of_instance() {
        Some(setup) => {
            let host_calls = HostCalls { now: unix_now, retry_ms };
            let read = async |limit| read(&request, &head.headers, limit).await;
            answer::<D>(&setup, &head, host_calls, read).await
        }
        None => misconfigured(),
    };
    match answer {
        Answer::Whole(reply) => {
            let (parts, body) = http_parts::whole(reply, head.method == Method::HEAD);
            let write = async move |mut writer: BodyWriter| {
                if let Some(bytes) = body {
                    // A reader that went away leaves the rest unread.
                    writer.write_all(bytes).await;
                }
            };
            send(&parts, out, write).await;
        }
        Answer::Stream(response) => {
            let (parts, streaming) = response.into_parts();
            send(&parts, out, async move |writer| streaming(writer).await).await;
        }
    }
}

fn head(request: &IncomingRequest) -> Option<Head> {
    let method = match request.method() {
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
    };
    Some(http_parts::head(method, request.path_with_query(), request.authority(), request.headers().entries()))
}

async fn read(request: &IncomingRequest, headers: &HeaderMap, limit: usize) -> Result<Vec<u8>, BodyError> {
    let announced = announced_length(headers, limit)?;
    match within(BODY_TIMEOUT, collect(request, announced, limit)).await {
        Some(collected) => collected,
        None => Err(BodyError::Timeout),
    }
}

async fn collect(request: &IncomingRequest, announced: Option<usize>, limit: usize) -> Result<Vec<u8>, BodyError> {
    let Ok(body) = request.consume() else { return Err(BodyError::Incomplete) };
    let Ok(stream) = body.stream() else { return Err(BodyError::Incomplete) };
    let readable = Rc::new(stream.subscribe());
    let mut bytes = Vec::new();
    // After the announced length only trailers could follow, which are not used.
    while announced != Some(bytes.len()) {
        match stream.read(CHUNK_BYTES) {
            Ok(chunk) if chunk.is_empty() => ready(&readable).await,
            Ok(chunk) => bytes.extend(chunk),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(_)) => return Err(BodyError::Incomplete),
        }
        if bytes.len() > limit {
            return Err(BodyError::TooLarge(limit));
        }
    }
    if announced.is_some_and(|length| length > bytes.len()) { Err(BodyError::Incomplete) } else { Ok(bytes) }
}

/// Sends a response, then its body.
async fn send(parts: &Parts, out: ResponseOutparam, write: impl AsyncFnOnce(BodyWriter)) {
    let response = OutgoingResponse::new(fields(&parts.headers));
    // Only an invalid status is refused, and this one is valid.
    let _ = response.set_status_code(parts.status.as_u16());
    let Ok(body) = response.body() else {
        return ResponseOutparam::set(out, Err(ErrorCode::InternalError(None)));
    };
    let stream = body.write();
    ResponseOutparam::set(out, Ok(response));
    if let Ok(stream) = stream {
        write(BodyWriter { writable: Rc::new(stream.subscribe()), stream }).await;
    }
    // Fails if the reader went away, or if less was written than announced.
    let _ = OutgoingBody::finish(body, None);
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
