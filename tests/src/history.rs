//! What those who drive people know of them, and whether what was published agrees with it.
//!
//! A driver knows no exact times: only that the store kept a beat at some instant between its request and the answer.
//! Whoever drives and the store they drive are on one machine, so both read the same clock.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::recorder::{Event, Published};

/// How far a host's idea of Redis's time may be off: by as much as one round trip takes on a busy machine.
const SKEW_MS: u64 = 150;

/// An offline event may be so late, by the promise.
pub const OFFLINE_BOUND_MS: u64 = 1000;

/// From a request to its answer, in Unix milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSpan {
    /// When it was sent.
    pub sent: u64,
    /// When it was answered.
    pub answered: u64,
}

impl RequestSpan {
    /// Runs something and says when that was.
    pub fn of<T>(call: impl FnOnce() -> T) -> (Self, T) {
        let sent = now_ms();
        let result = call();
        (Self { sent, answered: now_ms() }, result)
    }

    /// Whether it may have been at this instant.
    pub fn may_be(&self, at: u64) -> bool {
        self.sent <= at + SKEW_MS && at <= self.answered + SKEW_MS
    }

    /// Whether it was after this instant, beyond any doubt.
    fn is_after(&self, at: u64) -> bool {
        self.sent > at + SKEW_MS
    }

    /// Whether it was before this instant, beyond any doubt.
    fn is_before(&self, at: u64) -> bool {
        self.answered + SKEW_MS < at
    }
}

/// What a host answered to a beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcknowledgedBeat {
    /// When.
    pub during: RequestSpan,
    /// The state.
    pub state: String,
    /// Its version.
    pub version: u64,
}

/// One person, as their driver knows them.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Beats that were acknowledged.
    pub beats: Vec<AcknowledgedBeat>,
    /// Beats that failed: they may have been kept or not.
    pub unacknowledged: Vec<RequestSpan>,
    /// Departures, acknowledged or not.
    pub leaves: Vec<RequestSpan>,
    /// Whether they ever chose how to be seen. Then only their end is known.
    pub chooses: bool,
}

/// Now, in Unix milliseconds.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as u64
}

/// Every transition is published exactly once: no version comes twice or falls, and nothing is said twice in a row.
pub fn duplicate_events(heard: &Published) -> Vec<String> {
    let mut wrong = Vec::new();
    for (user, events) in heard {
        for (before, after) in events.iter().zip(events.iter().skip(1)) {
            if after.version <= before.version {
                wrong.push(format!("{user}: the version falls: {before:?}, then {after:?}"));
            }
            if after.line == before.line && after.repeats(before) {
                wrong.push(format!("{user}: said twice: {before:?}, then {after:?}"));
            }
        }
    }
    wrong
}

/// People who turned offline, each with how long after their beat that was decided, in milliseconds.
pub fn offline_transitions(heard: &Published) -> impl Iterator<Item = (&str, &Event, u64)> {
    heard.iter().flat_map(|(user, events)| {
        let pairs = events.iter().zip(events.iter().skip(1));
        let ended = pairs.filter(|(before, after)| before.state != "offline" && after.state == "offline");
        ended.map(|(_, after)| {
            (user.as_str(), after, after.at_ms().saturating_sub(after.last_seen.expect("a last seen")))
        })
    })
}

/// Whoever was declared offline too late, for a life of `alive_ms`.
pub fn late_offlines(heard: &Published, alive_ms: u64) -> Vec<String> {
    let late = offline_transitions(heard).filter(|(.., after)| *after > alive_ms + OFFLINE_BOUND_MS);
    late.map(|(user, event, after)| format!("{user}: a ghost, offline {after} ms after the last beat: {event:?}"))
        .collect()
}

impl History {
    /// What is wrong with what was published about this person, who is silent by now. `complete`: everything was heard.
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

