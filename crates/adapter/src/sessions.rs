//! The contract's `sessions`, over whatever an adapter brings.

use rollcall_core as core;
use rollcall_core::heartbeat::Found;
use rollcall_core::settle::Decision;
use rollcall_core::{DeviceId, Error, Id, Ids, Invalid, Next, Revision, Span, Time, Unfit, UserId};
use rollcall_functions::capabilities::{
    Commit, Committed, DeviceEvent, Eviction, Loaded, MAX_BATCH, Sessions, Shards, Touch, Touched, Touches,
};

use crate::bindings::exports::rollcall::presence::sessions as wit;
use crate::codec::{
    Refused, answers_out, bounded, choice_in, choice_out, error_out, fit, kind_in, kind_out, published_in,
    published_out, span_in, stance_out, state_out, time_out, user_in,
};
use crate::settings::{Adapter, Exports, platform_of};
use crate::wit::types;

/// How each commit or eviction ended.
type Outcomes = Vec<Result<wit::Committed, types::Error>>;

impl<A: Adapter> wit::Guest for Exports<A> {
    async fn touch_many(touches: wit::Touches) -> Result<wit::Touched, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        let (touches, refused) = touches_in(touches).map_err(error_out)?;
        let Touched { now, found } = ready.platform.touch_many(touches).await.map_err(error_out)?;
        Ok(touched_out(now, refused.among(found)))
    }

    async fn load_many(users: Vec<String>) -> Result<wit::Loaded, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        bounded(users.len(), MAX_BATCH).map_err(error_out)?;
        let (users, refused) = fit(users, user_in);
        let Loaded { moment, sessions } = ready.platform.load_many(users).await.map_err(error_out)?;
        Ok(wit::Loaded {
            now: moment.now.0,
            outage_grace: moment
                .outage_grace
                .map(|outage_grace| wit::OutageGrace { since: outage_grace.since.0, until: outage_grace.until.0 }),
            sessions: answers_out(refused.among(sessions), session_out),
        })
    }

    async fn commit_many(commits: Vec<wit::Commit>) -> Result<Outcomes, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        bounded(commits.len(), MAX_BATCH).map_err(error_out)?;
        let (commits, refused) = fit(commits, commit_in);
        let outcomes = ready.platform.commit_many(commits).await.map_err(error_out)?;
        Ok(answers_out(refused.among(outcomes), committed_out))
    }

    async fn due(first: u32, end: u32, limit: u32) -> Result<Vec<String>, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        let due = ready.platform.due(Shards { first, end }, limit).await.map_err(error_out)?;
        Ok(due.into_iter().map(UserId::into_string).collect())
    }

    async fn evictable(first: u32, end: u32, limit: u32) -> Result<Vec<String>, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        let cold = ready.platform.evictable(Shards { first, end }, limit).await.map_err(error_out)?;
        Ok(cold.into_iter().map(UserId::into_string).collect())
    }

    async fn evict_many(evictions: Vec<wit::Eviction>) -> Result<Outcomes, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        bounded(evictions.len(), MAX_BATCH).map_err(error_out)?;
        let (evictions, refused) = fit(evictions, eviction_in);
        let outcomes = ready.platform.evict_many(evictions).await.map_err(error_out)?;
        Ok(answers_out(refused.among(outcomes), committed_out))
    }
}

/// The touches that can be tried, and those that cannot. An error: the columns make no batch at all.
fn touches_in(touches: wit::Touches) -> Result<(Touches, Refused), Error> {
    bounded(touches.traces.len(), MAX_BATCH)?;
    let traces: Vec<_> = touches.traces.into_iter().map(trace_in).collect();
    let users = Ids::parse(touches.users.text, touches.users.lengths);
    let devices = Ids::parse(touches.devices.text, touches.devices.lengths);
    match (users, devices) {
        (Ok(users), Ok(devices)) if users.len() == traces.len() && devices.len() == traces.len() => {
            Ok((Touches { users, devices, events: traces }, Refused::default()))
        }
        (users, devices) => one_by_one(&texts(&users)?, &texts(&devices)?, &traces),
    }
}

/// The same, looking at each: something among them is unfit.
fn one_by_one(users: &[&str], devices: &[&str], traces: &[DeviceEvent]) -> Result<(Touches, Refused), Error> {
    if users.len() != traces.len() || devices.len() != traces.len() {
        return Err(Invalid::new("touches", "has columns of different lengths").into());
    }
    let touch = |((user, device), trace): ((&&str, &&str), &DeviceEvent)| {
        Ok(Touch { user: UserId::parse(*user)?, device: DeviceId::parse(*device)?, event: *trace })
    };
    let (good, refused) = fit(users.iter().zip(devices).zip(traces), touch);
    Ok((good.into_iter().collect(), refused))
}

fn texts<I: Id>(ids: &Result<Ids<I>, Unfit>) -> Result<Vec<&str>, Error> {
    match ids {
        Ok(ids) => Ok(ids.iter().collect()),
        Err(unfit) => Ok(unfit.pieces()?.collect()),
    }
}

fn trace_in(trace: wit::Trace) -> DeviceEvent {
    match trace {
        wit::Trace::Beat(beat) => {
            DeviceEvent::Beat { kind: kind_in(beat.kind), active: beat.active, alive_for: span_in(beat.alive_for_ms) }
        }
        wit::Trace::Dropped(grace_ms) => DeviceEvent::Dropped(span_in(grace_ms)),
        wit::Trace::Logout => DeviceEvent::Logout,
    }
}

