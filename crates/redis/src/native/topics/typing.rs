//! Signs of typing: one script each, and a second look at those that came too fast.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::keyspace::{Garbled, Signing, decode_typists, decode_wait};
use parking_lot::Mutex;
use redis::Value;
use rollcall_core::{ConversationId, Error, Span};
use rollcall_functions::capabilities::{MAX_BATCH, TypingSignal, Typist};
use tokio::sync::Notify;

use super::super::batch::{Batch, piece, pieces};
use super::super::{Inner, Redis, Task, bounded};
use rollcall_store::topics::flushes::{Flushes, Place};

/// How long to sleep when there is nothing to wait for; whatever comes wakes it.
const IDLE: Duration = Duration::from_secs(3600);

/// Signs that are to be looked at again.
#[derive(Debug, Default)]
pub(super) struct Afterthoughts {
    flushes: Mutex<Flushes>,
    sooner: Notify,
}

impl Redis {
    pub(super) async fn revision(&self, signs: &[TypingSignal]) -> Result<Vec<Result<(), Error>>, Error> {
        bounded(signs)?;
        let places = signs.iter().map(|sign| (sign.conversation.as_str(), sign.user.as_str()));
        let signings = signs.iter().map(|sign| Signing::Lasts(sign.lasts));
        let waits = self.inner.sign(places.zip(signings)).await;
        let mut outcomes = Vec::with_capacity(waits.len());
        for (sign, wait) in signs.iter().zip(waits) {
            outcomes.push(wait.map(|wait| {
                if let Some(wait) = wait {
                    self.look_again((sign.conversation.clone(), sign.user.clone()), wait);
                }
            }));
        }
        Ok(outcomes)
    }

    fn look_again(&self, place: Place, after: Span) {
        let board = &self.switchboard;
        board.afterthoughts.add(place, after);
        board.flushing.get_or_init(|| {
            let (inner, afterthoughts) = (Arc::clone(&self.inner), Arc::clone(&board.afterthoughts));
            Task(board.runtime.spawn(async move { afterthoughts.flush(&inner).await }))
        });
    }
}

impl Afterthoughts {
    fn add(&self, place: Place, after: Span) {
        if self.flushes.lock().add(place, Instant::now(), Duration::from_millis(after.0)) {
            self.sooner.notify_one();
        }
    }

    /// Looks again at each when its time has come, for ever.
    async fn flush(&self, inner: &Inner) {
        loop {
            let (due, next) = {
                let mut flushes = self.flushes.lock();
                (flushes.take(Instant::now(), MAX_BATCH), flushes.next())
            };
            if due.is_empty() {
                let far_away = || Instant::now() + IDLE;
                let pause = tokio::time::sleep_until(next.unwrap_or_else(far_away).into());
                tokio::select! { () = pause => {}, () = self.sooner.notified() => {} }
                continue;
            }
            let places = due.iter().map(|(conversation, user)| (conversation.as_str(), user.as_str()));
            let waits = inner.sign(places.zip(std::iter::repeat(Signing::LookAgain))).await;
            for (place, wait) in due.iter().zip(waits) {
                // One that failed is not looked at again: whoever watches over a broken connection reads anew.
                if let Ok(Some(wait)) = wait {
                    self.add(place.clone(), wait);
                }
            }
        }
    }
}

impl Inner {
    /// Leaves signs, or looks at them again; after how long to look at each once more.
    async fn sign<'a>(
        &self,
        signs: impl Iterator<Item = ((&'a str, &'a str), Signing)>,
    ) -> Vec<Result<Option<Span>, Error>> {
        let (now, publishing) = (self.around.time.now(), self.publishing());
        let mut batch = Batch::default();
        for (place, signing) in signs {
            let (conversation, _) = place;
            let shard = self.keys.shard_of(conversation);
            batch.add(conversation, shard, |to| self.keys.sign(to, place, signing, now, publishing));
        }
        let replies = self.run(&batch).await;
        let wait = |values: &[Value]| values.first().map_or(Err(Garbled("a reply")), |v| decode_wait(piece(v)));
        replies.items().map(|item| wait(item?).map_err(|error| self.garbled(&error))).collect()
    }

    pub(super) async fn who_types(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Result<Vec<Typist>, Error>>, Error> {
        bounded(conversations)?;
        let now = self.around.time.now();
        let mut batch = Batch::with_capacity(conversations.len(), conversations.len());
        for conversation in conversations.iter().map(ConversationId::as_str) {
            batch.add("", self.keys.shard_of(conversation), |to| self.keys.typists(to, conversation));
        }
        let replies = self.run(&batch).await;
        let typists = |values: &[Value]| decode_typists(values.iter().flat_map(pieces), now);
        Ok(replies.items().map(|item| typists(item?).map_err(|error| self.garbled(&error))).collect())
    }
}
