//! What the load generator knows about each simulated user, and the check of published events against it.
//!
//! The generator knows no exact times: the store kept a beat at some instant between request and answer. Generator and store run
//! on one machine, so both read the same clock.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::recorder::{Event, Published};

/// How far a host's estimate of Redis's time may be off: one round trip on a busy machine.
const SKEW_MS: u64 = 150;

/// How late an offline event may be by the promise.
pub const OFFLINE_BOUND_MS: u64 = 1000;

/// The time from a request to its answer, in Unix milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSpan {
    /// When it was sent.
    pub sent: u64,
    /// When it was answered.
    pub answered: u64,
}

impl RequestSpan {
    /// Measures a call.
    pub fn of<T>(call: impl FnOnce() -> T) -> (Self, T) {
        let sent = now_ms();
        let result = call();
        (Self { sent, answered: now_ms() }, result)
    }

    /// Whether the store may have done it at this instant.
    pub fn may_be(&self, at: u64) -> bool {
        self.sent <= at + SKEW_MS && at <= self.answered + SKEW_MS
    }

    /// Whether it was certainly after this instant.
    fn is_after(&self, at: u64) -> bool {
        self.sent > at + SKEW_MS
    }

    /// Whether it was certainly before this instant.
    fn is_before(&self, at: u64) -> bool {
        self.answered + SKEW_MS < at
    }
}

/// A beat with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcknowledgedBeat {
    /// When.
    pub during: RequestSpan,
    /// The state.
    pub state: String,
    /// Its version.
    pub version: u64,
}

/// Everything that was sent for one user.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Acknowledged beats.
    pub beats: Vec<AcknowledgedBeat>,
    /// Failed beats; the store may have kept them.
    pub unacknowledged: Vec<RequestSpan>,
    /// Logouts and drops, acknowledged or not.
    pub leaves: Vec<RequestSpan>,
    /// Whether the user ever made a choice. Then only the final state is checked.
    pub chooses: bool,
}

/// Now, in Unix milliseconds.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as u64
}

/// Violations of "every transition is published exactly once": a version that does not rise, or an event that repeats the one
/// before.
pub fn duplicate_events(published: &Published) -> Vec<String> {
    let mut wrong = Vec::new();
    for (user, events) in published {
        for (before, after) in events.iter().zip(events.iter().skip(1)) {
            if after.version <= before.version {
                wrong.push(format!("{user}: version falls: {before:?}, then {after:?}"));
            }
            if after.connection == before.connection && after.repeats(before) {
                wrong.push(format!("{user}: published twice: {before:?}, then {after:?}"));
            }
        }
    }
    wrong
}

/// Transitions to offline, each with the milliseconds from the last beat to the decision.
pub fn offline_transitions(published: &Published) -> impl Iterator<Item = (&str, &Event, u64)> {
    published.iter().flat_map(|(user, events)| {
        let pairs = events.iter().zip(events.iter().skip(1));
        let ended = pairs.filter(|(before, after)| before.state != "offline" && after.state == "offline");
        ended.map(|(_, after)| {
            (user.as_str(), after, after.at_ms().saturating_sub(after.last_seen.expect("a last seen")))
        })
    })
}

/// Users who went offline later than promised, if a beat lasts `alive_ms`.
pub fn late_offlines(published: &Published, alive_ms: u64) -> Vec<String> {
    let late = offline_transitions(published).filter(|(.., after)| *after > alive_ms + OFFLINE_BOUND_MS);
    late.map(|(user, event, after)| format!("{user}: late, offline {after} ms after the last beat: {event:?}"))
        .collect()
}

impl History {
    /// What is wrong with the events about this user, who is silent by now. `complete`: no event is missing.
    pub fn violations(&self, events: &[Event], alive_ms: u64, complete: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        if complete {
            wrong.extend(self.unpublished(events));
        }
        if !self.chooses {
            wrong.extend(self.unnoticed(alive_ms));
            wrong.extend(self.false_offlines(events, alive_ms));
        }
        wrong.extend(self.wrong_end(events.last()));
        wrong
    }

