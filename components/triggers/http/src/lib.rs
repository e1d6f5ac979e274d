//! What the HTTP triggers share: a request goes through `rollcall-api` as it does in the native host, becomes a typed call of
//! a function, and the function's answer becomes the response.
//!
//! A trigger is a component that exports `wasi:http/handler` and imports the functions that it calls, and `config`. Which
//! functions those are is for each trigger to say ([`Trigger`]); this crate has the bindings of all of them, and a trigger that
//! calls only some imports only those: what is not called is not linked.
//!
//! One instance serves many requests at once, and a panic would end all of them: nothing here panics. Nothing here
//! decides anything either: what a request means is `rollcall-api`'s, what becomes of it is the functions'.

mod clock;
mod codec;
mod edge;
mod heartbeat;
mod query;
mod restrictions;
mod setup;
mod subscribe;
mod sweep;
mod typing;
mod wire;

use std::future::Future;
use std::io::Write;
use std::pin::Pin;

use http::Response;
use rollcall_api::call::Call;
use rollcall_api::{Function, Page, Reply};
use rollcall_core::Error;
use wasip3::wit_bindgen::StreamWriter;

pub use heartbeat::Heartbeat;
pub use query::Query;
pub use restrictions::Restrictions;
pub use setup::Setup;
pub use subscribe::Subscribe;
pub use sweep::OfflineSweep;
pub use typing::Typing;
#[doc(hidden)]
pub use wasip3;
pub use wire::serve;

/// The bindings of every function, and of `config`.
#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wasip3::wit_bindgen::generate!({
        path: "../../../wit",
        inline: "
            package rollcall:triggers;
            world functions {
                import rollcall:presence/types@0.1.0;
                import rollcall:presence/config@0.1.0;
                import rollcall:presence/heartbeat@0.1.0;
                import rollcall:presence/query@0.1.0;
                import rollcall:presence/subscribe@0.1.0;
                import rollcall:presence/typing@0.1.0;
                import rollcall:presence/restriction-check@0.1.0;
                import rollcall:presence/restrictions@0.1.0;
                import rollcall:presence/offline-sweep@0.1.0;
            }
        ",
        world: "rollcall:triggers/functions",
        runtime_path: "wasip3::wit_bindgen::rt",
        generate_all,
    });
}

/// The contract's types.
use bindings::rollcall::presence as wit;

/// One trigger: what it leads to, and what becomes of a call that goes through it.
#[allow(async_fn_in_trait, reason = "a component has one thread, and names no future's auto traits")]
pub trait Trigger {
    /// Whether this is behind this trigger. What is not is not found.
    fn leads_to(function: Function<'_>) -> bool;

    /// Makes a call that this trigger leads to.
    async fn call(setup: &Setup, call: Call) -> Result<Answer, Error>;

    /// What this trigger says about the service; none: it is not for this trigger to say.
    async fn page(_page: Page) -> Option<Result<Reply, Error>> {
        None
    }
}

/// What comes of a request.
pub enum Answer {
    /// An answer that is whole.
    Whole(Reply),
    /// One whose body is written as it comes to be.
    Stream(Response<Streaming>),
}

/// Writes a body, to its end or until nobody reads it any more.
pub type Streaming = Box<dyn FnOnce(StreamWriter<u8>) -> Pin<Box<dyn Future<Output = ()>>>>;

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Answer::Whole(reply)
    }
}

/// Makes a component of a [`Trigger`].
#[macro_export]
macro_rules! open {
    ($trigger:ty) => {
        struct Component;

        impl $crate::wasip3::exports::http::handler::Guest for Component {
            async fn handle(
                request: $crate::wasip3::http::types::Request,
            ) -> Result<$crate::wasip3::http::types::Response, $crate::wasip3::http::types::ErrorCode> {
                $crate::serve::<$trigger>(request).await
            }
        }

        #[allow(unsafe_code, reason = "generated: the functions by which a component is called")]
        mod exports {
            use super::Component;
            $crate::wasip3::http::service::export!(Component with_types_in $crate::wasip3);
        }
    };
}

/// The answer to a batch of one.
fn only<T>(answers: Vec<Result<T, Error>>) -> Result<T, Error> {
    answers.into_iter().next().unwrap_or_else(|| Err(short()))
}

/// A function's fault.
fn short() -> Error {
    Error::Other("a function answered with fewer items than it was asked for".to_owned())
}

/// A fault of a trigger's own: it let something in that it does not lead to.
fn astray() -> Error {
    Error::Other("a call came to a trigger that does not lead to it".to_owned())
}

/// Says something to whoever runs this. If nobody can be told, that is no reason to stop, as it would be with `eprintln`.
fn log(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Logs a failure of ours before it becomes a problem, which tells the caller nothing of it.
fn logged(error: Error) -> Error {
    if let Error::Other(text) = &error {
        log(format_args!("a call failed: {text}"));
    }
    error
}
