//! A policy cache over a policy of a few lines: a log that can be cut, pages that can be slow, and a store that can be away.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::cell::Cell;

use rollcall_core::policy::{Audience, Numbers, Privacy, Ruling};

use super::*;
use crate::at_once::now;

const PLENTY: u64 = 1 << 30;

/// Changes in a row, and everything that they amount to.
#[derive(Default)]
struct Town {
    log: RefCell<Vec<Change>>,
    /// How many changes at the log's beginning were forgotten.
    forgotten: Cell<usize>,
    /// Changes to be made while the next page is being read.
    meanwhile: RefCell<Vec<Change>>,
    away: Cell<bool>,
    asked_exactly: Cell<usize>,
}

impl Town {
    fn change(&self, change: Change) {
        self.log.borrow_mut().push(change);
    }

    fn truth(&self) -> PolicyIndex {
        let mut policy_index = PolicyIndex::new(1);
        self.log.borrow().iter().for_each(|change| policy_index.apply(change));
        policy_index
    }

    fn answer<T>(&self, value: impl FnOnce() -> T) -> Result<T, Error> {
        if self.away.get() { Err(Error::Unavailable(7)) } else { Ok(value()) }
    }
}

impl Policy for Town {
    async fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Relation>, Error> {
        self.asked_exactly.set(self.asked_exactly.get() + 1);
        let viewer = viewer.as_ref().map(UserId::as_str);
        self.answer(|| subjects.iter().map(|subject| self.truth().relation(viewer, subject)).collect())
    }
    async fn settings_of(&self, _: UserId) -> Result<OwnSettings, Error> {
        self.answer(OwnSettings::default)
    }
    /// Each page has two changes of the log: what is taken back later is on a later page, or in the log.
    async fn snapshot(&self, page: u32) -> Result<Page, Error> {
        self.answer(|| {
            let cursor = vec![self.log.borrow().len() as u64];
            self.log.borrow_mut().append(&mut self.meanwhile.borrow_mut());
            let log = self.log.borrow();
            let from = page as usize * 2;
            let changes: Vec<Change> = log.iter().skip(from).take(2).cloned().collect();
            let next = (from + 2 < log.len()).then_some(page + 1);
            Page { changes, next, cursor, salt: 9 }
        })
    }
    async fn since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        self.answer(|| {
            let log = self.log.borrow();
            let Some(from) = cursor.first().map(|from| *from as usize) else {
                return ChangesSince::Changes(Vec::new(), vec![log.len() as u64]);
            };
            if from < self.forgotten.get() || from > log.len() {
                return ChangesSince::Gap;
            }
            let limit = limit.max(64) as usize;
            let changes: Vec<Change> = log.iter().skip(from).take(limit).cloned().collect();
            let after = (from + changes.len()) as u64;
            ChangesSince::Changes(changes, vec![after])
        })
    }
    async fn apply_many(&self, changes: Vec<Change>) -> Result<Vec<Result<(), Error>>, Error> {
        self.answer(|| {
            changes
                .into_iter()
                .map(|change| {
                    if change == restrict("full") {
                        Err(Error::TooMany(1))
                    } else {
                        self.change(change);
                        Ok(())
                    }
                })
                .collect()
        })
    }
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn restrict(name: &str) -> Change {
    Change::Restrict(user(name))
}

fn block(one: &str, other: &str) -> Change {
    Change::Block(user(one), user(other))
}

fn rulings(policy_cache: &PolicyCache, town: &Town, viewer: &str, subjects: &[&str]) -> Result<Vec<Ruling>, Error> {
    let subjects: Vec<UserId> = subjects.iter().map(|name| user(name)).collect();
    let verdicts = now(policy_cache.check(town, Some(user(viewer)), subjects.iter().collect()))?;
    Ok(verdicts.into_iter().map(|verdict| verdict.presence).collect())
}

fn refresh(policy_cache: &PolicyCache, town: &Town) -> Freshness {
    now(policy_cache.refresh(town, 2, PLENTY)).unwrap()
}

/// A policy cache that holds everything.
fn warm(town: &Town) -> PolicyCache {
    let policy_cache = PolicyCache::default();
    while refresh(&policy_cache, town).more {}
    assert_eq!(refresh(&policy_cache, town).state, CacheState::Warm);
    policy_cache
}

