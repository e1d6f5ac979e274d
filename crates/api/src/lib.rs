//! The HTTP surface of Rollcall, without HTTP: routes, JSON, validation, tokens, problems, and the OpenAPI document.
//!
//! Everything here is a pure function of its arguments: no sockets, no async, no clock. The native host and the
//! `wasi:http` door therefore answer alike, to the byte. A request meets, in this order:
//!
//! 1. [`route()`]: method and path become a [`Route`]. A [`Page`] is about the server itself and is answered by it at
//!    once; a [`Function`] goes on.
//! 2. [`Query::parse`] and [`identify`]: the query string, then who is asking, by token or, without a key, by word.
//! 3. [`decode`]: the body becomes a [`Call`](call::Call): checked, and allowed to this caller. The transport reads at
//!    most [`Function::body_limit`] bytes.
//! 4. The transport calls the function that the `Call` is for.
//! 5. [`responses`]: the answer becomes a [`Reply`], which the transport sends. For HEAD, without the body.
//!
//! A connection that stays goes on from there: what arrives on a socket is [`socket::decode_message`]'s, what is pushed on
//! a socket or a stream is written by [`events`].
//!
//! Whatever fails on the way is a [`Problem`], and [`Problem::into_reply`] is its answer.
//!
//! ```
//! use rollcall_api::call::{Call, Standing};
//! use rollcall_api::{Access, Body, Limits, Problem, Query, Reply, Route, decode, identify, responses, route};
//!
//! fn answer(method: http::Method, path: &str, query: Option<&str>, user: &str, body: &[u8]) -> Result<Reply, Problem> {
//!     let Route::Function(function) = route(&method, path)? else { return Ok(rollcall_api::openapi()) };
//!     let query = Query::parse(function, query)?;
//!     let caller = identify(&Access::Open, None, Some(user), &query, || 1_700_000_000)?;
//!     let body = Body { content_type: Some("application/json"), bytes: body, ..Body::default() };
//!     match decode(function, &query, &caller, body, &Limits::default())? {
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
//! Around all of it stand [`origins`]: what a browser is told about pages of elsewhere.
//!
//! Deliberately absent: reading keys from files, reading the clock, logging (whoever handles a failure logs it, before
//! it becomes a problem), and what makes a server ready.

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
pub use route::{Entry, Function, Page, ROUTES, Route, route};
pub use token::{Expect, Grant, LEEWAY_S, mint, verify};
