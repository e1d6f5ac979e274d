//! The contract's `topics`: streams of changes, and typing.

use std::collections::BTreeSet;

use rollcall_core::{ConversationId, Error, UserId};
use rollcall_functions::batch::fit;
use rollcall_functions::capabilities::{MAX_BATCH, Typing, Typist, bounded};

use super::super::convert::{each, replies};
use super::super::exports::topics::topics as wit;
use super::super::wit::types;
use super::stream::Changes;
use super::{Exports, TopicsAdapter, configured};
use crate::exported;

impl<A: TopicsAdapter> wit::Guest for Exports<A> {
    #[cfg(feature = "sync")]
    type PresenceChangeStream = super::stream::ChangeStream<A::Source>;

    exported! {
        async fn watch(users: Vec<String>) -> Result<Changes, types::Error> {
            Ok(super::stream::start::<A>(A::watch(distinct(users)?).await?))
        }

        async fn set_typing(signals: Vec<types::TypingSignal>) -> Result<Vec<Result<(), types::Error>>, types::Error> {
            let configured = configured::<A>()?;
            bounded(signals.len(), MAX_BATCH)?;
            let (signals, refused) = fit(signals, TryInto::try_into);
            Ok(replies(refused.among(configured.platform.set_typing(signals).await?)))
        }

        async fn typists(
            conversations: Vec<String>,
        ) -> Result<Vec<Result<Vec<types::Typist>, types::Error>>, types::Error> {
            let configured = configured::<A>()?;
            bounded(conversations.len(), MAX_BATCH)?;
            let (conversations, refused) = fit(conversations, ConversationId::parse);
            let found = refused.among(configured.platform.typists(conversations).await?);
            let typists = |typists: Vec<Typist>| each(typists);
            Ok(found.into_iter().map(|found| found.map(typists).map_err(Into::into)).collect())
        }
    }
}

/// The users to watch, each once.
fn distinct(users: Vec<String>) -> Result<Vec<UserId>, Error> {
    bounded(users.len(), MAX_BATCH)?;
    let users: BTreeSet<UserId> = users.into_iter().map(UserId::parse).collect::<Result<_, _>>()?;
    Ok(users.into_iter().collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn each_user_is_watched_once() {
        let users = |users: &[&str]| users.iter().map(|user| (*user).to_owned()).collect::<Vec<_>>();
        let watched = distinct(users(&["eve", "bob", "eve"])).unwrap();
        assert_eq!(watched.iter().map(UserId::as_str).collect::<Vec<_>>(), ["bob", "eve"]);
        assert!(matches!(distinct(users(&["bob", ""])), Err(Error::Invalid(_))));
        assert_eq!(distinct(vec!["x".to_owned(); 1025]), Err(Error::TooMany(1024)));
    }
}
