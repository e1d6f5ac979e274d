//! The `offline-sweep` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_contract::exported;
use rollcall_contract::guest::exports::offline_sweep::offline_sweep as export;
use rollcall_contract::guest::wit::types as wit;
use rollcall_contract::guest::{PlatformArchive, PlatformSessions, rules};
use rollcall_core::UserId;
use rollcall_functions::capabilities::Shards;
use rollcall_functions::sweep;

struct Component;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Component;
    rollcall_contract::guest::exports::offline_sweep::export_offline_sweep!(Component);
}

impl export::Guest for Component {
    exported! {
        async fn settle(users: Vec<String>) -> Result<wit::Settled, wit::Error> {
            let users = users.into_iter().map(UserId::parse).collect::<Result<_, _>>()?;
            Ok(sweep::settle_users(&PlatformSessions, &rules(), users).await?.into())
        }

        async fn sweep(first: u32, end: u32, limit: u32) -> Result<wit::Settled, wit::Error> {
            Ok(sweep::sweep(&PlatformSessions, &rules(), Shards { first, end }, limit).await?.into())
        }

        async fn archive(first: u32, end: u32, limit: u32) -> Result<wit::Archived, wit::Error> {
            let shards = Shards { first, end };
            Ok(sweep::archive(&PlatformSessions, &PlatformArchive, &rules(), shards, limit).await?.into())
        }
    }
}
