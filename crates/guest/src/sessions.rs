//! The platform's sessions, as the functions know them.

use rollcall_core::heartbeat::Found;
use rollcall_core::{Amnesty, Error, Mark, Moment, Next, Session, Time, UserId};
use rollcall_functions::capabilities::{Commit, Committed, Loaded, Retiree, Sessions, Shards, Touched, Touches, Trace};

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
            traces: touches.traces.into_iter().map(trace_out).collect(),
        };
        let touched = wit::touch_many(touches).await.map_err(error_in)?;
        Ok(touched_in(touched))
    }

    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        let loaded = wit::load_many(texts(users)).await.map_err(error_in)?;
        let amnesty = loaded.amnesty.map(|a| Amnesty { since: Time(a.since), until: Time(a.until) });
        let sessions = loaded.sessions.into_iter().map(|s| s.map_err(error_in).and_then(session_in)).collect();
        Ok(Loaded { moment: Moment { now: Time(loaded.now), amnesty }, sessions })
    }

    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error> {
        let commits = commits.into_iter().map(commit_out).collect();
        Ok(outcomes_in(wit::commit_many(commits).await.map_err(error_in)?))
    }

    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        users_in(wit::due(shards.first, shards.end, limit).await.map_err(error_in)?)
    }

    async fn retirable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        users_in(wit::retirable(shards.first, shards.end, limit).await.map_err(error_in)?)
    }

    async fn retire_many(&self, retirees: Vec<Retiree>) -> Result<Vec<Result<Committed, Error>>, Error> {
        let retirements = retirees
            .into_iter()
            .map(|retiree| wit::Retirement { user: retiree.user.into_string(), expected: mark_out(retiree.expected) })
            .collect();
        Ok(outcomes_in(wit::retire_many(retirements).await.map_err(error_in)?))
    }
}

pub(crate) fn texts(users: Vec<UserId>) -> Vec<String> {
    users.into_iter().map(UserId::into_string).collect()
}

fn users_in(users: Vec<String>) -> Result<Vec<UserId>, Error> {
    users.into_iter().map(|user| UserId::parse(user).map_err(refused)).collect()
}

fn trace_out(trace: Trace) -> wit::Trace {
    match trace {
        Trace::Beat { kind, active, alive_for } => {
            wit::Trace::Beat(wit::BeatTrace { kind: kind_out(kind), active, alive_for_ms: span_out(alive_for) })
        }
        Trace::Dropped(grace) => wit::Trace::Dropped(span_out(grace)),
        Trace::Logout => wit::Trace::Logout,
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
            wit::Next::Retire(at) => Next::Retire(Time(at)),
        },
        mark: Mark { commits: session.mark.commits, touches: session.mark.touches },
    })
}

fn mark_out(mark: Mark) -> wit::Mark {
    wit::Mark { commits: mark.commits, touches: mark.touches }
}

fn commit_out(commit: Commit) -> wit::Commit {
    wit::Commit {
        user: commit.user.into_string(),
        expected: mark_out(commit.expected),
        publish: commit.decision.publish.map(published_out),
        choice: commit.decision.choice.map(choice_out),
        prune_expired_by: commit.decision.prune_expired_by.0,
        next: match commit.decision.next {
            Next::Nothing => wit::Next::Nothing,
            Next::Settle(at) => wit::Next::Settle(at.0),
            Next::Retire(at) => wit::Next::Retire(at.0),
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
