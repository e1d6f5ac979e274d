//! The export side of the contract: a module for each set of interfaces that a component exports, with the traits to
//! implement and a macro that exports the implementation.

#![allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]

/// The export of `heartbeat`.
pub mod heartbeat {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world heartbeat {
                export rollcall:presence/heartbeat@0.1.0;
            }
        ",
        world: "rollcall:contract/heartbeat",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
        },
        pub_export_macro: true,
        export_macro_name: "export_heartbeat",
        default_bindings_module: "rollcall_contract::guest::exports::heartbeat",
    });
    pub use exports::rollcall::presence::*;
}

/// The export of `query`.
pub mod query {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world query {
                export rollcall:presence/query@0.1.0;
            }
        ",
        world: "rollcall:contract/query",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
        },
        pub_export_macro: true,
        export_macro_name: "export_query",
        default_bindings_module: "rollcall_contract::guest::exports::query",
    });
    pub use exports::rollcall::presence::*;
}

/// The export of `subscribe`.
pub mod subscribe {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world subscribe {
                export rollcall:presence/subscribe@0.1.0;
            }
        ",
        world: "rollcall:contract/subscribe",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
        },
        pub_export_macro: true,
        export_macro_name: "export_subscribe",
        default_bindings_module: "rollcall_contract::guest::exports::subscribe",
    });
    pub use exports::rollcall::presence::*;
}

/// The export of `typing`.
pub mod typing {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world typing {
                export rollcall:presence/typing@0.1.0;
            }
        ",
        world: "rollcall:contract/typing",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
        },
        pub_export_macro: true,
        export_macro_name: "export_typing",
        default_bindings_module: "rollcall_contract::guest::exports::typing",
    });
    pub use exports::rollcall::presence::*;
}

/// The exports of `restriction-check`.
pub mod restriction_check {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world restriction-check {
                export rollcall:presence/restriction-check@0.1.0;
                export rollcall:presence/restrictions@0.1.0;
            }
        ",
        world: "rollcall:contract/restriction-check",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
            "rollcall:presence/policy-types@0.1.0": crate::guest::wit::policy_types,
        },
        pub_export_macro: true,
        export_macro_name: "export_restriction_check",
        default_bindings_module: "rollcall_contract::guest::exports::restriction_check",
    });
    pub use exports::rollcall::presence::*;
}

/// The export of `offline-sweep`.
pub mod offline_sweep {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world offline-sweep {
                export rollcall:presence/offline-sweep@0.1.0;
            }
        ",
        world: "rollcall:contract/offline-sweep",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
        },
        pub_export_macro: true,
        export_macro_name: "export_offline_sweep",
        default_bindings_module: "rollcall_contract::guest::exports::offline_sweep",
    });
    pub use exports::rollcall::presence::*;
}

/// The exports of an adapter for `settings`, `sessions` and `policy`.
pub mod platform {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world platform {
                export rollcall:presence/settings@0.1.0;
                export rollcall:presence/sessions@0.1.0;
                export rollcall:presence/policy@0.1.0;
            }
        ",
        world: "rollcall:contract/platform",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
            "rollcall:presence/session-types@0.1.0": crate::guest::wit::session_types,
            "rollcall:presence/policy-types@0.1.0": crate::guest::wit::policy_types,
        },
        pub_export_macro: true,
        export_macro_name: "export_platform",
        default_bindings_module: "rollcall_contract::guest::exports::platform",
    });
    pub use exports::rollcall::presence::*;
}

/// The export of an adapter that streams changes. Separate, because a task that outlives its call costs every wait
/// of its component one more turn of the host's loop.
pub mod topics {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world topics {
                export rollcall:presence/topics@0.1.0;
            }
        ",
        world: "rollcall:contract/topics",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
        },
        pub_export_macro: true,
        export_macro_name: "export_topics",
        default_bindings_module: "rollcall_contract::guest::exports::topics",
    });
    pub use exports::rollcall::presence::*;
}

/// The export of an adapter for `archive`. Separate, because an archive may be somewhere else.
pub mod archive {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world archive {
                export rollcall:presence/archive@0.1.0;
            }
        ",
        world: "rollcall:contract/archive",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
        },
        pub_export_macro: true,
        export_macro_name: "export_archive",
        default_bindings_module: "rollcall_contract::guest::exports::archive",
    });
    pub use exports::rollcall::presence::*;
}

/// The export of an adapter that reads settings.
pub mod config {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world config {
                export rollcall:presence/config@0.1.0;
            }
        ",
        world: "rollcall:contract/config",
        pub_export_macro: true,
        export_macro_name: "export_config",
        default_bindings_module: "rollcall_contract::guest::exports::config",
    });
    pub use exports::rollcall::presence::*;
}
