//! Restriction checks: the visibility rules over a policy cache.
//!
//! A [`PolicyCache`] holds all policy in memory, and reads exact relations from the store until it is complete. It
//! changes only in the order of the store's logs, so that an old change never undoes a newer one, and it answers from
//! memory only once everything is loaded.
//!
//! Invalidations are collected from the first call on, also while the cache is cold: a user who turns hidden must disappear from
//! watchers at once on every host.

use std::cell::RefCell;
use std::collections::HashSet;

use rollcall_core::policy::{Invalidation, MAX_SUBJECTS, PolicyChange, Relation, Verdict};
use rollcall_core::{Error, Ids, UserId};
use rollcall_policy::PolicyIndex;

use crate::capabilities::{ChangesSince, Cursor, MAX_BATCH, OwnSettings, Policy, PolicyPage, bounded};
use crate::heartbeat::Answers;

/// More invalidations than this are reported as [`Invalidation::All`].
const MAX_INVALIDATED: usize = 1024;

/// Changes read at once from the log after a change was made here.
const LOG_READ_LIMIT: u32 = 1024;

/// Reads of the log after a change, at most. They end earlier unless changes come faster than they can be read.
const MAX_LOG_READS: usize = 64;

/// A read with fewer changes than this reached the end of the log, unless some change many accounts. The contract says so.
const MIN_PARTIAL_READ: u32 = 64;

/// How much a policy cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// Nothing.
    Cold,
    /// Pages are being loaded.
    Loading,
    /// Everything.
    Warm,
    /// Nothing, because the policy does not fit into the allowed memory.
    TooLarge,
}

/// How far a policy cache has caught up with the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freshness {
    /// How much the cache holds now.
    pub state: CacheState,
    /// More can be read at once.
    pub more: bool,
    /// Every change made before the call was read.
    pub caught_up: bool,
    /// Changes applied by this call.
    pub applied: u32,
    /// Bytes of memory that the index takes.
    pub bytes: u64,
    /// Restricted accounts in the cache.
    pub restricted: u64,
    /// Blocked pairs in the cache.
    pub blocks: u64,
    /// Invalidations since the last report.
    pub invalidated: Vec<Invalidation>,
}

/// The policy index of one instance, and how far it has followed the log.
#[derive(Debug)]
pub struct PolicyCache {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    load_state: LoadState,
    /// Up to here changes were read for invalidations; `None` before the first read.
    followed_to: Option<Cursor>,
    pending: PendingInvalidations,
}

#[derive(Debug)]
enum LoadState {
    Cold,
    /// Pages are being read.
    Loading {
        policy_index: PolicyIndex,
        next: u32,
        cursor: Cursor,
    },
    /// All pages are read; the changes since the first page are not.
    Replaying {
        policy_index: PolicyIndex,
        cursor: Cursor,
    },
    /// Complete up to `State::followed_to`.
    Warm {
        policy_index: PolicyIndex,
    },
    TooLarge,
}

/// Invalidations that are not reported yet.
#[derive(Debug, Default)]
struct PendingInvalidations {
    some: HashSet<Invalidation>,
    all: bool,
}

impl Default for PolicyCache {
    /// A cold cache. It cannot know what changed before, so its first report invalidates everything.
    fn default() -> Self {
        let pending = PendingInvalidations { all: true, ..PendingInvalidations::default() };
        Self { state: RefCell::new(State { load_state: LoadState::Cold, followed_to: None, pending }) }
    }
}

impl PolicyCache {
    /// The verdict about each subject, in the order asked.
    pub async fn check(
        &self,
        policy: &impl Policy,
        viewer: Option<UserId>,
        subjects: Ids<UserId>,
    ) -> Result<Vec<Verdict>, Error> {
        bounded(subjects.len(), MAX_SUBJECTS)?;
        if let LoadState::Warm { policy_index } = &self.state.borrow().load_state {
            let mut verdicts = Vec::with_capacity(subjects.len());
            policy_index.check(viewer.as_ref().map(UserId::as_str), subjects.iter(), &mut verdicts);
            return Ok(verdicts);
        }
        let relations = policy.relations(viewer.clone(), subjects.clone()).await?;
        if relations.len() != subjects.len() {
            let (count, asked) = (relations.len(), subjects.len());
            return Err(Error::Other(format!("the policy store returned {count} relations for {asked} subjects")));
        }
        let viewer = viewer.as_ref().map(UserId::as_str);
        let verdict = |(subject, relation): (&str, Relation)| relation.verdict_for(viewer, subject);
        Ok(subjects.iter().zip(relations).map(verdict).collect())
    }

