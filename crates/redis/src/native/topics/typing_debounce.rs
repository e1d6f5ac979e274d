//! Signs of typing: one script each, and a second look at those that came too fast.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollcall_core::{Error, Span};
use rollcall_functions::capabilities::{MAX_BATCH, TypingSignal};
use rollcall_store::topics::debounce::{Debounce, Place};
use tokio::sync::Notify;

use super::super::{Native, Redis, Task};
use crate::capabilities::{RedisStore, bounded, place};
use crate::keyspace::TypingWrite;

/// How long to sleep when there is nothing to wait for; whatever comes wakes it.
const IDLE: Duration = Duration::from_secs(3600);

/// Signs that are to be looked at again.
#[derive(Debug, Default)]
pub(super) struct TypingDebounce {
    waiting: Mutex<Debounce>,
    sooner: Notify,
}

impl Redis {
    pub(super) async fn revision(&self, signs: &[TypingSignal]) -> Result<Vec<Result<(), Error>>, Error> {
        bounded(signs)?;
        let signings = signs.iter().map(|sign| (place(sign), TypingWrite::Lasts(sign.lasts)));
        let waits = self.store.write_typing(signings).await?;
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
        let board = &self.topic_tasks;
        board.debounce.add(place, after);
        board.flushing.get_or_init(|| {
            let (store, debounce) = (Arc::clone(&self.store), Arc::clone(&board.debounce));
            Task(board.runtime.spawn(async move { debounce.flush(&store).await }))
        });
    }
}

impl TypingDebounce {
    fn add(&self, place: Place, after: Span) {
        if self.waiting.lock().add(place, Instant::now(), Duration::from_millis(after.0)) {
            self.sooner.notify_one();
        }
    }

    /// Looks again at each when its time has come, for ever.
    async fn flush(&self, store: &RedisStore<Arc<Native>>) {
        loop {
            let (due, next) = {
                let mut waiting = self.waiting.lock();
                (waiting.take(Instant::now(), MAX_BATCH), waiting.next())
            };
            if due.is_empty() {
                let far_away = || Instant::now() + IDLE;
                let pause = tokio::time::sleep_until(next.unwrap_or_else(far_away).into());
                tokio::select! { () = pause => {}, () = self.sooner.notified() => {} }
                continue;
            }
            let places = due.iter().map(|(conversation, user)| (conversation.as_str(), user.as_str()));
            let waits =
                store.write_typing(places.zip(std::iter::repeat(TypingWrite::Recheck))).await.unwrap_or_default();
            for (place, wait) in due.iter().zip(waits) {
                // One that failed is not looked at again: whoever watches over a broken connection reads anew.
                if let Ok(Some(wait)) = wait {
                    self.add(place.clone(), wait);
                }
            }
        }
    }
}
