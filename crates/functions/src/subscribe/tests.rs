//! Watching, over a platform of a few lines: sessions that are set by hand, and changes that come when the test says.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use rollcall_core::{Device, DeviceId, DeviceKind, Ids, Session, Span, Stance};

use super::*;
use crate::at_once::now;
use crate::capabilities::{Commit, Committed, Eviction, LastSeenEntry, Loaded, Shards, Touched, Touches};

const NOW: Time = Time(1_700_000_000_000);
const RULES: Rules = Rules::STANDARD;
const SERVICE: Option<UserId> = None;

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn users(names: &[&str]) -> Vec<UserId> {
    names.iter().map(|name| user(name)).collect()
}

fn asked(names: &[&str]) -> Vec<Result<UserId, Error>> {
    users(names).into_iter().map(Ok).collect()
}

fn ago(span: u64) -> Time {
    Time(NOW.0 - span)
}

fn published(state: State, at: Time) -> Published {
    Published { state, note: None, since: Some(at), last_seen: Some(at), version: at.0 * 1000 }
}

/// Somebody whose only device beat at this instant.
fn session(beat_at: Time, published: Option<Published>) -> Session {
    let device = Device {
        id: DeviceId::parse("web").unwrap(),
        kind: DeviceKind::Web,
        beat_at,
        active_at: Some(beat_at),
        expires_at: beat_at + RULES.alive_for(),
    };
    Session { devices: vec![device], published, ..Session::default() }
}

