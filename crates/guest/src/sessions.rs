//! The platform's sessions, as the functions know them.

use rollcall_core::heartbeat::Found;
use rollcall_core::{Error, Moment, Next, OutageGrace, Revision, Session, Time, UserId};
use rollcall_functions::capabilities::{
    Commit, Committed, DeviceEvent, Eviction, Loaded, Sessions, Shards, Touched, Touches,
};

use crate::codec::{
    choice_in, choice_out, device_in, error_in, ids_out, kind_out, published_in, published_out, refused, span_out,
    stance_in, state_in,
};
use crate::wit::sessions as wit;

/// The sessions that the platform provides.
pub struct PlatformSessions;

impl Sessions for PlatformSessions {
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error> {
        let touches = wit::Touches {
            users: ids_out(touches.users),
            devices: ids_out(touches.devices),
            traces: touches.events.into_iter().map(trace_out).collect(),
        };
        let touched = wit::touch_many(touches).await.map_err(error_in)?;
        Ok(touched_in(touched))
    }

    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        let loaded = wit::load_many(texts(users)).await.map_err(error_in)?;
        let outage_grace = loaded.outage_grace.map(|a| OutageGrace { since: Time(a.since), until: Time(a.until) });
        let sessions = loaded.sessions.into_iter().map(|s| s.map_err(error_in).and_then(session_in)).collect();
        Ok(Loaded { moment: Moment { now: Time(loaded.now), outage_grace }, sessions })
    }

    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error> {
        let commits = commits.into_iter().map(commit_out).collect();
        Ok(outcomes_in(wit::commit_many(commits).await.map_err(error_in)?))
    }

    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        users_in(wit::due(shards.first, shards.end, limit).await.map_err(error_in)?)
    }

    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        users_in(wit::evictable(shards.first, shards.end, limit).await.map_err(error_in)?)
    }

    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error> {
        let evictions = evictions
            .into_iter()
            .map(|eviction| wit::Eviction {
                user: eviction.user.into_string(),
                expected: revision_out(eviction.expected),
            })
            .collect();
        Ok(outcomes_in(wit::evict_many(evictions).await.map_err(error_in)?))
    }
}

pub(crate) fn texts(users: Vec<UserId>) -> Vec<String> {
    users.into_iter().map(UserId::into_string).collect()
}

fn users_in(users: Vec<String>) -> Result<Vec<UserId>, Error> {
    users.into_iter().map(|user| UserId::parse(user).map_err(refused)).collect()
}

fn trace_out(trace: DeviceEvent) -> wit::Trace {
    match trace {
        DeviceEvent::Beat { kind, active, alive_for } => {
            wit::Trace::Beat(wit::BeatTrace { kind: kind_out(kind), active, alive_for_ms: span_out(alive_for) })
        }
        DeviceEvent::Dropped(grace) => wit::Trace::Dropped(span_out(grace)),
        DeviceEvent::Logout => wit::Trace::Logout,
    }
}

fn touched_in(touched: wit::Touched) -> Touched {
    let found = |(look, version): (wit::Look, u64)| {
        Ok(Found { state: state_in(look.state), version, stance: stance_in(look.stance), stance_until: None })
    };
    let mut items: Vec<_> = touched.looks.into_iter().zip(touched.versions).map(found).collect();
    for ending in touched.endings {
        if let Some(Ok(found)) = items.get_mut(ending.place as usize) {
            found.stance_until = Some(Time(ending.at));
        }
    }
    for failure in touched.failures {
        if let Some(item) = items.get_mut(failure.place as usize) {
            *item = Err(error_in(failure.error));
        }
    }
    Touched { now: Time(touched.now), found: items }
}

fn session_in(session: wit::Session) -> Result<Session, Error> {
    Ok(Session {
        devices: session.devices.into_iter().map(device_in).collect::<Result<_, _>>()?,
        choice: session.choice.map(choice_in),
        published: session.published.map(published_in),
        next: match session.next {
            wit::Next::Nothing => Next::Nothing,
            wit::Next::Settle(at) => Next::Settle(Time(at)),
            wit::Next::Evict(at) => Next::Evict(Time(at)),
        },
        revision: Revision { commits: session.revision.commits, touches: session.revision.touches },
    })
}

fn revision_out(revision: Revision) -> wit::Revision {
    wit::Revision { commits: revision.commits, touches: revision.touches }
}

fn commit_out(commit: Commit) -> wit::Commit {
    wit::Commit {
        user: commit.user.into_string(),
        expected: revision_out(commit.expected),
        publish: commit.decision.publish.map(published_out),
        choice: commit.decision.choice.map(choice_out),
        prune_expired_by: commit.decision.prune_expired_by.0,
        next: match commit.decision.next {
            Next::Nothing => wit::Next::Nothing,
            Next::Settle(at) => wit::Next::Settle(at.0),
            Next::Evict(at) => wit::Next::Evict(at.0),
        },
    }
}

fn outcomes_in(outcomes: Vec<Result<wit::Committed, crate::wit::types::Error>>) -> Vec<Result<Committed, Error>> {
    outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(wit::Committed::Applied) => Ok(Committed::Applied),
            Ok(wit::Committed::Stale) => Ok(Committed::Stale),
            Err(error) => Err(error_in(error)),
        })
        .collect()
}
