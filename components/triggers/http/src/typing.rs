//! The trigger of `typing`: typing updates, and who is typing.

use rollcall_api::call::{Call, TypingUpdate};
use rollcall_api::{Operation, responses};
use rollcall_contract::guest::convert::{all, answers, each};
use rollcall_contract::guest::wit::typing as wit;
use rollcall_contract::{call, lent};
use rollcall_core::{ConversationId, Error, UserId};
use rollcall_functions::capabilities::Typist;

use crate::{Answer, Setup, Trigger, misrouted, only, text, texts};

/// The trigger of `typing`.
#[derive(Debug)]
pub enum Typing {}

/// The users typing in a conversation, or why they could not be read.
pub(crate) type Typists = Result<Vec<Typist>, Error>;

impl Trigger for Typing {
    fn serves(operation: Operation<'_>) -> bool {
        matches!(operation, Operation::Typists(_) | Operation::PutTyping(_) | Operation::DeleteTyping(_))
    }

    async fn call(setup: &Setup, call: Call) -> Result<Answer, Error> {
        let reply = match call {
            Call::Type(update) => {
                only(type_many(vec![update.clone()]).await?)?;
                responses::typing(&update, setup.rules.typing_ttl)
            }
            Call::Typists { viewer, conversation } => {
                let typists = only(typists(viewer.as_ref(), std::slice::from_ref(&conversation)).await?)?;
                responses::typists(&conversation, typists.iter().map(|typist| (&typist.user, typist.until)))
            }
            _ => return Err(misrouted()),
        };
        Ok(reply.into())
    }
}

async fn type_many(updates: Vec<TypingUpdate>) -> Result<Vec<Result<(), Error>>, Error> {
    answers(call!(wit::type_many(lent!(each(updates)))))
}

/// The users the viewer may see typing in each conversation, in the order asked.
pub(crate) async fn typists(viewer: Option<&UserId>, conversations: &[ConversationId]) -> Result<Vec<Typists>, Error> {
    let found = call!(wit::typists(lent!(text: viewer.map(text)), lent!(texts(conversations))))?;
    Ok(found.into_iter().map(|typists| Ok(all(typists?)?)).collect())
}