    /// Makes changes. They are in force in this cache when this returns.
    pub async fn apply(&self, policy: &impl Policy, changes: Vec<Result<PolicyChange, Error>>) -> Answers<()> {
        bounded(changes.len(), MAX_BATCH)?;
        let valid: Vec<PolicyChange> = changes.iter().filter_map(|change| change.as_ref().ok()).cloned().collect();
        let mut outcomes = if valid.is_empty() { Vec::new() } else { policy.apply_many(valid).await? }.into_iter();
        let missing = || Err(Error::Other("the policy store returned fewer outcomes than changes".to_owned()));
        let answers = changes.into_iter().map(|change| change.and_then(|_| outcomes.next().unwrap_or_else(missing)));
        let answers = answers.collect();
        for _ in 0..MAX_LOG_READS {
            // A cache that is not warm reads the store, where the changes are in force already.
            let is_warm = matches!(self.state.borrow().load_state, LoadState::Warm { .. });
            if !is_warm || self.follow(policy, LOG_READ_LIMIT).await? < MIN_PARTIAL_READ {
                break;
            }
        }
        Ok(answers)
    }

    /// Catches up with the store by a page, or by about `limit` changes. `memory` is the most bytes that the index may take;
    /// with zero nothing is loaded.
    pub async fn refresh(&self, policy: &impl Policy, limit: u32, memory: u64) -> Result<Freshness, Error> {
        enum Step {
            Load(u32),
            Replay,
            Follow,
        }
        self.begin_to_follow(policy).await?;
        let step = match &self.state.borrow().load_state {
            LoadState::Cold if memory > 0 => Step::Load(0),
            LoadState::Cold | LoadState::TooLarge | LoadState::Warm { .. } => Step::Follow,
            LoadState::Loading { next, .. } => Step::Load(*next),
            LoadState::Replaying { .. } => Step::Replay,
        };
        // Invalidations are read separately from loading, and first.
        let mut applied = self.follow(policy, limit).await?;
        let caught_up = applied < MIN_PARTIAL_READ;
        match step {
            Step::Load(number) if caught_up => {
                let page = policy.snapshot(number).await?;
                applied += self.take_page(number, page);
            }
            Step::Replay if caught_up => applied += self.replay(policy, limit).await?,
            Step::Load(_) | Step::Replay | Step::Follow => {}
        }
        self.state.borrow_mut().enforce_memory_limit(memory);
        Ok(self.report(applied, caught_up))
    }

    /// Before the first read of the log: asks for its newest cursor.
    async fn begin_to_follow(&self, policy: &impl Policy) -> Result<(), Error> {
        if self.state.borrow().followed_to.is_some() {
            return Ok(());
        }
        let ChangesSince::Changes(_, cursor) = policy.since(Cursor::new(), 0).await? else {
            return Err(Error::Other("the policy did not return its newest cursor".to_owned()));
        };
        let mut state = self.state.borrow_mut();
        if state.followed_to.is_none() {
            state.followed_to = Some(cursor);
            // Earlier changes are unknown.
            state.pending.all = true;
        }
        Ok(())
    }

    /// A user's own settings.
    pub async fn settings_of(&self, policy: &impl Policy, user: UserId) -> Result<OwnSettings, Error> {
        policy.settings_of(user).await
    }

    /// Applies a page of the snapshot. Returns the number of its changes.
    fn take_page(&self, number: u32, page: PolicyPage) -> u32 {
        let PolicyPage { changes, next, cursor, salt } = page;
        let mut state = self.state.borrow_mut();
        let (mut policy_index, first) = match std::mem::replace(&mut state.load_state, LoadState::Cold) {
            LoadState::Cold if number == 0 => (PolicyIndex::new(salt), cursor),
            LoadState::Loading { policy_index, next, cursor } if next == number => (policy_index, cursor),
            // Another call was faster.
            other => {
                state.load_state = other;
                return 0;
            }
        };
        changes.iter().for_each(|change| policy_index.apply(change));
        state.load_state = match next {
            Some(next) => LoadState::Loading { policy_index, next, cursor: first },
            None => LoadState::Replaying { policy_index, cursor: first },
        };
        changes.len() as u32
    }