/// What happens while a feed runs.
enum Step {
    Change(&'static str, Published),
    Rule(&'static str, Visibility),
}

#[derive(Default, Clone)]
struct Town(Rc<Streets>);

#[derive(Default)]
struct Streets {
    sessions: RefCell<HashMap<UserId, Session>>,
    archived: RefCell<HashMap<UserId, Time>>,
    verdicts: RefCell<HashMap<UserId, Visibility>>,
    steps: RefCell<VecDeque<Step>>,
    end: RefCell<Option<Error>>,
    loads: Cell<usize>,
    archive_asked: Cell<usize>,
    watched: RefCell<Vec<UserId>>,
}

impl Town {
    fn with(people: &[(&str, Session)]) -> Self {
        let town = Self::default();
        town.0.sessions.borrow_mut().extend(people.iter().map(|(name, session)| (user(name), session.clone())));
        town
    }

    fn rule(&self, name: &str, presence: bool, last_seen: bool) {
        self.0.verdicts.borrow_mut().insert(user(name), Visibility { presence, last_seen });
    }

    fn platform(&self) -> (&Self, &Self, &Self) {
        (self, self, self)
    }

    fn open(&self, viewer: Option<UserId>, names: &[&str]) -> Vec<Result<InitialPresence, Error>> {
        now(open(self.platform(), &RULES, viewer, 0, asked(names))).unwrap()
    }

    /// Feeds until the steps are over: what was told, and why it ended.
    fn feed(&self, viewer: Option<UserId>, names: &[&str], since: Option<u64>) -> (Vec<Update>, Result<(), Error>) {
        let mut audience = Listener { heard: Vec::new(), patience: usize::MAX };
        let feed = now(feed(self.platform(), self, &RULES, viewer, users(names), since)).unwrap();
        let end = now(feed.run(&mut audience));
        (audience.heard, end)
    }
}

struct Listener {
    heard: Vec<Update>,
    patience: usize,
}

impl Audience for Listener {
    async fn wants_more(&mut self) -> Result<(), Gone> {
        if self.heard.len() < self.patience { Ok(()) } else { Err(Gone) }
    }
    async fn tell(&mut self, updates: Vec<Update>) -> Result<(), Gone> {
        self.heard.extend(updates);
        Ok(())
    }
}

impl Sessions for Town {
    async fn touch_many(&self, _: Touches) -> Result<Touched, Error> {
        panic!("watching is not a heartbeat")
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
        panic!("watching does not sweep")
    }
    async fn evictable(&self, _: Shards, _: u32) -> Result<Vec<UserId>, Error> {
        panic!("watching does not sweep")
    }
    async fn evict_many(&self, _: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error> {
        panic!("watching does not sweep")
    }
}

impl Archive for Town {
    async fn put_many(&self, _: Vec<LastSeenEntry>) -> Result<(), Error> {
        panic!("watching does not archive")
    }
    async fn get_many(&self, users: Vec<UserId>) -> Result<Vec<Option<Time>>, Error> {
        self.0.archive_asked.set(self.0.archive_asked.get() + users.len());
        Ok(users.iter().map(|user| self.0.archived.borrow().get(user).copied()).collect())
    }
}

impl RestrictionCheck for Town {
    async fn check(&self, _: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error> {
        let verdicts = self.0.verdicts.borrow();
        Ok(subjects.iter().map(|subject| verdicts.get(&user(subject)).copied().unwrap_or(OWN)).collect())
    }
}

impl Watching for Town {
    type Changes = Self;
    async fn watch(&self, users: Vec<UserId>) -> Result<Self, Error> {
        assert_eq!(self.0.loads.get(), 0, "watches before it reads");
        *self.0.watched.borrow_mut() = users;
        Ok(self.clone())
    }
}

impl Changes for Town {
    async fn next(&mut self) -> Option<Change> {
        loop {
            match self.0.steps.borrow_mut().pop_front()? {
                Step::Change(name, published) => return Some(Change { user: user(name), published }),
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
fn nobody_watches_more_than_the_limit() {
    let town = Town::default();
    let limit = Error::TooMany(RULES.watch_limit);
    let watching =
        |watching: u32, more: usize| now(open(town.platform(), &RULES, SERVICE, watching, asked(&vec!["bob"; more])));
    assert_eq!(watching(0, 20).unwrap().len(), 20);
    assert_eq!(watching(19, 1).unwrap().len(), 1);
    assert_eq!(watching(0, 21), Err(limit.clone()));
    assert_eq!(watching(20, 1), Err(limit.clone()));
    assert_eq!(watching(u32::MAX, 20), Err(limit.clone()));
    let names = vec!["bob"; 21];
    let fed = now(feed(town.platform(), &town, &RULES, SERVICE, users(&names), None));
    assert_eq!(fed.map(|_| ()), Err(limit));
}

#[test]
fn what_was_published_is_settled_and_what_was_derived_is_not() {
    let (beat, before) = (ago(1_000), ago(60_000));
    let invisible = Choice { stance: Stance::Invisible, at: ago(5_000), until: None, note: None };
    let town = Town::with(&[
        ("steady", session(beat, Some(published(State::Online, before)))),
        ("unpublished", session(beat, None)),
        ("expired", session(before, Some(published(State::Online, before)))),
        ("seen later", session(before, Some(published(State::Offline, ago(90_000))))),
        ("gone", session(before, Some(published(State::Offline, before)))),
        ("invisible", Session { choice: Some(invisible), ..session(beat, Some(published(State::Offline, before))) }),
    ]);
    let settled = |name: &str| town.open(SERVICE, &[name]).remove(0).unwrap().settled;
    assert!(settled("steady"), "a newer beat is no news while somebody is here");
    assert!(!settled("unpublished"), "the first beat is not yet out");
    assert!(!settled("expired"), "nobody has settled them yet");
    assert!(!settled("seen later"), "of the offline, a newer last seen is news");
    assert!(settled("gone") && settled("invisible") && settled("nobody"));
}

#[test]
fn the_hidden_take_the_road_of_the_shown() {
    let beat = ago(1_000);
    let people = [("bob", session(beat, Some(published(State::Online, beat)))), ("eve", Session::default())];
    let roads = [true, false].map(|shown| {
        let town = Town::with(&people);
        town.rule("bob", shown, shown);
        town.rule("eve", shown, shown);
        let places = town.open(Some(user("alice")), &["bob", "eve"]);
        let places: Vec<_> = places.into_iter().map(Result::unwrap).collect();
        assert_eq!(places.iter().map(|place| place.view.is_some()).collect::<Vec<_>>(), [shown; 2]);
        assert!(places.iter().all(|place| place.visibility.presence == shown));
        (town.0.loads.get(), town.0.archive_asked.get())
    });
    assert_eq!(roads[0], roads[1]);
}

#[test]
fn only_people_themselves_see_their_choice() {
    let choice = Choice { stance: Stance::Invisible, at: ago(1_000), until: None, note: None };
    let town = Town::with(&[("bob", Session { choice: Some(choice.clone()), ..session(ago(1), None) })]);
    town.rule("bob", false, false);
    let place = |viewer: &str| town.open(Some(user(viewer)), &["bob"]).remove(0).unwrap();
    assert_eq!(place("alice").view, None);
    let own = place("bob");
    assert_eq!((own.visibility, own.view.unwrap().choice), (OWN, Some(choice)));
}

#[test]
fn a_bad_id_fails_alone_in_its_place() {
    let town = Town::default();
    let bad = || UserId::parse("").map_err(Error::from);
    let places = now(open(town.platform(), &RULES, SERVICE, 0, vec![Ok(user("bob")), bad(), Ok(user("eve"))])).unwrap();
    assert_eq!(places.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn a_feed_begins_with_everybody_and_goes_on_with_every_change() {
    let town = Town::with(&[("bob", session(ago(1_000), Some(published(State::Online, ago(1_000)))))]);
    town.0.steps.borrow_mut().extend([
        Step::Change("bob", published(State::Busy, NOW)),
        Step::Change("stranger", published(State::Online, NOW)),
        Step::Change("eve", published(State::Online, NOW + Span(5))),
    ]);
    *town.0.end.borrow_mut() = Some(Error::Unavailable(7));
    let (heard, end) = town.feed(Some(user("alice")), &["bob", "eve", "bob"], None);
    let expected = [("bob", State::Online), ("eve", State::Offline), ("bob", State::Busy), ("eve", State::Online)];
    assert_eq!(states(&heard), expected.map(|(name, state)| (name, Some(state))));
    assert_eq!(heard.iter().map(|update| update.version / 1000 - NOW.0).collect::<Vec<_>>(), [0, 0, 0, 5]);
    assert_eq!(end, Err(Error::Unavailable(7)), "the reason of the changes is the reason of the feed");
    assert_eq!(*town.0.watched.borrow(), users(&["bob", "eve"]), "each is watched once");
}

#[test]
fn an_older_version_never_comes_after_a_newer_one() {
    let town = Town::with(&[("bob", session(ago(10), Some(published(State::Online, ago(10)))))]);
    town.0.steps.borrow_mut().extend([
        Step::Change("bob", published(State::Busy, ago(20))),
        Step::Change("bob", published(State::Away, ago(10))),
        Step::Change("bob", published(State::Busy, NOW)),
        Step::Change("bob", published(State::Online, ago(5))),
    ]);
    let (heard, end) = town.feed(SERVICE, &["bob"], None);
    assert_eq!(states(&heard), [("bob", Some(State::Online)), ("bob", Some(State::Busy))]);
    assert_eq!(end, Ok(()));
}

#[test]
fn a_feed_settles_whom_it_finds_unsettled() {
    let town = Town::with(&[("bob", session(ago(60_000), Some(published(State::Online, ago(60_000)))))]);
    let (heard, _) = town.feed(SERVICE, &["bob"], None);
    assert_eq!(states(&heard), [("bob", Some(State::Offline))]);
    let record = town.0.sessions.borrow()[&user("bob")].published.clone().unwrap();
    assert_eq!((record.state, record.version), (State::Offline, NOW.0 * 1000), "a late beat has to publish again");
}

#[test]
fn a_verdict_is_asked_afresh_for_every_change() {
    let town = Town::with(&[("bob", session(ago(1_000), Some(published(State::Online, ago(1_000)))))]);
    let hidden = Visibility { presence: false, last_seen: false };
    town.0.steps.borrow_mut().extend([
        Step::Rule("bob", hidden),
        Step::Change("bob", published(State::Busy, NOW)),
        Step::Change("bob", published(State::Away, NOW + Span(1))),
        Step::Rule("bob", OWN),
        Step::Change("bob", published(State::Online, NOW + Span(2))),
    ]);
    let (heard, _) = town.feed(Some(user("alice")), &["bob"], None);
    let expected = [("bob", Some(State::Online)), ("bob", None), ("bob", Some(State::Online))];
    assert_eq!(states(&heard), expected, "what happens while hidden is not told, not even that it happens");
    assert_eq!(heard[1].version, heard[0].version, "nor is its version");
}

#[test]
fn what_says_nothing_new_to_this_viewer_is_not_told() {
    let town = Town::with(&[("bob", session(ago(60_000), Some(published(State::Offline, ago(60_000)))))]);
    town.rule("bob", true, false);
    town.0.steps.borrow_mut().push_back(Step::Change("bob", published(State::Offline, NOW)));
    let (heard, _) = town.feed(Some(user("alice")), &["bob"], None);
    assert_eq!(heard.len(), 1, "a newer last seen, of which this viewer may know nothing");
    let shown = heard[0].presence.view.clone().unwrap().published;
    assert_eq!((shown.since, shown.last_seen), (None, None));
}

#[test]
fn a_change_that_knows_no_last_seen_keeps_the_one_that_is_known() {
    let town = Town::default();
    town.0.archived.borrow_mut().insert(user("bob"), ago(90_000));
    let unknown = Published { since: None, last_seen: None, ..published(State::Offline, NOW) };
    let words = rollcall_core::Note { text: "back soon".to_owned(), emoji: String::new(), until: None };
    town.0.steps.borrow_mut().push_back(Step::Change("bob", Published { note: Some(words), ..unknown }));
    let (heard, _) = town.feed(SERVICE, &["bob"], None);
    let last_seen = |update: &Update| update.presence.view.clone().unwrap().published.last_seen;
    assert_eq!(heard.iter().map(last_seen).collect::<Vec<_>>(), [Some(ago(90_000)); 2]);
}

#[test]
fn a_feed_resumes_with_what_changed_since() {
    let minutes = |count: u64| ago(60_000 * count);
    let present = |since| session(ago(1_000), Some(published(State::Online, since)));
    let town = || {
        Town::with(&[("early", present(minutes(10))), ("late", present(minutes(2))), ("hidden", present(minutes(10)))])
    };
    let told = |since: Time| {
        let town = town();
        town.rule("hidden", false, false);
        let (heard, _) = town.feed(SERVICE, &["early", "late", "hidden", "absent"], Some(since.0 * 1000));
        heard.into_iter().map(|update| update.presence.user.into_string()).collect::<Vec<_>>()
    };
    assert_eq!(told(minutes(20)), ["early", "late", "hidden", "absent"]);
    assert_eq!(told(minutes(5)), ["late", "hidden", "absent"], "when the absent left is not known");
    assert_eq!(told(minutes(2)), ["late", "hidden", "absent"], "shortly before is told again");
    assert_eq!(told(NOW), ["hidden"], "nor one who is absent, whose leaving would still have a version");
}

#[test]
fn a_feed_that_resumed_knows_what_it_did_not_tell() {
    let before = published(State::Online, ago(600_000));
    let town = Town::with(&[("bob", session(ago(1_000), Some(before)))]);
    town.0.steps.borrow_mut().push_back(Step::Change("bob", published(State::Busy, NOW)));
    let (heard, _) = town.feed(SERVICE, &["bob"], Some(NOW.0 * 1000));
    assert_eq!(states(&heard), [("bob", Some(State::Busy))]);
}

#[test]
fn a_feed_ends_when_nobody_listens() {
    let town = Town::default();
    town.0.steps.borrow_mut().push_back(Step::Change("bob", published(State::Online, NOW)));
    let feed = now(feed(town.platform(), &town, &RULES, SERVICE, users(&["bob"]), None)).unwrap();
    let mut audience = Listener { heard: Vec::new(), patience: 1 };
    assert_eq!(now(feed.run(&mut audience)), Ok(()));
    assert_eq!((audience.heard.len(), town.0.steps.borrow().len()), (1, 1), "nothing more is taken");
}
