//! The way of a request, as in the native host: route, query, caller, body, call. What each step means is `rollcall-api`'s.

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, Method};
use rollcall_api::origins::{is_preflight, preflight, stamp};
use rollcall_api::{
    Body, BodyError, Function, Kind, LAST_EVENT_ID, Page, Problem, Query, ROLLCALL_USER, Route, decode, identify,
    responses, route,
};
use rollcall_core::Error;

use crate::{Answer, Setup, Trigger, logged};

/// What a request says before its body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    /// As it was sent, percent-escapes and all.
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
}

impl Head {
    fn text(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
    }
}

/// What a request meets that is no part of it. Each is a call of the host, and asked for only if it matters.
pub(crate) struct Circumstances {
    /// What time it is, in Unix seconds.
    pub(crate) now: fn() -> u64,
    /// When a browser whose stream cannot be had now is to come back.
    pub(crate) retry_ms: fn() -> u64,
}

/// Answers one request, whatever it is. `read` reads its body, up to so many bytes, if there is need of it.
pub(crate) async fn answer<D: Trigger>(
    setup: &Setup,
    head: &Head,
    around: Circumstances,
    read: impl AsyncFnOnce(usize) -> Result<Vec<u8>, BodyError>,
) -> Answer {
    let origin = setup.origin(&head.headers);
    if let (Some(origin), true) = (origin, is_preflight(&head.method, &head.headers)) {
        return preflight(origin).into();
    }
    let dispatched = dispatch::<D>(setup, head, around, read).await;
    let mut answer = dispatched.unwrap_or_else(|problem| problem.into_reply().into());
    if let Some(origin) = origin {
        stamp(answer.headers_mut(), origin);
    }
    answer
}

/// The answer where what is set cannot be. The log says what.
pub(crate) fn misconfigured() -> Answer {
    let detail = "this service is not set up as it must be; its log says why";
    Problem::new(Kind::Internal, detail).into_reply().into()
}

async fn dispatch<D: Trigger>(
    setup: &Setup,
    head: &Head,
    around: Circumstances,
    read: impl AsyncFnOnce(usize) -> Result<Vec<u8>, BodyError>,
) -> Result<Answer, Problem> {
    match route(&head.method, &head.path)? {
        Route::Page(page) => self::page::<D>(page).await,
        Route::Function(function) if D::serves(function) => {
            self::function::<D>(setup, function, head, around, read).await
        }
        Route::Function(Function::Stats | Function::Person(_)) => Err(no_figures()),
        Route::Function(_) => Err(elsewhere()),
    }
}

async fn page<D: Trigger>(page: Page) -> Result<Answer, Problem> {
    match D::page(page).await {
        Some(Ok(reply)) => Ok(reply.into()),
        Some(Err(error)) => Err(logged(error).into()),
        None => Err(elsewhere()),
    }
}

async fn function<D: Trigger>(
    setup: &Setup,
    function: Function<'_>,
    head: &Head,
    around: Circumstances,
    read: impl AsyncFnOnce(usize) -> Result<Vec<u8>, BodyError>,
) -> Result<Answer, Problem> {
    let query = Query::parse(function, head.query.as_deref())?;
    let access = setup.access(&head.headers)?;
    let caller = identify(access, head.text(&AUTHORIZATION), head.text(&ROLLCALL_USER), &query, around.now)?;
    let limit = function.body_limit(&setup.limits);
    let bytes = if limit == 0 { Vec::new() } else { read(limit).await? };
    let last_event_id = head.text(&LAST_EVENT_ID);
    let body = Body { content_type: head.text(&CONTENT_TYPE), bytes: &bytes, last_event_id };
    let call = decode(function, &query, &caller, body, &setup.limits)?;
    match D::call(setup, call).await {
        Ok(answer) => Ok(answer),
        Err(Error::Unavailable(_)) if function == Function::Subscribe && head.headers.contains_key(LAST_EVENT_ID) => {
            Ok(responses::come_back((around.retry_ms)()).into())
        }
        Err(error) => Err(logged(error).into()),
    }
}