    /// The newest acknowledged beat, and the unacknowledged ones after it.
    fn last_beats(&self) -> impl Iterator<Item = RequestSpan> + '_ {
        let newest = self.beats.last().map(|beat| beat.during);
        let after = self
            .unacknowledged
            .iter()
            .copied()
            .filter(move |unacknowledged| newest.is_none_or(|n| unacknowledged.answered >= n.sent));
        newest.into_iter().chain(after)
    }

    /// Whether this is a possible last seen.
    pub fn last_seen_fits(&self, last_seen: u64) -> bool {
        self.last_beats().any(|beat| beat.may_be(last_seen))
    }

    /// Answers whose state was never published.
    fn unpublished(&self, events: &[Event]) -> Vec<String> {
        let is_published = |beat: &&AcknowledgedBeat| {
            events.iter().any(|event| event.version == beat.version && event.state == beat.state)
                || (self.chooses && beat.version == 0)
        };
        let lacking = self.beats.iter().filter(|beat| !is_published(beat));
        lacking.map(|beat| format!("answered, and never published: {beat:?}")).collect()
    }

    /// Silences without an offline event: a beat after one must start a new version.
    fn unnoticed(&self, alive_ms: u64) -> Vec<String> {
        let pairs = self.beats.iter().zip(self.beats.iter().skip(1));
        let silent = pairs.filter(|(before, after)| {
            let (from, to) = (before.during.answered, after.during.sent);
            let beat_between = self.unacknowledged.iter().any(|beat| beat.sent < to && beat.answered > from);
            to.saturating_sub(from) > alive_ms + OFFLINE_BOUND_MS + SKEW_MS && !beat_between
        });
        let unnoticed = silent.filter(|(_, after)| after.version / 1000 + SKEW_MS < after.during.sent);
        let violations =
            unnoticed.map(|(before, after)| format!("silence without an offline event: {before:?}, then {after:?}"));
        let gone = self.beats.iter().filter(|beat| beat.state == "offline");
        violations.chain(gone.map(|beat| format!("offline in answer to a beat: {beat:?}"))).collect()
    }

    /// Offline events that contradict the history.
    fn false_offlines(&self, events: &[Event], alive_ms: u64) -> Vec<String> {
        let mut wrong = Vec::new();
        for event in events.iter().filter(|event| event.state == "offline") {
            let (at, last_seen) = (event.at_ms(), event.last_seen.unwrap_or(0));
            let known = self.beats.iter().map(|beat| beat.during).chain(self.unacknowledged.iter().copied());
            if !known.into_iter().any(|beat| beat.may_be(last_seen)) {
                wrong.push(format!("last seen when there was no beat: {event:?}"));
            }
            // A beat answered with the record before this one was kept first, so the decision ignored it.
            let found_before =
                |beat: &AcknowledgedBeat| events.iter().find(|e| e.version > beat.version) == Some(event);
            let ignored = self
                .beats
                .iter()
                .find(|beat| beat.during.is_after(last_seen) && (beat.during.is_before(at) || found_before(beat)));
            if let Some(beat) = ignored {
                wrong.push(format!("offline in spite of a beat: {event:?}, but {beat:?}"));
            }
            let left = self.leaves.iter().any(|left| left.answered + SKEW_MS >= last_seen && left.sent <= at + SKEW_MS);
            if at < last_seen + alive_ms && !left {
                wrong.push(format!("offline too early: {event:?}"));
            }
        }
        wrong
    }

    /// The last event must be offline, with the last beat as last seen.
    fn wrong_end(&self, last: Option<&Event>) -> Option<String> {
        if self.beats.is_empty() && self.unacknowledged.is_empty() {
            return last.map(|event| format!("published, and never beat: {event:?}"));
        }
        let is_right = last.is_some_and(|event| {
            event.state == "offline" && event.last_seen.is_some_and(|last_seen| self.last_seen_fits(last_seen))
        });
        let kept_none = self.beats.is_empty() && last.is_none();
        (!is_right && !kept_none).then(|| format!("ends as {last:?}, but {:?}", self.last_beats().collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const ALIVE_MS: u64 = 1500;

    fn event(state: &str, at_ms: u64, last_seen: u64) -> Event {
        let (state, last_seen) = (state.to_owned(), Some(last_seen));
        Event { state, note: Value::Null, last_seen, version: at_ms * 1000, connection: 1 }
    }

    fn acknowledged(at_ms: u64, version_ms: u64) -> AcknowledgedBeat {
        let during = RequestSpan { sent: at_ms, answered: at_ms + 10 };
        AcknowledgedBeat { during, state: "online".to_owned(), version: version_ms * 1000 }
    }

    /// Beats at 10,000 and 11,000, then silence.
    fn history() -> History {
        History { beats: vec![acknowledged(10_000, 10_005), acknowledged(11_000, 10_005)], ..History::default() }
    }

    fn published() -> Vec<Event> {
        vec![event("online", 10_005, 10_005), event("offline", 12_700, 11_005)]
    }

    fn wrong(history: &History, events: &[Event]) -> Vec<String> {
        let published = Published::from([("bob".to_owned(), events.to_vec())]);
        let mut wrong = duplicate_events(&published);
        wrong.extend(late_offlines(&published, ALIVE_MS));
        wrong.extend(history.violations(events, ALIVE_MS, true));
        wrong
    }

    #[test]
    fn correct_history_has_no_violations() {
        assert_eq!(wrong(&history(), &published()), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_violation_is_reported() {
        let online = || published().remove(0);
        let cases: [(&str, Vec<Event>); 8] = [
            ("published twice", vec![online(), event("online", 10_006, 10_005), event("offline", 12_700, 11_005)]),
            ("version falls", vec![online(), online(), event("offline", 12_700, 11_005)]),
            ("late", vec![online(), event("offline", 13_600, 11_005)]),
            ("too early", vec![online(), event("offline", 12_400, 11_005)]),
            ("in spite of a beat", vec![online(), event("offline", 12_700, 10_005)]),
            ("no beat", vec![online(), event("offline", 13_000, 11_500)]),
            ("never published", vec![event("offline", 12_700, 11_005)]),
            ("ends as", vec![online()]),
        ];
        for (what, events) in cases {
            let wrong = wrong(&history(), &events);
            assert!(wrong.iter().any(|violation| violation.contains(what)), "{what}: {wrong:?}");
        }
    }

    #[test]
    fn missing_offline_event_is_reported() {
        let mut history = history();
        history.beats.push(acknowledged(15_000, 10_005));
        let events = [event("online", 10_005, 10_005), event("offline", 16_600, 15_005)];
        assert!(wrong(&history, &events).iter().any(|violation| violation.contains("silence without")));
    }

    #[test]
    fn beat_ignored_by_concurrent_offline_is_reported() {
        let mut history = history();
        // Answered with the online record, so it was kept before the offline record was written.
        history.beats.push(acknowledged(12_690, 10_005));
        let events = [published(), vec![event("offline", 14_300, 12_695)]].concat();
        assert!(wrong(&history, &events).iter().any(|violation| violation.contains("in spite of a beat")));
    }

    #[test]
    fn logout_and_unacknowledged_beats_are_allowed_for() {
        let mut history = history();
        history.leaves.push(RequestSpan { sent: 11_200, answered: 11_210 });
        assert_eq!(
            wrong(&history, &[event("online", 10_005, 10_005), event("offline", 11_205, 11_005)]),
            Vec::<String>::new()
        );
        history.leaves.clear();
        history.unacknowledged.push(RequestSpan { sent: 12_000, answered: 12_010 });
        for (at, last_seen) in [(12_700, 11_005), (13_600, 12_005)] {
            let events = [event("online", 10_005, 10_005), event("offline", at, last_seen)];
            assert_eq!(wrong(&history, &events), Vec::<String>::new());
        }
    }
}
