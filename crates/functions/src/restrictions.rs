//! Who may see whom, asked by everything that shows anybody to anybody.
//!
//! A [`PolicyCache`] holds everything that anybody set in its own memory, and asks the store exactly for as long as it does not.
//! What it holds changes only in the order of the store's logs, so that an old change never takes back a newer one, and it
//! answers from memory only once everything is in: half of a policy is none.
//!
//! Whose relations changed is told apart from the memory, from the first call on: whoever is shown to a watcher must be
//! hidden at once also on a node that is still cold.

use std::cell::RefCell;
use std::collections::HashSet;

use rollcall_core::policy::{Change, Invalidation, MAX_SUBJECTS, Relation, Verdict};
use rollcall_core::{Error, Ids, UserId};
use rollcall_policy::PolicyIndex;

use crate::capabilities::{ChangesSince, Cursor, OwnSettings, Page, Policy, bounded};
use crate::heartbeat::Answers;

/// More people than that are not told one by one.
const MAX_INVALIDATED: usize = 1024;

/// How much of the log is read at once when a change is to be in force before it is answered.
const STRIDE: u32 = 1024;

/// How often the log is read on after a change, at most: it ends, unless changes come faster than they can be read.
const MAX_STRIDES: usize = 64;

/// Fewer changes than this are all that there were, unless some are of many accounts: so says the contract.
const FEW: u32 = 64;

/// What a policy cache's memory is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// It holds nothing.
    Cold,
    /// It is being filled.
    Loading,
    /// It holds everything.
    Warm,
    /// Everything does not fit.
    TooLarge,
}

/// How far a policy cache has caught up with the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freshness {
    /// What its memory is good for now.
    pub state: CacheState,
    /// There is more to be had at once.
    pub more: bool,
    /// Everything that was changed before the call has been heard of.
    pub caught_up: bool,
    /// Changes taken in by this call.
    pub applied: u32,
    /// Bytes of memory that the structures take.
    pub bytes: u64,
    /// Accounts restricted, as far as they are known here.
    pub restricted: u64,
    /// Pairs blocked, as far as they are known here.
    pub blocks: u64,
    /// Whose relations changed since this was last told.
    pub invalidated: Vec<Invalidation>,
}

/// One instance's knowledge of who may see whom.
#[derive(Debug)]
pub struct PolicyCache {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    memory: Memory,
    /// Up to here it was told whose relations changed; none: nothing was heard yet.
    heard: Option<Cursor>,
    untold: Untold,
}

#[derive(Debug)]
enum Memory {
    Cold,
    /// Pages come in.
    Loading {
        policy_index: PolicyIndex,
        next: u32,
        cursor: Cursor,
    },
    /// All pages are in; what changed since the first was read is not.
    Replaying {
        policy_index: PolicyIndex,
        cursor: Cursor,
    },
    /// Everything is in, up to what was heard.
    Warm {
        policy_index: PolicyIndex,
    },
    TooLarge,
}

/// Whose relations changed, not yet told.
#[derive(Debug, Default)]
struct Untold {
    some: HashSet<Invalidation>,
    everybody: bool,
}

impl Default for PolicyCache {
    /// A policy cache that holds nothing. What changed before it was there it cannot know: so the first thing it tells is that
    /// anything may have.
    fn default() -> Self {
        let untold = Untold { everybody: true, ..Untold::default() };
        Self { state: RefCell::new(State { memory: Memory::Cold, heard: None, untold }) }
    }
}

impl PolicyCache {
    /// What a viewer may see of each subject, in the order asked.
    pub async fn check(
        &self,
        policy: &impl Policy,
        viewer: Option<UserId>,
        subjects: Ids<UserId>,
    ) -> Result<Vec<Verdict>, Error> {
        if subjects.len() > MAX_SUBJECTS {
            return Err(Error::TooMany(MAX_SUBJECTS as u32));
        }
        if let Memory::Warm { policy_index } = &self.state.borrow().memory {
            let mut verdicts = Vec::with_capacity(subjects.len());
            policy_index.check(viewer.as_ref().map(UserId::as_str), subjects.iter(), &mut verdicts);
            return Ok(verdicts);
        }
        let relations = policy.relations(viewer.clone(), subjects.clone()).await?;
        if relations.len() != subjects.len() {
            return Err(Error::Other("the policy answered for fewer subjects than it was asked for".to_owned()));
        }
        let viewer = viewer.as_ref().map(UserId::as_str);
        let judged = |(subject, relation): (&str, Relation)| relation.verdict_for(viewer, subject);
        Ok(subjects.iter().zip(relations).map(judged).collect())
    }

