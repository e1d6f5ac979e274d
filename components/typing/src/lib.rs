//! The `typing` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_core::{ConversationId, Error, UserId};
use rollcall_functions::capabilities::Typist;
use rollcall_functions::typing::{TypingUpdate, type_many, typists};
use rollcall_guest::wit::types;
use rollcall_guest::{PlatformRestrictionCheck, PlatformSessions, PlatformTopics, error_out, rules};

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "typing-function",
        with: {
            "rollcall:presence/types@0.1.0": rollcall_guest::wit::types,
            "rollcall:presence/settings@0.1.0": rollcall_guest::wit::settings,
            "rollcall:presence/sessions@0.1.0": rollcall_guest::wit::sessions,
            "rollcall:presence/topics@0.1.0": rollcall_guest::wit::topics,
            "rollcall:presence/restriction-check@0.1.0": rollcall_guest::wit::restriction_check,
        },
    });
    use super::Component;
    export!(Component);
}

use bindings::exports::rollcall::presence::typing as wit;

struct Component;

impl wit::Guest for Component {
    async fn type_many(typing_updates: Vec<wit::TypingUpdate>) -> Result<Vec<Result<(), wit::Error>>, wit::Error> {
        let typing_updates = typing_updates.into_iter().map(typing_update_in).collect();
        let answers =
            type_many((&PlatformSessions, &PlatformTopics), &rules(), typing_updates).await.map_err(error_out)?;
        Ok(answers.into_iter().map(|answer| answer.map_err(error_out)).collect())
    }

    async fn typists(
        viewer: Option<String>,
        conversations: Vec<String>,
    ) -> Result<Vec<Result<Vec<wit::Typist>, wit::Error>>, wit::Error> {
        let viewer = viewer.map(UserId::parse).transpose().map_err(|invalid| error_out(invalid.into()))?;
        let parse = |conversation: String| ConversationId::parse(conversation).map_err(Error::from);
        let conversations = conversations.into_iter().map(parse).collect();
        let answers =
            typists((&PlatformTopics, &PlatformRestrictionCheck), viewer, conversations).await.map_err(error_out)?;
        let typists_out = |typists: Vec<Typist>| typists.into_iter().map(typist_out).collect();
        Ok(answers.into_iter().map(|answer| answer.map(typists_out).map_err(error_out)).collect())
    }
}

fn typing_update_in(typing_update: wit::TypingUpdate) -> Result<TypingUpdate, Error> {
    Ok(TypingUpdate {
        user: UserId::parse(typing_update.user)?,
        conversation: ConversationId::parse(typing_update.conversation)?,
        typing: typing_update.typing,
    })
}

fn typist_out(typist: Typist) -> types::Typist {
    types::Typist { user: typist.user.into_string(), until: typist.until.0 }
}
