//! The `subscribe` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

#[cfg_attr(feature = "sync", path = "feed_sync.rs")]
mod feed;

use rollcall_contract::exported;
use rollcall_contract::guest::exports::subscribe::subscribe as export;
use rollcall_contract::guest::wit::types as wit;
use rollcall_contract::guest::{PlatformArchive, PlatformRestrictionCheck, PlatformSessions, PlatformTopics, rules};
use rollcall_core::{Ids, UserId};
use rollcall_functions::subscribe;

use feed::Updates;

/// What a query needs.
const READING: (&PlatformSessions, &PlatformArchive, &PlatformRestrictionCheck) =
    (&PlatformSessions, &PlatformArchive, &PlatformRestrictionCheck);

struct Component;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Component;
    rollcall_contract::guest::exports::subscribe::export_subscribe!(Component);
}

impl export::Guest for Component {
    #[cfg(feature = "sync")]
    type UpdateStream = feed::UpdateStream;

    exported! {
        async fn open(
            viewer: Option<String>,
            watching: u32,
            users: wit::Ids,
        ) -> Result<Vec<Result<wit::InitialPresence, wit::Error>>, wit::Error> {
            let viewer = viewer.map(UserId::parse).transpose()?;
            let users: Ids<UserId> = users.try_into()?;
            let opened = subscribe::open(READING, &rules(), viewer, watching, users.clone()).await?;
            Ok(users.iter().zip(opened).map(|(user, initial)| Ok((user, initial?).into())).collect())
        }

        async fn feed(viewer: Option<String>, users: Vec<String>, since: Option<u64>) -> Result<Updates, wit::Error> {
            let viewer = viewer.map(UserId::parse).transpose()?;
            let users = users.into_iter().map(UserId::parse).collect::<Result<_, _>>()?;
            Ok(feed::start(subscribe::feed(READING, &PlatformTopics, &rules(), viewer, users, since).await?))
        }
    }
}