    /// Makes changes, which are in force here when this returns.
    pub async fn apply(&self, policy: &impl Policy, changes: Vec<Result<Change, Error>>) -> Answers<()> {
        bounded(&changes)?;
        let good: Vec<Change> = changes.iter().filter_map(|change| change.as_ref().ok()).cloned().collect();
        let mut outcomes = if good.is_empty() { Vec::new() } else { policy.apply_many(good).await? }.into_iter();
        let lacking = || Err(Error::Other("the policy answered for fewer changes than it was given".to_owned()));
        let answers = changes.into_iter().map(|change| change.and_then(|_| outcomes.next().unwrap_or_else(lacking)));
        let answers = answers.collect();
        for _ in 0..MAX_STRIDES {
            // Whoever holds less than everything asks the store, where it is in force already.
            let is_warm = matches!(self.state.borrow().memory, Memory::Warm { .. });
            if !is_warm || self.follow(policy, STRIDE).await? < FEW {
                break;
            }
        }
        Ok(answers)
    }

    /// Catches up with the store: by a page, or by about `limit` changes. With no memory allowed nothing is loaded.
    pub async fn refresh(&self, policy: &impl Policy, limit: u32, memory: u64) -> Result<Freshness, Error> {
        enum Step {
            Load(u32),
            Replay,
            Follow,
        }
        self.begin_to_hear(policy).await?;
        let step = match &self.state.borrow().memory {
            Memory::Cold if memory > 0 => Step::Load(0),
            Memory::Cold | Memory::TooLarge | Memory::Warm { .. } => Step::Follow,
            Memory::Loading { next, .. } => Step::Load(*next),
            Memory::Replaying { .. } => Step::Replay,
        };
        // While it loads, whose relations changed is heard apart from that, and first.
        let mut applied = self.follow(policy, limit).await?;
        let caught_up = applied < FEW;
        match step {
            Step::Load(number) if caught_up => {
                let page = policy.snapshot(number).await?;
                applied += self.take_page(number, page);
            }
            Step::Replay if caught_up => applied += self.replay(policy, limit).await?,
            Step::Load(_) | Step::Replay | Step::Follow => {}
        }
        self.state.borrow_mut().bounded(memory);
        Ok(self.told(applied, caught_up))
    }

    /// Where nothing was heard yet, finds out from where to listen.
    async fn begin_to_hear(&self, policy: &impl Policy) -> Result<(), Error> {
        if self.state.borrow().heard.is_some() {
            return Ok(());
        }
        let ChangesSince::Changes(_, cursor) = policy.since(Cursor::new(), 0).await? else {
            return Err(Error::Other("the policy does not know where its logs stand".to_owned()));
        };
        let mut state = self.state.borrow_mut();
        if state.heard.is_none() {
            state.heard = Some(cursor);
            // What changed before that nobody heard.
            state.untold.everybody = true;
        }
        Ok(())
    }

    /// What a person set for themselves.
    pub async fn settings_of(&self, policy: &impl Policy, user: UserId) -> Result<OwnSettings, Error> {
        policy.settings_of(user).await
    }

    /// Takes in a page of the snapshot. Answers how many changes it had.
    fn take_page(&self, number: u32, page: Page) -> u32 {
        let Page { changes, next, cursor, salt } = page;
        let mut state = self.state.borrow_mut();
        let (mut policy_index, first) = match std::mem::replace(&mut state.memory, Memory::Cold) {
            Memory::Cold if number == 0 => (PolicyIndex::new(salt), cursor),
            Memory::Loading { policy_index, next, cursor } if next == number => (policy_index, cursor),
            // Another call was quicker.
            other => {
                state.memory = other;
                return 0;
            }
        };
        changes.iter().for_each(|change| policy_index.apply(change));
        state.memory = match next {
            Some(next) => Memory::Loading { policy_index, next, cursor: first },
            None => Memory::Replaying { policy_index, cursor: first },
        };
        changes.len() as u32
    }

