//! Sessions: touches, loads, commits and evictions.

use rollcall_core::heartbeat::PriorState;
use rollcall_core::settle::Decision;
use rollcall_core::{
    DeadlineState, Device, DeviceId, Invalid, Moment, Next, OutageGrace, Record, Revision, Session, Span, Time, UserId,
};
use rollcall_functions::capabilities::{Commit, Committed, DeviceEvent, Eviction, Loaded, Records, Touched, Touches};

use super::wit::{session_types as wit, types};
use super::{each, ms, replies, span};

impl From<Touches> for wit::Touches {
    fn from(touches: Touches) -> Self {
        Self { users: touches.users.into(), devices: touches.devices.into(), events: each(touches.events) }
    }
}

/// Fails as a whole; `adapter::batch::touches` lets an invalid touch fail alone.
impl TryFrom<wit::Touches> for Touches {
    type Error = Invalid;

    fn try_from(touches: wit::Touches) -> Result<Self, Invalid> {
        let touches = Self {
            users: touches.users.try_into()?,
            devices: touches.devices.try_into()?,
            events: each(touches.events),
        };
        if touches.users.len() != touches.events.len() || touches.devices.len() != touches.events.len() {
            return Err(Invalid::new("touches", "has columns of different lengths"));
        }
        Ok(touches)
    }
}

impl From<DeviceEvent> for wit::DeviceEvent {
    fn from(event: DeviceEvent) -> Self {
        match event {
            DeviceEvent::Beat { kind, active, alive_for } => {
                Self::Beat(wit::BeatEvent { kind: kind.into(), active, alive_for_ms: ms(alive_for) })
            }
            DeviceEvent::Dropped(grace) => Self::Dropped(ms(grace)),
            DeviceEvent::Logout => Self::Logout,
        }
    }
}

impl From<wit::DeviceEvent> for DeviceEvent {
    fn from(event: wit::DeviceEvent) -> Self {
        match event {
            wit::DeviceEvent::Beat(beat) => {
                Self::Beat { kind: beat.kind.into(), active: beat.active, alive_for: span(beat.alive_for_ms) }
            }
            wit::DeviceEvent::Dropped(grace_ms) => Self::Dropped(span(grace_ms)),
            wit::DeviceEvent::Logout => Self::Logout,
        }
    }
}

impl From<wit::Touched> for Touched {
    fn from(touched: wit::Touched) -> Self {
        let decode = |(prior, version): (wit::PriorState, u64)| {
            Ok(PriorState { state: prior.state.into(), version, stance: prior.stance.into(), stance_until: None })
        };
        let mut prior: Vec<_> = touched.states.into_iter().zip(touched.versions).map(decode).collect();
        for end in touched.stance_ends {
            if let Some(Ok(prior)) = prior.get_mut(end.index as usize) {
                prior.stance_until = Some(Time(end.at));
            }
        }
        for failure in touched.failures {
            if let Some(item) = prior.get_mut(failure.index as usize) {
                *item = Err(failure.error.into());
            }
        }
        Self { now: Time(touched.now), prior }
    }
}

impl From<Touched> for wit::Touched {
    fn from(touched: Touched) -> Self {
        let count = touched.prior.len();
        let mut out = Self {
            now: touched.now.0,
            versions: Vec::with_capacity(count),
            states: Vec::with_capacity(count),
            stance_ends: Vec::new(),
            failures: Vec::new(),
        };
        for (index, prior) in (0..).zip(touched.prior) {
            let prior = prior.unwrap_or_else(|error| {
                out.failures.push(types::Failure { index, error: error.into() });
                PriorState::NOTHING
            });
            out.versions.push(prior.version);
            out.states.push(wit::PriorState { state: prior.state.into(), stance: prior.stance.into() });
            out.stance_ends.extend(prior.stance_until.map(|at| wit::StanceEnd { index, at: at.0 }));
        }
        out
    }
}

impl TryFrom<wit::Records> for Records {
    type Error = Invalid;

    fn try_from(records: wit::Records) -> Result<Self, Invalid> {
        let wit::Records { now, states, conditions, notes, failures } = records;
        if states.len() != conditions.len() {
            return Err(Invalid::new("records", "has columns of different lengths"));
        }
        let record = |(state, condition): (types::PublishedState, wit::Condition)| {
            let wit::Condition { deadline, invisible } = condition;
            Ok(Record { published: state.into(), deadline: deadline.into(), invisible })
        };
        let mut records: Vec<_> = states.into_iter().zip(conditions).map(record).collect();
        for note in notes {
            if let Some(Ok(record)) = records.get_mut(note.index as usize) {
                record.published.note = Some(note.note.into());
            }
        }
        for failure in failures {
            if let Some(item) = records.get_mut(failure.index as usize) {
                *item = Err(failure.error.into());
            }
        }
        Ok(Self { now: Time(now), records })
    }
}

