//! The platform's topics, as the functions know them.

use rollcall_core::{ConversationId, Error, Time, UserId};
use rollcall_functions::capabilities::{Change, Changes, Typing, TypingSignal, Typist, Watching};
use wit_bindgen::{FutureReader, StreamReader};

use crate::codec::{error_in, published_in, refused, span_out};
use crate::sessions::texts;
use crate::wit::topics as wit;
use crate::wit::types;

/// The topics that the platform provides.
pub struct PlatformTopics;

/// What the platform tells of those whom it watches.
pub struct PlatformChanges {
    changes: StreamReader<wit::Change>,
    end: FutureReader<Result<(), types::Error>>,
}

impl Typing for PlatformTopics {
    async fn set_typing(&self, signs: Vec<TypingSignal>) -> Result<Vec<Result<(), Error>>, Error> {
        let revision = |sign: TypingSignal| wit::TypingSignal {
            conversation: sign.conversation.into_string(),
            user: sign.user.into_string(),
            lasts_ms: span_out(sign.lasts),
        };
        let marked = wit::set_typing(signs.into_iter().map(revision).collect()).await.map_err(error_in)?;
        Ok(marked.into_iter().map(|marked| marked.map_err(error_in)).collect())
    }

    async fn typists(&self, conversations: Vec<ConversationId>) -> Result<Vec<Result<Vec<Typist>, Error>>, Error> {
        let conversations = conversations.into_iter().map(ConversationId::into_string).collect();
        let found = wit::typists(conversations).await.map_err(error_in)?;
        let typists = |typists: Vec<types::Typist>| typists.into_iter().map(typist_in).collect::<Result<_, _>>();
        Ok(found.into_iter().map(|found| found.map_err(error_in).and_then(typists)).collect())
    }
}

impl Watching for PlatformTopics {
    type Changes = PlatformChanges;

    async fn watch(&self, users: Vec<UserId>) -> Result<PlatformChanges, Error> {
        let (changes, end) = wit::watch(texts(users)).await.map_err(error_in)?;
        Ok(PlatformChanges { changes, end })
    }
}

impl Changes for PlatformChanges {
    async fn next(&mut self) -> Option<Change> {
        loop {
            let change = self.changes.next().await?;
            // One about somebody who cannot be anybody's is about nobody who was asked for.
            if let Ok(user) = UserId::parse(change.user) {
                return Some(Change { user, published: published_in(change.published) });
            }
        }
    }

    async fn end(self) -> Result<(), Error> {
        self.end.await.map_err(error_in)
    }
}

fn typist_in(typist: types::Typist) -> Result<Typist, Error> {
    Ok(Typist { user: UserId::parse(typist.user).map_err(refused)?, until: Time(typist.until) })
}
