//! Computes a user's state from devices, choice and time. It is never read from the existence of a key: a user with a live
//! device is never offline, one with none is never online.

use crate::{Moment, Note, Published, Rules, Session, Stance, State, Time};

/// What others see of a user at one instant: a [`Published`] without its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The state.
    pub state: State,
    /// The note.
    pub note: Option<Note>,
    /// When the state began; for offline, the last seen time.
    pub since: Option<Time>,
    /// The newest beat made while visible.
    pub last_seen: Option<Time>,
}

impl Derived {
    /// This as a record with a version.
    pub fn into_published(self, version: u64) -> Published {
        Published { state: self.state, note: self.note, since: self.since, last_seen: self.last_seen, version }
    }

    /// Whether publishing this would tell others something new. A newer last seen counts only while the user is offline.
    pub fn differs_from(&self, published: Option<&Published>) -> bool {
        match published {
            None => self.state != State::Offline || self.note.is_some() || self.last_seen.is_some(),
            Some(p) => {
                self.state != p.state
                    || self.note != p.note
                    || (self.state == State::Offline && self.last_seen != p.last_seen)
            }
        }
    }
}

/// What others see of this user at this moment.
pub fn derive(session: &Session, moment: &Moment, rules: &Rules) -> Derived {
    let state = state(session, moment, rules);
    let last_seen = last_seen(session);
    let since = match state {
        State::Offline => last_seen,
        _ => Some(began(session, moment, rules, state)),
    };
    let note = session.choice.as_ref().and_then(|choice| choice.note_at(moment.now)).cloned();
    Derived { state, note, since, last_seen }
}

/// The state alone.
pub fn state(session: &Session, moment: &Moment, rules: &Rules) -> State {
    let mut alive = session.devices.iter().filter(|device| moment.is_alive(device)).peekable();
    if alive.peek().is_none() {
        return State::Offline;
    }
    match stance(session, moment.now) {
        Stance::Invisible => State::Offline,
        Stance::Busy => State::Busy,
        Stance::Away => State::Away,
        Stance::Auto => {
            let used = alive.any(|device| device.active_at.is_some_and(|at| at + rules.idle_after > moment.now));
            if used { State::Online } else { State::Away }
        }
    }
}

/// The newest beat made while visible, dead devices included.
pub fn last_seen(session: &Session) -> Option<Time> {
    let before = session.published.as_ref().and_then(|published| published.last_seen);
    session.devices.iter().map(|device| device.beat_at).filter(|&at| counts(session, at)).max().max(before)
}

/// Whether a beat at this instant counts for last seen: it was not made while invisible.
pub(crate) fn counts(session: &Session, beat_at: Time) -> bool {
    session.choice.as_ref().is_none_or(|choice| !choice.hid(beat_at))
}

fn stance(session: &Session, now: Time) -> Stance {
    session.choice.as_ref().map_or(Stance::Auto, |choice| choice.stance_at(now))
}

/// When a state other than offline began: if it is the published one, when that began; otherwise the latest of its possible
/// causes.
fn began(session: &Session, moment: &Moment, rules: &Rules, state: State) -> Time {
    let before = session.published.as_ref();
    if let Some(published) = before.filter(|p| p.state == state)
        && let Some(since) = published.since
    {
        return since;
    }
    let alive = || session.devices.iter().filter(|device| moment.is_alive(device));
    let was_offline = before.is_none_or(|p| p.state == State::Offline);
    let arrival = if was_offline { alive().map(|device| device.beat_at).max() } else { None };
    let used = alive().filter_map(|device| device.active_at).max();
    let turn = session.choice.as_ref().map(|choice| match choice.until {
        Some(until) if until <= moment.now => until,
        _ => choice.at,
    });
    // A choice from before the published state began is not the cause of its end.
    let turn = turn.filter(|&turn| before.and_then(|p| p.since).is_none_or(|since| turn >= since));
    let cause = match (state, stance(session, moment.now)) {
        (State::Online, _) => used.filter(|_| was_offline || before.is_some_and(|p| p.state == State::Away)).max(turn),
        (State::Away, Stance::Auto) => arrival.max(used.map(|at| at + rules.idle_after)).max(turn),
        _ => arrival.max(turn),
    };
    cause.unwrap_or(moment.now).min(moment.now)
}
