//! What every store of sessions must do: the claims of `wit/sessions.wit`, each a function that takes a fresh store.
//!
//! A store joins with one file: implement [`Subject`] for it and call `suite!`. The macro lists every claim once; one
//! that is not listed is dead code, which the lints refuse.

pub(crate) mod commits;
pub(crate) mod due;
pub(crate) mod eviction;
pub(crate) mod model;
pub(crate) mod races;
pub(crate) mod touches;

use std::sync::Arc;

use rollcall_core::settle::Decision;
use rollcall_core::{DeviceId, DeviceKind, Next, Published, Revision, Session, Span, Stance, State, Time, UserId};
use rollcall_functions::capabilities::{Commit, Committed, DeviceEvent, Eviction, Shards, Touch, Touched};
use rollcall_store::Store;

/// A fresh store, a clock that the test moves, and a record of everything that is published.
pub(crate) trait Subject: Send + Sync + 'static {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;
    /// Moves the store's clock on.
    fn advance(&self, span: Span);
    /// What was published about this person so far, in the order in which it came. A store that publishes over a
    /// network waits, up to a deadline, until there are at least so many.
    fn published(&self, user: &UserId, at_least: usize) -> impl Future<Output = Vec<Published>> + Send;
}

/// Makes a test of every claim for the store that `$subject` makes anew for each.
#[macro_export]
macro_rules! suite {
    ($subject:expr) => {
        $crate::suite! { @list $subject;
            touches:
                a_first_touch_finds_nothing_and_leaves_a_device,
                a_touch_finds_what_was_there_just_before,
                a_beat_renews_the_device,
                an_inactive_beat_keeps_the_time_of_last_use,
                a_dropped_device_lives_for_its_grace_and_no_longer_than_before,
                a_logged_out_device_is_dead_at_once_and_its_last_beat_is_not_lost,
                a_device_that_comes_back_after_a_logout_is_new,
                a_departure_of_somebody_absent_leaves_nothing,
                a_departure_of_an_unknown_device_moves_nothing_but_the_revision,
                a_beat_leaves_its_session_due_no_later_than_its_own_end,
                a_touch_never_moves_the_deadline_away,
                beyond_sixty_four_devices_the_oldest_beat_goes,
                touches_of_one_person_take_effect_in_order,
                a_full_batch_is_answered_in_order,
                empty_batches_are_answered,
                a_batch_above_the_bound_is_refused_whole,
                people_are_told_apart_byte_for_byte,
                every_touch_moves_the_revision;
            commits:
                an_absent_person_has_an_empty_session,
                a_commit_is_applied_whole,
                a_commit_leaves_what_it_does_not_name,
                pruning_drops_exactly_those_expired_by_then,
                a_touch_between_load_and_commit_makes_it_stale,
                of_two_commits_on_one_revision_the_first_is_applied,
                a_decision_on_an_absent_person_is_stale_once_they_came,
                commits_of_a_batch_stand_alone_and_in_order,
                a_person_can_be_made_by_a_choice_alone;
            eviction:
                a_session_that_stood_still_is_dropped,
                a_session_that_moved_stays_whole,
                dropping_an_absent_session_changes_nothing,
                a_revision_never_comes_back_after_eviction,
                a_decision_on_an_absence_is_stale_once_a_life_came_and_went;
            due:
                nobody_is_due_before_their_time,
                the_longest_overdue_come_first_up_to_the_limit,
                asking_changes_nothing,
                a_new_deadline_replaces_the_old,
                due_and_evictable_are_told_apart,
                shard_ranges_cover_everybody_exactly_once,
                ranges_and_limits_of_nothing_hold_nobody;
            races:
                of_many_commits_on_one_revision_exactly_one_is_applied,
                concurrent_touches_all_leave_their_traces,
                a_late_beat_beats_the_sweep,
                hammered_from_all_sides_each_transition_is_published_once;
            model:
                a_long_random_history_agrees_with_a_naive_model;
        }
    };
    (@list $subject:expr; $($module:ident: $($claim:ident),+;)+) => {
        $(mod $module {
            #[allow(unused_imports, reason = "a factory may name anything of its file")]
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

/// One beat's life in these tests.
pub(crate) const ALIVE_FOR: Span = Span::seconds(45);

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub(crate) fn device(name: &str) -> DeviceId {
    DeviceId::parse(name).unwrap()
}

pub(crate) fn beat(name: &str, on: &str) -> Touch {
    traced(name, on, DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: ALIVE_FOR })
}

pub(crate) fn idle_beat(name: &str, on: &str) -> Touch {
    traced(name, on, DeviceEvent::Beat { kind: DeviceKind::Web, active: false, alive_for: ALIVE_FOR })
}

pub(crate) fn traced(name: &str, on: &str, event: DeviceEvent) -> Touch {
    Touch { user: user(name), device: device(on), event }
}

pub(crate) async fn touch(store: &dyn Store, touches: Vec<Touch>) -> Touched {
    store.touch_many(touches.into_iter().collect()).await.unwrap()
}

/// Touches once, and answers the store's time.
pub(crate) async fn touch_one(store: &dyn Store, touched: Touch) -> Time {
    touch(store, vec![touched]).await.now
}

pub(crate) async fn load(store: &dyn Store, name: &str) -> Session {
    store.load_many(vec![user(name)]).await.unwrap().sessions.remove(0).unwrap()
}

pub(crate) async fn now(store: &dyn Store) -> Time {
    store.load_many(Vec::new()).await.unwrap().moment.now
}

/// A decision that changes nothing but what is waited for.
pub(crate) fn wait_for(next: Next) -> Decision {
    Decision { publish: None, choice: None, prune_expired_by: Time(0), next, lag: Span(0) }
}

/// A decision that publishes this state, seen now.
pub(crate) fn publish(state: State, now: Time) -> Decision {
    let published =
        Published { state, note: None, since: Some(now), last_seen: Some(now), version: now.0.saturating_mul(1000) };
    Decision { publish: Some(published), ..wait_for(Next::Settle(now + ALIVE_FOR)) }
}

pub(crate) fn choice(stance: Stance, at: Time) -> rollcall_core::Choice {
    rollcall_core::Choice { stance, at, until: None, note: None }
}

pub(crate) async fn commit(store: &dyn Store, name: &str, expected: Revision, decision: Decision) -> Committed {
    let commits = vec![Commit { user: user(name), expected, decision }];
    store.commit_many(commits).await.unwrap().remove(0).unwrap()
}

/// Commits on a fresh load, which nobody disturbs.
pub(crate) async fn settle(store: &dyn Store, name: &str, decision: Decision) {
    let revision = load(store, name).await.revision;
    assert_eq!(commit(store, name, revision, decision).await, Committed::Applied);
}

pub(crate) async fn evict(store: &dyn Store, name: &str, expected: Revision) -> Committed {
    store.evict_many(vec![Eviction { user: user(name), expected }]).await.unwrap().remove(0).unwrap()
}

pub(crate) fn all(store: &dyn Store) -> Shards {
    Shards { first: 0, end: store.shards() }
}

pub(crate) async fn due(store: &dyn Store) -> Vec<UserId> {
    store.due(all(store), 10_000).await.unwrap()
}

pub(crate) async fn evictable(store: &dyn Store) -> Vec<UserId> {
    store.evictable(all(store), 10_000).await.unwrap()
}

/// Xorshift: a history that can be told again by its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
