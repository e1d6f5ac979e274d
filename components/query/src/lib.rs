//! The `query` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_core::{Error, UserId};
use rollcall_functions::query::{Presence, look_up};
use rollcall_guest::{PlatformArchive, PlatformRestrictionCheck, PlatformSessions, error_out, presence_out, rules};

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "query-function",
        with: {
            "rollcall:presence/types@0.1.0": rollcall_guest::wit::types,
            "rollcall:presence/settings@0.1.0": rollcall_guest::wit::settings,
            "rollcall:presence/sessions@0.1.0": rollcall_guest::wit::sessions,
            "rollcall:presence/archive@0.1.0": rollcall_guest::wit::archive,
            "rollcall:presence/restriction-check@0.1.0": rollcall_guest::wit::restriction_check,
        },
    });
    use super::Component;
    export!(Component);
}

use bindings::exports::rollcall::presence::query as wit;

struct Component;

impl wit::Guest for Component {
    async fn look_up(
        viewer: Option<String>,
        users: Vec<String>,
    ) -> Result<Vec<Result<wit::Presence, wit::Error>>, wit::Error> {
        let viewer = viewer.map(UserId::parse).transpose().map_err(|invalid| error_out(invalid.into()))?;
        let users = users.into_iter().map(|user| UserId::parse(user).map_err(Error::from)).collect();
        let platform = (&PlatformSessions, &PlatformArchive, &PlatformRestrictionCheck);
        let answers = look_up(platform, &rules(), viewer, users).await.map_err(error_out)?;
        let presence = |presence: Presence| presence_out(presence.user.into_string(), presence.view);
        Ok(answers.into_iter().map(|answer| answer.map(presence).map_err(error_out)).collect())
    }
}
