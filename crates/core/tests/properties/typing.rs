//! Typing: whoever watches is told seldom, and is right all the same.

use proptest::prelude::*;
use rollcall_core::typing::{Next, PUBLISH_INTERVAL, TypingRecord};
use rollcall_core::{Span, Time};

use crate::config;

const START: u64 = 1_700_000_000_000;

/// Signs, each some time after the one before: mostly faster than telling is allowed.
fn signs() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![0..50_u64, 0..1200_u64, 0..8000_u64];
    let lasts = prop_oneof![Just(0_u64), 1..400_u64, Just(5000_u64)];
    prop::collection::vec((gap, lasts), 1..30)
}

/// What happened at which millisecond.
#[derive(Default)]
struct Story {
    /// What is true from then on, by a model too simple to be wrong: the last sign, until it ends.
    truths: Vec<(u64, u64)>,
    tellings: Vec<(u64, Option<u64>)>,
}

impl Story {
    fn truth(&self, at: u64) -> Option<u64> {
        let (_, until) = *self.truths.iter().rev().find(|(since, _)| *since <= at)?;
        (until > at).then_some(until)
    }

    /// What somebody believes who was told everything: the last word, until it ends.
    fn belief(&self, at: u64) -> Option<u64> {
        let (_, until) = *self.tellings.iter().rev().find(|(told, _)| *told <= at)?;
        until.filter(|until| *until > at)
    }
}

/// Plays the signs, and flushes when told to, one at a time.
fn play(signs: &[(u64, u64)]) -> (Story, u64) {
    let (mut story, mut record, mut flush_at) = (Story::default(), TypingRecord::default(), None);
    let mut arrivals = Vec::new();
    let mut at = START;
    for (gap, lasts) in signs {
        at += gap;
        arrivals.push((at, *lasts));
    }
    let mut arrivals = arrivals.into_iter().peekable();
    let end = at + 10_000;
    loop {
        let arrives = arrivals.peek().map_or(u64::MAX, |(at, _)| *at);
        let flushes = flush_at.unwrap_or(u64::MAX);
        let (now, next) = if flushes <= arrives && flushes < u64::MAX {
            flush_at = None;
            (flushes, record.flush(Time(flushes)))
        } else if let Some((now, lasts)) = arrivals.next() {
            story.truths.push((now, if lasts == 0 { 0 } else { now + lasts }));
            (now, record.signal(Time(now), Span(lasts)))
        } else {
            return (story, end);
        };
        match next {
            Next::Nothing => {}
            Next::Publish(until) => story.tellings.push((now, until.map(|until| until.0))),
            Next::Flush(after) => {
                flush_at.get_or_insert(now + after.0);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn nobody_is_told_twice_within_a_second(signs in signs()) {
        let (story, _) = play(&signs);
        for pair in story.tellings.windows(2) {
            prop_assert!(pair[1].0 - pair[0].0 >= PUBLISH_INTERVAL.0, "{:?}", story.tellings);
        }
    }

    #[test]
    fn what_is_believed_was_true_within_the_last_second(signs in signs()) {
        let (story, end) = play(&signs);
        let mut instants: Vec<u64> = story.truths.iter().flat_map(|(since, until)| [*since, since + 999, since + 1000, *until]).collect();
        instants.extend(story.tellings.iter().flat_map(|(told, _)| [*told, told + 1]));
        for at in instants.into_iter().filter(|at| (START..=end).contains(at)) {
            let changed_lately = story.truths.iter().any(|(since, _)| *since <= at && at < since + PUBLISH_INTERVAL.0);
            prop_assert!(
                story.belief(at) == story.truth(at) || changed_lately,
                "at {}: {:?} is believed and {:?} is true", at - START, story.belief(at), story.truth(at)
            );
        }
    }

    #[test]
    fn in_the_end_everybody_is_right(signs in signs()) {
        let (story, end) = play(&signs);
        for at in [end - 9_000, end - 8_999, end - 5_000, end] {
            prop_assert_eq!(story.belief(at), story.truth(at));
        }
    }

    #[test]
    fn nothing_is_told_that_changes_nothing(signs in signs()) {
        let (story, _) = play(&signs);
        for (index, (at, until)) in story.tellings.iter().enumerate() {
            let before = Story { truths: Vec::new(), tellings: story.tellings[..index].to_vec() };
            prop_assert_ne!(before.belief(*at), *until);
            // Of several signs in one millisecond any may have been the last so far.
            let was_true = (0..=story.truths.len()).any(|count| {
                let so_far = Story { truths: story.truths[..count].to_vec(), tellings: Vec::new() };
                let is_past = story.truths[count..].iter().all(|(since, _)| since >= at);
                is_past && so_far.truth(*at) == *until
            });
            prop_assert!(was_true, "what is told is true");
        }
    }

    #[test]
    fn a_revision_that_is_forgotten_in_time_is_not_missed(signs in signs()) {
        let (mut kept, mut forgetful) = (TypingRecord::default(), TypingRecord::default());
        let mut now = START;
        for (gap, lasts) in signs {
            now += gap;
            if forgetful.forget_at() <= Time(now) {
                forgetful = TypingRecord::default();
            }
            prop_assert_eq!(kept.signal(Time(now), Span(lasts)), forgetful.signal(Time(now), Span(lasts)));
        }
    }
}
