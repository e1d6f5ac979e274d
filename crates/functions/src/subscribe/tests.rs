//! Subscriptions over a fake host: the test sets the sessions and the order of the changes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use rollcall_core::{Device, DeviceId, DeviceKind, Moment, Next, Record, Session, Span, Stance};

use super::*;
use crate::capabilities::{Commit, Committed, Eviction, LastSeenEntry, Loaded, Records, Shards, Touched, Touches};
use crate::poll_once::poll_once;

const NOW: Time = Time(1_700_000_000_000);
const RULES: Rules = Rules::STANDARD;
const SERVICE: Option<UserId> = None;

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn users(names: &[&str]) -> Vec<UserId> {
    names.iter().map(|name| user(name)).collect()
}

fn asked(names: &[&str]) -> Ids<UserId> {
    users(names).iter().collect()
}

fn ago(span: u64) -> Time {
    Time(NOW.0 - span)
}

fn published(state: State, at: Time) -> Published {
    Published { state, note: None, since: Some(at), last_seen: Some(at), version: at.0 * 1000 }
}

/// A settled session whose only device beat at this instant.
fn session(beat_at: Time, published: Option<Published>) -> Session {
    let device = Device {
        id: DeviceId::parse("web").unwrap(),
        kind: DeviceKind::Web,
        beat_at,
        active_at: Some(beat_at),
        expires_at: beat_at + RULES.alive_for(),
    };
    Session { next: Next::Settle(device.expires_at), devices: vec![device], published, ..Session::default() }
}

