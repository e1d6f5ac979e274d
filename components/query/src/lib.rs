//! The `query` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_contract::exported;
use rollcall_contract::guest::convert::replies;
use rollcall_contract::guest::exports::query::query as export;
use rollcall_contract::guest::wit::types as wit;
use rollcall_contract::guest::{PlatformArchive, PlatformRestrictionCheck, PlatformSessions, rules};
use rollcall_core::{Error, UserId};
use rollcall_functions::query::look_up;

struct Component;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Component;
    rollcall_contract::guest::exports::query::export_query!(Component);
}

impl export::Guest for Component {
    exported! {
        async fn look_up(
            viewer: Option<String>,
            users: Vec<String>,
        ) -> Result<Vec<Result<wit::Presence, wit::Error>>, wit::Error> {
            let viewer = viewer.map(UserId::parse).transpose()?;
            let users = users.into_iter().map(|user| UserId::parse(user).map_err(Error::from)).collect();
            let platform = (&PlatformSessions, &PlatformArchive, &PlatformRestrictionCheck);
            Ok(replies(look_up(platform, &rules(), viewer, users).await?))
        }
    }
}
