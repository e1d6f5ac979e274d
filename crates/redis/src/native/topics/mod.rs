//! Topics in Redis: what any host publishes arrives at every host that watches.
//!
//! Each master is listened to over one connection of its own ([`Ear`](ear::Ear)); a topic is subscribed to once, however
//! many watch it here. The connections are made when the first tap is: a store that nobody taps has none.

mod ear;
mod ears;
mod hearing;
mod typing;

use std::sync::{Arc, OnceLock};

use rollcall_core::{ConversationId, Error, Time, UserId};
use rollcall_functions::capabilities::{Typing, TypingSignal, Typist};
use tokio::runtime::Handle;

use super::{Native, Redis, Task};
use rollcall_store::Answer;
use rollcall_store::topics::{Tap, Topics, WATCHERS_TTL, Wire};

use ears::Ears;
use typing::Afterthoughts;

/// What a store in Redis has for its topics. Its tasks run on the runtime that the store was opened on.
pub(super) struct Switchboard {
    runtime: Handle,
    ears: OnceLock<(Arc<Ears>, Task)>,
    afterthoughts: Arc<Afterthoughts>,
    flushing: OnceLock<Task>,
}

impl Switchboard {
    /// It takes the runtime that it is called on.
    pub(super) fn new() -> Self {
        Self {
            runtime: Handle::current(),
            ears: OnceLock::new(),
            afterthoughts: Arc::default(),
            flushing: OnceLock::new(),
        }
    }

    fn ears(&self, inner: &Arc<Native>) -> &Arc<Ears> {
        let (ears, _) = self.ears.get_or_init(|| {
            let ears = Ears::new(Arc::clone(inner), self.runtime.clone());
            let following = Task(self.runtime.spawn(Arc::clone(&ears).follow()));
            (ears, following)
        });
        ears
    }
}

impl Drop for Switchboard {
    fn drop(&mut self) {
        // Taps may outlive the store; their ears do not.
        if let Some((ears, _)) = self.ears.get() {
            ears.close();
        }
    }
}

impl Topics for Redis {
    fn tap(&self) -> Tap {
        let ears = self.switchboard.ears(&self.native);
        Tap::new(Arc::clone(ears.exchange()), Arc::clone(ears) as Arc<dyn Wire>)
    }
    fn set_typing(&self, signs: Vec<TypingSignal>) -> Answer<'_, Vec<Result<(), Error>>> {
        Box::pin(async move { self.revision(&signs).await })
    }
    fn typists(&self, conversations: Vec<ConversationId>) -> Answer<'_, Vec<Result<Vec<Typist>, Error>>> {
        Box::pin(self.store.typists(conversations))
    }
    fn count_watchers(&self, station: &str, counts: Vec<(UserId, u32)>) -> Answer<'_, Vec<u64>> {
        let station = station.to_owned();
        Box::pin(async move { self.store.add_up_watchers(&station, &counts, WATCHERS_TTL).await })
    }
    fn now(&self) -> Time {
        self.native.around.time.now()
    }
}
