//! The registry's guarantee: every watcher receives the newest state it may see, once, and nothing else.

use std::time::{Duration, Instant};

use rollcall_api::call::View;
use rollcall_core::policy::Invalidation;
use rollcall_core::visibility::Visibility;
use rollcall_core::{ConversationId, Published, State, Time, UserId};
use rollcall_functions::capabilities::PresenceChange;
use rollcall_store::{PublishedTyping, Topic};

use super::fan_out::{CHUNK, MAX_UNCHUNKED};
use super::registry::{Crowds, Registry, Sizes};

const ALL: Visibility = Visibility { presence: true, last_seen: true };
const NOTHING: Visibility = Visibility { presence: false, last_seen: false };

fn id(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn published(state: State, version: u64) -> Published {
    Published { state, note: None, since: Some(Time(version)), last_seen: Some(Time(version)), version }
}

fn change(user: &str, state: State, version: u64) -> PresenceChange {
    PresenceChange { user: id(user), published: published(state, version) }
}

fn registry() -> Registry {
    Registry::new(Crowds { above: 1_000_000, every: Duration::from_secs(1) })
}

/// A watcher of these users, who are offline.
fn watcher(registry: &mut Registry, users: &[&str], visibility: Visibility) -> usize {
    let key = registry.add_watcher(Some(id("viewer")));
    let added = registry.add(key, users.iter().map(|user| id(user)).collect(), Vec::new());
    for added_user in &added.users {
        let view = View { published: published(State::Offline, 0), choice: None };
        registry.admit(key, added_user, Some(&view).filter(|_| visibility.presence), visibility, Instant::now());
    }
    key
}

fn updates(registry: &mut Registry, key: usize) -> Vec<String> {
    registry.collect(key).presences.iter().map(|text| text.to_string()).collect()
}

#[test]
fn slow_watcher_receives_only_the_newest_state() {
    let mut registry = registry();
    let slow = watcher(&mut registry, &["bob", "carol"], ALL);
    for version in 1..100 {
        registry.receive(
            &change("bob", if version % 2 == 0 { State::Online } else { State::Away }, version),
            Instant::now(),
        );
    }
    let texts = updates(&mut registry, slow);
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("\"version\":99"), "{}", texts[0]);
    assert!(updates(&mut registry, slow).is_empty());
}

#[test]
fn hidden_user_sends_no_update() {
    let mut registry = registry();
    let (blind, seeing) = (watcher(&mut registry, &["bob"], NOTHING), watcher(&mut registry, &["bob"], ALL));
    let before = registry.digest(blind);
    registry.receive(&change("bob", State::Online, 5), Instant::now());
    assert!(updates(&mut registry, blind).is_empty());
    assert_eq!(registry.digest(blind), before, "nor does the resume id change");
    assert_eq!(updates(&mut registry, seeing).len(), 1);
}

#[test]
fn state_read_before_its_commit_is_sent_once() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob"], ALL);
    let committed = published(State::Busy, 7);
    let derived = Published { version: 0, ..committed.clone() };
    let received = registry.users[0].received;
    assert!(registry.apply_read(&id("bob"), derived, received, Instant::now()));
    assert_eq!(updates(&mut registry, key).len(), 1);
    registry.receive(&PresenceChange { user: id("bob"), published: committed }, Instant::now());
    assert!(updates(&mut registry, key).is_empty(), "only the version is new");
}

#[test]
fn message_during_the_read_is_in_snapshot() {
    let mut registry = registry();
    let key = registry.add_watcher(None);
    let added = registry.add(key, vec![id("bob")], Vec::new());
    registry.receive(&change("bob", State::Busy, 7), Instant::now());
    let view = View { published: published(State::Online, 6), choice: None };
    let entry = registry.admit(key, &added.users[0], Some(&view), ALL, Instant::now()).unwrap();
    assert!(entry.payload.contains("busy"), "{}", entry.payload);
    assert!(updates(&mut registry, key).is_empty(), "and is not sent again");
}

