//! A naive model of the contract, compared with the store over a long random history.

use std::collections::BTreeMap;

use rollcall_core::settle::Decision;
use rollcall_core::{Device, DeviceKind, Next, Revision, Session, Span, Stance, State, Time};
use rollcall_functions::capabilities::{Committed, DeviceEvent, Touch};
use rollcall_store::SessionStore;

use super::{
    Random, Subject, choice, commit, due, evict, evictable, load, now, publish, touch_one, touch_with, user, wait_for,
};

const STEPS: usize = 3_000;

/// The sessions as the contract defines them, without revisions.
#[derive(Default)]
struct Model(BTreeMap<String, Session>);

impl Model {
    fn touch(&mut self, touch: &Touch, now: Time) {
        let session = self.0.entry(touch.user.to_string()).or_default();
        let is_known = session.devices.iter().any(|device| device.id == touch.device);
        let end = match touch.event {
            DeviceEvent::Beat { alive_for, .. } => Some(now + alive_for),
            DeviceEvent::Dropped(grace) => is_known.then_some(now + grace),
            DeviceEvent::Logout => is_known.then_some(now),
        };
        session.next = match (session.next, end) {
            (next, None) => next,
            (Next::Nothing, Some(end)) => Next::Settle(end),
            (Next::Settle(at) | Next::Evict(at), Some(end)) => Next::Settle(at.min(end)),
        };
        let known = session.devices.iter_mut().find(|device| device.id == touch.device);
        match (touch.event, known) {
            (DeviceEvent::Beat { kind, active, alive_for }, known) => {
                let used = if active { Some(now) } else { known.as_ref().and_then(|device| device.active_at) };
                let id = touch.device.clone();
                let device = Device { id, kind, beat_at: now, active_at: used, expires_at: now + alive_for };
                match known {
                    Some(known) => *known = device,
                    None => session.devices.push(device),
                }
            }
            (DeviceEvent::Dropped(grace), Some(device)) => device.expires_at = device.expires_at.min(now + grace),
            (DeviceEvent::Logout, Some(device)) => {
                device.expires_at = now;
                device.active_at = None;
            }
            (_, None) => {}
        }
        self.forget_empty();
    }

    fn commit(&mut self, name: &str, decision: Decision) {
        let session = self.0.entry(name.to_owned()).or_default();
        if let Some(published) = decision.publish {
            session.published = Some(published);
        }
        if let Some(choice) = decision.choice {
            session.choice = Some(choice);
        }
        session
            .devices
            .retain(|device| decision.prune_expired_by == Time(0) || device.expires_at > decision.prune_expired_by);
        session.next = decision.next;
        self.forget_empty();
    }

    fn forget_empty(&mut self) {
        self.0.retain(|_, session| !session.is_empty() || session.next != Next::Nothing);
    }

    /// Users past their deadline, earliest deadline first; ties are ordered by name.
    fn passed(&self, now: Time, deadline: impl Fn(Next) -> Option<Time>) -> Vec<(Time, String)> {
        let waiting = self.0.iter().filter_map(|(name, session)| Some((deadline(session.next)?, name.clone())));
        let mut passed: Vec<_> = waiting.filter(|(at, _)| *at <= now).collect();
        passed.sort();
        passed
    }
}

pub(crate) async fn random_history_matches_a_naive_model(subject: impl Subject) {
    let store = subject.store();
    let mut model = Model::default();
    let mut random = Random(0x5eed);
    for step in 0..STEPS {
        let name = format!("user-{}", random.below(12));
        // The order of two beats of a device within one millisecond is unspecified.
        subject.advance(Span(1 + random.below(3)));
        step_both(&*store, &mut model, &mut random, &name).await;
        let (stored, expected) = (load(&*store, &name).await, model.0.get(&name).cloned().unwrap_or_default());
        let at = now(&*store).await;
        assert_eq!(plain(stored, at), plain(expected, at), "step {step}, {name}");
        if step % 20 == 0 {
            compare_due_queues(&*store, &model).await;
        }
    }
}

async fn step_both(store: &dyn SessionStore, model: &mut Model, random: &mut Random, name: &str) {
    match random.below(10) {
        0..=5 => {
            let event = match random.below(5) {
                0 => DeviceEvent::Logout,
                1 => DeviceEvent::Dropped(Span(random.below(100))),
                _ => DeviceEvent::Beat {
                    kind: if random.below(2) == 0 { DeviceKind::Web } else { DeviceKind::Mobile },
                    active: random.below(2) == 0,
                    alive_for: Span(random.below(100)),
                },
            };
            let touch = touch_with(name, &format!("device-{}", random.below(4)), event);
            let at = touch_one(store, touch.clone()).await;
            model.touch(&touch, at);
        }
        6..=8 => {
            let revision = load(store, name).await.revision;
            let decision = decide(random, now(store).await);
            assert_eq!(commit(store, name, revision, decision.clone()).await, Committed::Applied);
            model.commit(name, decision);
        }
        _ => {
            let revision = load(store, name).await.revision;
            assert_eq!(evict(store, name, revision).await, Committed::Applied);
            model.0.remove(name);
        }
    }
}

fn decide(random: &mut Random, now: Time) -> Decision {
    let soon = now + Span(random.below(60));
    let next = match random.below(4) {
        0 => Next::Nothing,
        1 => Next::Evict(soon),
        _ => Next::Settle(soon),
    };
    // Later than every evicted record, like every decision of the rules.
    let mut decision = if random.below(2) == 0 { publish(State::Online, now + Span(1)) } else { wait_for(next) };
    decision.next = next;
    decision.choice = (random.below(4) == 0).then(|| choice(Stance::Busy, now));
    if decision.publish.is_some() && random.below(2) == 0 {
        decision.prune_expired_by = now;
    }
    decision
}

async fn compare_due_queues(store: &dyn SessionStore, model: &Model) {
    let at = now(store).await;
    let settle = |next| if let Next::Settle(at) = next { Some(at) } else { None };
    let evicting = |next| if let Next::Evict(at) = next { Some(at) } else { None };
    for (stored, expected) in
        [(due(store).await, model.passed(at, settle)), (evictable(store).await, model.passed(at, evicting))]
    {
        let deadline = |name: &str| expected.iter().find(|(_, known)| known == name).map(|(at, _)| *at);
        let deadlines: Vec<_> = stored.iter().map(|user| deadline(user.as_str())).collect();
        assert!(deadlines.is_sorted() && deadlines.iter().all(Option::is_some), "{stored:?} against {expected:?}");
        let mut names = stored;
        names.sort();
        let mut expected: Vec<_> = expected.iter().map(|(_, name)| user(name)).collect();
        expected.sort();
        assert_eq!(names, expected);
    }
}

/// The parts that must be equal: the order of devices and the revision are up to the store, and so is the expiry of an
/// expired device.
fn plain(mut session: Session, now: Time) -> Session {
    session.revision = Revision::default();
    session.devices.sort_by(|one, other| one.id.cmp(&other.id));
    for device in session.devices.iter_mut().filter(|device| device.expires_at <= now) {
        device.expires_at = Time(0);
    }
    session
}
