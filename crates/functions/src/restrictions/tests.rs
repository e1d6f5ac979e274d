//! A policy cache over a fake store whose log can be trimmed, whose pages can be slow, and which can be unavailable.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::cell::Cell;

use rollcall_core::policy::{Audience, Numbers, Privacy, Ruling};

use super::*;
use crate::poll_once::poll_once;

const PLENTY: u64 = 1 << 30;

/// A fake policy store: a log of changes.
#[derive(Default)]
struct FakePolicy {
    log: RefCell<Vec<PolicyChange>>,
    /// How many changes at the log's beginning were trimmed.
    trimmed: Cell<usize>,
    /// Changes to be made while the next page is being read.
    meanwhile: RefCell<Vec<PolicyChange>>,
    unavailable: Cell<bool>,
    exact_reads: Cell<usize>,
}

impl FakePolicy {
    fn change(&self, change: PolicyChange) {
        self.log.borrow_mut().push(change);
    }

    fn truth(&self) -> PolicyIndex {
        let mut policy_index = PolicyIndex::new(1);
        self.log.borrow().iter().for_each(|change| policy_index.apply(change));
        policy_index
    }

    fn answer<T>(&self, value: impl FnOnce() -> T) -> Result<T, Error> {
        if self.unavailable.get() { Err(Error::Unavailable(7)) } else { Ok(value()) }
    }
}

