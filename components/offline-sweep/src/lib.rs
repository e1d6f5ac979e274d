//! The `offline-sweep` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_core::UserId;
use rollcall_functions::capabilities::Shards;
use rollcall_functions::sweep::{self, Settled};
use rollcall_guest::{PlatformArchive, PlatformSessions, error_out, rules};

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "offline-sweep-function",
        with: {
            "rollcall:presence/types@0.1.0": rollcall_guest::wit::types,
            "rollcall:presence/settings@0.1.0": rollcall_guest::wit::settings,
            "rollcall:presence/sessions@0.1.0": rollcall_guest::wit::sessions,
            "rollcall:presence/archive@0.1.0": rollcall_guest::wit::archive,
        },
    });
    use super::Component;
    export!(Component);
}

use bindings::exports::rollcall::presence::offline_sweep as wit;

struct Component;

impl wit::Guest for Component {
    async fn settle(users: Vec<String>) -> Result<wit::Settled, wit::Error> {
        let users = users.into_iter().map(UserId::parse).collect::<Result<_, _>>();
        let users = users.map_err(|invalid| error_out(invalid.into()))?;
        sweep::settle_users(&PlatformSessions, &rules(), users).await.map(settled_out).map_err(error_out)
    }

    async fn sweep(first_shard: u32, end_shard: u32, limit: u32) -> Result<wit::Settled, wit::Error> {
        let shards = Shards { first: first_shard, end: end_shard };
        sweep::sweep(&PlatformSessions, &rules(), shards, limit).await.map(settled_out).map_err(error_out)
    }

    async fn archive(first_shard: u32, end_shard: u32, limit: u32) -> Result<wit::Archived, wit::Error> {
        let shards = Shards { first: first_shard, end: end_shard };
        let archived = sweep::archive(&PlatformSessions, &PlatformArchive, &rules(), shards, limit).await;
        archived.map(|a| wit::Archived { kept: a.kept, dropped: a.dropped }).map_err(error_out)
    }
}

fn settled_out(settled: Settled) -> wit::Settled {
    wit::Settled {
        examined: settled.examined,
        published: settled.published,
        rescheduled: settled.rescheduled,
        stale: settled.stale,
        failed: settled.failed,
        lags_ms: settled.lags.into_iter().map(|lag| u32::try_from(lag.0).unwrap_or(u32::MAX)).collect(),
    }
}
