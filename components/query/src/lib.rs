//! The `query` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_contract::exported;
use rollcall_contract::guest::exports::query::query as export;
use rollcall_contract::guest::wit::types as wit;
use rollcall_contract::guest::{PlatformArchive, PlatformRestrictionCheck, PlatformSessions, rules};
use rollcall_core::UserId;
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
            users: wit::Ids,
        ) -> Result<wit::Presences, wit::Error> {
            let viewer = viewer.map(UserId::parse).transpose()?;
            let platform = (&PlatformSessions, &PlatformArchive, &PlatformRestrictionCheck);
            Ok(look_up(platform, &rules(), viewer, users.try_into()?).await?.into())
        }
    }
}
