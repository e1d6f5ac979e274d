//! What the registry promises: everybody is told the newest, once, and nothing else.

use std::time::{Duration, Instant};

use rollcall_api::call::View;
use rollcall_core::policy::Invalidation;
use rollcall_core::visibility::Visibility;
use rollcall_core::{ConversationId, Published, State, Time, UserId};
use rollcall_functions::capabilities::Change;
use rollcall_store::{Topic, Typed};

use super::registry::{CHUNK, Crowds, MAX_UNCHUNKED, Registry, Sizes};

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

fn registry() -> Registry {
    Registry::new(Crowds { above: 1_000_000, every: Duration::from_secs(1) })
}

/// A watcher of these people, of whom nothing was known before.
fn watcher(registry: &mut Registry, users: &[&str], visibility: Visibility) -> usize {
    let key = registry.enter(Some(id("viewer")));
    let added = registry.add(key, users.iter().map(|user| id(user)).collect(), Vec::new());
    for added_user in &added.targets {
        let view = View { published: published(State::Offline, 0), choice: None };
        registry.admit(key, added_user, Some(&view).filter(|_| visibility.presence), visibility, Instant::now());
    }
    key
}

fn sent(registry: &mut Registry, key: usize) -> Vec<String> {
    registry.collect(key).presences.iter().map(|text| text.to_string()).collect()
}

#[test]
fn a_slow_watcher_is_told_the_newest_state_and_no_other() {
    let mut registry = registry();
    let slow = watcher(&mut registry, &["bob", "carol"], ALL);
    for version in 1..100 {
        registry.receive(
            &change("bob", if version % 2 == 0 { State::Online } else { State::Away }, version),
            Instant::now(),
        );
    }
    let texts = sent(&mut registry, slow);
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("\"version\":99"), "{}", texts[0]);
    assert!(sent(&mut registry, slow).is_empty());
}

#[test]
fn whoever_may_see_nothing_is_told_nothing() {
    let mut registry = registry();
    let (blind, seeing) = (watcher(&mut registry, &["bob"], NOTHING), watcher(&mut registry, &["bob"], ALL));
    let before = registry.digest(blind);
    registry.receive(&change("bob", State::Online, 5), Instant::now());
    assert!(sent(&mut registry, blind).is_empty());
    assert_eq!(registry.digest(blind), before, "not even by what it resumes from");
    assert_eq!(sent(&mut registry, seeing).len(), 1);
}

#[test]
fn news_between_the_reading_and_the_admission_is_shown_at_once() {
    let mut registry = registry();
    let key = registry.enter(None);
    let added = registry.add(key, vec![id("bob")], Vec::new());
    registry.receive(&change("bob", State::Busy, 7), Instant::now());
    let view = View { published: published(State::Online, 6), choice: None };
    let shown = registry.admit(key, &added.targets[0], Some(&view), ALL, Instant::now()).unwrap();
    assert!(shown.text.contains("busy"), "{}", shown.text);
    assert!(sent(&mut registry, key).is_empty(), "and not once more");
}

#[test]
fn what_a_newcomer_finds_is_told_to_those_who_watched_before() {
    let mut registry = registry();
    let old = watcher(&mut registry, &["bob"], ALL);
    let new = registry.enter(None);
    let added = registry.add(new, vec![id("bob")], Vec::new());
    let view = View { published: published(State::Busy, 6), choice: None };
    registry.admit(new, &added.targets[0], Some(&view), ALL, Instant::now()).unwrap();
    registry.receive(&change("bob", State::Busy, 6), Instant::now());
    assert!(sent(&mut registry, old)[0].contains("busy"), "the message alone was no received any more");
    assert!(sent(&mut registry, new).is_empty());
}