/// What happens while a feed runs.
enum Step {
    Change(&'static str, Published),
    Rule(&'static str, Visibility),
}

#[derive(Default, Clone)]
struct FakeHost(Rc<FakeState>);

#[derive(Default)]
struct FakeState {
    sessions: RefCell<HashMap<UserId, Session>>,
    archived: RefCell<HashMap<UserId, Time>>,
    verdicts: RefCell<HashMap<UserId, Visibility>>,
    steps: RefCell<VecDeque<Step>>,
    end: RefCell<Option<Error>>,
    reads: Cell<usize>,
    loads: Cell<usize>,
    archive_asked: Cell<usize>,
    watched: RefCell<Vec<UserId>>,
}

impl FakeHost {
    fn with(sessions: &[(&str, Session)]) -> Self {
        let host = Self::default();
        host.0.sessions.borrow_mut().extend(sessions.iter().map(|(name, session)| (user(name), session.clone())));
        host
    }

    fn rule(&self, name: &str, presence: bool, last_seen: bool) {
        self.0.verdicts.borrow_mut().insert(user(name), Visibility { presence, last_seen });
    }

    fn platform(&self) -> (&Self, &Self, &Self) {
        (self, self, self)
    }

    fn open(&self, viewer: Option<UserId>, names: &[&str]) -> Vec<Result<InitialPresence, Error>> {
        poll_once(open(self.platform(), &RULES, viewer, 0, asked(names))).unwrap()
    }

    /// Runs a feed through all steps. Returns the updates and the result.
    fn feed(&self, viewer: Option<UserId>, names: &[&str], since: Option<u64>) -> (Vec<Update>, Result<(), Error>) {
        let mut sink = Recorder { updates: Vec::new(), limit: usize::MAX };
        let feed = poll_once(feed(self.platform(), self, &RULES, viewer, users(names), since)).unwrap();
        let end = poll_once(feed.run(&mut sink));
        (sink.updates, end)
    }
}

struct Recorder {
    updates: Vec<Update>,
    limit: usize,
}

impl UpdateSink for Recorder {
    async fn ready(&mut self) -> Result<(), Closed> {
        if self.updates.len() < self.limit { Ok(()) } else { Err(Closed) }
    }
    async fn send(&mut self, updates: Vec<Update>) -> Result<(), Closed> {
        self.updates.extend(updates);
        Ok(())
    }
}

impl Sessions for FakeHost {
    async fn touch_many(&self, _: Touches) -> Result<Touched, Error> {
        panic!("a subscription sends no heartbeat")
    }
    async fn read_many(&self, users: Ids<UserId>) -> Result<Records, Error> {
        self.0.reads.set(self.0.reads.get() + 1);
        let sessions = self.0.sessions.borrow();
        let read = |name| Ok(Record::of(&sessions.get(&user(name)).cloned().unwrap_or_default(), NOW));
        Ok(Records { now: NOW, records: users.iter().map(read).collect() })
    }
    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        self.0.loads.set(self.0.loads.get() + 1);
        let sessions = self.0.sessions.borrow();
        let load = |user| Ok(sessions.get(user).cloned().unwrap_or_default());
        Ok(Loaded { moment: Moment::at(NOW), sessions: users.iter().map(load).collect() })
    }
    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error> {
        let mut sessions = self.0.sessions.borrow_mut();
        for commit in &commits {
            let session = sessions.get_mut(&commit.user).unwrap();
            session.published = commit.decision.publish.clone().or(session.published.take());
            session.next = commit.decision.next;
        }
        Ok(commits.iter().map(|_| Ok(Committed::Applied)).collect())
    }
    async fn due(&self, _: Shards, _: u32) -> Result<Vec<UserId>, Error> {
        panic!("a subscription does not sweep")
    }
    async fn evictable(&self, _: Shards, _: u32) -> Result<Vec<UserId>, Error> {
        panic!("a subscription does not sweep")
    }
    async fn evict_many(&self, _: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error> {
        panic!("a subscription does not sweep")
    }
}

impl Archive for FakeHost {
    async fn put_many(&self, _: Vec<LastSeenEntry>) -> Result<(), Error> {
        panic!("a subscription does not archive")
    }
    async fn get_many(&self, users: Ids<UserId>) -> Result<Vec<Option<Time>>, Error> {
        self.0.archive_asked.set(self.0.archive_asked.get() + users.len());
        Ok(users.iter().map(|name| self.0.archived.borrow().get(&user(name)).copied()).collect())
    }
}

impl RestrictionCheck for FakeHost {
    async fn check(&self, _: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error> {
        let verdicts = self.0.verdicts.borrow();
        Ok(subjects.iter().map(|subject| verdicts.get(&user(subject)).copied().unwrap_or(OWN)).collect())
    }
}

impl Watching for FakeHost {
    type Changes = Self;
    async fn watch(&self, users: Vec<UserId>) -> Result<Self, Error> {
        assert_eq!(self.0.reads.get(), 0, "the feed must subscribe before it reads");
        *self.0.watched.borrow_mut() = users;
        Ok(self.clone())
    }
}

impl PresenceChanges for FakeHost {
    async fn next(&mut self) -> Option<PresenceChange> {
        loop {
            match self.0.steps.borrow_mut().pop_front()? {
                Step::Change(name, published) => return Some(PresenceChange { user: user(name), published }),
                Step::Rule(name, verdict) => self.rule(name, verdict.presence, verdict.last_seen),
            }
        }
    }
    async fn end(self) -> Result<(), Error> {
        self.0.end.take().map_or(Ok(()), Err)
    }
}

fn states(updates: &[Update]) -> Vec<(&str, Option<State>)> {
    let state = |update: &Update| update.presence.view.as_ref().map(|view| view.published.state);
    updates.iter().map(|update| (update.presence.user.as_str(), state(update))).collect()
}

#[test]
fn subscription_beyond_limit_is_refused() {
    let host = FakeHost::default();
    let limit = Error::TooMany(RULES.watch_limit);
    let watching = |watching: u32, more: usize| {
        poll_once(open(host.platform(), &RULES, SERVICE, watching, asked(&vec!["bob"; more])))
    };
    assert_eq!(watching(0, 20).unwrap().len(), 20);
    assert_eq!(watching(19, 1).unwrap().len(), 1);
    assert_eq!(watching(0, 21), Err(limit.clone()));
    assert_eq!(watching(20, 1), Err(limit.clone()));
    assert_eq!(watching(u32::MAX, 20), Err(limit.clone()));
    let names = vec!["bob"; 21];
    let fed = poll_once(feed(host.platform(), &host, &RULES, SERVICE, users(&names), None));
    assert_eq!(fed.map(|_| ()), Err(limit));
}

#[test]
fn only_published_records_are_settled() {
    let (beat, before) = (ago(1_000), ago(60_000));
    let invisible = Choice { stance: Stance::Invisible, at: ago(5_000), until: None, note: None };
    let host = FakeHost::with(&[
        ("steady", session(beat, Some(published(State::Online, before)))),
        ("unpublished", session(beat, None)),
        ("expired", session(before, Some(published(State::Online, before)))),
        ("seen later", session(before, Some(published(State::Offline, ago(90_000))))),
        ("gone", session(before, Some(published(State::Offline, before)))),
        ("invisible", Session { choice: Some(invisible), ..session(beat, Some(published(State::Offline, before))) }),
    ]);
    let settled = |name: &str| host.open(SERVICE, &[name]).remove(0).unwrap().settled;
    assert!(settled("steady"), "a newer beat changes nothing while online");
    assert!(!settled("unpublished"), "the first beat is not published yet");
    assert!(!settled("expired"), "not settled yet");
    assert!(!settled("seen later"), "a newer last seen counts while offline");
    assert!(settled("gone") && settled("invisible") && settled("absent"));
}

#[test]
fn hidden_users_cost_the_same_reads() {
    let beat = ago(1_000);
    let sessions = [("bob", session(beat, Some(published(State::Online, beat)))), ("eve", Session::default())];
    let reads = [true, false].map(|shown| {
        let host = FakeHost::with(&sessions);
        host.rule("bob", shown, shown);
        host.rule("eve", shown, shown);
        let places = host.open(Some(user("alice")), &["bob", "eve"]);
        let places: Vec<_> = places.into_iter().map(Result::unwrap).collect();
        assert_eq!(places.iter().map(|place| place.view.is_some()).collect::<Vec<_>>(), [shown; 2]);
        assert!(places.iter().all(|place| place.visibility.presence == shown));
        (host.0.reads.get(), host.0.loads.get(), host.0.archive_asked.get())
    });
    assert_eq!(reads[0], reads[1]);
}

#[test]
fn choice_is_shown_to_its_user_only() {
    let choice = Choice { stance: Stance::Invisible, at: ago(1_000), until: None, note: None };
    let host = FakeHost::with(&[("bob", Session { choice: Some(choice.clone()), ..session(ago(1), None) })]);
    host.rule("bob", false, false);
    let place = |viewer: &str| host.open(Some(user(viewer)), &["bob"]).remove(0).unwrap();
    assert_eq!(place("alice").view, None);
    let own = place("bob");
    assert_eq!((own.visibility, own.view.unwrap().choice), (OWN, Some(choice)));
}

#[test]
fn repeated_users_are_read_once() {
    let host = FakeHost::with(&[("bob", session(ago(1_000), None))]);
    let places = host.open(SERVICE, &["bob", "eve", "bob", "eve"]);
    assert_eq!((&places[0], &places[1]), (&places[2], &places[3]));
    assert_ne!(places[0], places[1]);
    assert_eq!(host.0.archive_asked.get(), 1, "only eve, and only once");
}

#[test]
fn records_that_hold_need_no_session() {
    let beat = ago(1_000);
    let invisible = Choice { stance: Stance::Invisible, at: ago(5_000), until: None, note: None };
    let host = FakeHost::with(&[
        ("bob", session(beat, Some(published(State::Online, beat)))),
        ("ghost", Session { choice: Some(invisible), ..session(beat, Some(published(State::Offline, beat))) }),
        ("eve", Session { next: Next::Evict(NOW), ..session(ago(90_000), Some(published(State::Offline, beat))) }),
        ("late", session(ago(90_000), Some(published(State::Online, ago(90_000))))),
    ]);
    for (name, state) in [("bob", State::Online), ("ghost", State::Offline), ("eve", State::Offline)] {
        assert_eq!(host.open(SERVICE, &[name]).remove(0).unwrap().view.unwrap().published.state, state);
    }
    assert_eq!(host.0.loads.get(), 0);
    assert_eq!(host.open(SERVICE, &["late"]).remove(0).unwrap().view.unwrap().published.state, State::Offline);
    assert_eq!(host.0.loads.get(), 1, "a record past its deadline is not used");
}

#[test]
fn feed_sends_snapshot_then_changes() {
    let host = FakeHost::with(&[("bob", session(ago(1_000), Some(published(State::Online, ago(1_000)))))]);
    host.0.steps.borrow_mut().extend([
        Step::Change("bob", published(State::Busy, NOW)),
        Step::Change("unwatched", published(State::Online, NOW)),
        Step::Change("eve", published(State::Online, NOW + Span(5))),
    ]);
    *host.0.end.borrow_mut() = Some(Error::Unavailable(7));
    let (updates, end) = host.feed(Some(user("alice")), &["bob", "eve", "bob"], None);
    let expected = [("bob", State::Online), ("eve", State::Offline), ("bob", State::Busy), ("eve", State::Online)];
    assert_eq!(states(&updates), expected.map(|(name, state)| (name, Some(state))));
    assert_eq!(updates.iter().map(|update| update.version / 1000 - NOW.0).collect::<Vec<_>>(), [0, 0, 0, 5]);
    assert_eq!(end, Err(Error::Unavailable(7)), "the feed ends with the error of the changes");
    assert_eq!(*host.0.watched.borrow(), users(&["bob", "eve"]), "each user is watched once");
}

#[test]
fn older_version_never_follows_newer_one() {
    let host = FakeHost::with(&[("bob", session(ago(10), Some(published(State::Online, ago(10)))))]);
    host.0.steps.borrow_mut().extend([
        Step::Change("bob", published(State::Busy, ago(20))),
        Step::Change("bob", published(State::Away, ago(10))),
        Step::Change("bob", published(State::Busy, NOW)),
        Step::Change("bob", published(State::Online, ago(5))),
    ]);
    let (updates, end) = host.feed(SERVICE, &["bob"], None);
    assert_eq!(states(&updates), [("bob", Some(State::Online)), ("bob", Some(State::Busy))]);
    assert_eq!(end, Ok(()));
}

#[test]
fn feed_settles_unsettled_users() {
    let host = FakeHost::with(&[("bob", session(ago(60_000), Some(published(State::Online, ago(60_000)))))]);
    let (updates, _) = host.feed(SERVICE, &["bob"], None);
    assert_eq!(states(&updates), [("bob", Some(State::Offline))]);
    let record = host.0.sessions.borrow()[&user("bob")].published.clone().unwrap();
    assert_eq!((record.state, record.version), (State::Offline, NOW.0 * 1000), "a late beat has to publish again");
}

#[test]
fn visibility_is_checked_for_every_change() {
    let host = FakeHost::with(&[("bob", session(ago(1_000), Some(published(State::Online, ago(1_000)))))]);
    let hidden = Visibility { presence: false, last_seen: false };
    host.0.steps.borrow_mut().extend([
        Step::Rule("bob", hidden),
        Step::Change("bob", published(State::Busy, NOW)),
        Step::Change("bob", published(State::Away, NOW + Span(1))),
        Step::Rule("bob", OWN),
        Step::Change("bob", published(State::Online, NOW + Span(2))),
    ]);
    let (updates, _) = host.feed(Some(user("alice")), &["bob"], None);
    let expected = [("bob", Some(State::Online)), ("bob", None), ("bob", Some(State::Online))];
    assert_eq!(states(&updates), expected, "changes while hidden cause no update");
    assert_eq!(updates[1].version, updates[0].version, "hidden changes do not move the version");
}

#[test]
fn change_without_visible_difference_is_not_sent() {
    let host = FakeHost::with(&[("bob", session(ago(60_000), Some(published(State::Offline, ago(60_000)))))]);
    host.rule("bob", true, false);
    host.0.steps.borrow_mut().push_back(Step::Change("bob", published(State::Offline, NOW)));
    let (updates, _) = host.feed(Some(user("alice")), &["bob"], None);
    assert_eq!(updates.len(), 1, "this viewer may not see the newer last seen");
    let shown = updates[0].presence.view.clone().unwrap().published;
    assert_eq!((shown.since, shown.last_seen), (None, None));
}

#[test]
fn change_without_last_seen_keeps_known_one() {
    let host = FakeHost::default();
    host.0.archived.borrow_mut().insert(user("bob"), ago(90_000));
    let unknown = Published { since: None, last_seen: None, ..published(State::Offline, NOW) };
    let note = rollcall_core::Note { text: "back soon".to_owned(), emoji: String::new(), until: None };
    host.0.steps.borrow_mut().push_back(Step::Change("bob", Published { note: Some(note), ..unknown }));
    let (updates, _) = host.feed(SERVICE, &["bob"], None);
    let last_seen = |update: &Update| update.presence.view.clone().unwrap().published.last_seen;
    assert_eq!(updates.iter().map(last_seen).collect::<Vec<_>>(), [Some(ago(90_000)); 2]);
}

#[test]
fn feed_resumes_with_changes_since_version() {
    let minutes = |count: u64| ago(60_000 * count);
    let present = |since| session(ago(1_000), Some(published(State::Online, since)));
    let host = || {
        FakeHost::with(&[
            ("early", present(minutes(10))),
            ("late", present(minutes(2))),
            ("hidden", present(minutes(10))),
        ])
    };
    let sent = |since: Time| {
        let host = host();
        host.rule("hidden", false, false);
        let (updates, _) = host.feed(SERVICE, &["early", "late", "hidden", "absent"], Some(since.0 * 1000));
        updates.into_iter().map(|update| update.presence.user.into_string()).collect::<Vec<_>>()
    };
    assert_eq!(sent(minutes(20)), ["early", "late", "hidden", "absent"]);
    assert_eq!(sent(minutes(5)), ["late", "hidden", "absent"], "the version of the absent user is unknown");
    assert_eq!(sent(minutes(2)), ["late", "hidden", "absent"], "a change shortly before is sent again");
    assert_eq!(sent(NOW), ["hidden"], "a user who left recently would still have a version");
}

#[test]
fn resumed_feed_sends_later_changes() {
    let before = published(State::Online, ago(600_000));
    let host = FakeHost::with(&[("bob", session(ago(1_000), Some(before)))]);
    host.0.steps.borrow_mut().push_back(Step::Change("bob", published(State::Busy, NOW)));
    let (updates, _) = host.feed(SERVICE, &["bob"], Some(NOW.0 * 1000));
    assert_eq!(states(&updates), [("bob", Some(State::Busy))]);
}

#[test]
fn feed_ends_when_reader_closes() {
    let host = FakeHost::default();
    host.0.steps.borrow_mut().push_back(Step::Change("bob", published(State::Online, NOW)));
    let feed = poll_once(feed(host.platform(), &host, &RULES, SERVICE, users(&["bob"]), None)).unwrap();
    let mut sink = Recorder { updates: Vec::new(), limit: 1 };
    assert_eq!(poll_once(feed.run(&mut sink)), Ok(()));
    assert_eq!((sink.updates.len(), host.0.steps.borrow().len()), (1, 1), "no further change is read");
}
