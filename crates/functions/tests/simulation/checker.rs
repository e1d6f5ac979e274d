//! Checks the invariants. The first violation is recorded with its place and ends the run.
//!
//! A watcher shows the last publication, so that publication is compared with the truth, not the record in the store.

use rollcall_core::{Choice, DeviceId, OutageGrace, Published, Rules, Span, State, Time};

use crate::oracle::Oracle;

/// How late a publication may be while nothing fails: invariant 4.
const PUBLISH_WITHIN: Span = Span(1000);

/// A user as the checker sees them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    pub(crate) oracle: Oracle,
    /// The last publication, even if the store has evicted the record.
    last: Option<Published>,
    pub(crate) publications: u64,
    pub(crate) offlines: u64,
    /// Since when the last publication is wrong.
    wrong_since: Option<Time>,
    /// A procedure for this user was interrupted: a wrong publication is tolerated until the deadline that corrects it.
    tolerated_until: Time,
    last_seen_answered: Option<Time>,
}

/// All users, and the first violation.
#[derive(Debug)]
pub(crate) struct Checker {
    pub(crate) rules: Rules,
    pub(crate) watched: Vec<Watched>,
    /// Since when sweeps run and calls succeed; `None` during a fault.
    pub(crate) healthy_since: Option<Time>,
    pub(crate) violation: Option<String>,
}

impl Checker {
    pub(crate) fn new(rules: Rules, users: usize) -> Self {
        Self { rules, watched: vec![Watched::default(); users], healthy_since: Some(Time(0)), violation: None }
    }

    pub(crate) fn oracle(&mut self, user: usize) -> &mut Oracle {
        &mut self.watched[user].oracle
    }

    pub(crate) fn violate(&mut self, now: Time, user: usize, what: impl Into<String>) {
        if self.violation.is_none() {
            let watched = &self.watched[user];
            self.violation = Some(format!("u{user} at {}: {}\n{watched:#?}", now.0, what.into()));
        }
    }

    /// A procedure for this user was interrupted. A deadline within `d + ε` corrects what it left undone.
    pub(crate) fn tolerate(&mut self, now: Time, user: usize) {
        let until = now + self.rules.alive_for();
        let watched = &mut self.watched[user];
        watched.tolerated_until = watched.tolerated_until.max(until);
    }

    /// An active heartbeat succeeded: it must correct the publication at once.
    pub(crate) fn end_tolerance(&mut self, now: Time, user: usize) {
        let watched = &mut self.watched[user];
        watched.tolerated_until = watched.tolerated_until.min(now);
    }

    /// A record was published at `now`, decided on what was loaded at `decided`. By the store's compare-and-swap nothing
    /// came between.
    pub(crate) fn published(&mut self, now: Time, decided: Time, user: usize, published: &Published) {
        let watched = &self.watched[user];
        let oracle = &watched.oracle;
        let truth = oracle.truth(decided, &self.rules);
        let offline = published.state == State::Offline;
        let mut broken: Vec<String> = Vec::new();
        if watched.last.as_ref().is_some_and(|last| last.version >= published.version) || published.version == 0 {
            broken.push("2: versions strictly rise".to_owned());
        }
        if !differs(watched.last.as_ref(), published) {
            broken.push("2: consecutive publications differ visibly".to_owned());
        }
        if offline && oracle.has_live_device(now) && !oracle.is_invisible(decided) {
            broken.push("3: a late heartbeat beats the sweep".to_owned());
        }
        if truth.state != published.state || truth.note != published.note || oracle.hot_seen != published.last_seen {
            broken.push(format!("1: a publication is not the truth {truth:?}, seen {:?}", oracle.hot_seen));
        }
        if offline && published.since != published.last_seen {
            broken.push("1: since and last seen of an offline user differ".to_owned());
        }
        if !offline && published.since.is_none_or(|since| since > decided) {
            broken.push("1: a state begins in the future".to_owned());
        }
        if let Some(first) = broken.first() {
            self.violate(now, user, format!("{first}: {published:?} decided at {}", decided.0));
        }
        let watched = &mut self.watched[user];
        watched.last = Some(published.clone());
        watched.publications += 1;
        watched.offlines += u64::from(offline);
    }

    pub(crate) fn chosen(&mut self, decided: Time, user: usize, choice: Choice) {
        self.watched[user].oracle.choose(decided, choice);
    }

