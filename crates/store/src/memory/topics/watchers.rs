//! The watcher counts of each user, by worker.

use std::collections::HashMap;

use parking_lot::Mutex;
use rollcall_core::{Time, UserId};
use smallvec::SmallVec;

use super::PruneThreshold;
use crate::topics::WATCHERS_TTL;

/// The watcher counts of all users.
#[derive(Default)]
pub(super) struct Watchers(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    users: HashMap<UserId, SmallVec<[WorkerCount; 1]>>,
    prune_threshold: PruneThreshold,
}

/// The count of one worker.
struct WorkerCount {
    name: String,
    count: u32,
    until: Time,
}

impl Watchers {
    /// Stores the counts of this worker, and returns the sums over all workers.
    pub(super) fn count(&self, worker: &str, counts: Vec<(UserId, u32)>, now: Time) -> Vec<u64> {
        let mut state = self.0.lock();
        if state.prune_threshold.is_exceeded_by(state.users.len()) {
            state.users.retain(|_, workers| workers.iter().any(|worker| worker.until > now));
            let left = state.users.len();
            state.prune_threshold.reset(left);
        }
        counts.into_iter().map(|(user, count)| state.set(worker, user, count, now)).collect()
    }
}

impl Counts {
    fn set(&mut self, name: &str, user: UserId, count: u32, now: Time) -> u64 {
        let mut workers = self.users.remove(&user).unwrap_or_default();
        workers.retain(|worker| worker.until > now && worker.name != name);
        if count > 0 {
            workers.push(WorkerCount { name: name.to_owned(), count, until: now + WATCHERS_TTL });
        }
        let sum = workers.iter().map(|worker| u64::from(worker.count)).sum();
        if !workers.is_empty() {
            self.users.insert(user, workers);
        }
        sum
    }
}