#[test]
fn read_of_new_watcher_updates_earlier_watchers() {
    let mut registry = registry();
    let old = watcher(&mut registry, &["bob"], ALL);
    let new = registry.add_watcher(None);
    let added = registry.add(new, vec![id("bob")], Vec::new());
    let view = View { published: published(State::Busy, 6), choice: None };
    registry.admit(new, &added.users[0], Some(&view), ALL, Instant::now()).unwrap();
    registry.receive(&change("bob", State::Busy, 6), Instant::now());
    assert!(updates(&mut registry, old)[0].contains("busy"), "the earlier read must not suppress the message");
    assert!(updates(&mut registry, new).is_empty());
}

#[test]
fn many_typists_are_checked_once_each() {
    let mut registry = registry();
    let key = registry.add_watcher(Some(id("viewer")));
    registry.add(key, Vec::new(), (0..10).map(|n| ConversationId::parse(format!("c{n}")).unwrap()).collect());
    for n in 0..600 {
        let conversation = ConversationId::parse(format!("c{}", n % 10)).unwrap();
        registry.receive_typing(&PublishedTyping { conversation, user: id(&format!("u{n}")), until: Some(Time(9)) });
    }
    let (mut asked, mut sent) = (std::collections::HashSet::new(), Vec::new());
    loop {
        let collected = registry.collect(key);
        sent.extend(collected.typing);
        if collected.unchecked_typists.is_empty() {
            break;
        }
        for user in &collected.unchecked_typists {
            assert!(asked.insert(user.clone()), "{user:?} is checked twice");
        }
        registry.set_typist_visibility(key, collected.unchecked_typists.into_iter().map(|user| (user, true)).collect());
    }
    assert_eq!((asked.len(), sent.len()), (600, 600));
    assert!(sent.iter().all(|text| text.contains("\"typing\":true")), "no active typist is withdrawn");
    // One more typist: the others are neither checked again nor withdrawn.
    let conversation = ConversationId::parse("c3").unwrap();
    registry.receive_typing(&PublishedTyping { conversation, user: id("late"), until: Some(Time(9)) });
    assert_eq!(registry.collect(key).unchecked_typists, [id("late")]);
    registry.set_typist_visibility(key, vec![(id("late"), true)]);
    assert_eq!(registry.collect(key).typing.len(), 1);
}

#[test]
fn topic_is_idle_after_its_last_watcher() {
    let mut registry = registry();
    let (one, other) = (watcher(&mut registry, &["bob"], ALL), watcher(&mut registry, &["bob", "carol"], ALL));
    assert_eq!(registry.remove_watcher(one), []);
    assert_eq!(registry.remove(other, &[id("bob"), id("nobody")], &[]), [Topic::User(id("bob"))]);
    assert_eq!(registry.remove_watcher(other), [Topic::User(id("carol"))]);
    assert_eq!(registry.sizes(), Sizes::default());
}

#[test]
fn watched_user_is_not_added_again() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob"], ALL);
    registry.subscribed(&[Topic::User(id("bob"))]);
    let added = registry.add(key, vec![id("bob"), id("carol")], Vec::new());
    assert_eq!(added.topics, [Topic::User(id("carol"))]);
    assert_eq!(registry.undo(key, &added), [Topic::User(id("carol"))]);
    assert_eq!(registry.user_count(key), 1);
}

#[test]
fn chunked_fan_out_reaches_every_watcher() {
    let mut registry = registry();
    let watchers: Vec<usize> = (0..MAX_UNCHUNKED + CHUNK * 2).map(|_| watcher(&mut registry, &["star"], ALL)).collect();
    let mut version = 0;
    let mut reached = std::collections::HashSet::new();
    for _ in 0..40 {
        version += 1;
        registry.receive(&change("star", State::Online, version), Instant::now());
        registry.fan_out_chunk();
        reached.extend(watchers.iter().copied().filter(|key| !updates(&mut registry, *key).is_empty()));
    }
    assert_eq!(reached.len(), watchers.len(), "changes meanwhile do not starve the last watchers");
    while registry.is_fanning_out() {
        registry.fan_out_chunk();
    }
    for key in &watchers {
        updates(&mut registry, *key);
        let newest = format!("{:016x}", registry.digest(*key));
        assert_eq!(newest, format!("{:016x}", registry.digest(watchers[0])), "all end with the same state");
    }
}