    /// Takes in what changed while the pages came in.
    async fn replay(&self, policy: &impl Policy, limit: u32) -> Result<u32, Error> {
        let from = match &self.state.borrow().memory {
            Memory::Replaying { cursor, .. } => cursor.clone(),
            Memory::Cold | Memory::Loading { .. } | Memory::Warm { .. } | Memory::TooLarge => return Ok(0),
        };
        let followed = policy.since(from.clone(), limit).await?;
        let mut state = self.state.borrow_mut();
        match std::mem::replace(&mut state.memory, Memory::Cold) {
            Memory::Replaying { mut policy_index, cursor } if cursor == from => {
                let ChangesSince::Changes(changes, cursor) = followed else {
                    state.lose_track();
                    return Ok(0);
                };
                // Whose relations it changed was heard already.
                changes.iter().for_each(|change| policy_index.apply(change));
                let applied = changes.len() as u32;
                if applied == 0 {
                    state.heard = Some(cursor);
                    state.memory = Memory::Warm { policy_index };
                } else {
                    state.memory = Memory::Replaying { policy_index, cursor };
                }
                Ok(applied)
            }
            other => {
                state.memory = other;
                Ok(0)
            }
        }
    }

    /// Takes in what changed since it last heard. Answers how many changes there were; where some were of many accounts, at
    /// least as many as do not tell that these were all.
    async fn follow(&self, policy: &impl Policy, limit: u32) -> Result<u32, Error> {
        let Some(from) = self.state.borrow().heard.clone() else { return Ok(0) };
        let followed = policy.since(from.clone(), limit).await?;
        let mut state = self.state.borrow_mut();
        if state.heard.as_ref() != Some(&from) {
            // Another call was quicker, and took in what this one brought, or more.
            return Ok(FEW);
        }
        let ChangesSince::Changes(changes, cursor) = followed else {
            state.lose_track();
            return Ok(0);
        };
        let State { memory, untold, heard } = &mut *state;
        for change in &changes {
            if let Memory::Warm { policy_index } = memory {
                policy_index.apply(change);
            }
            untold.note(change.invalidation());
        }
        *heard = Some(cursor);
        let is_of_many = |change: &Change| matches!(change, Change::RestrictMany(_) | Change::UnrestrictMany(_));
        let at_least = if changes.iter().any(is_of_many) { FEW } else { 0 };
        Ok(at_least.max(changes.len() as u32))
    }

    /// What to tell of it.
    fn told(&self, applied: u32, caught_up: bool) -> Freshness {
        let mut state = self.state.borrow_mut();
        let invalidated = state.untold.take();
        let (cache_state, more, policy_index) = match &state.memory {
            Memory::Cold => (CacheState::Cold, applied > 0 || state.heard.is_none(), None),
            Memory::Loading { policy_index, .. } | Memory::Replaying { policy_index, .. } => {
                (CacheState::Loading, true, Some(policy_index))
            }
            Memory::Warm { policy_index } => (CacheState::Warm, applied > 0, Some(policy_index)),
            Memory::TooLarge => (CacheState::TooLarge, applied > 0, None),
        };
        let census = policy_index.map(PolicyIndex::census).unwrap_or_default();
        Freshness {
            state: cache_state,
            more,
            caught_up: caught_up && state.heard.is_some(),
            applied,
            bytes: policy_index.map_or(0, PolicyIndex::bytes),
            restricted: census.restricted,
            blocks: census.blocks,
            invalidated,
        }
    }
}

impl State {
    /// The log does not reach back to where this stands: what changed is not known.
    fn lose_track(&mut self) {
        self.memory = Memory::Cold;
        self.heard = None;
        self.untold.everybody = true;
    }

    /// Lets go of what is more than allowed.
    fn bounded(&mut self, memory: u64) {
        let bytes = match &self.memory {
            Memory::Loading { policy_index, .. }
            | Memory::Replaying { policy_index, .. }
            | Memory::Warm { policy_index } => policy_index.bytes(),
            Memory::Cold | Memory::TooLarge => return,
        };
        if bytes > memory {
            // Where none is allowed, more may be later.
            self.memory = if memory == 0 { Memory::Cold } else { Memory::TooLarge };
        }
    }
}

impl Untold {
    fn note(&mut self, invalidation: Invalidation) {
        if self.everybody || self.some.len() >= MAX_INVALIDATED {
            self.everybody = true;
            self.some.clear();
        } else {
            self.some.insert(invalidation);
        }
    }

    fn take(&mut self) -> Vec<Invalidation> {
        match std::mem::take(self) {
            Self { everybody: true, .. } => vec![Invalidation::Everybody],
            Self { some, .. } => some.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