#[test]
fn a_cold_policy_cache_asks_the_store_and_a_warm_one_nobody() {
    let town = Town::default();
    ["1", "eve"].into_iter().for_each(|name| town.change(restrict(name)));
    town.change(block("bob", "alice"));
    let cold = PolicyCache::default();
    let asked = ["1", "eve", "bob", "carol", "alice"];
    use Ruling::{Allowed, Blocked, Restricted};
    let expected = vec![Restricted, Restricted, Blocked, Allowed, Allowed];
    assert_eq!(rulings(&cold, &town, "alice", &asked).unwrap(), expected);
    assert_eq!(town.asked_exactly.get(), 1);
    let warm = warm(&town);
    assert_eq!(rulings(&warm, &town, "alice", &asked).unwrap(), expected);
    assert_eq!(town.asked_exactly.get(), 1, "from memory");
    town.away.set(true);
    assert_eq!(rulings(&warm, &town, "alice", &asked).unwrap(), expected, "also while the store is away");
    assert_eq!(rulings(&cold, &town, "alice", &asked), Err(Error::Unavailable(7)));
}

#[test]
fn half_of_a_policy_is_never_answered_from() {
    let town = Town::default();
    (0..7).for_each(|number| town.change(restrict(&format!("user-{number}"))));
    town.change(Change::Unrestrict(user("user-0")));
    // Made while the first page is read: neither on it nor before its cursor.
    town.meanwhile.borrow_mut().extend([restrict("user-0"), block("a", "b"), Change::Unblock(user("a"), user("b"))]);
    let policy_cache = PolicyCache::default();
    loop {
        let loading = refresh(&policy_cache, &town);
        let asked = town.asked_exactly.get();
        assert_eq!(
            rulings(&policy_cache, &town, "a", &["user-0", "b"]).unwrap(),
            [Ruling::Restricted, Ruling::Allowed]
        );
        let from_memory = town.asked_exactly.get() == asked;
        assert_eq!(from_memory, loading.state == CacheState::Warm);
        if from_memory {
            break;
        }
        assert!(loading.more);
    }
}

#[test]
fn a_change_is_in_force_when_it_is_answered() {
    let town = Town::default();
    let policy_cache = warm(&town);
    // Somebody else's changes come before it in the log, more than are read at once.
    (0..3000).for_each(|number| town.change(restrict(&format!("user-{number}"))));
    let changes = vec![Ok(block("bob", "alice")), Err(Error::Denied), Ok(restrict("full"))];
    let answers = now(policy_cache.apply(&town, changes)).unwrap();
    assert_eq!(answers, [Ok(()), Err(Error::Denied), Err(Error::TooMany(1))], "each in its place");
    town.away.set(true);
    let seen = rulings(&policy_cache, &town, "alice", &["bob", "user-2999"]).unwrap();
    assert_eq!(seen, [Ruling::Blocked, Ruling::Restricted]);
}

#[test]
fn what_invalidations_is_told_once_and_from_the_first_call_on() {
    let town = Town::default();
    (0..9).for_each(|number| town.change(restrict(&format!("user-{number}"))));
    let policy_cache = PolicyCache::default();
    // It may not load yet.
    let first = now(policy_cache.refresh(&town, 8, 0)).unwrap();
    assert_eq!((first.state, first.more), (CacheState::Cold, false));
    assert_eq!(first.invalidated, [Invalidation::Everybody], "what was before nobody knows");
    town.change(block("bob", "alice"));
    let second = now(policy_cache.refresh(&town, 8, 0)).unwrap();
    assert_eq!(second.invalidated, [Invalidation::Pair(user("bob"), user("alice"))], "though it holds nothing");
    // While it loads, too.
    assert_eq!(refresh(&policy_cache, &town).state, CacheState::Loading);
    town.change(Change::SetPrivacy(user("eve"), Privacy { presence: Audience::Nobody, ..Privacy::default() }));
    assert_eq!(refresh(&policy_cache, &town).invalidated, [Invalidation::Subject(user("eve"))]);
    while refresh(&policy_cache, &town).more {}
    town.change(restrict("mallory"));
    assert_eq!(refresh(&policy_cache, &town).invalidated, [Invalidation::Subject(user("mallory"))]);
    assert!(refresh(&policy_cache, &town).invalidated.is_empty());
    // A change made through this policy cache invalidations as well.
    now(policy_cache.apply(&town, vec![Ok(block("x", "y"))])).unwrap();
    assert_eq!(refresh(&policy_cache, &town).invalidated, [Invalidation::Pair(user("x"), user("y"))]);
    town.change(Change::RestrictMany(Numbers::new(5, vec![0xff; 8]).unwrap()));
    assert_eq!(refresh(&policy_cache, &town).invalidated, [Invalidation::Numbers(5)]);
    // Very many are not told one by one.
    (0..3000).for_each(|number| town.change(restrict(&format!("many-{number}"))));
    assert_eq!(now(policy_cache.refresh(&town, 5000, PLENTY)).unwrap().invalidated, [Invalidation::Everybody]);
}

