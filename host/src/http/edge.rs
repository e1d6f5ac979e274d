//! The HTTP edge: carries a request to its function and the answer back. `rollcall-api` decodes requests and encodes
//! responses; the functions decide.

mod admin;
mod policy;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use rollcall_api::call::{Call, Departure, DepartureReason, Settled, only};
use rollcall_api::origins::{allow_origin, is_preflight, preflight};
use rollcall_api::{
    Access, BODY_TIMEOUT, Body, BodyError, LAST_EVENT_ID, Limits, Operation, Origins, Problem, Query, ROLLCALL_USER,
    Reply, Route, StatusPage, decode, identify, openapi, pages, policy_calls, responses, route,
};
use rollcall_core::{DeviceId, Error, UserId};
use rollcall_functions::capabilities::{MAX_BATCH, Shards};

use crate::http::console::Console;
use crate::hub::{Hub, UpgradedConnection, handshake, retry_ms};
use crate::jobs::policy_sync::PolicySyncHandle;
use crate::runtime::Functions;
use crate::stats::SharedStats;

/// One worker's edge.
pub(crate) struct Edge {
    pub(crate) functions: Functions,
    pub(crate) access: Arc<Access>,
    /// Which web pages may call.
    pub(crate) origins: Arc<Origins>,
    pub(crate) limits: Limits,
    pub(crate) policy_sync: PolicySyncHandle,
    pub(crate) hub: Rc<Hub>,
    pub(crate) shared_stats: Arc<SharedStats>,
    pub(crate) console: Arc<Console>,
}

/// The outcome of a request.
pub(crate) enum Answer<B> {
    Reply(Response<B>),
    /// The connection is taken over.
    Upgrade(UpgradedConnection),
}

/// The same with a body in memory.
type Called = Answer<Vec<u8>>;

impl Edge {
    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Answer<Full<Bytes>> {
        let began = Instant::now();
        let head_only = request.method() == Method::HEAD;
        let origin = self.origins.allowed(&self.access, request.headers()).cloned();
        if let (Some(origin), true) = (&origin, is_preflight(request.method(), request.headers())) {
            return Answer::Reply(preflight(origin).map(Full::from));
        }
        let (template, called) = self.dispatch(request).await;
        let status = match &called {
            Called::Reply(reply) => reply.status().as_u16(),
            Called::Upgrade(upgraded) => upgraded.status(),
        };
        self.functions.platform.metrics.answered(template, status, began.elapsed());
        match called {
            Called::Reply(mut reply) => {
                origin.iter().for_each(|origin| allow_origin(reply.headers_mut(), origin));
                Answer::Reply(reply.map(|body| if head_only { Full::default() } else { Full::from(body) }))
            }
            Called::Upgrade(upgraded) => Answer::Upgrade(upgraded.with_origin(origin)),
        }
    }

    /// The route's template, for the metrics, and the answer.
    async fn dispatch(&self, request: Request<Incoming>) -> (&'static str, Called) {
        let (head, body) = request.into_parts();
        let route = match route(&head.method, head.uri.path()) {
            Ok(route) => route,
            Err(problem) => {
                // A path outside the API may be a page of the console.
                let page = self.console.answer(&head.method, head.uri.path(), &head.headers);
                let (template, reply) = page.unwrap_or_else(|| ("", problem.into_reply()));
                return (template, Called::Reply(reply));
            }
        };
        let called = match route {
            Route::Page(page) => Called::Reply(self.page(page).await),
            Route::Operation(operation) => {
                let called = self.operation(operation, &head, body).await;
                called.unwrap_or_else(|problem| Called::Reply(problem.into_reply()))
            }
        };
        (route.template(), called)
    }

    async fn operation(&self, operation: Operation<'_>, head: &Parts, body: Incoming) -> Result<Called, Problem> {
        let headers = &head.headers;
        let query = Query::parse(operation, head.uri.query())?;
        if let Access::Open = *self.access {
            self.origins.check_local(headers)?;
        }
        let text = |name: HeaderName| headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
        let caller = identify(&self.access, text(AUTHORIZATION), text(ROLLCALL_USER), &query, unix_now)?;
        let limit = operation.body_limit(&self.limits);
        let bytes = if limit == 0 { Bytes::new() } else { read(body, headers, limit).await? };
        let body = Body { content_type: text(CONTENT_TYPE), bytes: &bytes, last_event_id: text(LAST_EVENT_ID) };
        match decode(operation, &query, &caller, body, &self.limits)? {
            Call::Subscribe(subscribe) => match UpgradedConnection::subscribe(&self.hub, subscribe).await {
                Ok(upgraded) => Ok(Called::Upgrade(upgraded)),
                // A browser's EventSource gives up for good on anything but a stream: it gets one that only says when to
                // reconnect.
                Err(Error::Unavailable(_)) if headers.contains_key(LAST_EVENT_ID) => {
                    Ok(Called::Reply(responses::retry_stream(retry_ms())))
                }
                Err(error) => Err(logged(error).into()),
            },
            Call::Socket(connect) => {
                Ok(Called::Upgrade(UpgradedConnection::socket(&self.hub, connect, handshake(headers)?)))
            }
            call => Ok(Called::Reply(self.call(call).await.map_err(logged)?)),
        }
    }

