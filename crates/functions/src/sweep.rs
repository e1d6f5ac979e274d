//! Background passes: settle users who are due, and move offline sessions to the archive.

use rollcall_core::settle::{EvictionDecision, evict, settle};
use rollcall_core::{Error, Rules, Span, UserId};

use crate::capabilities::{
    Archive, Commit, Committed, Eviction, LastSeenEntry, Loaded, MAX_BATCH, Sessions, Shards, bounded,
};
use crate::commit_loop::{Effect, settle_by};

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Users examined.
    pub examined: u32,
    /// Users about whom a new record was published.
    pub published: u32,
    /// Users found unchanged and given a new deadline.
    pub rescheduled: u32,
    /// Commits that lost the compare-and-swap.
    pub stale: u32,
    /// Users whose store was unavailable.
    pub failed: u32,
    /// How late each publication was.
    pub lags: Vec<Span>,
}

/// What an archiving pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Archived {
    /// Last seen entries written to the archive.
    pub kept: u32,
    /// Sessions dropped from the hot store.
    pub dropped: u32,
}

/// Derives these users again and publishes what changed.
pub async fn settle_users(store: &impl Sessions, rules: &Rules, users: Vec<UserId>) -> Result<Settled, Error> {
    bounded(users.len(), MAX_BATCH)?;
    let outcomes = settle_by(store, rules, users, |_, session, moment| (settle(session, moment, rules), ())).await?;
    let mut settled = Settled { examined: outcomes.len() as u32, ..Settled::default() };
    for outcome in outcomes.into_values() {
        match outcome.map(|outcome| outcome.effect) {
            Ok(Effect::Published(lag)) => {
                settled.published += 1;
                settled.lags.push(lag);
            }
            Ok(Effect::Rescheduled) => settled.rescheduled += 1,
            Ok(Effect::Stale) => settled.stale += 1,
            Ok(Effect::Unchanged) => {}
            Err(_) => settled.failed += 1,
        }
    }
    Ok(settled)
}

/// Settles users who are due in these shards.
pub async fn sweep(store: &impl Sessions, rules: &Rules, shards: Shards, limit: u32) -> Result<Settled, Error> {
    let due = store.due(shards, limit.min(MAX_BATCH as u32)).await?;
    if due.is_empty() {
        return Ok(Settled::default());
    }
    settle_users(store, rules, due).await
}

/// Moves offline sessions to the archive. Last seen is archived before the session is dropped, so that a crash in between costs
/// a second write and loses nothing. Sessions that turn out to be unsettled are committed first: an unavailable archive
/// must not keep a note alive.
pub async fn archive(
    store: &impl Sessions,
    archive: &impl Archive,
    rules: &Rules,
    shards: Shards,
    limit: u32,
) -> Result<Archived, Error> {
    let users = store.evictable(shards, limit.min(MAX_BATCH as u32)).await?;
    if users.is_empty() {
        return Ok(Archived::default());
    }
    let loaded = store.load_many(users.clone()).await?;
    let plan = plan(users, loaded, rules);
    if !plan.unsettled.is_empty() {
        store.commit_many(plan.unsettled).await?;
    }
    let kept = plan.last_seen_entries.len() as u32;
    if !plan.last_seen_entries.is_empty() {
        archive.put_many(plan.last_seen_entries).await?;
    }
    if !plan.kept_for_choice.is_empty() {
        store.commit_many(plan.kept_for_choice).await?;
    }
    let dropped = if plan.evictions.is_empty() { Vec::new() } else { store.evict_many(plan.evictions).await? };
    let dropped = dropped.iter().filter(|outcome| **outcome == Ok(Committed::Applied)).count() as u32;
    Ok(Archived { kept, dropped })
}

/// What to write for sessions that are reported as evictable.
#[derive(Default)]
struct Plan {
    /// Sessions whose record or deadline is wrong.
    unsettled: Vec<Commit>,
    last_seen_entries: Vec<LastSeenEntry>,
    /// Archived, but kept in the hot store for their choice.
    kept_for_choice: Vec<Commit>,
    evictions: Vec<Eviction>,
}

fn plan(users: Vec<UserId>, loaded: Loaded, rules: &Rules) -> Plan {
    let mut plan = Plan::default();
    for (user, session) in users.into_iter().zip(loaded.sessions) {
        let Ok(session) = session else { continue };
        let expected = session.revision;
        let last_seen = match evict(&session, &loaded.moment, rules) {
            EvictionDecision::Wait => None,
            EvictionDecision::Settle(decision) => {
                plan.unsettled.push(Commit { user: user.clone(), expected, decision });
                None
            }
            EvictionDecision::Keep(last_seen, decision) => {
                plan.kept_for_choice.push(Commit { user: user.clone(), expected, decision });
                last_seen
            }
            EvictionDecision::Drop(last_seen) => {
                plan.evictions.push(Eviction { user: user.clone(), expected });
                last_seen
            }
        };
        plan.last_seen_entries.extend(last_seen.map(|last_seen| LastSeenEntry { user, last_seen }));
    }
    plan
}
