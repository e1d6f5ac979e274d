//! The suite of every session store: each claim of `wit/sessions.wit` is a function that takes a new store.
//!
//! To test a store, implement [`Subject`] for it and call `suite!`. The macro lists every claim once; an unlisted one is
//! dead code, which the lints refuse.

pub(crate) mod commits;
pub(crate) mod due;
pub(crate) mod eviction;
pub(crate) mod model;
pub(crate) mod races;
pub(crate) mod records;
pub(crate) mod touches;

use std::sync::Arc;

use rollcall_core::settle::Decision;
use rollcall_core::{DeviceId, DeviceKind, Next, Published, Revision, Session, Span, Stance, State, Time, UserId};
use rollcall_functions::capabilities::{Commit, Committed, DeviceEvent, Eviction, Shards, Touch, Touched};
use rollcall_store::SessionStore;

/// A new store, a clock that the test moves, and a record of all publications.
pub(crate) trait Subject: Send + Sync + 'static {
    /// The store.
    fn store(&self) -> Arc<dyn SessionStore>;
    /// Advances the store's clock.
    fn advance(&self, span: Span);
    /// The publications about this user so far, in order of arrival. A store that publishes over a network waits, up to
    /// a deadline, for at least `at_least` of them.
    fn published(&self, user: &UserId, at_least: usize) -> impl Future<Output = Vec<Published>> + Send;
}

/// Makes a test of every claim; `$subject` creates a new store for each.
#[macro_export]
macro_rules! suite {
    ($subject:expr) => {
        $crate::suite! { @list $subject;
            touches:
                first_touch_creates_a_device,
                touch_returns_the_previous_state,
                beat_renews_the_device,
                inactive_beat_keeps_last_use,
                drop_only_shortens_expiry_to_the_grace,
                logout_expires_device_and_keeps_last_beat,
                device_returning_after_logout_is_new,
                departure_of_absent_user_creates_nothing,
                departure_of_unknown_device_changes_only_revision,
                beat_makes_session_due_by_its_expiry,
                touch_never_postpones_the_deadline,
                device_limit_drops_the_oldest_beat,
                touches_of_one_user_apply_in_order,
                full_batch_is_answered_in_order,
                empty_batches_are_answered,
                oversized_batches_are_refused,
                user_ids_are_compared_byte_for_byte,
                every_touch_changes_the_revision;
            commits:
                absent_user_has_an_empty_session,
                commit_is_applied_completely,
                commit_keeps_unnamed_fields,
                pruning_drops_exactly_the_expired_devices,
                touch_after_load_makes_commit_stale,
                first_of_two_commits_wins,
                commit_on_absence_is_stale_after_a_touch,
                commits_of_a_batch_are_independent,
                choice_alone_creates_a_session;
            records:
                absent_user_has_no_record,
                record_is_the_published_one,
                record_holds_until_the_deadline,
                commit_without_record_keeps_the_note,
                departure_shortens_the_record,
                offline_record_holds_without_beats,
                invisible_record_holds_despite_beats,
                records_come_in_the_order_asked;
            eviction:
                unchanged_session_is_evicted,
                changed_session_is_not_evicted,
                evicting_an_absent_session_changes_nothing,
                revision_never_repeats_after_eviction,
                commit_on_absence_is_stale_after_an_eviction;
            due:
                user_is_due_from_the_deadline_on,
                earliest_deadlines_come_first,
                due_query_changes_nothing,
                new_deadline_replaces_the_old,
                due_and_evictable_are_separate,
                shard_ranges_cover_every_user_once,
                empty_ranges_and_limits_return_nothing;
            races:
                one_of_many_concurrent_commits_wins,
                concurrent_touches_are_all_recorded,
                late_beat_beats_the_sweep,
                concurrent_calls_publish_each_transition_once;
            model:
                random_history_matches_a_naive_model;
        }
    };
    (@list $subject:expr; $($module:ident: $($claim:ident),+;)+) => {
        $(mod $module {
            #[allow(unused_imports, reason = "a factory may use anything of its file")]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $claim() {
                    $crate::suite::$module::$claim($subject).await;
                }
            )+
        })+
    };
}

/// How long a beat keeps a device alive in these tests.
pub(crate) const ALIVE_FOR: Span = Span::seconds(45);

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub(crate) fn device(name: &str) -> DeviceId {
    DeviceId::parse(name).unwrap()
}

pub(crate) fn beat(name: &str, on: &str) -> Touch {
    touch_with(name, on, DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: ALIVE_FOR })
}

pub(crate) fn idle_beat(name: &str, on: &str) -> Touch {
    touch_with(name, on, DeviceEvent::Beat { kind: DeviceKind::Web, active: false, alive_for: ALIVE_FOR })
}

pub(crate) fn touch_with(name: &str, on: &str, event: DeviceEvent) -> Touch {
    Touch { user: user(name), device: device(on), event }
}

pub(crate) async fn touch(store: &dyn SessionStore, touches: Vec<Touch>) -> Touched {
    store.touch_many(touches.into_iter().collect()).await.unwrap()
}

/// Touches once; returns the store's time.
pub(crate) async fn touch_one(store: &dyn SessionStore, one: Touch) -> Time {
    touch(store, vec![one]).await.now
}

pub(crate) async fn load(store: &dyn SessionStore, name: &str) -> Session {
    store.load_many(vec![user(name)]).await.unwrap().sessions.remove(0).unwrap()
}

pub(crate) async fn now(store: &dyn SessionStore) -> Time {
    store.load_many(Vec::new()).await.unwrap().moment.now
}

/// A decision that changes only the deadline.
pub(crate) fn wait_for(next: Next) -> Decision {
    Decision { publish: None, choice: None, prune_expired_by: Time(0), next, lag: Span(0) }
}

/// A decision that publishes this state with last seen now.
pub(crate) fn publish(state: State, now: Time) -> Decision {
    let published =
        Published { state, note: None, since: Some(now), last_seen: Some(now), version: now.0.saturating_mul(1000) };
    Decision { publish: Some(published), ..wait_for(Next::Settle(now + ALIVE_FOR)) }
}

pub(crate) fn choice(stance: Stance, at: Time) -> rollcall_core::Choice {
    rollcall_core::Choice { stance, at, until: None, note: None }
}

pub(crate) async fn commit(store: &dyn SessionStore, name: &str, expected: Revision, decision: Decision) -> Committed {
    let commits = vec![Commit { user: user(name), expected, decision }];
    store.commit_many(commits).await.unwrap().remove(0).unwrap()
}

/// Commits on a fresh load; it must succeed.
pub(crate) async fn settle(store: &dyn SessionStore, name: &str, decision: Decision) {
    let revision = load(store, name).await.revision;
    assert_eq!(commit(store, name, revision, decision).await, Committed::Applied);
}

pub(crate) async fn evict(store: &dyn SessionStore, name: &str, expected: Revision) -> Committed {
    store.evict_many(vec![Eviction { user: user(name), expected }]).await.unwrap().remove(0).unwrap()
}

pub(crate) fn all(store: &dyn SessionStore) -> Shards {
    Shards { first: 0, end: store.shards() }
}

pub(crate) async fn due(store: &dyn SessionStore) -> Vec<UserId> {
    store.due(all(store), 10_000).await.unwrap()
}

pub(crate) async fn evictable(store: &dyn SessionStore) -> Vec<UserId> {
    store.evictable(all(store), 10_000).await.unwrap()
}

/// Xorshift: a seed reproduces its history.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
