//! Responses for operators: the counters of a host, and everything stored about one user.
//!
//! Counters only rise from the start of the host. A reader computes rates and quantiles as the difference of two responses,
//! so the host keeps nothing per reader. `rollcall top` parses these types, so they are both serialised and deserialised.

use std::collections::BTreeMap;

use rollcall_core::policy::Privacy;
use rollcall_core::{Device, DeviceKind, Moment, Next, Published, Session, Stance, State, Time, UserId};
use serde::{Deserialize, Serialize};

use super::policy::audience;
use super::{ChoiceJson, NoteJson, json_reply, ms, state_name};
use crate::problem::Reply;

/// Counters and state of a host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// The host.
    pub host: HostStats,
    /// The configured times and limits.
    pub rules: RulesStats,
    /// Whether the store answers.
    pub store: StoreStats,
    /// Users.
    pub users: UserStats,
    /// Connections, and what they watch.
    pub connections: ConnectionStats,
    /// Counters since the start.
    pub totals: Totals,
    /// Latencies.
    pub times: Times,
}

/// The host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostStats {
    /// The program's version.
    pub version: String,
    /// The store's time, in Unix milliseconds.
    pub now: u64,
    /// When the host started, by the same clock.
    pub started: u64,
    /// Where sessions are: `memory`, `redis` or `redis cluster`.
    pub store: String,
    /// Where last seen is archived: `none`, `sqlite`, `postgres` or `redis`.
    pub archive: String,
    /// Whether callers are unverified, because no key is set.
    pub open: bool,
}

/// The times and limits by which the functions decide.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RulesStats {
    /// Time between two beats of a device.
    pub interval_ms: u64,
    /// How late a beat may be.
    pub tolerance_ms: u64,
    /// How long after its last use a device counts as idle.
    pub idle_after_ms: u64,
    /// How long a device stays alive after its connection broke.
    pub grace_ms: u64,
    /// How long a typing signal lasts.
    pub typing_ttl_ms: u64,
    /// The most users one connection may watch.
    pub watch_limit: u32,
}

/// One lookup in the store, made for this response.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StoreStats {
    /// Whether it succeeded.
    pub answers: bool,
    /// How long it took.
    pub took_ms: f64,
}

/// Numbers of users.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UserStats {
    /// Users who are not offline, in the whole store; `None` while the store does not answer.
    pub online: Option<u64>,
}

/// Connections to this host, and what they watch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectionStats {
    /// All connections.
    pub open: u64,
    /// WebSockets among them.
    pub sockets: u64,
    /// Event streams among them.
    pub streams: u64,
    /// Connections that may watch.
    pub watchers: u64,
    /// Users watched, once per worker that watches them.
    pub watched_users: u64,
    /// Conversations watched, once per worker that watches them.
    pub watched_conversations: u64,
    /// The most-watched users, most watchers first.
    pub most_watched: Vec<MostWatchedUser>,
}

/// A user with many watchers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MostWatchedUser {
    /// The user.
    pub user: String,
    /// Connections to this host that watch them.
    pub watchers: u64,
}

/// Counters since the host started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Heartbeats accepted, including those of open connections.
    pub heartbeats: u64,
    /// Changes published by this host, by the new state.
    pub transitions: Transitions,
    /// Presence changes and typing signals sent to connections.
    pub updates_sent: u64,
    /// Requests answered.
    pub requests: u64,
    /// Responses with status 500 or above.
    pub failures: u64,
    /// Last-seen times written to the archive.
    pub archived: u64,
    /// Changes found only by reading again, and then sent.
    pub recheck_changes: u64,
    /// Failed store calls.
    pub store_errors: u64,
    /// Function instances replaced after a trap or a hang.
    pub replacements: u64,
}

/// Changes by the new state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the states")]
pub struct Transitions {
    pub online: u64,
    pub away: u64,
    pub busy: u64,
    pub offline: u64,
}

impl Transitions {
    /// The sum over all states.
    pub fn sum(&self) -> u64 {
        self.online + self.away + self.busy + self.offline
    }
}

/// Latencies.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Times {
    /// From the time a change became true until it was published.
    pub settle_lag: Histogram,
    /// From the decision of a change until a worker with watchers received it.
    pub topic_lag: Histogram,
    /// From a request's head until its response was ready.
    pub request: Histogram,
    /// Calls of each function, including their store calls.
    pub functions: BTreeMap<String, Histogram>,
    /// Store calls, by operation.
    pub store: BTreeMap<String, Histogram>,
}

