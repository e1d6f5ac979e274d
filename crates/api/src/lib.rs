//! The HTTP API of Rollcall without an HTTP server: routes, JSON, validation, tokens, problems, and the OpenAPI document.
//!
//! Everything here is a pure function of its arguments: no sockets, no async, no clock. So the native host and the
//! `wasi:http` trigger answer with the same bytes. A request passes, in this order:
//!
//! 1. [`route()`]: method and path become a [`Route`]. The server answers a [`StatusPage`] itself; an [`Operation`] continues.
//! 2. [`Query::parse`] and [`identify`]: the query string, then the caller, by token or, without a key, by name.
//! 3. [`decode`]: the body becomes a [`Call`](call::Call), validated and permitted. The transport reads at
//!    most [`Operation::body_limit`] bytes.
//! 4. The transport calls the function that the `Call` is for.
//! 5. [`responses`]: the result becomes a [`Reply`], which the transport sends; for HEAD without the body.
//!
//! For streams and sockets, [`socket::decode_message`] parses what a client sends and [`events`] writes what it receives.
//!
//! Every failure is a [`Problem`], and [`Problem::into_reply`] is its response.
//!
//! ```
//! use rollcall_api::call::{Call, Standing};
//! use rollcall_api::{Access, Body, Limits, Problem, Query, Reply, Route, decode, identify, responses, route};
//!
//! fn answer(method: http::Method, path: &str, query: Option<&str>, user: &str, body: &[u8]) -> Result<Reply, Problem> {
//!     let Route::Operation(operation) = route(&method, path)? else { return Ok(rollcall_api::openapi()) };
//!     let query = Query::parse(operation, query)?;
//!     let caller = identify(&Access::Open, None, Some(user), &query, || 1_700_000_000)?;
//!     let body = Body { content_type: Some("application/json"), bytes: body, ..Body::default() };
//!     match decode(operation, &query, &caller, body, &Limits::default())? {
//!         Call::Beat(beat) => {
//!             // Here the host calls `beat-many`.
//!             let standing = Standing { state: rollcall_core::State::Online, version: 1, next_beat_ms: 30_000 };
//!             Ok(responses::heartbeat(&beat.user, &standing))
//!         }
//!         call => unreachable!("this example only beats: {call:?}"),
//!     }
//! }
//!
//! let reply = answer(http::Method::POST, "/v1/heartbeat", None, "bob", br#"{"device":"web-1"}"#).unwrap();
//! assert_eq!(reply.body(), br#"{"user":"bob","state":"online","version":1,"next_beat_ms":30000}"#);
//! ```
//!
//! [`origins`] handles CORS.
//!
//! Deliberately absent: reading keys from files, reading the clock, logging (a failure is logged where it is handled, before
//! it becomes a problem), and readiness.

mod caller;
mod conversations;
mod event_id;
mod json;
mod keys;
mod limits;
mod openapi;
mod percent;
mod problem;
mod query;
mod requests;
mod route;
mod token;

pub mod call;
pub mod events;
pub mod origins;
pub mod pages;
pub mod policy_calls;
pub mod responses;
pub mod socket;

pub use caller::{Access, Authentication, Caller, ROLLCALL_USER, Scope, Scopes, identify, renew};
pub use conversations::Conversations;
pub use event_id::EventId;
pub use events::Close;
pub use keys::{KeyError, Keys, MIN_SECRET_BYTES, SigningKey};
pub use limits::{
    BODY_TIMEOUT, Limits, MAX_BATCH_BEATS, MAX_BATCH_BODY_BYTES, MAX_BODY_BYTES, MAX_CHANGES, MAX_MESSAGE_BYTES,
    MAX_QUERY_IDS,
};
pub use openapi::{OPENAPI, openapi};
pub use origins::Origins;
pub use problem::{Kind, Problem, Reply};
pub use query::Query;
pub use requests::{Body, BodyError, LAST_EVENT_ID, MAX_SWEEP, decode};
pub use route::{Entry, Operation, ROUTES, Route, StatusPage, route};
pub use token::{Expect, Grant, LEEWAY_S, mint, verify};
