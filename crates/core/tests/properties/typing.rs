//! Typing: watchers receive few updates and still show the truth.

use proptest::prelude::*;
use rollcall_core::typing::{PUBLISH_INTERVAL, TypingAction, TypingRecord};
use rollcall_core::{Span, Time};

use crate::config;

const START: u64 = 1_700_000_000_000;

/// Typing signals with the time since the previous one, which is mostly shorter than the publish interval.
fn signals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![0..50_u64, 0..1200_u64, 0..8000_u64];
    let lasts = prop_oneof![Just(0_u64), 1..400_u64, Just(5000_u64)];
    prop::collection::vec((gap, lasts), 1..30)
}

/// What happened, by millisecond.
#[derive(Default)]
struct Timeline {
    /// The naive model: from this time on the last signal holds, until it ends.
    truths: Vec<(u64, u64)>,
    updates: Vec<(u64, Option<u64>)>,
}

impl Timeline {
    fn truth(&self, at: u64) -> Option<u64> {
        let (_, until) = *self.truths.iter().rev().find(|(since, _)| *since <= at)?;
        (until > at).then_some(until)
    }

    /// What a watcher shows: the last update, until it ends.
    fn shown(&self, at: u64) -> Option<u64> {
        let (_, until) = *self.updates.iter().rev().find(|(sent, _)| *sent <= at)?;
        until.filter(|until| *until > at)
    }
}

/// Applies the signals, and flushes when the record asks for it.
fn replay(signals: &[(u64, u64)]) -> (Timeline, u64) {
    let (mut timeline, mut record, mut flush_at) = (Timeline::default(), TypingRecord::default(), None);
    let mut arrivals = Vec::new();
    let mut at = START;
    for (gap, lasts) in signals {
        at += gap;
        arrivals.push((at, *lasts));
    }
    let mut arrivals = arrivals.into_iter().peekable();
    let end = at + 10_000;
    loop {
        let next_arrival = arrivals.peek().map_or(u64::MAX, |(at, _)| *at);
        let next_flush = flush_at.unwrap_or(u64::MAX);
        let (now, action) = if next_flush <= next_arrival && next_flush < u64::MAX {
            flush_at = None;
            (next_flush, record.flush(Time(next_flush)))
        } else if let Some((now, lasts)) = arrivals.next() {
            timeline.truths.push((now, if lasts == 0 { 0 } else { now + lasts }));
            (now, record.signal(Time(now), Span(lasts)))
        } else {
            return (timeline, end);
        };
        match action {
            TypingAction::Nothing => {}
            TypingAction::Publish(until) => timeline.updates.push((now, until.map(|until| until.0))),
            TypingAction::Flush(after) => {
                flush_at.get_or_insert(now + after.0);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn updates_are_at_least_one_second_apart(signals in signals()) {
        let (timeline, _) = replay(&signals);
        for pair in timeline.updates.windows(2) {
            prop_assert!(pair[1].0 - pair[0].0 >= PUBLISH_INTERVAL.0, "{:?}", timeline.updates);
        }
    }

    #[test]
    fn shown_typing_lags_at_most_one_second(signals in signals()) {
        let (timeline, end) = replay(&signals);
        let around = |(since, until): &(u64, u64)| [*since, since + 999, since + 1000, *until];
        let mut instants: Vec<u64> = timeline.truths.iter().flat_map(around).collect();
        instants.extend(timeline.updates.iter().flat_map(|(sent, _)| [*sent, sent + 1]));
        for at in instants.into_iter().filter(|at| (START..=end).contains(at)) {
            let is_recent = |(since, _): &(u64, u64)| *since <= at && at < since + PUBLISH_INTERVAL.0;
            let changed_lately = timeline.truths.iter().any(is_recent);
            prop_assert!(
                timeline.shown(at) == timeline.truth(at) || changed_lately,
                "at {}: {:?} is shown and {:?} is true", at - START, timeline.shown(at), timeline.truth(at)
            );
        }
    }

    #[test]
    fn watchers_end_with_the_truth(signals in signals()) {
        let (timeline, end) = replay(&signals);
        for at in [end - 9_000, end - 8_999, end - 5_000, end] {
            prop_assert_eq!(timeline.shown(at), timeline.truth(at));
        }
    }

    #[test]
    fn every_update_is_true_and_changes_something(signals in signals()) {
        let (timeline, _) = replay(&signals);
        for (index, (at, until)) in timeline.updates.iter().enumerate() {
            let before = Timeline { truths: Vec::new(), updates: timeline.updates[..index].to_vec() };
            prop_assert_ne!(before.shown(*at), *until);
            // Of several signals in one millisecond, any may have been the last so far.
            let was_true = (0..=timeline.truths.len()).any(|count| {
                let so_far = Timeline { truths: timeline.truths[..count].to_vec(), updates: Vec::new() };
                let is_past = timeline.truths[count..].iter().all(|(since, _)| since >= at);
                is_past && so_far.truth(*at) == *until
            });
            prop_assert!(was_true, "a published update is true");
        }
    }

    #[test]
    fn record_dropped_at_forget_time_is_not_missed(signals in signals()) {
        let (mut kept, mut dropped) = (TypingRecord::default(), TypingRecord::default());
        let mut now = START;
        for (gap, lasts) in signals {
            now += gap;
            if dropped.forget_at() <= Time(now) {
                dropped = TypingRecord::default();
            }
            prop_assert_eq!(kept.signal(Time(now), Span(lasts)), dropped.signal(Time(now), Span(lasts)));
        }
    }
}
