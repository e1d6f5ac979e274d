//! Subjects in every state, in every relation to the viewer: the rows and columns of the table of what is hidden.

use std::time::Duration;

use serde_json::json;

use crate::{Host, Service, eventually};

/// The user who asks.
pub const VIEWER: &str = "alice";

/// Short, so that a subject is archived while a test waits; long enough that the one who just went offline is not.
pub const EVICT_AFTER: &str = "2s";

/// How the subject is related to the viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// No relation: everything shows.
    None,
    /// An administrator restricted the account.
    Restricted,
    /// The subject blocked the viewer.
    BlockedViewer,
    /// The viewer blocked the subject.
    BlockedByViewer,
    /// The subject shows presence to nobody.
    Nobody,
    /// The subject shows presence to contacts, and the viewer is none.
    NoContact,
    /// The subject shows presence, but last seen to nobody.
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

    /// Those that hide everything.
    pub fn hiding() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|relation| !matches!(relation, Self::None | Self::LastSeenHidden))
    }

    /// Sets it up between this subject and the viewer.
    pub fn apply(self, host: &Host, subject: &str) {
        let (viewer, subject_client) = (host.client(VIEWER), host.client(subject));
        match self {
            Self::None => {}
            Self::Restricted => host.client("admin").restrict(subject),
            Self::BlockedViewer => subject_client.block(VIEWER),
            Self::BlockedByViewer => viewer.block(subject),
            Self::Nobody => subject_client.set_privacy("nobody", "nobody"),
            Self::NoContact => subject_client.set_privacy("contacts", "everyone"),
            Self::LastSeenHidden => subject_client.set_privacy("everyone", "nobody"),
        }
    }

    /// Takes it back.
    pub fn revoke(self, host: &Host, subject: &str) {
        let (viewer, subject_client) = (host.client(VIEWER), host.client(subject));
        match self {
            Self::None => {}
            Self::Restricted => host.client("admin").unrestrict(subject),
            Self::BlockedViewer => subject_client.unblock(VIEWER),
            Self::BlockedByViewer => viewer.unblock(subject),
            Self::NoContact => subject_client.add_contact(VIEWER),
            Self::Nobody | Self::LastSeenHidden => subject_client.set_privacy("everyone", "everyone"),
        }
    }
}

/// What the subject did last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectState {
    /// Online.
    Online,
    /// Online, and away by choice.
    Away,
    /// Online, and busy by choice, with a note.
    Busy,
    /// Offline for a moment.
    JustOffline,
    /// Offline for so long that only the archive has them.
    Archived,
    /// Never beat.
    Unknown,
    /// Online, and invisible by choice.
    Invisible,
}

impl SubjectState {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Online, Self::Away, Self::Busy, Self::JustOffline, Self::Archived, Self::Unknown, Self::Invisible];

    /// Those that others see as offline.
    pub const SHOWN_OFFLINE: [Self; 4] = [Self::JustOffline, Self::Archived, Self::Unknown, Self::Invisible];

    fn enter(self, host: &Host, name: &str) {
        let choose = |choice| assert_eq!(host.client(name).put("/v1/status", choice).status, 200);
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

    /// Changes to something that a viewer who may see it is notified of.
    pub fn change(self, host: &Host, name: &str) {
        let choose = |choice| assert_eq!(host.client(name).put("/v1/status", choice).status, 200);
        match self {
            Self::Online => choose(json!({ "choice": "busy", "text": "in a meeting" })),
            Self::Away | Self::Invisible => choose(json!({ "choice": "auto" })),
            Self::Busy => leave(host, name),
            Self::JustOffline | Self::Archived | Self::Unknown => assert_eq!(host.client(name).beat("web").status, 200),
        }
    }
}

/// Logs a user's only device out.
pub fn leave(host: &Host, name: &str) {
    let left = host.client(name).post("/v1/leave", json!({ "device": "web", "reason": "logout" }));
    assert_eq!(left.status, 200, "{}", left.text);
}

/// The subject in this relation and this state. All names have one length, so that answers can be compared byte by byte.
pub fn name(relation: Relation, state: SubjectState) -> String {
    let place = |found: Option<usize>| found.expect("one of all");
    let relation = place(Relation::ALL.iter().position(|other| *other == relation));
    format!("subject{relation}{}", place(SubjectState::ALL.iter().position(|other| *other == state)))
}

/// Brings every subject of the table into its state. The service runs with [`EVICT_AFTER`]; relations are in force on the
/// first host.
pub fn populate(service: &Service) {
    for (relation, state) in subjects() {
        relation.apply(service.first(), &name(relation, state));
    }
    let archived = || service.hosts.iter().map(|host| host.metric("rollcall_archived_total")).sum::<f64>();
    for relation in Relation::ALL {
        SubjectState::Archived.enter(service.last(), &name(relation, SubjectState::Archived));
    }
    eventually("they are archived", Duration::from_secs(30), || archived() >= Relation::ALL.len() as f64);
    for (relation, state) in subjects().filter(|(_, state)| *state != SubjectState::Archived) {
        state.enter(service.last(), &name(relation, state));
    }
}

fn subjects() -> impl Iterator<Item = (Relation, SubjectState)> {
    Relation::ALL.into_iter().flat_map(|relation| SubjectState::ALL.map(|state| (relation, state)))
}
