//! The contract for components.
//!
//! A component imports only what it calls: what is not called is not linked. So the bindings are generated once, here, for
//! functions, triggers and adapters alike. The capabilities as imports are behind the feature `capabilities`, which only
//! functions enable: an adapter that exports an interface would also import it, for its types.

pub mod adapter;
#[cfg(feature = "capabilities")]
mod capabilities;
#[path = "../convert/mod.rs"]
pub mod convert;
pub mod exports;

pub use bindings::rollcall::presence as wit;
#[cfg(feature = "capabilities")]
pub use capabilities::{
    PlatformArchive, PlatformChanges, PlatformPolicy, PlatformRestrictionCheck, PlatformSessions, PlatformTopics, rules,
};

/// The types, and the functions and `config` as imports.
#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world imports {
                import rollcall:presence/types@0.1.0;
                import rollcall:presence/session-types@0.1.0;
                import rollcall:presence/policy-types@0.1.0;
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
        world: "rollcall:contract/imports",
        generate_all,
    });
}

/// The capabilities as imports.
#[cfg(feature = "capabilities")]
#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
pub mod capability_bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:contract;
            world capabilities {
                import rollcall:presence/settings@0.1.0;
                import rollcall:presence/sessions@0.1.0;
                import rollcall:presence/archive@0.1.0;
                import rollcall:presence/topics@0.1.0;
                import rollcall:presence/policy@0.1.0;
            }
        ",
        world: "rollcall:contract/capabilities",
        with: {
            "rollcall:presence/types@0.1.0": crate::guest::wit::types,
            "rollcall:presence/session-types@0.1.0": crate::guest::wit::session_types,
            "rollcall:presence/policy-types@0.1.0": crate::guest::wit::policy_types,
        },
        generate_all,
    });
}
