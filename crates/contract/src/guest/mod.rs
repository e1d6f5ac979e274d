//! The contract for components.
//!
//! A component imports only what it calls: what is not called is not linked. So the bindings are generated once, here, for
//! functions, triggers and adapters alike. The capabilities as imports are behind the feature `capabilities`, which only
//! functions enable: an adapter that exports an interface would also import it, for its types.
//!
//! With the feature `sync` everything is bound to `wit-sync/` instead of `wit/`. [`crate::call`] and [`crate::exported`] hide
//! the difference: the code that uses them is asynchronous in both builds, and in the synchronous one it never waits.

pub mod adapter;
#[cfg(feature = "capabilities")]
mod capabilities;
#[cfg(feature = "capabilities")]
#[cfg_attr(feature = "sync", path = "changes_sync.rs")]
mod changes;
#[path = "../convert/mod.rs"]
pub mod convert;
pub mod exports;
#[cfg(feature = "sync")]
mod sync;

#[cfg(not(feature = "sync"))]
pub use bindings::rollcall::presence as wit;
#[cfg(feature = "sync")]
pub use bindings::rollcall::presence_sync as wit;
#[cfg(feature = "capabilities")]
pub use capabilities::{
    PlatformArchive, PlatformPolicy, PlatformRestrictionCheck, PlatformSessions, PlatformTopics, rules,
};
#[cfg(feature = "capabilities")]
pub use changes::PlatformChanges;
/// Runs an export of this component.
#[cfg(feature = "wasi-0.2")]
pub use rollcall_wasi::block_on as run;
#[cfg(all(feature = "sync", not(feature = "wasi-0.2")))]
pub use sync::at_once as run;
#[cfg(feature = "sync")]
pub use sync::poll_for;

/// Calls an import. In the synchronous build the answer is there when the call returns.
#[cfg(not(feature = "sync"))]
#[macro_export]
macro_rules! call {
    ($call:expr) => {
        $call.await
    };
}

/// Calls an import. The answer is there when the call returns.
#[cfg(feature = "sync")]
#[macro_export]
macro_rules! call {
    ($call:expr) => {
        $call
    };
}

/// An argument of an import: passed by value to an asynchronous function, lent to a synchronous one. `text:` precedes an optional
/// text.
#[cfg(not(feature = "sync"))]
#[macro_export]
macro_rules! lent {
    (text: $argument:expr) => {
        $argument
    };
    ($argument:expr) => {
        $argument
    };
}

/// An argument of an import, lent to it. `text:` precedes an optional text.
#[cfg(feature = "sync")]
#[macro_export]
macro_rules! lent {
    (text: $argument:expr) => {
        $argument.as_deref()
    };
    ($argument:expr) => {
        &$argument
    };
}

/// Functions of an `impl` that exports an interface of the contract. In the synchronous build they are not `async`.
#[cfg(not(feature = "sync"))]
#[macro_export]
macro_rules! exported {
    ($($functions:tt)+) => {
        $($functions)+
    };
}

/// Functions of an `impl` that exports an interface of the contract: written as `async`, exported as synchronous.
#[cfg(feature = "sync")]
#[macro_export]
macro_rules! exported {
    ($(
        $(#[$attribute:meta])*
        async fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $returned:ty $body:block
    )+) => {$(
        $(#[$attribute])*
        fn $name($($argument: $type),*) -> $returned {
            $crate::guest::run::<$returned>(async move $body)
        }
    )+};
}

/// The types, and the functions and `config` as imports.
#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
pub mod bindings {
    #[cfg(not(feature = "sync"))]
    wit_bindgen::generate!({
        path: ["../../wit", "wit"],
        world: "rollcall:contract/imports",
        generate_all,
    });
    #[cfg(feature = "sync")]
    wit_bindgen::generate!({
        path: ["../../wit-sync", "wit-sync"],
        world: "rollcall:contract/imports",
        generate_all,
    });
}

/// The capabilities as imports.
#[cfg(feature = "capabilities")]
#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
pub mod capability_bindings {
    #[cfg(not(feature = "sync"))]
    wit_bindgen::generate!({
        path: ["../../wit", "wit"],
        world: "rollcall:contract/capabilities",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
            "rollcall:presence/session-types@0.1.0": crate::guest::wit::session_types,
            "rollcall:presence/policy-types@0.1.0": crate::guest::wit::policy_types,
        },
        generate_all,
    });
    #[cfg(feature = "sync")]
    wit_bindgen::generate!({
        path: ["../../wit-sync", "wit-sync"],
        world: "rollcall:contract/capabilities",
        with: {
            "rollcall:presence-sync/types@0.1.0": crate::guest::wit::types,
            "rollcall:presence-sync/session-types@0.1.0": crate::guest::wit::session_types,
            "rollcall:presence-sync/policy-types@0.1.0": crate::guest::wit::policy_types,
        },
        generate_all,
    });
    #[cfg(not(feature = "sync"))]
    pub use rollcall::presence as wit;
    #[cfg(feature = "sync")]
    pub use rollcall::presence_sync as wit;
}
