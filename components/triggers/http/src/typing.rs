//! The trigger to `typing`: who types where.

use rollcall_api::call::{Call, TypingUpdate};
use rollcall_api::{Function, responses};
use rollcall_core::{ConversationId, Error, Time, UserId};

use crate::codec::{answers_in, names_out, typing_update_out, typists_in, viewer_out};
use crate::wit::typing as wit;
use crate::{Answer, Setup, Trigger, astray, only};

/// The trigger to `typing`.
#[derive(Debug)]
pub enum Typing {}

/// Who types in a conversation, each until an instant unless they go on; or why that is not known.
pub(crate) type Room = Result<Vec<(UserId, Time)>, Error>;

impl Trigger for Typing {
    fn leads_to(function: Function<'_>) -> bool {
        matches!(function, Function::Typists(_) | Function::PutTyping(_) | Function::DeleteTyping(_))
    }

    async fn call(setup: &Setup, call: Call) -> Result<Answer, Error> {
        let reply = match call {
            Call::Type(typing_update) => {
                only(type_many(vec![typing_update.clone()]).await?)?;
                responses::typing(&typing_update, setup.rules.typing_ttl)
            }
            Call::Typists { viewer, conversation } => {
                let typists = only(typists(viewer.as_ref(), std::slice::from_ref(&conversation)).await?)?;
                responses::typists(&conversation, typists.iter().map(|(user, until)| (user, *until)))
            }
            _ => return Err(astray()),
        };
        Ok(reply.into())
    }
}

async fn type_many(typing_updates: Vec<TypingUpdate>) -> Result<Vec<Result<(), Error>>, Error> {
    answers_in(wit::type_many(typing_updates.into_iter().map(typing_update_out).collect()).await, Ok)
}

/// Whom the viewer may see typing in each conversation, in the order asked.
pub(crate) async fn typists(viewer: Option<&UserId>, conversations: &[ConversationId]) -> Result<Vec<Room>, Error> {
    answers_in(wit::typists(viewer_out(viewer), names_out(conversations)).await, typists_in)
}