    /// Applies what changed while the pages were read.
    async fn replay(&self, policy: &impl Policy, limit: u32) -> Result<u32, Error> {
        let from = match &self.state.borrow().load_state {
            LoadState::Replaying { cursor, .. } => cursor.clone(),
            LoadState::Cold | LoadState::Loading { .. } | LoadState::Warm { .. } | LoadState::TooLarge => return Ok(0),
        };
        let followed = policy.since(from.clone(), limit).await?;
        let mut state = self.state.borrow_mut();
        match std::mem::replace(&mut state.load_state, LoadState::Cold) {
            LoadState::Replaying { mut policy_index, cursor } if cursor == from => {
                let ChangesSince::Changes(changes, cursor) = followed else {
                    state.reset();
                    return Ok(0);
                };
                // Their invalidations were collected already.
                changes.iter().for_each(|change| policy_index.apply(change));
                let applied = changes.len() as u32;
                if applied == 0 {
                    state.followed_to = Some(cursor);
                    state.load_state = LoadState::Warm { policy_index };
                } else {
                    state.load_state = LoadState::Replaying { policy_index, cursor };
                }
                Ok(applied)
            }
            other => {
                state.load_state = other;
                Ok(0)
            }
        }
    }

    /// Applies what changed since the last read. Returns the number of changes; at least `MIN_PARTIAL_READ` if one of them changed many
    /// accounts, because such an answer need not reach the end of the log.
    async fn follow(&self, policy: &impl Policy, limit: u32) -> Result<u32, Error> {
        let Some(from) = self.state.borrow().followed_to.clone() else { return Ok(0) };
        let followed = policy.since(from.clone(), limit).await?;
        let mut state = self.state.borrow_mut();
        if state.followed_to.as_ref() != Some(&from) {
            // Another call was faster and applied these changes.
            return Ok(MIN_PARTIAL_READ);
        }
        let ChangesSince::Changes(changes, cursor) = followed else {
            state.reset();
            return Ok(0);
        };
        let State { load_state, pending, followed_to } = &mut *state;
        for change in &changes {
            if let LoadState::Warm { policy_index } = load_state {
                policy_index.apply(change);
            }
            pending.add(change.invalidation());
        }
        *followed_to = Some(cursor);
        let is_of_many =
            |change: &PolicyChange| matches!(change, PolicyChange::RestrictMany(_) | PolicyChange::UnrestrictMany(_));
        let at_least = if changes.iter().any(is_of_many) { MIN_PARTIAL_READ } else { 0 };
        Ok(at_least.max(changes.len() as u32))
    }

    fn report(&self, applied: u32, caught_up: bool) -> Freshness {
        let mut state = self.state.borrow_mut();
        let invalidated = state.pending.take();
        let (cache_state, more, policy_index) = match &state.load_state {
            LoadState::Cold => (CacheState::Cold, applied > 0 || state.followed_to.is_none(), None),
            LoadState::Loading { policy_index, .. } | LoadState::Replaying { policy_index, .. } => {
                (CacheState::Loading, true, Some(policy_index))
            }
            LoadState::Warm { policy_index } => (CacheState::Warm, applied > 0, Some(policy_index)),
            LoadState::TooLarge => (CacheState::TooLarge, applied > 0, None),
        };
        let counts = policy_index.map(PolicyIndex::counts).unwrap_or_default();
        Freshness {
            state: cache_state,
            more,
            caught_up: caught_up && state.followed_to.is_some(),
            applied,
            bytes: policy_index.map_or(0, PolicyIndex::bytes),
            restricted: counts.restricted,
            blocks: counts.blocks,
            invalidated,
        }
    }
}

impl State {
    /// The log no longer reaches back to the cursor: begin again.
    fn reset(&mut self) {
        self.load_state = LoadState::Cold;
        self.followed_to = None;
        self.pending.all = true;
    }

    /// Drops an index that takes more memory than allowed.
    fn enforce_memory_limit(&mut self, memory: u64) {
        let bytes = match &self.load_state {
            LoadState::Loading { policy_index, .. }
            | LoadState::Replaying { policy_index, .. }
            | LoadState::Warm { policy_index } => policy_index.bytes(),
            LoadState::Cold | LoadState::TooLarge => return,
        };
        if bytes > memory {
            // With no memory allowed it stays cold: more may be allowed later.
            self.load_state = if memory == 0 { LoadState::Cold } else { LoadState::TooLarge };
        }
    }
}

impl PendingInvalidations {
    fn add(&mut self, invalidation: Invalidation) {
        if self.all || self.some.len() >= MAX_INVALIDATED {
            self.all = true;
            self.some.clear();
        } else {
            self.some.insert(invalidation);
        }
    }

    fn take(&mut self) -> Vec<Invalidation> {
        match std::mem::take(self) {
            Self { all: true, .. } => vec![Invalidation::All],
            Self { some, .. } => some.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
