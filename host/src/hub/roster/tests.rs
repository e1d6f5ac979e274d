//! What the roster promises: everybody is told the newest, once, and nothing else.

use std::time::{Duration, Instant};

use rollcall_api::call::View;
use rollcall_core::policy::Invalidation;
use rollcall_core::visibility::Visibility;
use rollcall_core::{ConversationId, Published, State, Time, UserId};
use rollcall_functions::capabilities::Change;
use rollcall_store::{Topic, Typed};

use super::{Crowds, FEW, Roster, SLICE};

const ALL: Visibility = Visibility { presence: true, last_seen: true };
const NOTHING: Visibility = Visibility { presence: false, last_seen: false };

fn id(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn published(state: State, version: u64) -> Published {
    Published { state, note: None, since: Some(Time(version)), last_seen: Some(Time(version)), version }
}

fn change(user: &str, state: State, version: u64) -> Change {
    Change { user: id(user), published: published(state, version) }
}

fn roster() -> Roster {
    Roster::new(Crowds { above: 1_000_000, every: Duration::from_secs(1) })
}

/// A watcher of these people, of whom nothing was known before.
fn watcher(roster: &mut Roster, users: &[&str], visibility: Visibility) -> usize {
    let key = roster.enter(Some(id("viewer")));
    let added = roster.add(key, users.iter().map(|user| id(user)).collect(), Vec::new());
    for newcomer in &added.targets {
        let view = View { published: published(State::Offline, 0), choice: None };
        roster.admit(key, newcomer, Some(&view).filter(|_| visibility.presence), visibility, Instant::now());
    }
    key
}

fn told(roster: &mut Roster, key: usize) -> Vec<String> {
    roster.collect(key).presences.iter().map(|text| text.to_string()).collect()
}

#[test]
fn a_slow_watcher_is_told_the_newest_state_and_no_other() {
    let mut roster = roster();
    let slow = watcher(&mut roster, &["bob", "carol"], ALL);
    for version in 1..100 {
        roster
            .hear(&change("bob", if version % 2 == 0 { State::Online } else { State::Away }, version), Instant::now());
    }
    let texts = told(&mut roster, slow);
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("\"version\":99"), "{}", texts[0]);
    assert!(told(&mut roster, slow).is_empty());
}

#[test]
fn whoever_may_see_nothing_is_told_nothing() {
    let mut roster = roster();
    let (blind, seeing) = (watcher(&mut roster, &["bob"], NOTHING), watcher(&mut roster, &["bob"], ALL));
    let before = roster.digest(blind);
    roster.hear(&change("bob", State::Online, 5), Instant::now());
    assert!(told(&mut roster, blind).is_empty());
    assert_eq!(roster.digest(blind), before, "not even by what it resumes from");
    assert_eq!(told(&mut roster, seeing).len(), 1);
}

#[test]
fn news_between_the_reading_and_the_admission_is_shown_at_once() {
    let mut roster = roster();
    let key = roster.enter(None);
    let added = roster.add(key, vec![id("bob")], Vec::new());
    roster.hear(&change("bob", State::Busy, 7), Instant::now());
    let view = View { published: published(State::Online, 6), choice: None };
    let shown = roster.admit(key, &added.targets[0], Some(&view), ALL, Instant::now()).unwrap();
    assert!(shown.text.contains("busy"), "{}", shown.text);
    assert!(told(&mut roster, key).is_empty(), "and not once more");
}

#[test]
fn what_a_newcomer_finds_is_told_to_those_who_watched_before() {
    let mut roster = roster();
    let old = watcher(&mut roster, &["bob"], ALL);
    let new = roster.enter(None);
    let added = roster.add(new, vec![id("bob")], Vec::new());
    let view = View { published: published(State::Busy, 6), choice: None };
    roster.admit(new, &added.targets[0], Some(&view), ALL, Instant::now()).unwrap();
    roster.hear(&change("bob", State::Busy, 6), Instant::now());
    assert!(told(&mut roster, old)[0].contains("busy"), "the message alone was no news any more");
    assert!(told(&mut roster, new).is_empty());
}

