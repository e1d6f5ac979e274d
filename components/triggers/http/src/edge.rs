//! The steps of a request, as in the native host: route, query, caller, body, call. `rollcall-api` implements each step.

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, Method};
use rollcall_api::origins::{allow_origin, is_preflight, preflight};
use rollcall_api::{
    Body, BodyError, Kind, LAST_EVENT_ID, Operation, Problem, Query, ROLLCALL_USER, Route, StatusPage, decode,
    identify, responses, route,
};
use rollcall_core::Error;

use crate::{Answer, Setup, Trigger, logged};

/// A request without its body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    /// As sent, with percent-escapes.
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
}

impl Head {
    fn text(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
    }
}

/// Values from the host. Each is a call, made only if it is needed.
pub(crate) struct HostCalls {
    /// The time in Unix seconds.
    pub(crate) now: fn() -> u64,
    /// When a browser should retry a stream that cannot be opened now.
    pub(crate) retry_ms: fn() -> u64,
}

/// Answers one request. `read` reads its body, up to a number of bytes; it is called only if the body is needed.
pub(crate) async fn answer<D: Trigger>(
    setup: &Setup,
    head: &Head,
    host: HostCalls,
    read: impl AsyncFnOnce(usize) -> Result<Vec<u8>, BodyError>,
) -> Answer {
    let origin = setup.origin(&head.headers);
    if let (Some(origin), true) = (origin, is_preflight(&head.method, &head.headers)) {
        return preflight(origin).into();
    }
    let dispatched = dispatch::<D>(setup, head, host, read).await;
    let mut answer = dispatched.unwrap_or_else(|problem| problem.into_reply().into());
    if let Some(origin) = origin {
        allow_origin(answer.headers_mut(), origin);
    }
    answer
}

/// The answer if a setting is invalid. The log names it.
pub(crate) fn misconfigured() -> Answer {
    let detail = "the service is misconfigured; its log names the setting";
    Problem::new(Kind::Internal, detail).into_reply().into()
}

async fn dispatch<D: Trigger>(
    setup: &Setup,
    head: &Head,
    host: HostCalls,
    read: impl AsyncFnOnce(usize) -> Result<Vec<u8>, BodyError>,
) -> Result<Answer, Problem> {
    match route(&head.method, &head.path)? {
        Route::Page(page) => self::page::<D>(page).await,
        Route::Operation(operation) if D::serves(operation) => {
            self::operation::<D>(setup, operation, head, host, read).await
        }
        Route::Operation(Operation::Stats | Operation::Person(_)) => Err(no_stats()),
        Route::Operation(_) => Err(elsewhere()),
    }
}

async fn page<D: Trigger>(page: StatusPage) -> Result<Answer, Problem> {
    match D::page(page).await {
        Some(Ok(reply)) => Ok(reply.into()),
        Some(Err(error)) => Err(logged(error).into()),
        None => Err(elsewhere()),
    }
}

async fn operation<D: Trigger>(
    setup: &Setup,
    operation: Operation<'_>,
    head: &Head,
    host: HostCalls,
    read: impl AsyncFnOnce(usize) -> Result<Vec<u8>, BodyError>,
) -> Result<Answer, Problem> {
    let query = Query::parse(operation, head.query.as_deref())?;
    let access = setup.access(&head.headers)?;
    let caller = identify(access, head.text(&AUTHORIZATION), head.text(&ROLLCALL_USER), &query, host.now)?;
    let limit = operation.body_limit(&setup.limits);
    let bytes = if limit == 0 { Vec::new() } else { read(limit).await? };
    let last_event_id = head.text(&LAST_EVENT_ID);
    let body = Body { content_type: head.text(&CONTENT_TYPE), bytes: &bytes, last_event_id };
    let call = decode(operation, &query, &caller, body, &setup.limits)?;
    match D::call(setup, call).await {
        Ok(answer) => Ok(answer),
        Err(Error::Unavailable(_)) if operation == Operation::Subscribe && head.headers.contains_key(LAST_EVENT_ID) => {
            Ok(responses::retry_stream((host.retry_ms)()).into())
        }
        Err(error) => Err(logged(error).into()),
    }
}

/// The path exists, but another component serves it.
fn elsewhere() -> Problem {
    Problem::new(Kind::NotFound, "this component does not serve this path")
}

/// No state outlives a request here, so there are no counters and no list of watchers.
fn no_stats() -> Problem {
    Problem::new(Kind::NotFound, "this platform keeps no stats; only the Rollcall host serves this path")
}

impl Answer {
    fn headers_mut(&mut self) -> &mut HeaderMap {
        match self {
            Answer::Whole(reply) => reply.headers_mut(),
            Answer::Stream(response) => response.headers_mut(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, RETRY_AFTER};
    use http::{HeaderValue, StatusCode};
    use rollcall_api::call::{Call, Standing};
    use rollcall_api::{Reply, pages};
    use rollcall_core::State;

    use super::*;
    use crate::setup::tests::with;

    /// Answers beats; fails subscriptions as if the store were unavailable.
    struct Sample;

    impl Trigger for Sample {
        fn serves(operation: Operation<'_>) -> bool {
            matches!(operation, Operation::Heartbeat | Operation::Leave | Operation::Subscribe)
        }

        async fn call(_setup: &Setup, call: Call) -> Result<Answer, Error> {
            match call {
                Call::Beat(beat) => {
                    let standing = Standing { state: State::Online, version: 7, next_beat_ms: 30_000 };
                    Ok(responses::heartbeat(&beat.user, &standing).into())
                }
                Call::Subscribe(_) => Err(Error::Unavailable(1500)),
                _ => Err(Error::Other("redis://secret".to_owned())),
            }
        }

        async fn page(page: StatusPage) -> Option<Result<Reply, Error>> {
            (page == StatusPage::Healthz).then(|| Ok(pages::healthz()))
        }
    }

    fn at_once<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => unreachable!("nothing here waits"),
        }
    }