/// There is such a path, but not here.
fn elsewhere() -> Problem {
    Problem::new(Kind::NotFound, "this path is served by another component of this service, or by none")
}

/// Nothing here lives between two requests that could count, or knows who watches whom.
fn no_figures() -> Problem {
    Problem::new(Kind::NotFound, "this platform keeps no figures: a host of Rollcall's own has this path")
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

    /// Beats, and watches as well as a store lets it that is away.
    struct Sample;

    impl Trigger for Sample {
        fn serves(function: Function<'_>) -> bool {
            matches!(function, Function::Heartbeat | Function::Leave | Function::Subscribe)
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

        async fn page(page: Page) -> Option<Result<Reply, Error>> {
            (page == Page::Healthz).then(|| Ok(pages::healthz()))
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
        let around = Circumstances { now: || 1_700_000_000, retry_ms: || 1234 };
        let read = async |_limit| body.map(|body| body.as_bytes().to_vec());
        match at_once(answer::<Sample>(&setup, head, around, read)) {
            Answer::Whole(reply) => reply,
            Answer::Stream(_) => unreachable!("no trigger here streams"),
        }
    }

    const OPEN: &[(&str, &str)] = &[("open", "true")];

    #[test]
    fn a_beat_is_answered_as_the_host_answers_it() {
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
    fn figures_are_said_to_be_elsewhere() {
        for path in ["/v1/stats", "/v1/people/bob"] {
            let reply = answered(OPEN, &request(Method::GET, path, &[(ROLLCALL_USER, "ops")]), Ok(""));
            assert_eq!(reply.status(), 404, "{path}");
            assert!(String::from_utf8_lossy(reply.body()).contains("keeps no figures"), "{path}");
        }
    }

    #[test]
    fn nobody_is_served_before_it_is_said_who_may_be() {
        let head = request(Method::POST, "/v1/heartbeat", &[(ROLLCALL_USER, "bob")]);
        assert_eq!(answered(&[], &head, Ok("{}")).status(), 403);
        let nameless = request(Method::POST, "/v1/heartbeat", &[]);
        assert_eq!(answered(OPEN, &nameless, Ok("{}")).status(), 401);
    }

    #[test]
    fn a_body_that_could_not_be_read_is_refused() {
        let head = request(Method::POST, "/v1/heartbeat?as=bob", &[]);
        for (unread, status) in [(BodyError::TooLarge(9), 413), (BodyError::Timeout, 400), (BodyError::Incomplete, 400)]
        {
            assert_eq!(answered(OPEN, &head, Err(unread)).status(), status);
        }
    }

    #[test]
    fn a_failure_is_a_problem_that_leaks_nothing() {
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
    fn a_browser_that_resumes_a_stream_which_cannot_be_had_is_told_when_to_come_back() {
        let head = request(Method::GET, "/v1/subscribe?as=bob&users=eve", &[(LAST_EVENT_ID, "5")]);
        let reply = answered(OPEN, &head, Ok(""));
        assert_eq!(
            (reply.status(), &reply.headers()[CONTENT_TYPE]),
            (StatusCode::OK, &"text/event-stream".parse().unwrap())
        );
        assert_eq!(reply.body(), b"retry: 1234\n\n");
    }

    #[test]
    fn a_page_that_is_let_in_may_ask_beforehand_and_read_every_answer() {
        let settings = &[("token_key", "0123456789abcdef0123456789abcdef"), ("origins", "https://a.example")];
        let origin = (ORIGIN, "https://a.example");
        let asking = [origin.clone(), (ACCESS_CONTROL_REQUEST_METHOD, "POST")];
        let reply = answered(settings, &request(Method::OPTIONS, "/v1/heartbeat", &asking), Ok(""));
        assert_eq!(reply.status(), 204);
        let refused = answered(settings, &request(Method::POST, "/v1/heartbeat", &[origin]), Ok("{}"));
        assert_eq!(
            (refused.status(), &refused.headers()[ACCESS_CONTROL_ALLOW_ORIGIN]),
            (StatusCode::UNAUTHORIZED, &"https://a.example".parse().unwrap())
        );
    }
}