#[test]
fn many_typists_are_asked_about_once_each() {
    let mut registry = registry();
    let key = registry.enter(Some(id("viewer")));
    registry.add(key, Vec::new(), (0..10).map(|n| ConversationId::parse(format!("c{n}")).unwrap()).collect());
    for n in 0..600 {
        let conversation = ConversationId::parse(format!("c{}", n % 10)).unwrap();
        registry.receive_typing(&Typed { conversation, user: id(&format!("u{n}")), until: Some(Time(9)) });
    }
    let (mut asked, mut sent) = (std::collections::HashSet::new(), Vec::new());
    loop {
        let collected = registry.collect(key);
        sent.extend(collected.typing);
        if collected.unchecked_typists.is_empty() {
            break;
        }
        for user in &collected.unchecked_typists {
            assert!(asked.insert(user.clone()), "{user:?} is asked about twice");
        }
        registry.set_typist_visibility(key, collected.unchecked_typists.into_iter().map(|user| (user, true)).collect());
    }
    assert_eq!((asked.len(), sent.len()), (600, 600));
    assert!(sent.iter().all(|text| text.contains("\"typing\":true")), "nobody is sent to have stopped who goes on");
    // One more, in one of the rooms: what is known of the others is neither asked for nor taken back.
    let conversation = ConversationId::parse("c3").unwrap();
    registry.receive_typing(&Typed { conversation, user: id("late"), until: Some(Time(9)) });
    assert_eq!(registry.collect(key).unchecked_typists, [id("late")]);
    registry.set_typist_visibility(key, vec![(id("late"), true)]);
    assert_eq!(registry.collect(key).typing.len(), 1);
}

#[test]
fn a_topic_is_let_go_with_its_last_watcher() {
    let mut registry = registry();
    let (one, other) = (watcher(&mut registry, &["bob"], ALL), watcher(&mut registry, &["bob", "carol"], ALL));
    assert_eq!(registry.leave(one), []);
    assert_eq!(registry.remove(other, &[id("bob"), id("nobody")], &[]), [Topic::Person(id("bob"))]);
    assert_eq!(registry.leave(other), [Topic::Person(id("carol"))]);
    assert_eq!(registry.sizes(), Sizes::default());
}

#[test]
fn whom_one_watches_already_is_not_added_again() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob"], ALL);
    registry.subscribed(&[Topic::Person(id("bob"))]);
    let added = registry.add(key, vec![id("bob"), id("carol")], Vec::new());
    assert_eq!(added.topics, [Topic::Person(id("carol"))]);
    assert_eq!(registry.undo(key, &added), [Topic::Person(id("carol"))]);
    assert_eq!(registry.watching(key), 1);
}

#[test]
fn a_parade_reaches_everybody_even_if_the_person_changes_meanwhile() {
    let mut registry = registry();
    let watchers: Vec<usize> = (0..MAX_UNCHUNKED + CHUNK * 2).map(|_| watcher(&mut registry, &["star"], ALL)).collect();
    let mut version = 0;
    let mut reached = std::collections::HashSet::new();
    for _ in 0..40 {
        version += 1;
        registry.receive(&change("star", State::Online, version), Instant::now());
        registry.fan_out_chunk();
        reached.extend(watchers.iter().copied().filter(|key| !sent(&mut registry, *key).is_empty()));
    }
    assert_eq!(reached.len(), watchers.len(), "the last are not overtaken for ever");
    while registry.is_fanning_out() {
        registry.fan_out_chunk();
    }
    for key in &watchers {
        sent(&mut registry, *key);
        let newest = format!("{:016x}", registry.digest(*key));
        assert_eq!(newest, format!("{:016x}", registry.digest(watchers[0])), "all end with the same");
    }
}

#[test]
fn a_crowd_is_told_once_per_interval_and_then_the_newest() {
    let mut registry = Registry::new(Crowds { above: 1, every: Duration::from_secs(1) });
    let watchers = [watcher(&mut registry, &["star"], ALL), watcher(&mut registry, &["star"], ALL)];
    let start = Instant::now();
    registry.receive(&change("star", State::Online, 1), start);
    assert!(watchers.iter().all(|key| sent(&mut registry, *key).len() == 1));
    for version in 2..10 {
        registry.receive(&change("star", State::Away, version), start + Duration::from_millis(version * 50));
    }
    assert!(watchers.iter().all(|key| sent(&mut registry, *key).is_empty()));
    assert_eq!(registry.next_release(), Some(start + Duration::from_secs(1)));
    registry.release(start + Duration::from_secs(1));
    assert!(watchers.iter().all(|key| sent(&mut registry, *key)[0].contains("\"version\":9")));
    assert_eq!(registry.next_release(), None);
}

