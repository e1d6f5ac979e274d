//! What the adapters share: the export side of the contract, and what is the same on every way to Redis.
//!
//! An adapter makes the contract's capabilities out of what a platform has. It says what its capabilities are ([`Adapter`])
//! and calls `export_platform!` with [`Exports`] of itself; one that lets people be watched ([`Watching`]) calls
//! `export_topics!`, too, or instead. Decoding, refusing and encoding is done here. The mirror image, for functions that
//! import the capabilities, is `rollcall-guest`.
//!
//! One instance serves many calls at once, and a panic would end them all: nothing here panics. What a call leaves running
//! after it returned is the telling of changes to whoever watches, for as long as somebody does.

mod archive;
mod codec;
mod kept;
mod policy;
pub mod polling;
mod sessions;
mod settings;
mod topics;
mod watch;

pub use archive::{get_many, put_many};
pub use kept::Kept;
pub use settings::{Adapter, Exports, Ready, Watching, ready, setting};
pub use watch::Watch;

/// The bindings of everything that an adapter answers at once.
#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:adapter;
            world platform {
                export rollcall:presence/settings@0.1.0;
                export rollcall:presence/sessions@0.1.0;
                export rollcall:presence/archive@0.1.0;
                export rollcall:presence/policy@0.1.0;
                import rollcall:presence/config@0.1.0;
            }
        ",
        world: "rollcall:adapter/platform",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_platform",
        default_bindings_module: "rollcall_adapter::bindings",
    });
}

/// The bindings of what it goes on with after it has answered.
#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
pub mod topic_bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package rollcall:adapter;
            world topics {
                export rollcall:presence/topics@0.1.0;
            }
        ",
        world: "rollcall:adapter/topics",
        with: { "rollcall:presence/types@0.1.0": crate::bindings::rollcall::presence::types },
        pub_export_macro: true,
        export_macro_name: "export_topics",
        default_bindings_module: "rollcall_adapter::topic_bindings",
    });
}

/// The contract's types.
pub use bindings::rollcall::presence as wit;

pub use rollcall_redis::transport::RETRY_MS;
