//! The contract's `topics`, over whatever an adapter brings.

use std::collections::BTreeSet;

use rollcall_core::{ConversationId, Error, Invalid, UserId};
use rollcall_functions::capabilities::{Change, MAX_BATCH, Typing, TypingSignal, Typist};
use wit_bindgen::{FutureReader, StreamReader, StreamResult, StreamWriter};

use crate::codec::{all, answers_out, bounded, error_out, fit, published_out, span_in, user_in};
use crate::settings::{Exports, Watching, platform_of};
use crate::topic_bindings::exports::rollcall::presence::topics as wit;
use crate::topic_bindings::{wit_future, wit_stream};
use crate::watch::{Gone, Reader, tell};
use crate::wit::types;

/// Changes as they come, and why they ended.
type Watched = (StreamReader<wit::Change>, FutureReader<Result<(), types::Error>>);

impl<A: Watching> wit::Guest for Exports<A> {
    async fn watch(users: Vec<String>) -> Result<Watched, types::Error> {
        let watch = A::watch(watched_in(users).map_err(error_out)?).await.map_err(error_out)?;
        let (changes, reader) = wit_stream::new();
        let (end, why) = wit_future::new(|| Ok(()));
        A::spawn(async move {
            let mut outlet = Outlet(changes);
            let ended = tell(watch, &mut outlet).await.map_err(error_out);
            drop(outlet);
            // Whoever went away does not want to know why it ended.
            let _ = end.write(ended).await;
        });
        Ok((reader, why))
    }

    async fn set_typing(revisions: Vec<wit::TypingSignal>) -> Result<Vec<Result<(), types::Error>>, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        bounded(revisions.len(), MAX_BATCH).map_err(error_out)?;
        let (signs, refused) = fit(revisions, sign_in);
        let marked = ready.platform.set_typing(signs).await.map_err(error_out)?;
        Ok(answers_out(refused.among(marked), |()| ()))
    }

    async fn typists(
        conversations: Vec<String>,
    ) -> Result<Vec<Result<Vec<types::Typist>, types::Error>>, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        bounded(conversations.len(), MAX_BATCH).map_err(error_out)?;
        let (conversations, refused) = fit(conversations, |conversation: String| ConversationId::parse(conversation));
        let found = ready.platform.typists(conversations).await.map_err(error_out)?;
        let typists = |typists: Vec<Typist>| typists.into_iter().map(typist_out).collect();
        Ok(answers_out(refused.among(found), typists))
    }
}

/// Where changes leave the instance.
struct Outlet(StreamWriter<wit::Change>);

impl Reader for Outlet {
    async fn wants_more(&mut self) -> Result<(), Gone> {
        // To write nothing is to wait for a reader.
        match self.0.write(Vec::new()).await.0 {
            StreamResult::Complete(_) | StreamResult::Cancelled => Ok(()),
            StreamResult::Dropped => Err(Gone),
        }
    }

    async fn tell(&mut self, change: Change) -> Result<(), Gone> {
        self.0.write_one(change_out(change)).await.map_or(Ok(()), |_| Err(Gone))
    }
}

/// Whom to watch, each once.
fn watched_in(users: Vec<String>) -> Result<Vec<UserId>, Error> {
    bounded(users.len(), MAX_BATCH)?;
    let users: BTreeSet<UserId> = all(users, user_in)?.into_iter().collect();
    Ok(users.into_iter().collect())
}

fn change_out(change: Change) -> wit::Change {
    wit::Change { user: change.user.into_string(), published: published_out(change.published) }
}

fn sign_in(revision: wit::TypingSignal) -> Result<TypingSignal, Invalid> {
    Ok(TypingSignal {
        conversation: ConversationId::parse(revision.conversation)?,
        user: UserId::parse(revision.user)?,
        lasts: span_in(revision.lasts_ms),
    })
}

fn typist_out(typist: Typist) -> types::Typist {
    types::Typist { user: typist.user.into_string(), until: typist.until.0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_watched_once_and_nobody_who_is_none() {
        let users = |users: &[&str]| users.iter().map(|user| (*user).to_owned()).collect::<Vec<_>>();
        let watched = watched_in(users(&["eve", "bob", "eve"])).unwrap();
        assert_eq!(watched.iter().map(UserId::as_str).collect::<Vec<_>>(), ["bob", "eve"]);
        assert!(matches!(watched_in(users(&["bob", ""])), Err(Error::Invalid(_))));
        assert_eq!(watched_in(vec!["x".to_owned(); 1025]), Err(Error::TooMany(1024)));
    }
}