#[test]
fn a_gap_is_noticed_and_repaired() {
    let town = Town::default();
    let policy_cache = warm(&town);
    (0..5).for_each(|number| town.change(restrict(&format!("user-{number}"))));
    town.forgotten.set(4);
    let lost = refresh(&policy_cache, &town);
    assert_eq!((lost.state, lost.more, lost.invalidated), (CacheState::Cold, true, vec![Invalidation::Everybody]));
    // Between its losing track and its hearing again something changes, which it cannot tell apart.
    town.change(block("bob", "alice"));
    assert_eq!(refresh(&policy_cache, &town).invalidated, [Invalidation::Everybody]);
    assert_eq!(rulings(&policy_cache, &town, "a", &["user-0"]).unwrap(), [Ruling::Restricted], "asked exactly");
    while refresh(&policy_cache, &town).more {}
    town.away.set(true);
    assert_eq!(rulings(&policy_cache, &town, "a", &["user-0", "user-4"]).unwrap(), [Ruling::Restricted; 2]);
}

#[test]
fn a_gap_while_it_loads_begins_anew() {
    let town = Town::default();
    (0..9).for_each(|number| town.change(restrict(&format!("user-{number}"))));
    let policy_cache = PolicyCache::default();
    assert_eq!(refresh(&policy_cache, &town).state, CacheState::Loading);
    town.change(restrict("late"));
    town.forgotten.set(10);
    assert_eq!(refresh(&policy_cache, &town).invalidated, [Invalidation::Everybody]);
    while refresh(&policy_cache, &town).more {}
    assert_eq!(refresh(&policy_cache, &town).state, CacheState::Warm);
    town.away.set(true);
    assert_eq!(rulings(&policy_cache, &town, "a", &["late", "user-8"]).unwrap(), [Ruling::Restricted; 2]);
}

#[test]
fn what_does_not_fit_is_asked_of_the_store_and_still_invalidations() {
    let town = Town::default();
    (0..400).for_each(|number| town.change(restrict(&format!("user-{number}"))));
    let policy_cache = PolicyCache::default();
    let small = 10_000;
    let mut freshness = now(policy_cache.refresh(&town, 8, small)).unwrap();
    while freshness.more {
        freshness = now(policy_cache.refresh(&town, 8, small)).unwrap();
    }
    assert_eq!((freshness.state, freshness.bytes), (CacheState::TooLarge, 0));
    assert_eq!(rulings(&policy_cache, &town, "a", &["user-0", "b"]).unwrap(), [Ruling::Restricted, Ruling::Allowed]);
    town.change(block("bob", "alice"));
    let invalidated = now(policy_cache.refresh(&town, 8, small)).unwrap().invalidated;
    assert_eq!(invalidated, [Invalidation::Pair(user("bob"), user("alice"))]);
}

#[test]
fn a_store_that_is_away_changes_nothing() {
    let town = Town::default();
    let policy_cache = warm(&town);
    town.change(block("bob", "alice"));
    town.away.set(true);
    assert_eq!(now(policy_cache.refresh(&town, 8, PLENTY)), Err(Error::Unavailable(7)));
    assert_eq!(now(policy_cache.apply(&town, vec![Ok(restrict("eve"))])), Err(Error::Unavailable(7)));
    town.away.set(false);
    let back = refresh(&policy_cache, &town);
    assert_eq!((back.state, back.invalidated.len()), (CacheState::Warm, 1));
    assert_eq!(rulings(&policy_cache, &town, "alice", &["bob"]).unwrap(), [Ruling::Blocked]);
}

#[test]
fn a_service_sees_everybody_who_is_not_restricted() {
    let town = Town::default();
    town.change(restrict("eve"));
    town.change(Change::SetPrivacy(user("bob"), Privacy { presence: Audience::Nobody, last_seen: Audience::Nobody }));
    for policy_cache in [PolicyCache::default(), warm(&town)] {
        let subjects = [user("eve"), user("bob")];
        let verdicts = now(policy_cache.check(&town, None, subjects.iter().collect())).unwrap();
        assert_eq!(verdicts[0].presence, Ruling::Restricted);
        assert_eq!(verdicts[1], Verdict::OPEN);
    }
}

#[test]
fn a_check_is_bounded() {
    let many: Vec<UserId> = (0..=MAX_SUBJECTS).map(|number| user(&number.to_string())).collect();
    let refused = now(PolicyCache::default().check(&Town::default(), None, many.iter().collect()));
    assert_eq!(refused, Err(Error::TooMany(10_000)));
}
