//! The HTTP trigger: a request passes through `rollcall-api` as in the native host, becomes a typed call of a function,
//! and the function's answer becomes the response.
//!
//! A trigger is a component that exports `wasi:http/handler` (WASI 0.3) or `wasi:http/incoming-handler` (0.2) and imports the functions that it calls, and `config`. This
//! crate is built once per function, each time with the cargo feature of that name; what the chosen [`Trigger`] does not
//! call is not linked and not imported.
//!
//! One instance serves many requests at once, and a panic would end all of them: nothing here panics. Nothing here
//! decides anything: `rollcall-api` says what a request means, the functions say what becomes of it.

#[cfg(feature = "wasi-rc")]
extern crate wasip3_rc as wasip3;

mod edge;
mod heartbeat;
mod http_parts;
mod jitter;
mod query;
mod restrictions;
mod setup;
mod subscribe;
mod sweep;
mod typing;
#[cfg_attr(feature = "wasi-0.2", path = "wasi_http_0_2.rs")]
mod wasi_http;

use std::future::Future;
use std::io::Write;
use std::pin::Pin;

use http::Response;
use rollcall_api::call::{Call, only};
use rollcall_api::{Operation, Reply, StatusPage};
use rollcall_core::{Error, Id};

pub use heartbeat::Heartbeat;
pub use query::Query;
pub use restrictions::Restrictions;
pub use setup::Setup;
pub use subscribe::Subscribe;
pub use sweep::OfflineSweep;
pub use typing::Typing;
pub use wasi_http::{BodyWriter, serve};

/// The trigger of one function: which routes it serves, and how it makes a call.
#[allow(async_fn_in_trait, reason = "a component has one thread, and names no future's auto traits")]
pub trait Trigger {
    /// Whether this trigger serves the route. Other routes are not found.
    fn serves(operation: Operation<'_>) -> bool;

    /// Makes a call that this trigger serves.
    async fn call(setup: &Setup, call: Call) -> Result<Answer, Error>;

    /// A page about the service; `None` if another trigger serves it.
    async fn page(_page: StatusPage) -> Option<Result<Reply, Error>> {
        None
    }
}

/// The answer to a request.
pub enum Answer {
    /// A complete response.
    Whole(Reply),
    /// A response whose body is streamed.
    Stream(Response<Streaming>),
}

/// Writes a body, to its end or until the reader goes away.
pub type Streaming = Box<dyn FnOnce(BodyWriter) -> Pin<Box<dyn Future<Output = ()>>>>;

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Answer::Whole(reply)
    }
}

/// Exports the trigger of a function, if its feature is on. Two features at once do not compile.
macro_rules! export {
    ($($feature:literal: $trigger:ty,)+) => {$(
        #[cfg(feature = $feature)]
        struct Component;

        #[cfg(all(feature = $feature, not(feature = "wasi-0.2")))]
        impl wasip3::exports::http::handler::Guest for Component {
            async fn handle(
                request: wasip3::http::types::Request,
            ) -> Result<wasip3::http::types::Response, wasip3::http::types::ErrorCode> {
                serve::<$trigger>(request).await
            }
        }

        #[cfg(all(feature = $feature, feature = "wasi-0.2"))]
        impl wasip2::exports::http::incoming_handler::Guest for Component {
            fn handle(
                request: wasip2::http::types::IncomingRequest,
                response: wasip2::http::types::ResponseOutparam,
            ) {
                rollcall_wasi::block_on(serve::<$trigger>(request, response));
            }
        }

        #[cfg(feature = $feature)]
        #[allow(unsafe_code, reason = "generated: the functions by which a component is called")]
        mod exports {
            use super::Component;
            #[cfg(not(feature = "wasi-0.2"))]
            wasip3::http::service::export!(Component with_types_in wasip3);
            #[cfg(feature = "wasi-0.2")]
            wasip2::http::proxy::export!(Component);
        }
    )+};
}

export! {
    "heartbeat": Heartbeat,
    "offline-sweep": OfflineSweep,
    "query": Query,
    "restriction-check": Restrictions,
    "subscribe": Subscribe,
    "typing": Typing,
}

/// An id as the contract carries it.
fn text<I: Id>(id: &I) -> String {
    id.as_str().to_owned()
}

fn texts<I: Id>(ids: &[I]) -> Vec<String> {
    ids.iter().map(text).collect()
}

/// A function broke the contract.
fn missing_items() -> Error {
    Error::Other("a function returned fewer items than requested".to_owned())
}

/// A bug in a trigger: [`Trigger::serves`] accepted a call that [`Trigger::call`] does not make.
fn misrouted() -> Error {
    Error::Other("the trigger accepted a call that it does not make".to_owned())
}

/// Writes a log line. Unlike `eprintln`, it does not panic if that fails.
fn log(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Logs an internal error; the problem sent to the caller does not contain it.
fn logged(error: Error) -> Error {
    if let Error::Other(text) = &error {
        log(format_args!("call failed; answering 500: {text}"));
    }
    error
}
