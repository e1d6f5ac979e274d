//! People in every state of life, and every relation that keeps one of them from being seen: the rows and columns of the
//! table of what is hidden.

use std::time::Duration;

use serde_json::json;

use crate::{Host, Service, eventually};

/// Whoever looks.
pub const VIEWER: &str = "alice";

/// Short, so that somebody is archived while a test waits; long enough that somebody else is not yet.
pub const EVICT_AFTER: &str = "2s";

/// How somebody stands to the viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Strangers: everything shows.
    None,
    /// An administrator restricted the account.
    Restricted,
    /// The subject blocked the viewer.
    BlockedViewer,
    /// The viewer blocked the subject.
    BlockedByViewer,
    /// The subject lets nobody see.
    Nobody,
    /// The subject lets contacts see, of whom the viewer is none.
    NoContact,
    /// The subject shows where they are, but not when they were last here.
    LastSeenHidden,
}

impl Relation {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Restricted,
        Self::BlockedViewer,
        Self::BlockedByViewer,
        Self::Nobody,
        Self::NoContact,
        Self::LastSeenHidden,
    ];

    /// Those under which nothing shows.
    pub fn hiding() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|relation| !matches!(relation, Self::None | Self::LastSeenHidden))
    }

    /// Ties it between this person and the viewer.
    pub fn apply(self, host: &Host, subject: &str) {
        let (viewer, subject_asks) = (host.client(VIEWER), host.client(subject));
        match self {
            Self::None => {}
            Self::Restricted => host.client("admin").restrict(subject),
            Self::BlockedViewer => subject_asks.block(VIEWER),
            Self::BlockedByViewer => viewer.block(subject),
            Self::Nobody => subject_asks.set_privacy("nobody", "nobody"),
            Self::NoContact => subject_asks.set_privacy("contacts", "everyone"),
            Self::LastSeenHidden => subject_asks.set_privacy("everyone", "nobody"),
        }
    }

    /// Unties it again.
    pub fn revoke(self, host: &Host, subject: &str) {
        let (viewer, subject_asks) = (host.client(VIEWER), host.client(subject));
        match self {
            Self::None => {}
            Self::Restricted => host.client("admin").unrestrict(subject),
            Self::BlockedViewer => subject_asks.unblock(VIEWER),
            Self::BlockedByViewer => viewer.unblock(subject),
            Self::NoContact => subject_asks.add_contact(VIEWER),
            Self::Nobody | Self::LastSeenHidden => subject_asks.set_privacy("everyone", "everyone"),
        }
    }
}

/// What somebody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectState {
    /// Here.
    Online,
    /// Here, and away by choice.
    Away,
    /// Here, and busy, with a note.
    Busy,
    /// Gone a moment ago.
    JustOffline,
    /// Gone so long ago that only the archive knows.
    Archived,
    /// Never was.
    Unknown,
    /// Here, and invisible.
    Invisible,
}

impl SubjectState {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Online, Self::Away, Self::Busy, Self::JustOffline, Self::Archived, Self::Unknown, Self::Invisible];

    /// Those of whom others are shown that they are not here.
    pub const SHOWN_OFFLINE: [Self; 4] = [Self::JustOffline, Self::Archived, Self::Unknown, Self::Invisible];

    fn live(self, host: &Host, name: &str) {
        let choose = |wish| assert_eq!(host.client(name).put("/v1/status", wish).status, 200);
        if self == Self::Unknown {
            return;
        }
        assert_eq!(host.client(name).beat("web").status, 200);
        match self {
            Self::Online | Self::Unknown => {}
            Self::Away => choose(json!({ "choice": "away" })),
            Self::Busy => choose(json!({ "choice": "busy", "text": "deep work" })),
            Self::Invisible => choose(json!({ "choice": "invisible" })),
            Self::JustOffline | Self::Archived => leave(host, name),
        }
    }

    /// Becomes something else, as anybody who may see would notice.
    pub fn turn(self, host: &Host, name: &str) {
        let choose = |wish| assert_eq!(host.client(name).put("/v1/status", wish).status, 200);
        match self {
            Self::Online => choose(json!({ "choice": "busy", "text": "in a meeting" })),
            Self::Away | Self::Invisible => choose(json!({ "choice": "auto" })),
            Self::Busy => leave(host, name),
            Self::JustOffline | Self::Archived | Self::Unknown => assert_eq!(host.client(name).beat("web").status, 200),
        }
    }
}

/// Ends a person's only device.
pub fn leave(host: &Host, name: &str) {
    let left = host.client(name).post("/v1/leave", json!({ "device": "web", "reason": "logout" }));
    assert_eq!(left.status, 200, "{}", left.text);
}

/// The person of this relation and this life. All names are of one length, so that answers can be compared byte by byte.
pub fn name(relation: Relation, life: SubjectState) -> String {
    let place = |found: Option<usize>| found.expect("one of all");
    let relation = place(Relation::ALL.iter().position(|other| *other == relation));
    format!("subject{relation}{}", place(SubjectState::ALL.iter().position(|other| *other == life)))
}

/// Everybody of the table, as they are to be. The service has [`EVICT_AFTER`]; relations are in force where the viewer is.
pub fn populate(service: &Service) {
    for (relation, life) in everybody() {
        relation.apply(service.first(), &name(relation, life));
    }
    let archived = || service.hosts.iter().map(|host| host.metric("rollcall_archived_total")).sum::<f64>();
    for relation in Relation::ALL {
        SubjectState::Archived.live(service.last(), &name(relation, SubjectState::Archived));
    }
    eventually("they are long gone", Duration::from_secs(30), || archived() >= Relation::ALL.len() as f64);
    for (relation, life) in everybody().filter(|(_, life)| *life != SubjectState::Archived) {
        life.live(service.last(), &name(relation, life));
    }
}

fn everybody() -> impl Iterator<Item = (Relation, SubjectState)> {
    Relation::ALL.into_iter().flat_map(|relation| SubjectState::ALL.map(|life| (relation, life)))
}