fn touched_out(now: Time, items: Vec<Result<Found, Error>>) -> wit::Touched {
    let count = items.len();
    let mut out = wit::Touched {
        now: now.0,
        versions: Vec::with_capacity(count),
        looks: Vec::with_capacity(count),
        endings: Vec::new(),
        failures: Vec::new(),
    };
    for (place, found) in (0..).zip(items) {
        let found = found.unwrap_or_else(|error| {
            out.failures.push(wit::Failure { place, error: error_out(error) });
            Found::NOTHING
        });
        out.versions.push(found.version);
        out.looks.push(wit::Look { state: state_out(found.state), stance: stance_out(found.stance) });
        out.endings.extend(found.stance_until.map(|at| wit::Ending { place, at: at.0 }));
    }
    out
}

fn session_out(session: core::Session) -> wit::Session {
    let device_out = |device: core::Device| wit::Device {
        id: device.id.into_string(),
        kind: kind_out(device.kind),
        beat_at: device.beat_at.0,
        active_at: time_out(device.active_at),
        expires_at: device.expires_at.0,
    };
    wit::Session {
        devices: session.devices.into_iter().map(device_out).collect(),
        choice: session.choice.map(choice_out),
        published: session.published.map(published_out),
        next: match session.next {
            Next::Nothing => wit::Next::Nothing,
            Next::Settle(at) => wit::Next::Settle(at.0),
            Next::Evict(at) => wit::Next::Evict(at.0),
        },
        revision: wit::Revision { commits: session.revision.commits, touches: session.revision.touches },
    }
}

fn revision_in(revision: wit::Revision) -> Revision {
    Revision { commits: revision.commits, touches: revision.touches }
}

fn commit_in(commit: wit::Commit) -> Result<Commit, Invalid> {
    let decision = Decision {
        publish: commit.publish.map(published_in),
        choice: commit.choice.map(choice_in),
        prune_expired_by: Time(commit.prune_expired_by),
        next: match commit.next {
            wit::Next::Nothing => Next::Nothing,
            wit::Next::Settle(at) => Next::Settle(Time(at)),
            wit::Next::Evict(at) => Next::Evict(Time(at)),
        },
        lag: Span(0),
    };
    Ok(Commit { user: UserId::parse(commit.user)?, expected: revision_in(commit.expected), decision })
}

fn eviction_in(eviction: wit::Eviction) -> Result<Eviction, Invalid> {
    Ok(Eviction { user: UserId::parse(eviction.user)?, expected: revision_in(eviction.expected) })
}

fn committed_out(committed: Committed) -> wit::Committed {
    match committed {
        Committed::Applied => wit::Committed::Applied,
        Committed::Stale => wit::Committed::Stale,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use rollcall_core::{Stance, State};

    use super::*;

    fn packed(ids: &[&str]) -> types::Ids {
        types::Ids { text: ids.concat(), lengths: ids.iter().map(|id| id.len() as u8).collect() }
    }

    fn touches(users: &[&str], devices: &[&str], traces: usize) -> wit::Touches {
        wit::Touches { users: packed(users), devices: packed(devices), traces: vec![wit::Trace::Logout; traces] }
    }

    #[test]
    fn bad_touches_are_refused_alone_and_in_their_places() {
        let asked = touches(&["", "bob", "eve", "é"], &["web", "web", "a\nb", "名"], 4);
        let (good, refused) = touches_in(asked).unwrap();
        let tried: Vec<_> = good.iter().collect();
        assert_eq!(tried, [("bob", "web", DeviceEvent::Logout), ("é", "名", DeviceEvent::Logout)]);
        let found = Found { state: State::Away, version: 7, stance: Stance::Busy, stance_until: Some(Time(9)) };
        let out = touched_out(Time(5), refused.among(vec![Ok(found), Err(Error::Unavailable(1))]));
        assert_eq!((out.now, out.versions), (5, vec![0, 7, 0, 0]));
        assert_eq!(out.failures.iter().map(|failure| failure.place).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(out.endings.iter().map(|ending| (ending.place, ending.at)).collect::<Vec<_>>(), [(1, 9)]);
        assert_eq!(out.looks.len(), 4);
    }

    #[test]
    fn good_touches_are_taken_as_they_are() {
        let (good, refused) = touches_in(touches(&["bob", "eve"], &["a", "b"], 2)).unwrap();
        assert_eq!((good.users.len(), good.devices.len(), good.events.len()), (2, 2, 2));
        assert_eq!(refused, Refused::default());
    }

    #[test]
    fn columns_that_make_no_batch_are_refused_whole() {
        let uneven = Some(Invalid::new("touches", "has columns of different lengths").into());
        assert_eq!(touches_in(touches(&["bob"], &["a"], 2)).err(), uneven);
        assert_eq!(touches_in(touches(&["bob", "eve"], &["a", ""], 1)).err(), uneven);
        let cut = wit::Touches {
            users: types::Ids { text: "é".to_owned(), lengths: vec![1, 1] },
            ..touches(&[], &["a", "b"], 2)
        };
        let whole = Some(Invalid::new("lengths", "do not cut the text into whole ids").into());
        assert_eq!(touches_in(cut).err(), whole);
        let many = vec!["x"; MAX_BATCH + 1];
        assert_eq!(touches_in(touches(&many, &many, MAX_BATCH + 1)).err(), Some(Error::TooMany(1024)));
    }
}
