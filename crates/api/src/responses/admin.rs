//! Answers for whoever runs the service: what a host counted, and everything that is known about one person.
//!
//! What is counted only rises, from when the host started: a rate, or a quantile of the last minute, is the difference of
//! two answers, and whoever reads makes it. So any number of readers can look, each as often as they like, and nobody
//! here has to remember them. The figures are read back by `rollcall top`, which is why these types are whole.

use std::collections::BTreeMap;

use rollcall_core::policy::Privacy;
use rollcall_core::{Device, DeviceKind, Moment, Next, Published, Session, Stance, State, Time, UserId};
use serde::{Deserialize, Serialize};

use super::policy::audience;
use super::{ChoiceJson, NoteJson, json_reply, ms, state_name};
use crate::problem::Reply;

/// What a host counted, and how it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Which host.
    pub host: HostStats,
    /// By which times it decides.
    pub rules: RulesStats,
    /// Whether its store answers.
    pub store: StoreStats,
    /// Who is here.
    pub people: PeopleStats,
    /// Connections, and what they watch.
    pub gateway: GatewayStats,
    /// How often what happened since it started.
    pub totals: Totals,
    /// How long it took.
    pub times: Times,
}

/// Which host this is.
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
    /// Where last seen is kept for ever: `none`, `sqlite`, `postgres` or `redis`.
    pub archive: String,
    /// Whether callers are believed by their word, because no key is set.
    pub open: bool,
}

/// The times and limits by which the functions decide.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RulesStats {
    /// How often a device beats.
    pub interval_ms: u64,
    /// How late a beat may be.
    pub tolerance_ms: u64,
    /// How long after its last use a device counts as idle.
    pub idle_after_ms: u64,
    /// How long a device outlives a broken connection.
    pub grace_ms: u64,
    /// How long one sign of typing lasts.
    pub typing_ttl_ms: u64,
    /// The most people one connection may watch.
    pub watch_limit: u32,
}

/// One look-up in the store, made for this answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StoreStats {
    /// Whether it was answered.
    pub answers: bool,
    /// How long that took.
    pub took_ms: f64,
}

/// How many people there are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PeopleStats {
    /// Those who are not offline, in the whole store; none: it could not be counted, because the store does not answer.
    pub here: Option<u64>,
}

/// Connections to this host, and what they watch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GatewayStats {
    /// All connections.
    pub connections: u64,
    /// Those of them that are WebSockets.
    pub sockets: u64,
    /// Those of them that are streams of events.
    pub streams: u64,
    /// Those that may watch.
    pub watchers: u64,
    /// People watched, once per worker that watches them.
    pub people: u64,
    /// Conversations watched, once per worker that watches them.
    pub conversations: u64,
    /// Whom most watch, most first.
    pub hot: Vec<HotUser>,
}

/// Somebody whom many watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotUser {
    /// Who.
    pub user: String,
    /// How many connections to this host watch them.
    pub watchers: u64,
}

/// How often what happened since the host started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Heartbeats taken, those of connections that stay among them.
    pub heartbeats: u64,
    /// Changes published by this host, by the new state.
    pub transitions: Transitions,
    /// Changes and signs of typing told to connections.
    pub told: u64,
    /// Requests answered.
    pub requests: u64,
    /// Those answered with a failure of ours, a status of 500 or more.
    pub failures: u64,
    /// Last seen written to the archive.
    pub archived: u64,
    /// People found to have changed without a word, and told of after all.
    pub repaired: u64,
    /// Calls of the store that failed.
    pub store_errors: u64,
    /// Instances of functions that trapped or got stuck.
    pub replacements: u64,
}

/// Changes by the new state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the states say what they are")]
pub struct Transitions {
    pub online: u64,
    pub away: u64,
    pub busy: u64,
    pub offline: u64,
}

impl Transitions {
    /// All together.
    pub fn sum(&self) -> u64 {
        self.online + self.away + self.busy + self.offline
    }
}

/// How long what took.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Times {
    /// From the instant a change became true until it was published, whatever noticed it.
    pub settle_lag: Histogram,
    /// From when a change was decided until a worker with watchers heard of it.
    pub topic_lag: Histogram,
    /// From a request's head until its answer was ready.
    pub request: Histogram,
    /// Calls of each function, their store calls included.
    pub functions: BTreeMap<String, Histogram>,
    /// Calls of the store, by operation.
    pub store: BTreeMap<String, Histogram>,
}

/// How often something took how long, since the host started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// How often.
    pub count: u64,
    /// All together.
    pub sum_ms: f64,
    /// How often at most so many milliseconds, by rising bound; the last bound is none, and stands for any time.
    pub buckets: Vec<(Option<f64>, u64)>,
}

/// The answer about what a host counted.
pub fn stats(stats: &Stats) -> Reply {
    json_reply(stats)
}

/// Everything that is known about one person.
#[derive(Debug, Clone, Copy)]
pub struct Person<'a> {
    /// Who.
    pub user: &'a UserId,
    /// When they were read.
    pub moment: &'a Moment,
    /// What is kept of them.
    pub session: &'a Session,
    /// Their state, as they are told it themselves.
    pub state: State,
    /// When the archive last saw them; none: never, or it did not say.
    pub archived: Option<Time>,
    /// What they let others see; none, here and below: the policy did not say.
    pub privacy: Option<Privacy>,
    /// Whether an administrator restricted them.
    pub restricted: bool,
    /// How many they list as contacts.
    pub contacts: Option<usize>,
    /// How many they block.
    pub blocks: Option<usize>,
    /// How many watch them.
    pub watchers: Watchers,
}

/// How many connections watch a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Watchers {
    /// Of this host.
    pub here: u64,
    /// Of all hosts, where that is counted: of a crowd.
    pub everywhere: Option<u64>,
}

/// The answer about one person.
pub fn person(person: &Person<'_>) -> Reply {
    let Person { session, moment, .. } = person;
    let choice = session.choice.as_ref().filter(|choice| choice.stance_at(moment.now) != Stance::Auto);
    // A device that logged out is kept for a moment, dead from the start: to everybody it is gone.
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
    /// An outage grace that is in force is counted in.
    fn new(device: &'a Device, moment: &Moment) -> Self {
        Self {
            device: device.id.as_str(),
            kind: kind_name(device.kind),
            beat_at: ms(device.beat_at),
            active_at: device.active_at.map(ms),
            expires_at: ms(moment.death_of(device)),
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
