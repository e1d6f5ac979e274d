//! The `typing` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_contract::exported;
use rollcall_contract::guest::convert::{each, replies};
use rollcall_contract::guest::exports::typing::typing as export;
use rollcall_contract::guest::wit::types as wit;
use rollcall_contract::guest::{PlatformRestrictionCheck, PlatformSessions, PlatformTopics, rules};
use rollcall_core::{ConversationId, Error, UserId};
use rollcall_functions::typing::{type_many, typists};

struct Component;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Component;
    rollcall_contract::guest::exports::typing::export_typing!(Component);
}

impl export::Guest for Component {
    exported! {
        async fn type_many(updates: Vec<wit::TypingUpdate>) -> Result<Vec<Result<(), wit::Error>>, wit::Error> {
            let updates = updates.into_iter().map(|update| Ok(update.try_into()?)).collect();
            Ok(replies(type_many((&PlatformSessions, &PlatformTopics), &rules(), updates).await?))
        }

        async fn typists(
            viewer: Option<String>,
            conversations: Vec<String>,
        ) -> Result<Vec<Result<Vec<wit::Typist>, wit::Error>>, wit::Error> {
            let viewer = viewer.map(UserId::parse).transpose()?;
            let parse = |conversation: String| ConversationId::parse(conversation).map_err(Error::from);
            let conversations = conversations.into_iter().map(parse).collect();
            let answers = typists((&PlatformTopics, &PlatformRestrictionCheck), viewer, conversations).await?;
            Ok(answers.into_iter().map(|answer| Ok(each(answer?))).collect())
        }
    }
}