impl Policy for FakePolicy {
    async fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Relation>, Error> {
        self.exact_reads.set(self.exact_reads.get() + 1);
        let viewer = viewer.as_ref().map(UserId::as_str);
        self.answer(|| subjects.iter().map(|subject| self.truth().relation(viewer, subject)).collect())
    }
    async fn settings_of(&self, _: UserId) -> Result<OwnSettings, Error> {
        self.answer(OwnSettings::default)
    }
    /// Each page has two changes of the log: a change that undoes one of them is on a later page or in the log.
    async fn snapshot(&self, page: u32) -> Result<PolicyPage, Error> {
        self.answer(|| {
            let cursor = vec![self.log.borrow().len() as u64];
            self.log.borrow_mut().append(&mut self.meanwhile.borrow_mut());
            let log = self.log.borrow();
            let from = page as usize * 2;
            let changes: Vec<PolicyChange> = log.iter().skip(from).take(2).cloned().collect();
            let next = (from + 2 < log.len()).then_some(page + 1);
            PolicyPage { changes, next, cursor, salt: 9 }
        })
    }
    async fn since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        self.answer(|| {
            let log = self.log.borrow();
            let Some(from) = cursor.first().map(|from| *from as usize) else {
                return ChangesSince::Changes(Vec::new(), vec![log.len() as u64]);
            };
            if from < self.trimmed.get() || from > log.len() {
                return ChangesSince::Gap;
            }
            let limit = limit.max(64) as usize;
            let changes: Vec<PolicyChange> = log.iter().skip(from).take(limit).cloned().collect();
            let after = (from + changes.len()) as u64;
            ChangesSince::Changes(changes, vec![after])
        })
    }
    async fn apply_many(&self, changes: Vec<PolicyChange>) -> Result<Vec<Result<(), Error>>, Error> {
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

fn restrict(name: &str) -> PolicyChange {
    PolicyChange::Restrict(user(name))
}

fn block(one: &str, other: &str) -> PolicyChange {
    PolicyChange::Block(user(one), user(other))
}

fn rulings(cache: &PolicyCache, policy: &FakePolicy, viewer: &str, subjects: &[&str]) -> Result<Vec<Ruling>, Error> {
    let subjects: Vec<UserId> = subjects.iter().map(|name| user(name)).collect();
    let verdicts = poll_once(cache.check(policy, Some(user(viewer)), subjects.iter().collect()))?;
    Ok(verdicts.into_iter().map(|verdict| verdict.presence).collect())
}

fn refresh(cache: &PolicyCache, policy: &FakePolicy) -> Freshness {
    poll_once(cache.refresh(policy, 2, PLENTY)).unwrap()
}

/// A policy cache that holds everything.
fn warm(policy: &FakePolicy) -> PolicyCache {
    let cache = PolicyCache::default();
    while refresh(&cache, policy).more {}
    assert_eq!(refresh(&cache, policy).state, CacheState::Warm);
    cache
}

#[test]
fn only_a_cold_cache_asks_the_store() {
    let policy = FakePolicy::default();
    ["1", "eve"].into_iter().for_each(|name| policy.change(restrict(name)));
    policy.change(block("bob", "alice"));
    let cold = PolicyCache::default();
    let asked = ["1", "eve", "bob", "carol", "alice"];
    use Ruling::{Allowed, Blocked, Restricted};
    let expected = vec![Restricted, Restricted, Blocked, Allowed, Allowed];
    assert_eq!(rulings(&cold, &policy, "alice", &asked).unwrap(), expected);
    assert_eq!(policy.exact_reads.get(), 1);
    let warm = warm(&policy);
    assert_eq!(rulings(&warm, &policy, "alice", &asked).unwrap(), expected);
    assert_eq!(policy.exact_reads.get(), 1, "answered from memory");
    policy.unavailable.set(true);
    assert_eq!(rulings(&warm, &policy, "alice", &asked).unwrap(), expected, "also while the store is unavailable");
    assert_eq!(rulings(&cold, &policy, "alice", &asked), Err(Error::Unavailable(7)));
}

#[test]
fn incomplete_cache_never_answers() {
    let policy = FakePolicy::default();
    (0..7).for_each(|number| policy.change(restrict(&format!("user-{number}"))));
    policy.change(PolicyChange::Unrestrict(user("user-0")));
    // Made while the first page is read: neither on it nor before its cursor.
    policy.meanwhile.borrow_mut().extend([
        restrict("user-0"),
        block("a", "b"),
        PolicyChange::Unblock(user("a"), user("b")),
    ]);
    let cache = PolicyCache::default();
    loop {
        let loading = refresh(&cache, &policy);
        let asked = policy.exact_reads.get();
        assert_eq!(rulings(&cache, &policy, "a", &["user-0", "b"]).unwrap(), [Ruling::Restricted, Ruling::Allowed]);
        let from_memory = policy.exact_reads.get() == asked;
        assert_eq!(from_memory, loading.state == CacheState::Warm);
        if from_memory {
            break;
        }
        assert!(loading.more);
    }
}

#[test]
fn answered_change_is_in_force() {
    let policy = FakePolicy::default();
    let cache = warm(&policy);
    // Other changes precede it in the log, more than one read returns.
    (0..3000).for_each(|number| policy.change(restrict(&format!("user-{number}"))));
    let changes = vec![Ok(block("bob", "alice")), Err(Error::Denied), Ok(restrict("full"))];
    let answers = poll_once(cache.apply(&policy, changes)).unwrap();
    assert_eq!(answers, [Ok(()), Err(Error::Denied), Err(Error::TooMany(1))], "in the order of the request");
    policy.unavailable.set(true);
    let seen = rulings(&cache, &policy, "alice", &["bob", "user-2999"]).unwrap();
    assert_eq!(seen, [Ruling::Blocked, Ruling::Restricted]);
}

#[test]
fn invalidations_are_reported_once_even_while_cold() {
    let policy = FakePolicy::default();
    (0..9).for_each(|number| policy.change(restrict(&format!("user-{number}"))));
    let cache = PolicyCache::default();
    // With no memory allowed it does not load.
    let first = poll_once(cache.refresh(&policy, 8, 0)).unwrap();
    assert_eq!((first.state, first.more), (CacheState::Cold, false));
    assert_eq!(first.invalidated, [Invalidation::All], "earlier changes are unknown");
    policy.change(block("bob", "alice"));
    let second = poll_once(cache.refresh(&policy, 8, 0)).unwrap();
    assert_eq!(second.invalidated, [Invalidation::Pair(user("bob"), user("alice"))], "also while it holds nothing");
    // Also while it loads.
    assert_eq!(refresh(&cache, &policy).state, CacheState::Loading);
    policy.change(PolicyChange::SetPrivacy(user("eve"), Privacy { presence: Audience::Nobody, ..Privacy::default() }));
    assert_eq!(refresh(&cache, &policy).invalidated, [Invalidation::Subject(user("eve"))]);
    while refresh(&cache, &policy).more {}
    policy.change(restrict("mallory"));
    assert_eq!(refresh(&cache, &policy).invalidated, [Invalidation::Subject(user("mallory"))]);
    assert!(refresh(&cache, &policy).invalidated.is_empty());
    // A change made through this cache invalidates as well.
    poll_once(cache.apply(&policy, vec![Ok(block("x", "y"))])).unwrap();
    assert_eq!(refresh(&cache, &policy).invalidated, [Invalidation::Pair(user("x"), user("y"))]);
    policy.change(PolicyChange::RestrictMany(Numbers::new(5, vec![0xff; 8]).unwrap()));
    assert_eq!(refresh(&cache, &policy).invalidated, [Invalidation::Numbers(5)]);
    // Very many changes are reported as one invalidation.
    (0..3000).for_each(|number| policy.change(restrict(&format!("many-{number}"))));
    assert_eq!(poll_once(cache.refresh(&policy, 5000, PLENTY)).unwrap().invalidated, [Invalidation::All]);
}

#[test]
fn gap_in_log_causes_reload() {
    let policy = FakePolicy::default();
    let cache = warm(&policy);
    (0..5).for_each(|number| policy.change(restrict(&format!("user-{number}"))));
    policy.trimmed.set(4);
    let lost = refresh(&cache, &policy);
    assert_eq!((lost.state, lost.more, lost.invalidated), (CacheState::Cold, true, vec![Invalidation::All]));
    // A change between the gap and the next read is not reported separately.
    policy.change(block("bob", "alice"));
    assert_eq!(refresh(&cache, &policy).invalidated, [Invalidation::All]);
    assert_eq!(rulings(&cache, &policy, "a", &["user-0"]).unwrap(), [Ruling::Restricted], "answered by the store");
    while refresh(&cache, &policy).more {}
    policy.unavailable.set(true);
    assert_eq!(rulings(&cache, &policy, "a", &["user-0", "user-4"]).unwrap(), [Ruling::Restricted; 2]);
}

#[test]
fn gap_while_loading_restarts_the_load() {
    let policy = FakePolicy::default();
    (0..9).for_each(|number| policy.change(restrict(&format!("user-{number}"))));
    let cache = PolicyCache::default();
    assert_eq!(refresh(&cache, &policy).state, CacheState::Loading);
    policy.change(restrict("late"));
    policy.trimmed.set(10);
    assert_eq!(refresh(&cache, &policy).invalidated, [Invalidation::All]);
    while refresh(&cache, &policy).more {}
    assert_eq!(refresh(&cache, &policy).state, CacheState::Warm);
    policy.unavailable.set(true);
    assert_eq!(rulings(&cache, &policy, "a", &["late", "user-8"]).unwrap(), [Ruling::Restricted; 2]);
}

#[test]
fn too_large_cache_still_reports_invalidations() {
    let policy = FakePolicy::default();
    (0..400).for_each(|number| policy.change(restrict(&format!("user-{number}"))));
    let cache = PolicyCache::default();
    let small = 10_000;
    let mut freshness = poll_once(cache.refresh(&policy, 8, small)).unwrap();
    while freshness.more {
        freshness = poll_once(cache.refresh(&policy, 8, small)).unwrap();
    }
    assert_eq!((freshness.state, freshness.bytes), (CacheState::TooLarge, 0));
    assert_eq!(rulings(&cache, &policy, "a", &["user-0", "b"]).unwrap(), [Ruling::Restricted, Ruling::Allowed]);
    policy.change(block("bob", "alice"));
    let invalidated = poll_once(cache.refresh(&policy, 8, small)).unwrap().invalidated;
    assert_eq!(invalidated, [Invalidation::Pair(user("bob"), user("alice"))]);
}

#[test]
fn unavailable_store_changes_nothing() {
    let policy = FakePolicy::default();
    let cache = warm(&policy);
    policy.change(block("bob", "alice"));
    policy.unavailable.set(true);
    assert_eq!(poll_once(cache.refresh(&policy, 8, PLENTY)), Err(Error::Unavailable(7)));
    assert_eq!(poll_once(cache.apply(&policy, vec![Ok(restrict("eve"))])), Err(Error::Unavailable(7)));
    policy.unavailable.set(false);
    let back = refresh(&cache, &policy);
    assert_eq!((back.state, back.invalidated.len()), (CacheState::Warm, 1));
    assert_eq!(rulings(&cache, &policy, "alice", &["bob"]).unwrap(), [Ruling::Blocked]);
}

#[test]
fn service_sees_all_unrestricted_users() {
    let policy = FakePolicy::default();
    policy.change(restrict("eve"));
    policy.change(PolicyChange::SetPrivacy(
        user("bob"),
        Privacy { presence: Audience::Nobody, last_seen: Audience::Nobody },
    ));
    for cache in [PolicyCache::default(), warm(&policy)] {
        let subjects = [user("eve"), user("bob")];
        let verdicts = poll_once(cache.check(&policy, None, subjects.iter().collect())).unwrap();
        assert_eq!(verdicts[0].presence, Ruling::Restricted);
        assert_eq!(verdicts[1], Verdict::OPEN);
    }
}

#[test]
fn checks_are_bounded() {
    let many: Vec<UserId> = (0..=MAX_SUBJECTS).map(|number| user(&number.to_string())).collect();
    let refused = poll_once(PolicyCache::default().check(&FakePolicy::default(), None, many.iter().collect()));
    assert_eq!(refused, Err(Error::TooMany(10_000)));
}