    pub(crate) fn pruned(&mut self, now: Time, user: usize, device: &DeviceId) {
        if !self.watched[user].oracle.prune(now, device) {
            self.violate(now, user, format!("a live device was pruned: {device}"));
        }
    }

    /// The session was evicted; `archived` is the archive's last seen.
    pub(crate) fn evicted(&mut self, now: Time, decided: Time, user: usize, archived: Option<Time>) {
        let oracle = &self.watched[user].oracle;
        if oracle.has_live_device(now) {
            self.violate(now, user, "a session with a live device was evicted");
        } else if oracle.choice.as_ref().is_some_and(|choice| choice.matters_at(decided)) {
            self.violate(now, user, "a choice in force was evicted");
        } else if oracle.seen != archived {
            self.violate(now, user, format!("5: last seen was lost: archived {archived:?}"));
        }
        self.watched[user].oracle.evict();
    }

    pub(crate) fn grant_outage_grace(&mut self, outage_grace: OutageGrace, began: Time) {
        for watched in &mut self.watched {
            watched.oracle.outage_grace(began, outage_grace.until);
        }
    }

    /// A query's answer must be the truth at every step.
    pub(crate) fn looked_up(&mut self, now: Time, user: usize, answer: &Published) {
        let watched = &self.watched[user];
        let (truth, seen) = (watched.oracle.truth(now, &self.rules), watched.oracle.seen);
        // A beat that was stored and is not settled yet may leave a user away for a moment; never offline.
        let is_offline = answer.state == State::Offline;
        let both_online = truth.state != State::Offline && !is_offline;
        let awaits_settling = both_online && watched.last.as_ref().is_some_and(|last| last.state == answer.state);
        if (truth.state != answer.state && !awaits_settling) || truth.note != answer.note {
            self.violate(now, user, format!("1: a query answers {answer:?}, the truth is {truth:?}"));
        } else if is_offline && answer.last_seen < watched.last_seen_answered {
            self.violate(now, user, format!("5: last seen moved backwards: {answer:?}"));
        } else if answer.last_seen > seen || (is_offline && answer.last_seen != seen) {
            self.violate(now, user, format!("5: last seen is {seen:?}, a query answers {answer:?}"));
        } else if is_offline && answer.since != answer.last_seen {
            self.violate(now, user, format!("1: since and last seen of an offline user differ: {answer:?}"));
        }
        // While a user is online, the last seen is that of the record, which is older.
        if is_offline {
            self.watched[user].last_seen_answered = answer.last_seen;
        }
    }

    /// Compares the last publication with the truth. Returns when to check again.
    pub(crate) fn probe(&mut self, now: Time, user: usize) -> Option<Time> {
        let watched = &self.watched[user];
        let change = watched.oracle.next_change(now, &self.rules);
        if self.is_right(now, user) {
            self.watched[user].wrong_since = None;
            return change;
        }
        let since = *self.watched[user].wrong_since.get_or_insert(now);
        let bound = since.max(self.watched[user].tolerated_until).max(self.healthy_since?) + PUBLISH_WITHIN;
        if now > bound {
            self.violate(now, user, format!("4: what is published is wrong since {}", since.0));
        }
        Some(change.map_or(bound + Span(1), |change| change.min(bound + Span(1))))
    }

    /// Whether the last publication has been wrong for too long.
    pub(crate) fn is_late(&self, now: Time, user: usize) -> bool {
        let since = self.watched[user].wrong_since;
        !self.is_right(now, user) && since.is_some_and(|since| since + PUBLISH_WITHIN < now)
    }

    /// Whether the last publication is the truth.
    fn is_right(&self, now: Time, user: usize) -> bool {
        let watched = &self.watched[user];
        let oracle = &watched.oracle;
        let truth = oracle.truth(now, &self.rules);
        let (state, note, seen) = match &watched.last {
            None => (State::Offline, None, None),
            Some(last) => (last.state, last.note.clone(), last.last_seen),
        };
        // A user who returns after an eviction without a beat is published with the hot store's last seen only.
        let seen_is_right = state != State::Offline || seen == oracle.seen || seen == oracle.hot_seen;
        truth.state == state && truth.note == note && seen_is_right
    }
}

fn differs(last: Option<&Published>, next: &Published) -> bool {
    let visible = |p: &Published| (p.state, p.note.clone(), p.last_seen);
    match last {
        None => visible(next) != (State::Offline, None, None),
        Some(last) => visible(last) != visible(next),
    }
}
