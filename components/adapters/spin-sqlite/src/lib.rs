//! The contract's `archive` in a SQLite database of Spin: last seen, kept for ever, where Redis is not to be its place.

mod database;

use rollcall_adapter::wit::types;

use database::Database;

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        inline: "
            package rollcall:adapter;
            world keeper {
                export rollcall:presence/archive@0.1.0;
            }
        ",
        world: "rollcall:adapter/keeper",
        with: { "rollcall:presence/types@0.1.0": rollcall_adapter::wit::types },
    });
    use super::Component;
    export!(Component);
}

use bindings::exports::rollcall::presence::archive as wit;

struct Component;

impl wit::Guest for Component {
    async fn put_many(last_seen_entries: Vec<wit::LastSeenEntry>) -> Result<(), types::Error> {
        let last_seen_entries =
            last_seen_entries.into_iter().map(|last_seen_entry| (last_seen_entry.user, last_seen_entry.last_seen));
        rollcall_adapter::put_many(&Database, last_seen_entries.collect()).await
    }

    async fn get_many(users: Vec<String>) -> Result<Vec<Option<u64>>, types::Error> {
        rollcall_adapter::get_many(&Database, users).await
    }
}