    /// The newest beat that was acknowledged, and those after it of which nobody knows.
    fn last_beats(&self) -> impl Iterator<Item = RequestSpan> + '_ {
        let newest = self.beats.last().map(|told| told.during);
        let after = self
            .unacknowledged
            .iter()
            .copied()
            .filter(move |unacknowledged| newest.is_none_or(|n| unacknowledged.answered >= n.sent));
        newest.into_iter().chain(after)
    }

    /// Whether this may be when the person was last seen.
    pub fn last_seen_fits(&self, last_seen: u64) -> bool {
        self.last_beats().any(|beat| beat.may_be(last_seen))
    }

    /// What was answered and never published.
    fn unpublished(&self, events: &[Event]) -> Vec<String> {
        let is_published = |told: &&AcknowledgedBeat| {
            events.iter().any(|event| event.version == told.version && event.state == told.state)
                || (self.chooses && told.version == 0)
        };
        let lacking = self.beats.iter().filter(|told| !is_published(told));
        lacking.map(|told| format!("told, and never published: {told:?}")).collect()
    }

    /// Silences that nobody noticed: whoever comes back after one must find that they were gone.
    fn unnoticed(&self, alive_ms: u64) -> Vec<String> {
        let pairs = self.beats.iter().zip(self.beats.iter().skip(1));
        let silent = pairs.filter(|(before, after)| {
            let (from, to) = (before.during.answered, after.during.sent);
            let beat_between = self.unacknowledged.iter().any(|beat| beat.sent < to && beat.answered > from);
            to.saturating_sub(from) > alive_ms + OFFLINE_BOUND_MS + SKEW_MS && !beat_between
        });
        let unnoticed = silent.filter(|(_, after)| after.version / 1000 + SKEW_MS < after.during.sent);
        let lines =
            unnoticed.map(|(before, after)| format!("a silence that nobody noticed: {before:?}, then {after:?}"));
        let gone = self.beats.iter().filter(|told| told.state == "offline");
        lines.chain(gone.map(|told| format!("offline in answer to a beat: {told:?}"))).collect()
    }

    /// Offline events of which the driver knows better.
    fn false_offlines(&self, events: &[Event], alive_ms: u64) -> Vec<String> {
        let mut wrong = Vec::new();
        for event in events.iter().filter(|event| event.state == "offline") {
            let (at, last_seen) = (event.at_ms(), event.last_seen.unwrap_or(0));
            let known = self.beats.iter().map(|told| told.during).chain(self.unacknowledged.iter().copied());
            if !known.into_iter().any(|beat| beat.may_be(last_seen)) {
                wrong.push(format!("last seen when there was no beat: {event:?}"));
            }
            // A beat that found the record before this one was kept before this was decided, or the decision was stale.
            let found_before =
                |told: &AcknowledgedBeat| events.iter().find(|e| e.version > told.version) == Some(event);
            let ignored = self
                .beats
                .iter()
                .find(|told| told.during.is_after(last_seen) && (told.during.is_before(at) || found_before(told)));
            if let Some(told) = ignored {
                wrong.push(format!("offline in spite of a beat: {event:?}, but {told:?}"));
            }
            let left = self.leaves.iter().any(|left| left.answered + SKEW_MS >= last_seen && left.sent <= at + SKEW_MS);
            if at < last_seen + alive_ms && !left {
                wrong.push(format!("offline too early: {event:?}"));
            }
        }
        wrong
    }

    /// The end: offline, since the last beat.
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
        Event { state, note: Value::Null, last_seen, version: at_ms * 1000, line: 1 }
    }

    fn told(at_ms: u64, version_ms: u64) -> AcknowledgedBeat {
        let during = RequestSpan { sent: at_ms, answered: at_ms + 10 };
        AcknowledgedBeat { during, state: "online".to_owned(), version: version_ms * 1000 }
    }

    /// Came at 10,000, beat again at 11,000, and went.
    fn history() -> History {
        History { beats: vec![told(10_000, 10_005), told(11_000, 10_005)], ..History::default() }
    }

    fn published() -> Vec<Event> {
        vec![event("online", 10_005, 10_005), event("offline", 12_700, 11_005)]
    }

    fn wrong(history: &History, events: &[Event]) -> Vec<String> {
        let heard = Published::from([("bob".to_owned(), events.to_vec())]);
        let mut wrong = duplicate_events(&heard);
        wrong.extend(late_offlines(&heard, ALIVE_MS));
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
            ("said twice", vec![online(), event("online", 10_006, 10_005), event("offline", 12_700, 11_005)]),
            ("version falls", vec![online(), online(), event("offline", 12_700, 11_005)]),
            ("a ghost", vec![online(), event("offline", 13_600, 11_005)]),
            ("too early", vec![online(), event("offline", 12_400, 11_005)]),
            ("in spite of a beat", vec![online(), event("offline", 12_700, 10_005)]),
            ("no beat", vec![online(), event("offline", 13_000, 11_500)]),
            ("never published", vec![event("offline", 12_700, 11_005)]),
            ("ends as", vec![online()]),
        ];
        for (what, events) in cases {
            let wrong = wrong(&history(), &events);
            assert!(wrong.iter().any(|line| line.contains(what)), "{what}: {wrong:?}");
        }
    }

    #[test]
    fn missing_offline_event_is_reported() {
        let mut history = history();
        history.beats.push(told(15_000, 10_005));
        let events = [event("online", 10_005, 10_005), event("offline", 16_600, 15_005)];
        assert!(wrong(&history, &events).iter().any(|line| line.contains("nobody noticed")));
    }

    #[test]
    fn beat_ignored_by_concurrent_offline_is_reported() {
        let mut history = history();
        // It found the record of before, so it was kept before the offline record was.
        history.beats.push(told(12_690, 10_005));
        let events = [published(), vec![event("offline", 14_300, 12_695)]].concat();
        assert!(wrong(&history, &events).iter().any(|line| line.contains("in spite of a beat")));
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
