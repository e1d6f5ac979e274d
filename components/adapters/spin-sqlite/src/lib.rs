//! Adapter: the contract's `archive` in Spin's SQLite, for deployments that do not keep last seen in Redis.

#[cfg(feature = "wasi-rc")]
extern crate spin_sdk_rc as spin_sdk;

mod database;
#[cfg_attr(feature = "wasi-0.2", path = "spin_sync.rs")]
mod spin;

use rollcall_contract::exported;
use rollcall_contract::guest::adapter;
use rollcall_contract::guest::exports::archive::archive as export;
use rollcall_contract::guest::wit::types;

use database::Database;

struct Component;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Component;
    rollcall_contract::guest::exports::archive::export_archive!(Component);
}

impl export::Guest for Component {
    exported! {
        async fn put_many(entries: Vec<types::LastSeenEntry>) -> Result<(), types::Error> {
            adapter::put_many(&Database, entries).await
        }

        async fn get_many(users: types::Ids) -> Result<Vec<Option<u64>>, types::Error> {
            adapter::get_many(&Database, users).await
        }
    }
}