#[test]
fn crowd_receives_one_update_per_interval() {
    let mut registry = Registry::new(Crowds { above: 1, every: Duration::from_secs(1) });
    let watchers = [watcher(&mut registry, &["star"], ALL), watcher(&mut registry, &["star"], ALL)];
    let start = Instant::now();
    registry.receive(&change("star", State::Online, 1), start);
    assert!(watchers.iter().all(|key| updates(&mut registry, *key).len() == 1));
    for version in 2..10 {
        registry.receive(&change("star", State::Away, version), start + Duration::from_millis(version * 50));
    }
    assert!(watchers.iter().all(|key| updates(&mut registry, *key).is_empty()));
    assert_eq!(registry.next_release(), Some(start + Duration::from_secs(1)));
    registry.release(start + Duration::from_secs(1));
    assert!(watchers.iter().all(|key| updates(&mut registry, *key)[0].contains("\"version\":9")));
    assert_eq!(registry.next_release(), None);
}

#[test]
fn typists_are_sent_once_and_withdrawn() {
    let mut registry = registry();
    let room = ConversationId::parse("c").unwrap();
    let key = registry.add_watcher(None);
    registry.add(key, Vec::new(), vec![room.clone()]);
    let typing = |user: &str, until: Option<u64>| PublishedTyping {
        conversation: room.clone(),
        user: id(user),
        until: until.map(Time),
    };
    registry.receive_typing(&typing("bob", Some(100)));
    registry.receive_typing(&typing("carol", Some(200)));
    let asked = registry.collect(key).unchecked_typists;
    assert_eq!(asked, [id("bob"), id("carol")], "a service does not see restricted users either");
    registry.set_typist_visibility(key, asked.into_iter().map(|user| (user, true)).collect());
    assert_eq!(registry.collect(key).typing.len(), 2);
    registry.receive_typing(&typing("bob", Some(100)));
    assert!(registry.collect(key).typing.is_empty(), "an unchanged signal");
    assert_eq!(registry.typing_ends(), Some(Time(100)));
    registry.expire_typing(Time(100));
    let ended = registry.collect(key).typing;
    assert!(ended.len() == 1 && ended[0].contains("bob") && ended[0].contains("false"), "{ended:?}");
    registry.receive_typing(&typing("carol", None));
    assert!(registry.collect(key).typing[0].contains("carol"));
    registry.expire_typing(Time(200));
    assert_eq!(registry.typing_ends(), None);
}

#[test]
fn typist_is_sent_after_visibility_check() {
    let mut registry = registry();
    let room = ConversationId::parse("c").unwrap();
    let key = registry.add_watcher(Some(id("viewer")));
    registry.add(key, Vec::new(), vec![room.clone()]);
    for user in ["viewer", "bob", "mallory"] {
        registry.receive_typing(&PublishedTyping { conversation: room.clone(), user: id(user), until: Some(Time(9)) });
    }
    let asked = registry.collect(key);
    assert_eq!((asked.typing.len(), asked.unchecked_typists), (0, vec![id("bob"), id("mallory")]));
    registry.set_typist_visibility(key, vec![(id("bob"), true), (id("mallory"), false)]);
    let sent = registry.collect(key);
    assert!(sent.unchecked_typists.is_empty() && sent.typing.len() == 1 && sent.typing[0].contains("bob"), "{sent:?}");
}

/// Rechecks, and the verdict on each.
fn recheck(registry: &mut Registry, invalidation: Invalidation, verdict: Visibility) -> usize {
    let viewer = id("viewer");
    let rechecks: Vec<_> = registry.invalidate(&[invalidation]).into_values().flatten().collect();
    rechecks.iter().filter(|item| registry.resolve(Some(&viewer), item, verdict)).count()
}

