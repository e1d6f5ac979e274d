//! When a session must be settled next. One mechanism covers every change that no call causes: a device expires, a user turns
//! idle, a choice or a note ends, a grace ends, an offline session is archived.

use crate::derive::{Derived, derive};
use crate::{Choice, Moment, Next, Rules, Session, Stance, Time};

/// What the session waits for after this moment, given what others see now.
///
/// Settling too early is harmless, so a heartbeat does not move the deadline: the settle finds the user alive and computes
/// the next one here.
pub fn next(session: &Session, moment: &Moment, rules: &Rules, derived: &Derived) -> Next {
    // A beat that changes nothing under a choice can change what follows it: an idle user who chose `away` for a minute is
    // online afterwards if they used a device within it. So the end of a choice is always a deadline.
    let stance = session.choice.as_ref().filter(|choice| choice.stance_at(moment.now) != Stance::Auto);
    let change = next_change(session, moment, rules, derived).into_iter().chain(stance.and_then(|s| s.until)).min();
    let last_expiry = session.devices.iter().map(|device| moment.effective_expiry(device)).max();
    if let Some(expiry) = last_expiry.filter(|&expiry| expiry > moment.now) {
        // The devices of an invisible user expire unseen, but the session must not be evicted before.
        return Next::Settle(change.map_or(expiry, |change| change.min(expiry)));
    }
    let changed = derived.differs_from(session.published.as_ref());
    let evict = if changed { Some(moment.now + rules.evict_after) } else { eviction(session, moment, rules) };
    match (evict, change) {
        (Some(evict), Some(change)) if change <= evict => Next::Settle(change),
        (Some(evict), _) => Next::Evict(evict),
        (None, Some(change)) => Next::Settle(change),
        (None, None) => Next::Nothing,
    }
}

/// When a session with no live device and no change goes to the archive; `None` if it is archived already.
fn eviction(session: &Session, moment: &Moment, rules: &Rules) -> Option<Time> {
    let is_kept = session.choice.as_ref().is_some_and(|choice| choice.matters_at(moment.now));
    match session.next {
        Next::Evict(at) => Some(at),
        // Nothing is stored, so there is nothing to archive: a late notification about a user long gone.
        Next::Nothing if session.is_empty() => None,
        // Archived before, and kept only for its choice: see `settle::evict`.
        Next::Nothing if is_kept => None,
        Next::Settle(at) if is_kept && at > moment.now && ends_at(session, at) => None,
        Next::Nothing | Next::Settle(_) => Some(moment.now + rules.evict_after),
    }
}

/// Whether the choice, or its note, ends at this instant.
fn ends_at(session: &Session, at: Time) -> bool {
    let ends = |choice: &Choice| [choice.until, choice.note.as_ref().and_then(|note| note.until)];
    session.choice.as_ref().is_some_and(|choice| ends(choice).contains(&Some(at)))
}

/// The earliest instant after `moment` at which others would see something else if nothing happens until then.
pub fn next_change(session: &Session, moment: &Moment, rules: &Rules, derived: &Derived) -> Option<Time> {
    let mut instants: Vec<Time> = turning_points(session, moment, rules).filter(|&at| at > moment.now).collect();
    instants.sort_unstable();
    instants.dedup();
    instants.into_iter().find(|&at| {
        let then = derive(session, &moment.moved_to(at), rules);
        then.state != derived.state || then.note != derived.note
    })
}

fn turning_points<'a>(session: &'a Session, moment: &'a Moment, rules: &'a Rules) -> impl Iterator<Item = Time> + 'a {
    let devices = session.devices.iter().flat_map(move |device| {
        [Some(moment.effective_expiry(device)), device.active_at.map(|at| at + rules.idle_after)].into_iter().flatten()
    });
    let choice = session
        .choice
        .iter()
        .flat_map(|choice| [choice.until, choice.note.as_ref().and_then(|note| note.until)].into_iter().flatten());
    devices.chain(choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settle::settle;

    const NOW: Moment = Moment { now: Time(1_000_000), outage_grace: None };

    #[test]
    fn late_notification_creates_no_session() {
        assert_eq!(settle(&Session::default(), &NOW, &Rules::STANDARD), None);
    }

    #[test]
    fn session_kept_for_choice_settles_at_its_end() {
        let choice = Choice { stance: Stance::Busy, at: NOW.now, until: Some(Time(2_000_000)), note: None };
        let session = Session { choice: Some(choice), ..Session::default() };
        let derived = derive(&session, &NOW, &Rules::STANDARD);
        assert_eq!(next(&session, &NOW, &Rules::STANDARD, &derived), Next::Settle(Time(2_000_000)));
    }

    #[test]
    fn change_at_eviction_time_is_settled_first() {
        let ends = NOW.now + Rules::STANDARD.evict_after;
        let choice = Choice { stance: Stance::Busy, at: NOW.now, until: Some(ends), note: None };
        let session = Session { choice: Some(choice), next: Next::Evict(ends), ..Session::default() };
        let derived = derive(&session, &NOW, &Rules::STANDARD);
        assert_eq!(next(&session, &NOW, &Rules::STANDARD, &derived), Next::Settle(ends));
    }
}
