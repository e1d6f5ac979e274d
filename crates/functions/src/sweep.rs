//! What must happen although nobody calls.

use rollcall_core::settle::{EvictionDecision, evict, settle};
use rollcall_core::{Error, Rules, Span, UserId};

use crate::capabilities::{
    Archive, Commit, Committed, Eviction, LastSeenEntry, Loaded, MAX_BATCH, Sessions, Shards, bounded,
};
use crate::settling::{Fate, settle_by};

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// People looked at.
    pub examined: u32,
    /// People of whom something new was published.
    pub published: u32,
    /// People found unchanged and scheduled anew.
    pub rescheduled: u32,
    /// Decisions that somebody else overtook.
    pub stale: u32,
    /// People whose store was away.
    pub failed: u32,
    /// How late each publication was.
    pub lags: Vec<Span>,
}

/// What an archiving pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Archived {
    /// Last seen kept.
    pub kept: u32,
    /// Sessions dropped from the hot store.
    pub dropped: u32,
}

/// Derives these people anew and publishes what changed.
pub async fn settle_users(store: &impl Sessions, rules: &Rules, users: Vec<UserId>) -> Result<Settled, Error> {
    bounded(&users)?;
    let outcomes = settle_by(store, rules, users, |_, session, moment| (settle(session, moment, rules), ())).await?;
    let mut settled = Settled { examined: outcomes.len() as u32, ..Settled::default() };
    for outcome in outcomes.into_values() {
        match outcome.map(|outcome| outcome.fate) {
            Ok(Fate::Published(lag)) => {
                settled.published += 1;
                settled.lags.push(lag);
            }
            Ok(Fate::Rescheduled) => settled.rescheduled += 1,
            Ok(Fate::Stale) => settled.stale += 1,
            Ok(Fate::Untouched) => {}
            Err(_) => settled.failed += 1,
        }
    }
    Ok(settled)
}

/// Settles whoever is due in these shards.
pub async fn sweep(store: &impl Sessions, rules: &Rules, shards: Shards, limit: u32) -> Result<Settled, Error> {
    let due = store.due(shards, limit.min(MAX_BATCH as u32)).await?;
    if due.is_empty() {
        return Ok(Settled::default());
    }
    settle_users(store, rules, due).await
}

/// Moves cold people to the archive. Last seen is kept before the session is dropped, so a crash between the two costs
/// a second write and loses nothing. What turns out not to be cold is put right first: an archive that is away must not
/// keep a note alive.
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
    let cold = sort(users, loaded, rules);
    if !cold.unsettled.is_empty() {
        store.commit_many(cold.unsettled).await?;
    }
    let kept = cold.last_seen_entries.len() as u32;
    if !cold.last_seen_entries.is_empty() {
        archive.put_many(cold.last_seen_entries).await?;
    }
    if !cold.keepers.is_empty() {
        store.commit_many(cold.keepers).await?;
    }
    let dropped = if cold.evictions.is_empty() { Vec::new() } else { store.evict_many(cold.evictions).await? };
    let dropped = dropped.iter().filter(|outcome| **outcome == Ok(Committed::Applied)).count() as u32;
    Ok(Archived { kept, dropped })
}

/// What is to be done about people whose time to evict has come.
#[derive(Default)]
struct Cold {
    /// Not what they seemed.
    unsettled: Vec<Commit>,
    last_seen_entries: Vec<LastSeenEntry>,
    /// Archived, but kept for their choice.
    keepers: Vec<Commit>,
    evictions: Vec<Eviction>,
}

fn sort(users: Vec<UserId>, loaded: Loaded, rules: &Rules) -> Cold {
    let mut cold = Cold::default();
    for (user, session) in users.into_iter().zip(loaded.sessions) {
        let Ok(session) = session else { continue };
        let expected = session.revision;
        let last_seen = match evict(&session, &loaded.moment, rules) {
            EvictionDecision::Wait => None,
            EvictionDecision::Settle(decision) => {
                cold.unsettled.push(Commit { user: user.clone(), expected, decision });
                None
            }
            EvictionDecision::Keep(last_seen, decision) => {
                cold.keepers.push(Commit { user: user.clone(), expected, decision });
                last_seen
            }
            EvictionDecision::Drop(last_seen) => {
                cold.evictions.push(Eviction { user: user.clone(), expected });
                last_seen
            }
        };
        cold.last_seen_entries.extend(last_seen.map(|last_seen| LastSeenEntry { user, last_seen }));
    }
    cold
}