#[test]
fn typists_are_told_once_each_and_taken_back_when_they_end() {
    let mut registry = registry();
    let room = ConversationId::parse("c").unwrap();
    let key = registry.enter(None);
    registry.add(key, Vec::new(), vec![room.clone()]);
    let typed =
        |user: &str, until: Option<u64>| Typed { conversation: room.clone(), user: id(user), until: until.map(Time) };
    registry.receive_typing(&typed("bob", Some(100)));
    registry.receive_typing(&typed("carol", Some(200)));
    let asked = registry.collect(key).unchecked_typists;
    assert_eq!(asked, [id("bob"), id("carol")], "a service, too, does not see who is restricted");
    registry.set_typist_visibility(key, asked.into_iter().map(|user| (user, true)).collect());
    assert_eq!(registry.collect(key).typing.len(), 2);
    registry.receive_typing(&typed("bob", Some(100)));
    assert!(registry.collect(key).typing.is_empty(), "nothing new");
    assert_eq!(registry.typing_ends(), Some(Time(100)));
    registry.expire_typing(Time(100));
    let ended = registry.collect(key).typing;
    assert!(ended.len() == 1 && ended[0].contains("bob") && ended[0].contains("false"), "{ended:?}");
    registry.receive_typing(&typed("carol", None));
    assert!(registry.collect(key).typing[0].contains("carol"));
    registry.expire_typing(Time(200));
    assert_eq!(registry.typing_ends(), None);
}

#[test]
fn a_typist_is_shown_only_once_it_is_known_that_the_viewer_may_see_them() {
    let mut registry = registry();
    let room = ConversationId::parse("c").unwrap();
    let key = registry.enter(Some(id("viewer")));
    registry.add(key, Vec::new(), vec![room.clone()]);
    for user in ["viewer", "bob", "mallory"] {
        registry.receive_typing(&Typed { conversation: room.clone(), user: id(user), until: Some(Time(9)) });
    }
    let asked = registry.collect(key);
    assert_eq!((asked.typing.len(), asked.unchecked_typists), (0, vec![id("bob"), id("mallory")]));
    registry.set_typist_visibility(key, vec![(id("bob"), true), (id("mallory"), false)]);
    let sent = registry.collect(key);
    assert!(sent.unchecked_typists.is_empty() && sent.typing.len() == 1 && sent.typing[0].contains("bob"), "{sent:?}");
}

/// Rechecks, and the verdict on each.
fn reconsider(registry: &mut Registry, invalidation: Invalidation, verdict: Visibility) -> usize {
    let viewer = id("viewer");
    let rechecks: Vec<_> = registry.invalidate(&[invalidation]).into_values().flatten().collect();
    rechecks.iter().filter(|item| registry.resolve(Some(&viewer), item, verdict)).count()
}

#[test]
fn whoever_may_no_longer_see_is_told_so_once_and_then_nothing() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob", "carol"], ALL);
    registry.receive(&change("bob", State::Online, 5), Instant::now());
    sent(&mut registry, key);
    reconsider(&mut registry, Invalidation::Pair(id("bob"), id("viewer")), NOTHING);
    let texts = sent(&mut registry, key);
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("\"bob\"") && texts[0].contains("\"state\":null"), "{}", texts[0]);
    let hidden = registry.digest(key);
    registry.receive(&change("bob", State::Busy, 6), Instant::now());
    reconsider(&mut registry, Invalidation::Subject(id("bob")), NOTHING);
    assert!(sent(&mut registry, key).is_empty());
    assert_eq!(registry.digest(key), hidden);
    // And again, when they may.
    reconsider(&mut registry, Invalidation::Everybody, ALL);
    let texts = sent(&mut registry, key);
    assert_eq!(texts.len(), 1, "carol was never hidden: {texts:?}");
    assert!(texts[0].contains("busy"), "{}", texts[0]);
}

