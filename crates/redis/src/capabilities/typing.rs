//! Typing signals: one script each.
//!
//! A signal that comes less than a second after the last published one is stored and not published. It has to be
//! published when the second is over. The native store has a task for that. Elsewhere nothing runs between two calls: a
//! user who goes on typing sends another signal, and what was published ends by itself; but nothing follows a *stop*,
//! so that call waits until it is published, at most a second.

use rollcall_core::{ConversationId, Error, Span};
use rollcall_functions::capabilities::{Typing, TypingSignal, Typist};

use super::{MAX_BATCH, RedisStore, bounded};
use crate::keyspace::{TypingWrite, decode_typists, decode_wait};
use crate::transport::{Batch, Transport, piece, pieces};

impl<T: Transport> Typing for RedisStore<T> {
    async fn set_typing(&self, signals: Vec<TypingSignal>) -> Result<Vec<Result<(), Error>>, Error> {
        bounded(signals.len(), MAX_BATCH)?;
        let waits = self
            .write_typing(signals.iter().map(|signal| (typing_key(signal), TypingWrite::Lasts(signal.lasts))))
            .await?;
        let unpublished = |(signal, wait): (&'_ TypingSignal, &Result<Option<Span>, Error>)| match wait {
            Ok(Some(wait)) if signal.lasts == Span(0) => Some(*wait),
            _ => None,
        };
        if let Some(wait) = signals.iter().zip(&waits).filter_map(unpublished).max() {
            self.transport.sleep(wait.0).await;
            let stops = signals.iter().zip(&waits).filter(|pair| unpublished(*pair).is_some());
            // If this fails, what was published ends by itself.
            let _ = self.write_typing(stops.map(|(signal, _)| (typing_key(signal), TypingWrite::Recheck))).await;
        }
        Ok(waits.into_iter().map(|wait| wait.map(drop)).collect())
    }

    async fn typists(&self, conversations: Vec<ConversationId>) -> Result<Vec<Result<Vec<Typist>, Error>>, Error> {
        bounded(conversations.len(), MAX_BATCH)?;
        let (keys, now) = (self.keys(), self.transport.now().await?);
        let mut batch = Batch::decided_at(now, conversations.len(), conversations.len());
        for conversation in conversations.iter().map(ConversationId::as_str) {
            batch.add("", keys.shard_of(conversation), |to| keys.typists(to, conversation));
        }
        let replies = self.transport.run(batch).await;
        Ok(replies.items().map(|item| self.read(decode_typists(pieces(item?), now.time()))).collect())
    }
}

/// The conversation and the user of a signal.
pub(crate) fn typing_key(signal: &TypingSignal) -> (&str, &str) {
    (signal.conversation.as_str(), signal.user.as_str())
}

impl<T: Transport> RedisStore<T> {
    /// Writes typing signals, or publishes stored ones; returns after how long each has to be checked again.
    pub(crate) async fn write_typing<'a>(
        &self,
        signals: impl Iterator<Item = ((&'a str, &'a str), TypingWrite)>,
    ) -> Result<Vec<Result<Option<Span>, Error>>, Error> {
        let (keys, now, publishing) = (self.keys(), self.transport.now().await?, self.transport.publishing());
        let (count, _) = signals.size_hint();
        let mut batch = Batch::decided_at(now, count, count);
        for (key, signing) in signals {
            let shard = keys.shard_of(key.0);
            batch.add(key.0, shard, |to| keys.write_typing(to, key, signing, now.time(), publishing));
        }
        let replies = self.transport.run(batch).await;
        Ok(replies.items().map(|item| self.read(decode_wait(piece(item?)))).collect())
    }
}