/// A latency histogram since the host started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of observations.
    pub count: u64,
    /// Their sum.
    pub sum_ms: f64,
    /// Upper bound in milliseconds and cumulative count, by rising bound; the last bound is `None`, for any time.
    pub buckets: Vec<(Option<f64>, u64)>,
}

/// The counters of a host.
pub fn stats(stats: &Stats) -> Reply {
    json_reply(stats)
}

/// Everything stored about one user.
#[derive(Debug, Clone, Copy)]
pub struct Person<'a> {
    /// The user.
    pub user: &'a UserId,
    /// When the session was read.
    pub moment: &'a Moment,
    /// The stored session.
    pub session: &'a Session,
    /// The state as shown to the user themselves.
    pub state: State,
    /// The archived last seen; `None` if there is none or the archive did not answer.
    pub archived: Option<Time>,
    /// The privacy settings. `None` here and below: unknown to the policy.
    pub privacy: Option<Privacy>,
    /// Whether the account is restricted.
    pub restricted: bool,
    /// Number of contacts.
    pub contacts: Option<usize>,
    /// Number of blocked users.
    pub blocks: Option<usize>,
    /// Number of watchers.
    pub watchers: Watchers,
}

/// How many connections watch a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Watchers {
    /// On this host.
    pub this_host: u64,
    /// On all hosts; counted only for crowds.
    pub all_hosts: Option<u64>,
}

/// The response about one user.
pub fn person(person: &Person<'_>) -> Reply {
    let Person { session, moment, .. } = person;
    let choice = session.choice.as_ref().filter(|choice| choice.stance_at(moment.now) != Stance::Auto);
    // A device that logged out is stored for a moment, already expired; it is not shown.
    let devices = session.devices.iter().filter(|device| device.expires_at >= device.beat_at);
    json_reply(&PersonJson {
        user: person.user.as_str(),
        now: ms(moment.now),
        record: session.published.as_ref().map(RecordJson::new),
        state: state_name(person.state),
        choice: choice.map(ChoiceJson::new),
        devices: devices.map(|device| DeviceJson::new(device, moment)).collect(),
        deadline: match session.next {
            Next::Settle(at) => Some(ms(at)),
            Next::Evict(_) | Next::Nothing => None,
        },
        archived_last_seen: person.archived.map(ms),
        privacy: person.privacy.map(|privacy| AudiencesJson {
            presence: audience(privacy.presence),
            last_seen: audience(privacy.last_seen),
        }),
        restricted: person.restricted,
        contacts: person.contacts,
        blocks: person.blocks,
        watchers: person.watchers,
    })
}

fn kind_name(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Web => "web",
        DeviceKind::Mobile => "mobile",
        DeviceKind::Desktop => "desktop",
        DeviceKind::Other => "other",
    }
}

#[derive(Serialize)]
struct PersonJson<'a> {
    user: &'a str,
    now: u64,
    record: Option<RecordJson<'a>>,
    state: &'static str,
    choice: Option<ChoiceJson>,
    devices: Vec<DeviceJson<'a>>,
    deadline: Option<u64>,
    archived_last_seen: Option<u64>,
    privacy: Option<AudiencesJson>,
    restricted: bool,
    contacts: Option<usize>,
    blocks: Option<usize>,
    watchers: Watchers,
}

#[derive(Serialize)]
struct RecordJson<'a> {
    state: &'static str,
    since: Option<u64>,
    last_seen: Option<u64>,
    version: u64,
    note: Option<NoteJson<'a>>,
}

impl<'a> RecordJson<'a> {
    fn new(published: &'a Published) -> Self {
        Self {
            state: state_name(published.state),
            since: published.since.map(ms),
            last_seen: published.last_seen.map(ms),
            version: published.version,
            note: published.note.as_ref().map(NoteJson::new),
        }
    }
}

#[derive(Serialize)]
struct DeviceJson<'a> {
    device: &'a str,
    kind: &'static str,
    beat_at: u64,
    active_at: Option<u64>,
    expires_at: u64,
}

impl<'a> DeviceJson<'a> {
    /// The expiry includes an outage grace in force.
    fn new(device: &'a Device, moment: &Moment) -> Self {
        Self {
            device: device.id.as_str(),
            kind: kind_name(device.kind),
            beat_at: ms(device.beat_at),
            active_at: device.active_at.map(ms),
            expires_at: ms(moment.effective_expiry(device)),
        }
    }
}

#[derive(Serialize)]
struct AudiencesJson {
    presence: &'static str,
    last_seen: &'static str,
}

#[cfg(test)]
mod tests;