#[test]
fn many_typists_are_asked_about_once_each() {
    let mut roster = roster();
    let key = roster.enter(Some(id("viewer")));
    roster.add(key, Vec::new(), (0..10).map(|n| ConversationId::parse(format!("c{n}")).unwrap()).collect());
    for n in 0..600 {
        let conversation = ConversationId::parse(format!("c{}", n % 10)).unwrap();
        roster.hear_typing(&Typed { conversation, user: id(&format!("u{n}")), until: Some(Time(9)) });
    }
    let (mut asked, mut told) = (std::collections::HashSet::new(), Vec::new());
    loop {
        let collected = roster.collect(key);
        told.extend(collected.typing);
        if collected.strangers.is_empty() {
            break;
        }
        for user in &collected.strangers {
            assert!(asked.insert(user.clone()), "{user:?} is asked about twice");
        }
        roster.judge(key, collected.strangers.into_iter().map(|user| (user, true)).collect());
    }
    assert_eq!((asked.len(), told.len()), (600, 600));
    assert!(told.iter().all(|text| text.contains("\"typing\":true")), "nobody is told to have stopped who goes on");
    // One more, in one of the rooms: what is known of the others is neither asked for nor taken back.
    let conversation = ConversationId::parse("c3").unwrap();
    roster.hear_typing(&Typed { conversation, user: id("late"), until: Some(Time(9)) });
    assert_eq!(roster.collect(key).strangers, [id("late")]);
    roster.judge(key, vec![(id("late"), true)]);
    assert_eq!(roster.collect(key).typing.len(), 1);
}

#[test]
fn a_topic_is_let_go_with_its_last_watcher() {
    let mut roster = roster();
    let (one, other) = (watcher(&mut roster, &["bob"], ALL), watcher(&mut roster, &["bob", "carol"], ALL));
    assert_eq!(roster.leave(one), []);
    assert_eq!(roster.remove(other, &[id("bob"), id("nobody")], &[]), [Topic::Person(id("bob"))]);
    assert_eq!(roster.leave(other), [Topic::Person(id("carol"))]);
    assert_eq!(roster.sizes(), super::Sizes::default());
}

#[test]
fn whom_one_watches_already_is_not_added_again() {
    let mut roster = roster();
    let key = watcher(&mut roster, &["bob"], ALL);
    roster.listened(&[Topic::Person(id("bob"))]);
    let added = roster.add(key, vec![id("bob"), id("carol")], Vec::new());
    assert_eq!(added.topics, [Topic::Person(id("carol"))]);
    assert_eq!(roster.undo(key, &added), [Topic::Person(id("carol"))]);
    assert_eq!(roster.watching(key), 1);
}

#[test]
fn a_parade_reaches_everybody_even_if_the_person_changes_meanwhile() {
    let mut roster = roster();
    let watchers: Vec<usize> = (0..FEW + SLICE * 2).map(|_| watcher(&mut roster, &["star"], ALL)).collect();
    let mut version = 0;
    let mut reached = std::collections::HashSet::new();
    for _ in 0..40 {
        version += 1;
        roster.hear(&change("star", State::Online, version), Instant::now());
        roster.march();
        reached.extend(watchers.iter().copied().filter(|key| !told(&mut roster, *key).is_empty()));
    }
    assert_eq!(reached.len(), watchers.len(), "the last are not overtaken for ever");
    while roster.is_marching() {
        roster.march();
    }
    for key in &watchers {
        told(&mut roster, *key);
        let newest = format!("{:016x}", roster.digest(*key));
        assert_eq!(newest, format!("{:016x}", roster.digest(watchers[0])), "all end with the same");
    }
}

#[test]
fn a_crowd_is_told_once_per_interval_and_then_the_newest() {
    let mut roster = Roster::new(Crowds { above: 1, every: Duration::from_secs(1) });
    let watchers = [watcher(&mut roster, &["star"], ALL), watcher(&mut roster, &["star"], ALL)];
    let start = Instant::now();
    roster.hear(&change("star", State::Online, 1), start);
    assert!(watchers.iter().all(|key| told(&mut roster, *key).len() == 1));
    for version in 2..10 {
        roster.hear(&change("star", State::Away, version), start + Duration::from_millis(version * 50));
    }
    assert!(watchers.iter().all(|key| told(&mut roster, *key).is_empty()));
    assert_eq!(roster.next_release(), Some(start + Duration::from_secs(1)));
    roster.release(start + Duration::from_secs(1));
    assert!(watchers.iter().all(|key| told(&mut roster, *key)[0].contains("\"version\":9")));
    assert_eq!(roster.next_release(), None);
}

