//! Typing signals: one script each, and a second check of those that came too fast.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollcall_core::{Error, Span};
use rollcall_functions::capabilities::{MAX_BATCH, TypingSignal};
use rollcall_store::topics::debounce::{Debounce, TypingKey};
use tokio::sync::Notify;

use super::super::{NativeRedis, NativeTransport, Task};
use crate::capabilities::{RedisStore, bounded, typing_key};
use crate::keyspace::TypingWrite;

/// How long to sleep when nothing waits; a new entry wakes the task.
const IDLE: Duration = Duration::from_secs(3600);

/// Signals to check again.
#[derive(Debug, Default)]
pub(super) struct TypingDebounce {
    waiting: Mutex<Debounce>,
    sooner: Notify,
}

impl NativeRedis {
    pub(super) async fn write_signals(&self, signals: &[TypingSignal]) -> Result<Vec<Result<(), Error>>, Error> {
        bounded(signals.len(), MAX_BATCH)?;
        let writes = signals.iter().map(|signal| (typing_key(signal), TypingWrite::Lasts(signal.lasts)));
        let waits = self.store.write_typing(writes).await?;
        let mut outcomes = Vec::with_capacity(waits.len());
        for (signal, wait) in signals.iter().zip(waits) {
            outcomes.push(wait.map(|wait| {
                if let Some(wait) = wait {
                    self.recheck_later((signal.conversation.clone(), signal.user.clone()), wait);
                }
            }));
        }
        Ok(outcomes)
    }

    fn recheck_later(&self, key: TypingKey, after: Span) {
        let tasks = &self.topic_tasks;
        tasks.debounce.add(key, after);
        tasks.flushing.get_or_init(|| {
            let (store, debounce) = (Arc::clone(&self.store), Arc::clone(&tasks.debounce));
            Task(tasks.runtime.spawn(async move { debounce.flush(&store).await }))
        });
    }
}

impl TypingDebounce {
    fn add(&self, key: TypingKey, after: Span) {
        if self.waiting.lock().add(key, Instant::now(), Duration::from_millis(after.0)) {
            self.sooner.notify_one();
        }
    }

    /// Checks each signal again at its time, for ever.
    async fn flush(&self, store: &RedisStore<Arc<NativeTransport>>) {
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
            let keys = due.iter().map(|(conversation, user)| (conversation.as_str(), user.as_str()));
            let waits = store.write_typing(keys.zip(std::iter::repeat(TypingWrite::Recheck))).await.unwrap_or_default();
            for (key, wait) in due.iter().zip(waits) {
                // A failed check is not repeated: after a broken connection, watchers read the state again.
                if let Ok(Some(wait)) = wait {
                    self.add(key.clone(), wait);
                }
            }
        }
    }
}
