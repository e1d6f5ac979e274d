//! The export side of the contract: a module for each set of interfaces that a component exports, with the traits to
//! implement and a macro that exports the implementation.

#![allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]

/// A module with the bindings of one world of `wit/worlds.wit`: its name, the world, the macro that exports an
/// implementation, its path, and the modules of types that it shares. `wit_bindgen` takes literals only.
macro_rules! export {
    (
        $(#[$doc:meta])*
        $module:ident: $world:literal, $macro:literal, $path:literal,
        [$($asynchronous:literal | $synchronous:literal => $types:ident),*]
    ) => {
        $(#[$doc])*
        pub mod $module {
            #[cfg(not(feature = "sync"))]
            wit_bindgen::generate!({
                path: ["../../wit", "wit"],
                world: $world,
                with: { $($asynchronous: crate::guest::wit::$types),* },
                pub_export_macro: true,
                export_macro_name: $macro,
                default_bindings_module: $path,
            });
            #[cfg(feature = "sync")]
            wit_bindgen::generate!({
                path: ["../../wit-sync", "wit-sync"],
                world: $world,
                with: { $($synchronous: crate::guest::wit::$types),* },
                pub_export_macro: true,
                export_macro_name: $macro,
                default_bindings_module: $path,
            });
            #[cfg(not(feature = "sync"))]
            pub use exports::rollcall::presence::*;
            #[cfg(feature = "sync")]
            pub use exports::rollcall::presence_sync::*;
        }
    };
}

export! {
    /// The export of `heartbeat`.
    heartbeat: "rollcall:contract/heartbeat", "export_heartbeat", "rollcall_contract::guest::exports::heartbeat",
    [
        "rollcall:presence/types@0.1.0" | "rollcall:presence-sync/types@0.1.0" => types
    ]
}

export! {
    /// The export of `query`.
    query: "rollcall:contract/query", "export_query", "rollcall_contract::guest::exports::query",
    [
        "rollcall:presence/types@0.1.0" | "rollcall:presence-sync/types@0.1.0" => types
    ]
}

export! {
    /// The export of `subscribe`.
    subscribe: "rollcall:contract/subscribe", "export_subscribe", "rollcall_contract::guest::exports::subscribe",
    [
        "rollcall:presence/types@0.1.0" | "rollcall:presence-sync/types@0.1.0" => types
    ]
}

export! {
    /// The export of `typing`.
    typing: "rollcall:contract/typing", "export_typing", "rollcall_contract::guest::exports::typing",
    [
        "rollcall:presence/types@0.1.0" | "rollcall:presence-sync/types@0.1.0" => types
    ]
}

export! {
    /// The exports of `restriction-check`.
    restriction_check: "rollcall:contract/restriction-check", "export_restriction_check", "rollcall_contract::guest::exports::restriction_check",
    [
        "rollcall:presence/types@0.1.0" | "rollcall:presence-sync/types@0.1.0" => types,
        "rollcall:presence/policy-types@0.1.0" | "rollcall:presence-sync/policy-types@0.1.0" => policy_types
    ]
}

export! {
    /// The export of `offline-sweep`.
    offline_sweep: "rollcall:contract/offline-sweep", "export_offline_sweep", "rollcall_contract::guest::exports::offline_sweep",
    [
        "rollcall:presence/types@0.1.0" | "rollcall:presence-sync/types@0.1.0" => types
    ]
}

export! {
    /// The exports of an adapter for `settings`, `sessions` and `policy`.
    platform: "rollcall:contract/platform", "export_platform", "rollcall_contract::guest::exports::platform",
    [
        "rollcall:presence/types@0.1.0" | "rollcall:presence-sync/types@0.1.0" => types,
        "rollcall:presence/session-types@0.1.0" | "rollcall:presence-sync/session-types@0.1.0" => session_types,
        "rollcall:presence/policy-types@0.1.0" | "rollcall:presence-sync/policy-types@0.1.0" => policy_types
    ]
}

export! {
    /// The export of an adapter that streams changes. Separate, because a task that outlives its call costs every wait of its
    /// component one more turn of the host's loop.
    topics: "rollcall:contract/topics", "export_topics", "rollcall_contract::guest::exports::topics",
    [
        "rollcall:presence/types@0.1.0" | "rollcall:presence-sync/types@0.1.0" => types
    ]
}

export! {
    /// The export of an adapter for `archive`. Separate, because an archive may be somewhere else.
    archive: "rollcall:contract/archive", "export_archive", "rollcall_contract::guest::exports::archive",
    [
        "rollcall:presence/types@0.1.0" | "rollcall:presence-sync/types@0.1.0" => types
    ]
}

export! {
    /// The export of an adapter that reads settings.
    config: "rollcall:contract/config", "export_config", "rollcall_contract::guest::exports::config",
    []
}