#[test]
fn loss_of_visibility_is_sent_once() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob", "carol"], ALL);
    registry.receive(&change("bob", State::Online, 5), Instant::now());
    updates(&mut registry, key);
    recheck(&mut registry, Invalidation::Pair(id("bob"), id("viewer")), NOTHING);
    let texts = updates(&mut registry, key);
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("\"bob\"") && texts[0].contains("\"state\":null"), "{}", texts[0]);
    let hidden = registry.digest(key);
    registry.receive(&change("bob", State::Busy, 6), Instant::now());
    recheck(&mut registry, Invalidation::Subject(id("bob")), NOTHING);
    assert!(updates(&mut registry, key).is_empty());
    assert_eq!(registry.digest(key), hidden);
    // And again when the user is visible.
    recheck(&mut registry, Invalidation::All, ALL);
    let texts = updates(&mut registry, key);
    assert_eq!(texts.len(), 1, "carol was never hidden: {texts:?}");
    assert!(texts[0].contains("busy"), "{}", texts[0]);
}

#[test]
fn invalidated_user_sends_no_update() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob"], ALL);
    let rechecks: Vec<_> = registry.invalidate(&[Invalidation::Subject(id("bob"))]).into_values().flatten().collect();
    registry.receive(&change("bob", State::Online, 5), Instant::now());
    assert!(updates(&mut registry, key).is_empty());
    // A second invalidation before the answer to the first: that answer may be out of date.
    let again: Vec<_> =
        registry.invalidate(&[Invalidation::All, Invalidation::Subject(id("bob"))]).into_values().flatten().collect();
    assert_eq!(again.len(), 1, "one item");
    registry.resolve(Some(&id("viewer")), &rechecks[0], ALL);
    assert!(updates(&mut registry, key).is_empty());
    assert!(!registry.resolve(Some(&id("viewer")), &again[0], ALL));
    assert_eq!(updates(&mut registry, key).len(), 1, "the update received meanwhile is sent");
}

#[test]
fn newly_visible_user_must_be_read() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob"], NOTHING);
    assert_eq!(recheck(&mut registry, Invalidation::Subject(id("bob")), ALL), 1);
    assert!(updates(&mut registry, key).is_empty());
    let received = registry.watched_users(vec![id("bob")])[0].1;
    assert!(registry.apply_read(&id("bob"), published(State::Away, 4), received, Instant::now()));
    assert_eq!(updates(&mut registry, key).len(), 1);
}

#[test]
fn invalidation_affects_only_those_it_names() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob", "viewer"], ALL);
    let other = registry.add_watcher(Some(id("other")));
    let added = registry.add(other, vec![id("bob")], Vec::new());
    let view = View { published: published(State::Online, 3), choice: None };
    registry.admit(other, &added.users[0], Some(&view), ALL, Instant::now());
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
    assert!(concerned(&mut registry, Invalidation::Subject(id("viewer"))).is_empty(), "users always see themselves");
    registry.remove_watcher(key);
    assert_eq!(concerned(&mut registry, Invalidation::All), [Some(id("other"))]);
}

#[test]
fn answer_applies_only_to_its_viewer() {
    let mut registry = registry();
    let gone = watcher(&mut registry, &["bob"], ALL);
    let rechecks: Vec<_> = registry.invalidate(&[Invalidation::Subject(id("bob"))]).into_values().flatten().collect();
    registry.remove_watcher(gone);
    let other = registry.add_watcher(Some(id("other")));
    let added = registry.add(other, vec![id("bob")], Vec::new());
    registry.admit(other, &added.users[0], None, NOTHING, Instant::now());
    assert_eq!(other, gone, "it reuses the key of the removed watcher");
    registry.resolve(Some(&id("viewer")), &rechecks[0], ALL);
    registry.receive(&change("bob", State::Online, 5), Instant::now());
    assert!(updates(&mut registry, other).is_empty());
}

#[test]
fn unanswered_rechecks_survive_a_restart() {
    let mut registry = registry();
    let key = watcher(&mut registry, &["bob", "carol"], ALL);
    drop(registry.invalidate(&[Invalidation::Subject(id("bob"))]));
    registry.receive(&change("bob", State::Online, 5), Instant::now());
    let items: Vec<_> = registry.unresolved().into_values().flatten().collect();
    assert_eq!(items.iter().map(|item| item.user.as_str()).collect::<Vec<_>>(), ["bob"]);
    registry.resolve(Some(&id("viewer")), &items[0], ALL);
    assert_eq!(updates(&mut registry, key).len(), 1);
    assert!(registry.unresolved().is_empty());
}