    fn request(method: Method, path: &str, headers: &[(HeaderName, &'static str)]) -> Head {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query.to_owned())));
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        Head { method, path: path.to_owned(), query, headers }
    }

    fn answered(settings: &[(&str, &str)], head: &Head, body: Result<&str, BodyError>) -> Reply {
        let setup = with(settings).unwrap();
        let host = HostCalls { now: || 1_700_000_000, retry_ms: || 1234 };
        let read = async |_limit| body.map(|body| body.as_bytes().to_vec());
        match at_once(answer::<Sample>(&setup, head, host, read)) {
            Answer::Whole(reply) => reply,
            Answer::Stream(_) => unreachable!("no trigger here streams"),
        }
    }

    const OPEN: &[(&str, &str)] = &[("open", "true")];

    #[test]
    fn beat_gets_the_host_answer() {
        let head = request(Method::POST, "/v1/heartbeat", &[(ROLLCALL_USER, "bob")]);
        let reply = answered(OPEN, &head, Ok(r#"{"device":"web-1"}"#));
        assert_eq!(reply.status(), 200);
        assert_eq!(reply.body(), br#"{"user":"bob","state":"online","version":7,"next_beat_ms":30000}"#);
    }

    #[test]
    fn route_of_another_function_is_not_found() {
        for path in ["/v1/presence/bob", "/metrics", "/openapi.json", "/nothing"] {
            let reply = answered(OPEN, &request(Method::GET, path, &[]), Ok(""));
            assert_eq!(reply.status(), 404, "{path}");
        }
        assert_eq!(answered(&[], &request(Method::GET, "/healthz", &[]), Ok("")).body(), b"ok\n");
    }

    #[test]
    fn stats_are_not_found() {
        for path in ["/v1/stats", "/v1/people/bob"] {
            let reply = answered(OPEN, &request(Method::GET, path, &[(ROLLCALL_USER, "ops")]), Ok(""));
            assert_eq!(reply.status(), 404, "{path}");
            assert!(String::from_utf8_lossy(reply.body()).contains("keeps no stats"), "{path}");
        }
    }

    #[test]
    fn unconfigured_trigger_refuses_every_call() {
        let head = request(Method::POST, "/v1/heartbeat", &[(ROLLCALL_USER, "bob")]);
        assert_eq!(answered(&[], &head, Ok("{}")).status(), 403);
        let anonymous = request(Method::POST, "/v1/heartbeat", &[]);
        assert_eq!(answered(OPEN, &anonymous, Ok("{}")).status(), 401);
    }

    #[test]
    fn unreadable_body_is_refused() {
        let head = request(Method::POST, "/v1/heartbeat?as=bob", &[]);
        for (error, status) in [(BodyError::TooLarge(9), 413), (BodyError::Timeout, 400), (BodyError::Incomplete, 400)]
        {
            assert_eq!(answered(OPEN, &head, Err(error)).status(), status);
        }
    }

    #[test]
    fn failure_leaks_no_internal_text() {
        let leave = request(Method::POST, "/v1/leave?as=bob", &[]);
        let reply = answered(OPEN, &leave, Ok(r#"{"device":"web-1","reason":"logout"}"#));
        assert_eq!(reply.status(), 500);
        assert!(!String::from_utf8_lossy(reply.body()).contains("secret"));
        let subscribe = request(Method::GET, "/v1/subscribe?as=bob&users=eve", &[]);
        let reply = answered(OPEN, &subscribe, Ok(""));
        assert_eq!(
            (reply.status(), &reply.headers()[RETRY_AFTER]),
            (StatusCode::SERVICE_UNAVAILABLE, &"2".parse().unwrap())
        );
    }

    #[test]
    fn unavailable_resume_tells_browser_when_to_retry() {
        let head = request(Method::GET, "/v1/subscribe?as=bob&users=eve", &[(LAST_EVENT_ID, "5")]);
        let reply = answered(OPEN, &head, Ok(""));
        assert_eq!(
            (reply.status(), &reply.headers()[CONTENT_TYPE]),
            (StatusCode::OK, &"text/event-stream".parse().unwrap())
        );
        assert_eq!(reply.body(), b"retry: 1234\n\n");
    }

    #[test]
    fn allowed_origin_gets_preflight_and_error_headers() {
        let settings = &[("token_key", "0123456789abcdef0123456789abcdef"), ("origins", "https://a.example")];
        let origin = (ORIGIN, "https://a.example");
        let preflight_headers = [origin.clone(), (ACCESS_CONTROL_REQUEST_METHOD, "POST")];
        let reply = answered(settings, &request(Method::OPTIONS, "/v1/heartbeat", &preflight_headers), Ok(""));
        assert_eq!(reply.status(), 204);
        let refused = answered(settings, &request(Method::POST, "/v1/heartbeat", &[origin]), Ok("{}"));
        assert_eq!(
            (refused.status(), &refused.headers()[ACCESS_CONTROL_ALLOW_ORIGIN]),
            (StatusCode::UNAUTHORIZED, &"https://a.example".parse().unwrap())
        );
    }
}