#[test]
fn typists_are_told_once_each_and_taken_back_when_they_end() {
    let mut roster = roster();
    let room = ConversationId::parse("c").unwrap();
    let key = roster.enter(None);
    roster.add(key, Vec::new(), vec![room.clone()]);
    let typed =
        |user: &str, until: Option<u64>| Typed { conversation: room.clone(), user: id(user), until: until.map(Time) };
    roster.hear_typing(&typed("bob", Some(100)));
    roster.hear_typing(&typed("carol", Some(200)));
    let asked = roster.collect(key).strangers;
    assert_eq!(asked, [id("bob"), id("carol")], "a service, too, does not see who is restricted");
    roster.judge(key, asked.into_iter().map(|user| (user, true)).collect());
    assert_eq!(roster.collect(key).typing.len(), 2);
    roster.hear_typing(&typed("bob", Some(100)));
    assert!(roster.collect(key).typing.is_empty(), "nothing new");
    assert_eq!(roster.typing_ends(), Some(Time(100)));
    roster.expire_typing(Time(100));
    let ended = roster.collect(key).typing;
    assert!(ended.len() == 1 && ended[0].contains("bob") && ended[0].contains("false"), "{ended:?}");
    roster.hear_typing(&typed("carol", None));
    assert!(roster.collect(key).typing[0].contains("carol"));
    roster.expire_typing(Time(200));
    assert_eq!(roster.typing_ends(), None);
}

#[test]
fn a_typist_is_shown_only_once_it_is_known_that_the_viewer_may_see_them() {
    let mut roster = roster();
    let room = ConversationId::parse("c").unwrap();
    let key = roster.enter(Some(id("viewer")));
    roster.add(key, Vec::new(), vec![room.clone()]);
    for user in ["viewer", "bob", "mallory"] {
        roster.hear_typing(&Typed { conversation: room.clone(), user: id(user), until: Some(Time(9)) });
    }
    let asked = roster.collect(key);
    assert_eq!((asked.typing.len(), asked.strangers), (0, vec![id("bob"), id("mallory")]));
    roster.judge(key, vec![(id("bob"), true), (id("mallory"), false)]);
    let told = roster.collect(key);
    assert!(told.strangers.is_empty() && told.typing.len() == 1 && told.typing[0].contains("bob"), "{told:?}");
}

/// Doubts, and the verdict on each.
fn reconsider(roster: &mut Roster, invalidation: Invalidation, verdict: Visibility) -> usize {
    let viewer = id("viewer");
    let doubts: Vec<_> = roster.doubt(&[invalidation]).into_values().flatten().collect();
    doubts.iter().filter(|doubtful| roster.resolve(Some(&viewer), doubtful, verdict)).count()
}

#[test]
fn whoever_may_no_longer_see_is_told_so_once_and_then_nothing() {
    let mut roster = roster();
    let key = watcher(&mut roster, &["bob", "carol"], ALL);
    roster.hear(&change("bob", State::Online, 5), Instant::now());
    told(&mut roster, key);
    reconsider(&mut roster, Invalidation::Pair(id("bob"), id("viewer")), NOTHING);
    let texts = told(&mut roster, key);
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("\"bob\"") && texts[0].contains("\"state\":null"), "{}", texts[0]);
    let hidden = roster.digest(key);
    roster.hear(&change("bob", State::Busy, 6), Instant::now());
    reconsider(&mut roster, Invalidation::Subject(id("bob")), NOTHING);
    assert!(told(&mut roster, key).is_empty());
    assert_eq!(roster.digest(key), hidden);
    // And again, when they may.
    reconsider(&mut roster, Invalidation::Everybody, ALL);
    let texts = told(&mut roster, key);
    assert_eq!(texts.len(), 1, "carol was never hidden: {texts:?}");
    assert!(texts[0].contains("busy"), "{}", texts[0]);
}

