//! What the function components share: the bindings of the capabilities they import, and the translation between the
//! contract's types and the rules' types.
//!
//! A component that uses only some of the capabilities here imports only those: what is not called is not linked.
//! Nothing in this crate decides anything.

mod archive;
mod codec;
mod policy;
mod restriction_check;
mod sessions;
mod settings;
mod topics;

pub use archive::PlatformArchive;
pub use codec::{choice_out, error_in, error_out, kind_in, presence_out, published_out, refused, stance_in, state_out};
pub use policy::{PlatformPolicy, change_in, own_settings_out};
pub use restriction_check::PlatformRestrictionCheck;
pub use sessions::PlatformSessions;
pub use settings::rules;
pub use topics::{PlatformChanges, PlatformTopics};

/// The bindings of everything a function may import. Components map their own bindings onto these.
#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:guest;
            world imports {
                import rollcall:presence/types@0.1.0;
                import rollcall:presence/settings@0.1.0;
                import rollcall:presence/sessions@0.1.0;
                import rollcall:presence/archive@0.1.0;
                import rollcall:presence/topics@0.1.0;
                import rollcall:presence/policy@0.1.0;
                import rollcall:presence/restriction-check@0.1.0;
            }
        ",
        world: "rollcall:guest/imports",
        generate_all,
    });
}

/// The contract's types.
pub use bindings::rollcall::presence as wit;