    async fn call(&self, call: Call) -> Result<Reply, Error> {
        match call {
            Call::Beat(beat) => {
                let user = beat.user.clone();
                let standing = self.functions.beat(beat).await?;
                self.functions.platform.metrics.heartbeats_recorded(1);
                Ok(responses::heartbeat(&user, &standing))
            }
            Call::Beats(beats) => {
                let good = beats.good.clone();
                let outcomes = if good.is_empty() { Vec::new() } else { self.functions.beat_many(good).await? };
                self.functions
                    .platform
                    .metrics
                    .heartbeats_recorded(outcomes.iter().filter(|outcome| outcome.is_ok()).count());
                Ok(responses::heartbeats(&beats, &outcomes))
            }
            Call::Leave(departure) => {
                let user = departure.user.clone();
                Ok(responses::leave(&user, &only(self.functions.leave_many(vec![departure]).await?)?))
            }
            Call::Choose(request) => {
                let user = request.user.clone();
                Ok(responses::status(&user, &only(self.functions.choose_many(vec![request]).await?)?))
            }
            Call::LookUp(look_up) => {
                let views = self.functions.look_up(look_up.viewer.clone(), look_up.users.clone()).await?;
                Ok(responses::look_up(&look_up, &views))
            }
            Call::Type(update) => {
                only(self.functions.type_many(vec![update.clone()]).await?)?;
                Ok(responses::typing(&update, self.functions.platform.rules.typing_ttl))
            }
            Call::Typists { viewer, conversation } => {
                let typists = only(self.functions.typists(viewer, vec![conversation.clone()]).await?)?;
                Ok(responses::typists(&conversation, typists.iter().map(|typist| (&typist.user, typist.until))))
            }
            Call::Privacy { .. }
            | Call::SetPrivacy { .. }
            | Call::Listed { .. }
            | Call::List { .. }
            | Call::Restriction { .. }
            | Call::SetRestriction { .. }
            | Call::Check { .. }
            | Call::Changes(_) => policy_calls::respond(self, call).await,
            Call::Stats => self.stats().await,
            Call::Person { user } => self.person(user).await,
            // These two upgrade the connection and never come here.
            Call::Subscribe(_) | Call::Socket(_) => Err(Error::Denied),
            Call::Sweep(sweep) => {
                let limit = sweep.limit.unwrap_or(MAX_BATCH as u32);
                let everywhere = Shards { first: 0, end: self.functions.platform.store.shards() };
                let settled = self.functions.sweep(everywhere, limit).await?;
                self.functions.platform.metrics.settled("request", &settled);
                Ok(responses::sweep(&Settled {
                    examined: settled.examined,
                    published: settled.published,
                    rescheduled: settled.rescheduled,
                    stale: settled.stale,
                    failed: settled.failed,
                }))
            }
        }
    }

    async fn page(&self, page: StatusPage) -> Reply {
        match page {
            StatusPage::Healthz => pages::healthz(),
            StatusPage::Readyz => match self.canary().await {
                Ok(()) => pages::readyz(),
                Err(error) => Problem::from(logged(error)).into_reply(),
            },
            StatusPage::Metrics => self.metrics().await,
            StatusPage::OpenApi => openapi(),
        }
    }

    /// Calls functions, store and archive without changing anything: a user who does not exist leaves, is looked up, and is
    /// settled.
    async fn canary(&self) -> Result<(), Error> {
        let user = UserId::parse("rollcall/canary")?;
        // The device id contains the time in nanoseconds, so that a real user of the canary's name keeps their devices.
        let device = DeviceId::parse(format!("canary {:?}", SystemTime::now().duration_since(UNIX_EPOCH)))?;
        let departure = Departure { user: user.clone(), device, reason: DepartureReason::Logout };
        only(self.functions.leave_many(vec![departure]).await?)?;
        only(self.functions.look_up(None, vec![user.clone()]).await?)?;
        self.functions.settle(vec![user]).await?;
        Ok(())
    }
}

/// Logs an internal failure, whose text the caller does not see.
fn logged(error: Error) -> Error {
    if let Error::Other(text) = &error {
        tracing::error!(error = text, "Call failed");
    }
    error
}

async fn read(body: Incoming, headers: &HeaderMap, limit: usize) -> Result<Bytes, BodyError> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(BodyError::TooLarge(limit));
    }
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge(limit)),
        Ok(Err(_)) => Err(BodyError::Incomplete),
        Err(_) => Err(BodyError::Timeout),
    }
}

/// The system clock, for checking tokens only. Presence uses the store's time.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