impl From<Records> for wit::Records {
    fn from(records: Records) -> Self {
        let count = records.records.len();
        let mut out = Self {
            now: records.now.0,
            states: Vec::with_capacity(count),
            conditions: Vec::with_capacity(count),
            notes: Vec::new(),
            failures: Vec::new(),
        };
        for (index, record) in (0..).zip(records.records) {
            let Record { published, deadline, invisible } = record.unwrap_or_else(|error| {
                out.failures.push(types::Failure { index, error: error.into() });
                Record::NOTHING
            });
            out.states.push((&published).into());
            out.conditions.push(wit::Condition { deadline: deadline.into(), invisible });
            out.notes.extend(published.note.map(|note| types::PublishedNote { index, note: note.into() }));
        }
        out
    }
}

same_cases!(wit::DeadlineState, DeadlineState, [None, Ahead, Passed]);

impl TryFrom<wit::Device> for Device {
    type Error = Invalid;

    fn try_from(device: wit::Device) -> Result<Self, Invalid> {
        Ok(Self {
            id: DeviceId::parse(device.id)?,
            kind: device.kind.into(),
            beat_at: Time(device.beat_at),
            active_at: device.active_at.map(Time),
            expires_at: Time(device.expires_at),
        })
    }
}

impl From<Device> for wit::Device {
    fn from(device: Device) -> Self {
        Self {
            id: device.id.into_string(),
            kind: device.kind.into(),
            beat_at: device.beat_at.0,
            active_at: device.active_at.map(|at| at.0),
            expires_at: device.expires_at.0,
        }
    }
}

impl TryFrom<wit::Session> for Session {
    type Error = Invalid;

    fn try_from(session: wit::Session) -> Result<Self, Invalid> {
        Ok(Self {
            devices: session.devices.into_iter().map(Device::try_from).collect::<Result<_, _>>()?,
            choice: session.choice.map(Into::into),
            published: session.published.map(Into::into),
            next: session.next.into(),
            revision: session.revision.into(),
        })
    }
}

impl From<Session> for wit::Session {
    fn from(session: Session) -> Self {
        Self {
            devices: session.devices.into_iter().map(Into::into).collect(),
            choice: session.choice.map(Into::into),
            published: session.published.map(Into::into),
            next: session.next.into(),
            revision: session.revision.into(),
        }
    }
}

impl From<wit::Revision> for Revision {
    fn from(revision: wit::Revision) -> Self {
        Self { commits: revision.commits, touches: revision.touches }
    }
}

impl From<Revision> for wit::Revision {
    fn from(revision: Revision) -> Self {
        Self { commits: revision.commits, touches: revision.touches }
    }
}

impl From<wit::Next> for Next {
    fn from(next: wit::Next) -> Self {
        match next {
            wit::Next::Nothing => Self::Nothing,
            wit::Next::Settle(at) => Self::Settle(Time(at)),
            wit::Next::Evict(at) => Self::Evict(Time(at)),
        }
    }
}

impl From<Next> for wit::Next {
    fn from(next: Next) -> Self {
        match next {
            Next::Nothing => Self::Nothing,
            Next::Settle(at) => Self::Settle(at.0),
            Next::Evict(at) => Self::Evict(at.0),
        }
    }
}

impl From<wit::Loaded> for Loaded {
    fn from(loaded: wit::Loaded) -> Self {
        let grace = |grace: wit::OutageGrace| OutageGrace { since: Time(grace.since), until: Time(grace.until) };
        let moment = Moment { now: Time(loaded.now), outage_grace: loaded.outage_grace.map(grace) };
        let sessions = loaded.sessions.into_iter().map(|session| Ok(session?.try_into()?)).collect();
        Self { moment, sessions }
    }
}

impl From<Loaded> for wit::Loaded {
    fn from(loaded: Loaded) -> Self {
        let grace = |grace: OutageGrace| wit::OutageGrace { since: grace.since.0, until: grace.until.0 };
        Self {
            now: loaded.moment.now.0,
            outage_grace: loaded.moment.outage_grace.map(grace),
            sessions: replies(loaded.sessions),
        }
    }
}

impl From<Commit> for wit::Commit {
    fn from(commit: Commit) -> Self {
        Self {
            user: commit.user.into_string(),
            expected: commit.expected.into(),
            publish: commit.decision.publish.map(Into::into),
            choice: commit.decision.choice.map(Into::into),
            prune_expired_by: commit.decision.prune_expired_by.0,
            next: commit.decision.next.into(),
        }
    }
}

/// The lag of a decision is for the function's own statistics; it does not travel.
impl TryFrom<wit::Commit> for Commit {
    type Error = Invalid;

    fn try_from(commit: wit::Commit) -> Result<Self, Invalid> {
        let decision = Decision {
            publish: commit.publish.map(Into::into),
            choice: commit.choice.map(Into::into),
            prune_expired_by: Time(commit.prune_expired_by),
            next: commit.next.into(),
            lag: Span(0),
        };
        Ok(Self { user: UserId::parse(commit.user)?, expected: commit.expected.into(), decision })
    }
}

same_cases!(wit::Committed, Committed, [Applied, Stale]);

impl From<Eviction> for wit::Eviction {
    fn from(eviction: Eviction) -> Self {
        Self { user: eviction.user.into_string(), expected: eviction.expected.into() }
    }
}

impl TryFrom<wit::Eviction> for Eviction {
    type Error = Invalid;

    fn try_from(eviction: wit::Eviction) -> Result<Self, Invalid> {
        Ok(Self { user: UserId::parse(eviction.user)?, expected: eviction.expected.into() })
    }
}
