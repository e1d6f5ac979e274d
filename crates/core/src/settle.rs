//! Settling a session: publish what changed, and set the next deadline.

use crate::derive::{self, Derived};
use crate::{Choice, Moment, Next, Published, Rules, Session, Span, Time, deadline};

/// A change of one session. It is based on a load, and committed only if nothing changed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The new published record; `None` keeps the old one.
    pub publish: Option<Published>,
    /// The new choice; `None` keeps the old one.
    pub choice: Option<Choice>,
    /// Devices that expired by this instant are dropped; zero drops none.
    pub prune_expired_by: Time,
    /// What the session waits for from now on.
    pub next: Next,
    /// How late this is: the time since the deadline.
    pub lag: Span,
}

/// Derives the user again. `None` if the record and the deadline are right.
pub fn settle(session: &Session, moment: &Moment, rules: &Rules) -> Option<Decision> {
    let derived = derive::derive(session, moment, rules);
    let decision = decide(session, moment, rules, derived);
    (decision.publish.is_some() || decision.next != session.next).then_some(decision)
}

/// The decision that makes the record say `derived`.
pub(crate) fn decide(session: &Session, moment: &Moment, rules: &Rules, derived: Derived) -> Decision {
    let next = deadline::next(session, moment, rules, &derived);
    let lag = match session.next {
        Next::Settle(at) => moment.now - at,
        Next::Evict(_) | Next::Nothing => Span(0),
    };
    let changed = derived.differs_from(session.published.as_ref());
    let prune_expired_by = prunable(session, moment, changed);
    let publish = changed.then(|| derived.into_published(next_version(session, moment.now)));
    Decision { publish, choice: None, prune_expired_by, next, lag }
}

/// The next version: it rises strictly per user, also after the store lost its data, and is a time in microseconds.
pub fn next_version(session: &Session, now: Time) -> u64 {
    let previous = session.published.as_ref().map_or(0, |published| published.version);
    previous.saturating_add(1).max(now.0.saturating_mul(1000))
}

/// Devices that expired by this instant may be dropped without losing a last seen: the record or a live device has a beat
/// at least as new. Outage grace protects devices that were alive when it began.
fn prunable(session: &Session, moment: &Moment, published: bool) -> Time {
    let by = moment.expired_for_certain_by();
    let (expired, kept): (Vec<_>, Vec<_>) = session.devices.iter().partition(|device| device.expires_at <= by);
    let newest = |devices: &[&crate::Device]| {
        devices.iter().map(|device| device.beat_at).filter(|&at| derive::counts(session, at)).max()
    };
    let remembered = newest(&kept).max(session.published.as_ref().and_then(|p| p.last_seen));
    if expired.is_empty() || (!published && newest(&expired) > remembered) { Time(0) } else { by }
}

/// What to do with a session that is reported as evictable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionDecision {
    /// Its record or deadline is wrong: commit this instead.
    Settle(Decision),
    /// Archive this last seen, then drop the session.
    Drop(Option<Time>),
    /// Archive this last seen and keep the session for its choice.
    Keep(Option<Time>, Decision),
    /// Nothing: it is scheduled for later.
    Wait,
}

/// Decides about a session that is reported as evictable.
pub fn evict(session: &Session, moment: &Moment, rules: &Rules) -> EvictionDecision {
    if let Some(decision) = settle(session, moment, rules) {
        return EvictionDecision::Settle(decision);
    }
    match session.next {
        Next::Evict(at) if at <= moment.now => {}
        _ => return EvictionDecision::Wait,
    }
    let derived = derive::derive(session, moment, rules);
    if !session.choice.as_ref().is_some_and(|choice| choice.matters_at(moment.now)) {
        return EvictionDecision::Drop(derived.last_seen);
    }
    let last_seen = derived.last_seen;
    let archived = Session { next: Next::Nothing, ..session.clone() };
    EvictionDecision::Keep(last_seen, decide(&archived, moment, rules, derived))
}
