//! The contract for the native host: capabilities to implement, functions to call.

#[path = "convert/mod.rs"]
pub mod convert;

pub use bindings::rollcall::presence as wit;

/// The types, the capabilities that the host provides, and `restriction-check` as other functions import it.
#[allow(missing_docs, unreachable_pub, reason = "generated from wit/, where every item is documented")]
pub mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world host {
                import rollcall:presence/types@0.1.0;
                import rollcall:presence/session-types@0.1.0;
                import rollcall:presence/policy-types@0.1.0;
                import rollcall:presence/settings@0.1.0;
                import rollcall:presence/sessions@0.1.0;
                import rollcall:presence/archive@0.1.0;
                import rollcall:presence/topics@0.1.0;
                import rollcall:presence/policy@0.1.0;
                import rollcall:presence/restriction-check@0.1.0;
            }
        ",
        world: "rollcall:contract/host",
    });
}

/// The functions that the host calls, by world.
#[allow(missing_docs, unreachable_pub, reason = "generated from wit/, where every item is documented")]
pub mod functions {
    /// The `heartbeat` function.
    pub mod heartbeat {
        wasmtime::component::bindgen!({
            path: "../../wit",
            world: "rollcall:presence/heartbeat-function",
            with: { "rollcall:presence": crate::host::wit },
            require_store_data_send: true,
        });
    }

    /// The `query` function.
    pub mod query {
        wasmtime::component::bindgen!({
            path: "../../wit",
            world: "rollcall:presence/query-function",
            with: { "rollcall:presence": crate::host::wit },
            require_store_data_send: true,
        });
    }

    /// The `subscribe` function.
    pub mod subscribe {
        wasmtime::component::bindgen!({
            path: "../../wit",
            world: "rollcall:presence/subscribe-function",
            with: { "rollcall:presence": crate::host::wit },
            require_store_data_send: true,
        });
    }

    /// The `typing` function.
    pub mod typing {
        wasmtime::component::bindgen!({
            path: "../../wit",
            world: "rollcall:presence/typing-function",
            with: { "rollcall:presence": crate::host::wit },
            require_store_data_send: true,
        });
    }

    /// The `restriction-check` function.
    pub mod restriction_check {
        wasmtime::component::bindgen!({
            path: "../../wit",
            world: "rollcall:presence/restriction-check-function",
            with: { "rollcall:presence": crate::host::wit },
            require_store_data_send: true,
        });
    }

    /// The `offline-sweep` function.
    pub mod offline_sweep {
        wasmtime::component::bindgen!({
            path: "../../wit",
            world: "rollcall:presence/offline-sweep-function",
            with: { "rollcall:presence": crate::host::wit },
            require_store_data_send: true,
        });
    }
}