#[test]
fn nothing_is_told_of_whoever_is_doubted() {
    let mut roster = roster();
    let key = watcher(&mut roster, &["bob"], ALL);
    let doubts: Vec<_> = roster.doubt(&[Invalidation::Subject(id("bob"))]).into_values().flatten().collect();
    roster.hear(&change("bob", State::Online, 5), Instant::now());
    assert!(told(&mut roster, key).is_empty());
    // Another change comes before the verdict on the first: that verdict may be out of date.
    let again: Vec<_> =
        roster.doubt(&[Invalidation::Everybody, Invalidation::Subject(id("bob"))]).into_values().flatten().collect();
    assert_eq!(again.len(), 1, "asked about once");
    roster.resolve(Some(&id("viewer")), &doubts[0], ALL);
    assert!(told(&mut roster, key).is_empty());
    assert!(!roster.resolve(Some(&id("viewer")), &again[0], ALL));
    assert_eq!(told(&mut roster, key).len(), 1, "what came meanwhile is not lost");
}

#[test]
fn somebody_who_was_never_seen_has_to_be_read_when_they_can_be() {
    let mut roster = roster();
    let key = watcher(&mut roster, &["bob"], NOTHING);
    assert_eq!(reconsider(&mut roster, Invalidation::Subject(id("bob")), ALL), 1);
    assert!(told(&mut roster, key).is_empty());
    let news = roster.present(vec![id("bob")])[0].1;
    assert!(roster.learn(&id("bob"), published(State::Away, 4), news, Instant::now()));
    assert_eq!(told(&mut roster, key).len(), 1);
}

#[test]
fn a_invalidation_concerns_those_whom_it_names() {
    let mut roster = roster();
    let key = watcher(&mut roster, &["bob", "viewer"], ALL);
    let other = roster.enter(Some(id("other")));
    let added = roster.add(other, vec![id("bob")], Vec::new());
    let view = View { published: published(State::Online, 3), choice: None };
    roster.admit(other, &added.targets[0], Some(&view), ALL, Instant::now());
    let concerned = |roster: &mut Roster, invalidation: Invalidation| -> Vec<Option<UserId>> {
        let doubts = roster.doubt(&[invalidation]);
        let mut viewers: Vec<_> = doubts.keys().cloned().collect();
        for (viewer, doubtful) in &doubts {
            doubtful.iter().for_each(|doubtful| assert!(!roster.resolve(viewer.as_ref(), doubtful, ALL)));
        }
        viewers.sort();
        viewers
    };
    assert_eq!(concerned(&mut roster, Invalidation::Pair(id("viewer"), id("bob"))), [Some(id("viewer"))]);
    assert_eq!(concerned(&mut roster, Invalidation::Pair(id("bob"), id("other"))), [Some(id("other"))]);
    assert_eq!(concerned(&mut roster, Invalidation::Subject(id("bob"))), [Some(id("other")), Some(id("viewer"))]);
    assert!(concerned(&mut roster, Invalidation::Subject(id("viewer"))).is_empty(), "everybody sees themselves");
    roster.leave(key);
    assert_eq!(concerned(&mut roster, Invalidation::Everybody), [Some(id("other"))]);
}

#[test]
fn a_verdict_is_for_the_viewer_who_was_asked_about_and_no_other() {
    let mut roster = roster();
    let gone = watcher(&mut roster, &["bob"], ALL);
    let doubts: Vec<_> = roster.doubt(&[Invalidation::Subject(id("bob"))]).into_values().flatten().collect();
    roster.leave(gone);
    let other = roster.enter(Some(id("other")));
    let added = roster.add(other, vec![id("bob")], Vec::new());
    roster.admit(other, &added.targets[0], None, NOTHING, Instant::now());
    assert_eq!(other, gone, "it has the place of the one who left");
    roster.resolve(Some(&id("viewer")), &doubts[0], ALL);
    roster.hear(&change("bob", State::Online, 5), Instant::now());
    assert!(told(&mut roster, other).is_empty());
}