#[test]
fn nothing_is_told_of_whoever_is_doubted() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob"], ALL);
    let rechecks: Vec<_> = registry.invalidate(&[Invalidation::Subject(id("bob"))]).into_values().flatten().collect();
    registry.receive(&change("bob", State::Online, 5), Instant::now());
    assert!(sent(&mut registry, key).is_empty());
    // Another change comes before the verdict on the first: that verdict may be out of date.
    let again: Vec<_> = registry
        .invalidate(&[Invalidation::Everybody, Invalidation::Subject(id("bob"))])
        .into_values()
        .flatten()
        .collect();
    assert_eq!(again.len(), 1, "asked about once");
    registry.resolve(Some(&id("viewer")), &rechecks[0], ALL);
    assert!(sent(&mut registry, key).is_empty());
    assert!(!registry.resolve(Some(&id("viewer")), &again[0], ALL));
    assert_eq!(sent(&mut registry, key).len(), 1, "what came meanwhile is not lost");
}

#[test]
fn somebody_who_was_never_seen_has_to_be_read_when_they_can_be() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob"], NOTHING);
    assert_eq!(reconsider(&mut registry, Invalidation::Subject(id("bob")), ALL), 1);
    assert!(sent(&mut registry, key).is_empty());
    let received = registry.watched_users(vec![id("bob")])[0].1;
    assert!(registry.apply_read(&id("bob"), published(State::Away, 4), received, Instant::now()));
    assert_eq!(sent(&mut registry, key).len(), 1);
}

#[test]
fn a_invalidation_concerns_those_whom_it_names() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob", "viewer"], ALL);
    let other = registry.enter(Some(id("other")));
    let added = registry.add(other, vec![id("bob")], Vec::new());
    let view = View { published: published(State::Online, 3), choice: None };
    registry.admit(other, &added.targets[0], Some(&view), ALL, Instant::now());
    let concerned = |registry: &mut Registry, invalidation: Invalidation| -> Vec<Option<UserId>> {
        let rechecks = registry.invalidate(&[invalidation]);
        let mut viewers: Vec<_> = rechecks.keys().cloned().collect();
        for (viewer, item) in &rechecks {
            item.iter().for_each(|item| assert!(!registry.resolve(viewer.as_ref(), item, ALL)));
        }
        viewers.sort();
        viewers
    };
    assert_eq!(concerned(&mut registry, Invalidation::Pair(id("viewer"), id("bob"))), [Some(id("viewer"))]);
    assert_eq!(concerned(&mut registry, Invalidation::Pair(id("bob"), id("other"))), [Some(id("other"))]);
    assert_eq!(concerned(&mut registry, Invalidation::Subject(id("bob"))), [Some(id("other")), Some(id("viewer"))]);
    assert!(
        concerned(&mut registry, Invalidation::Subject(id("viewer"))).is_empty(),
        "everybody typist_visibility themselves"
    );
    registry.leave(key);
    assert_eq!(concerned(&mut registry, Invalidation::Everybody), [Some(id("other"))]);
}

#[test]
fn a_verdict_is_for_the_viewer_who_was_asked_about_and_no_other() {
    let mut registry = registry();
    let gone = watcher(&mut registry, &["bob"], ALL);
    let rechecks: Vec<_> = registry.invalidate(&[Invalidation::Subject(id("bob"))]).into_values().flatten().collect();
    registry.leave(gone);
    let other = registry.enter(Some(id("other")));
    let added = registry.add(other, vec![id("bob")], Vec::new());
    registry.admit(other, &added.targets[0], None, NOTHING, Instant::now());
    assert_eq!(other, gone, "it has the slot of the one who left");
    registry.resolve(Some(&id("viewer")), &rechecks[0], ALL);
    registry.receive(&change("bob", State::Online, 5), Instant::now());
    assert!(sent(&mut registry, other).is_empty());
}
