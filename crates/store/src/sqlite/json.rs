//! The JSON encoding of sessions and choices. It has its own structs, so that a change of the core types does not change
//! the file format.
//!
//! A missing field reads as `None` and an unknown field is ignored, so that the previous and the next version can read
//! what this one wrote.

use rollcall_core::{
    Choice, Device, DeviceId, DeviceKind, Invalid, Next, Note, Published, Revision, Session, Stance, State, Time,
};
use serde::{Deserialize, Serialize};

/// A [`Session`] without its revision, which is only valid within one run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionBody {
    devices: Vec<DeviceBody>,
    choice: Option<ChoiceBody>,
    published: Option<PublishedBody>,
    next: NextBody,
}

/// A [`Choice`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ChoiceBody {
    stance: StanceBody,
    at: u64,
    until: Option<u64>,
    note: Option<NoteBody>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DeviceBody {
    id: String,
    kind: KindBody,
    beat_at: u64,
    active_at: Option<u64>,
    expires_at: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct PublishedBody {
    state: StateBody,
    note: Option<NoteBody>,
    since: Option<u64>,
    last_seen: Option<u64>,
    version: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct NoteBody {
    text: String,
    emoji: String,
    until: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NextBody {
    Nothing,
    Settle(u64),
    Evict(u64),
}

/// An enum with the variants of a core enum, and both conversions. A macro, so that neither direction omits a variant.
macro_rules! mirrored {
    ($body:ident = $core:ident { $($name:ident),+ }) => {
        #[derive(Debug, Clone, Copy, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum $body { $($name),+ }

        impl From<$core> for $body {
            fn from(name: $core) -> Self {
                match name { $($core::$name => Self::$name),+ }
            }
        }

        impl From<$body> for $core {
            fn from(name: $body) -> Self {
                match name { $($body::$name => Self::$name),+ }
            }
        }
    };
}

mirrored!(StateBody = State { Online, Away, Busy, Offline });
mirrored!(StanceBody = Stance { Auto, Away, Busy, Invisible });
mirrored!(KindBody = DeviceKind { Web, Mobile, Desktop, Other });

fn ms(time: Option<Time>) -> Option<u64> {
    time.map(|time| time.0)
}

impl From<Session> for SessionBody {
    fn from(session: Session) -> Self {
        Self {
            devices: session.devices.into_iter().map(DeviceBody::from).collect(),
            choice: session.choice.map(ChoiceBody::from),
            published: session.published.map(PublishedBody::from),
            next: match session.next {
                Next::Nothing => NextBody::Nothing,
                Next::Settle(at) => NextBody::Settle(at.0),
                Next::Evict(at) => NextBody::Evict(at.0),
            },
        }
    }
}

impl TryFrom<SessionBody> for Session {
    type Error = Invalid;
    fn try_from(body: SessionBody) -> Result<Self, Invalid> {
        Ok(Self {
            devices: body.devices.into_iter().map(Device::try_from).collect::<Result<_, _>>()?,
            choice: body.choice.map(Choice::from),
            published: body.published.map(Published::from),
            next: match body.next {
                NextBody::Nothing => Next::Nothing,
                NextBody::Settle(at) => Next::Settle(Time(at)),
                NextBody::Evict(at) => Next::Evict(Time(at)),
            },
            revision: Revision::default(),
        })
    }
}

impl From<Device> for DeviceBody {
    fn from(device: Device) -> Self {
        Self {
            id: device.id.into_string(),
            kind: device.kind.into(),
            beat_at: device.beat_at.0,
            active_at: ms(device.active_at),
            expires_at: device.expires_at.0,
        }
    }
}

impl TryFrom<DeviceBody> for Device {
    type Error = Invalid;
    fn try_from(body: DeviceBody) -> Result<Self, Invalid> {
        Ok(Self {
            id: DeviceId::parse(body.id)?,
            kind: body.kind.into(),
            beat_at: Time(body.beat_at),
            active_at: body.active_at.map(Time),
            expires_at: Time(body.expires_at),
        })
    }
}

impl From<Choice> for ChoiceBody {
    fn from(choice: Choice) -> Self {
        Self {
            stance: choice.stance.into(),
            at: choice.at.0,
            until: ms(choice.until),
            note: choice.note.map(NoteBody::from),
        }
    }
}

impl From<ChoiceBody> for Choice {
    fn from(body: ChoiceBody) -> Self {
        Self {
            stance: body.stance.into(),
            at: Time(body.at),
            until: body.until.map(Time),
            note: body.note.map(Note::from),
        }
    }
}

impl From<Published> for PublishedBody {
    fn from(published: Published) -> Self {
        Self {
            state: published.state.into(),
            note: published.note.map(NoteBody::from),
            since: ms(published.since),
            last_seen: ms(published.last_seen),
            version: published.version,
        }
    }
}

impl From<PublishedBody> for Published {
    fn from(body: PublishedBody) -> Self {
        Self {
            state: body.state.into(),
            note: body.note.map(Note::from),
            since: body.since.map(Time),
            last_seen: body.last_seen.map(Time),
            version: body.version,
        }
    }
}

impl From<Note> for NoteBody {
    fn from(note: Note) -> Self {
        Self { text: note.text, emoji: note.emoji, until: ms(note.until) }
    }
}

impl From<NoteBody> for Note {
    fn from(body: NoteBody) -> Self {
        Self { text: body.text, emoji: body.emoji, until: body.until.map(Time) }
    }
}
