//! Each built component alone: its imports and exports match its world, and its function works.
//!
//! A component without a test here does not compile: `for_each_component!` requires a test of each name.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use rollcall_api::call::{Beat, ChoiceRequest, Departure, DepartureReason, TypingUpdate};
use rollcall_core::policy::{Audience, MAX_SUBJECTS, Numbers, PolicyChange, Privacy, Ruling, Verdict};
use rollcall_core::{ConversationId, DeviceId, DeviceKind, Error, Rules, Span, Stance, State, Time, UserId};
use rollcall_functions::capabilities::Shards;
use rollcall_functions::subscribe::{InitialPresence, Update};
use rollcall_host::runtime::Feed;
use rollcall_tests::{InProcess, component, on_a_worker, root, warm_up};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Resolve, WorldId, WorldItem};

include!(concat!(env!("OUT_DIR"), "/components.rs"));

macro_rules! has_a_test {
    ($name:ident) => {
        #[allow(unused_imports, reason = "only checks that it exists")]
        use self::$name as _;
    };
}

mod every_component_has_a_test {
    #[allow(unused_imports, reason = "the macro names what it finds here")]
    use super::{heartbeat, offline_sweep, query, restriction_check, subscribe, typing};
    for_each_component!(has_a_test);
}

const START: Time = Time(1_700_000_000_000);
const ALL_SHARDS: Shards = Shards { first: 0, end: 256 };

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn beat(name: &str, device: &str) -> Beat {
    Beat { user: user(name), device: DeviceId::parse(device).unwrap(), kind: DeviceKind::Web, active: true }
}

/// The names of a world's imports and exports.
fn shape(resolve: &Resolve, world: WorldId) -> (BTreeSet<String>, BTreeSet<String>) {
    let names = |items: Vec<(&wit_parser::WorldKey, &WorldItem)>| {
        items.into_iter().map(|(key, _)| resolve.name_world_key(key)).collect()
    };
    let world = &resolve.worlds[world];
    (names(world.imports.iter().collect()), names(world.exports.iter().collect()))
}

/// A function's component has exactly the imports and exports of its world in `wit/`.
fn assert_fits_its_world(name: &str) {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit")).unwrap();
    let world = resolve.select_world(&[package], Some(&format!("{name}-function"))).unwrap();
    let promised = shape(&resolve, world);
    let bytes = std::fs::read(component(name)).unwrap();
    let DecodedWasm::Component(resolve, world) = decode(&bytes).unwrap() else { panic!("not a component") };
    let built = shape(&resolve, world);
    assert_eq!(built, promised, "{name} imports and exports exactly what its world says");
    assert!(built.0.iter().all(|import| import.starts_with("rollcall:presence/")), "{name} imports {:?}", built.0);
}

#[test]
fn heartbeat() {
    assert_fits_its_world("heartbeat");
    on_a_worker(Rules::default(), &[], async |bench| {
        let standing = bench.functions.beat(beat("bob", "web")).await.unwrap();
        assert_eq!((standing.state, standing.next_beat_ms), (State::Online, 30_000));
        assert_eq!(standing.version, START.0 * 1000);

        let idle = Beat { kind: DeviceKind::Mobile, active: false, ..beat("eve", "phone") };
        let answers = bench.functions.beat_many(vec![beat("bob", "web"), idle]).await.unwrap();
        assert_eq!(answers[0].as_ref().map(|s| s.version), Ok(START.0 * 1000), "a second beat publishes nothing");
        assert_eq!(answers[1].as_ref().map(|s| s.state), Ok(State::Away), "an inactive device counts as away");

        let request = ChoiceRequest { user: user("bob"), stance: Stance::Busy, for_s: Some(60), note: None };
        let chosen = bench.functions.choose_many(vec![request]).await.unwrap().remove(0).unwrap();
        assert_eq!((chosen.standing.state, chosen.choice.until), (State::Busy, Some(START + Span::seconds(60))));

        let device = DeviceId::parse("web").unwrap();
        let departure = Departure { user: user("bob"), device, reason: DepartureReason::Logout };
        let left = bench.functions.leave_many(vec![departure]).await.unwrap().remove(0).unwrap();
        assert_eq!(left.state, State::Offline);
        let too_many = vec![beat("bob", "web"); 1025];
        assert_eq!(bench.functions.beat_many(too_many).await, Err(Error::TooMany(1024)));
    });
}

#[test]
fn query() {
    assert_fits_its_world("query");
    on_a_worker(Rules::default(), &[], async |bench| {
        bench.functions.beat(beat("bob", "web")).await.unwrap();
        bench.clock.advance(Span::seconds(20));
        let asked = vec![user("nobody"), user("bob"), user("bob")];
        let views = bench.functions.look_up(Some(user("alice")), asked).await.unwrap();
        let seen: Vec<_> = views.into_iter().map(|view| view.unwrap().unwrap().published).collect();
        assert_eq!((seen[0].state, seen[0].last_seen, seen[0].version), (State::Offline, None, 0));
        assert_eq!((seen[1].state, seen[1].since, seen[1].last_seen), (State::Online, Some(START), Some(START)));
        assert_eq!(seen[1], seen[2], "duplicates are answered twice");
        bench.clock.advance(Span::seconds(25));
        let views = bench.functions.look_up(None, vec![user("bob")]).await.unwrap();
        let bob = views.into_iter().next().unwrap().unwrap().unwrap().published;
        assert_eq!(bob.state, State::Offline, "derived, although not settled yet");
        assert_eq!(bob.last_seen, Some(START));
    });
}

/// One user's initial presence, for a viewer.
async fn initial(bench: &InProcess, viewer: &str, name: &str) -> InitialPresence {
    let initials = bench.functions.open(Some(user(viewer)), 0, vec![user(name)]).await.unwrap();
    initials.into_iter().next().unwrap().unwrap()
}

fn state(initial: &InitialPresence) -> State {
    initial.view.as_ref().unwrap().published.state
}

#[test]
fn subscribe() {
    assert_fits_its_world("subscribe");
    on_a_worker(Rules::default(), &[], async |bench| {
        bench.functions.beat(beat("bob", "web")).await.unwrap();
        let asked = vec![user("nobody"), user("bob"), user("bob")];
        let initials = bench.functions.open(Some(user("alice")), 17, asked.clone()).await.unwrap();
        let initials: Vec<_> = initials.into_iter().map(Result::unwrap).collect();
        assert_eq!(initials.iter().map(state).collect::<Vec<_>>(), [State::Offline, State::Online, State::Online]);
        assert!(
            initials
                .iter()
                .all(|initial| initial.settled && initial.visibility.presence && initial.visibility.last_seen)
        );
        let above = bench.functions.open(Some(user("alice")), 18, asked).await;
        assert_eq!(above, Err(Error::TooMany(20)), "users watched already count toward the limit");

        let unseen = ChoiceRequest { user: user("eve"), stance: Stance::Invisible, for_s: None, note: None };
        bench.functions.beat(beat("eve", "web")).await.unwrap();
        bench.functions.choose_many(vec![unseen]).await.unwrap().remove(0).unwrap();
        let (eve, own) = (initial(&bench, "alice", "eve").await, initial(&bench, "eve", "eve").await);
        assert_eq!((state(&eve), eve.settled, eve.view.unwrap().choice), (State::Offline, true, None));
        assert_eq!(own.view.unwrap().choice.unwrap().stance, Stance::Invisible, "users see their own choice");

        bench.clock.advance(Span::seconds(45));
        let bob = initial(&bench, "alice", "bob").await;
        assert_eq!((state(&bob), bob.settled), (State::Offline, false), "not published yet");
        bench.functions.settle(vec![user("bob")]).await.unwrap();
        let bob = initial(&bench, "alice", "bob").await;
        assert_eq!((state(&bob), bob.settled), (State::Offline, true));
    });
}

/// The next update of a feed: the user, the visible state, and the version to resume from.
async fn next_update(feed: &mut Feed) -> (String, State, u64) {
    let next = tokio::time::timeout(Duration::from_secs(10), feed.next()).await;
    let Update { presence, version } = next.expect("an update in time").expect("the feed continues");
    (presence.user.into_string(), presence.view.unwrap().published.state, version)
}

#[test]
fn subscribe_feeds_changes_and_resumes() {
    on_a_worker(Rules::default(), &[], async |bench| {
        bench.functions.beat(beat("bob", "web")).await.unwrap();
        bench.clock.advance(Span::seconds(20));
        let later = (START + Span::seconds(20)).0 * 1000;
        let (alice, watched) = (Some(user("alice")), vec![user("bob"), user("eve")]);
        let mut feed = bench.functions.feed(alice.clone(), watched.clone(), None).await.unwrap();
        assert_eq!(next_update(&mut feed).await, ("bob".to_owned(), State::Online, later));
        assert_eq!(next_update(&mut feed).await, ("eve".to_owned(), State::Offline, later));
        bench.clock.advance(Span(5));
        bench.functions.beat(beat("eve", "web")).await.unwrap();
        let (name, state, since) = next_update(&mut feed).await;
        assert_eq!((name.as_str(), state, since), ("eve", State::Online, later + 5_000));

        // The feed notices a reader that went away at the next change, then ends its watch.
        let end = tokio::task::spawn_local(feed.end());
        let busy = ChoiceRequest { user: user("eve"), stance: Stance::Busy, for_s: None, note: None };
        bench.functions.choose_many(vec![busy]).await.unwrap().remove(0).unwrap();
        let end = tokio::time::timeout(Duration::from_secs(10), end).await;
        assert_eq!(end.expect("the feed ends in time").unwrap(), Ok(()));

        let mut feed = bench.functions.feed(alice, watched, Some(since)).await.unwrap();
        let (name, state, _) = next_update(&mut feed).await;
        assert_eq!((name.as_str(), state), ("eve", State::Busy), "bob did not change since");
        let departure =
            Departure { user: user("bob"), device: DeviceId::parse("web").unwrap(), reason: DepartureReason::Logout };
        bench.functions.leave_many(vec![departure]).await.unwrap().remove(0).unwrap();
        let (name, state, _) = next_update(&mut feed).await;
        assert_eq!((name.as_str(), state), ("bob", State::Offline));

        let crowd: Vec<_> = (0..21).map(|number| user(&number.to_string())).collect();
        assert_eq!(bench.functions.feed(None, crowd, None).await.err(), Some(Error::TooMany(20)));
    });
}

#[test]
fn subscribe_gives_slow_reader_the_newest_only() {
    on_a_worker(Rules::default(), &[], async |bench| {
        let mut feed = bench.functions.feed(None, vec![user("bob")], None).await.unwrap();
        let mut last = bench.functions.beat(beat("bob", "web")).await.unwrap().version;
        for round in 0..100 {
            bench.clock.advance(Span(1));
            let stance = if round % 2 == 0 { Stance::Busy } else { Stance::Auto };
            let request = ChoiceRequest { user: user("bob"), stance, for_s: None, note: None };
            last = bench.functions.choose_many(vec![request]).await.unwrap().remove(0).unwrap().standing.version;
        }
        let mut updates = vec![next_update(&mut feed).await];
        while updates.last().is_some_and(|(_, _, version)| *version < last) {
            updates.push(next_update(&mut feed).await);
        }
        assert_eq!(updates.last().map(|(_, state, _)| *state), Some(State::Online));
        assert!(updates.len() < 10, "a hundred changes, {} updates", updates.len());
        assert!(updates.is_sorted_by_key(|(_, _, version)| *version));
    });
}

#[test]
fn typing() {
    assert_fits_its_world("typing");
    on_a_worker(Rules::default(), &[], async |bench| {
        let lunch = ConversationId::parse("lunch").unwrap();
        let update = |name: &str, typing| TypingUpdate { user: user(name), conversation: lunch.clone(), typing };
        let typists = async |viewer: &str| {
            let asked = vec![lunch.clone(), ConversationId::parse("dinner").unwrap()];
            let mut found = bench.functions.typists(Some(user(viewer)), asked).await.unwrap();
            assert_eq!(found.pop().unwrap(), Ok(Vec::new()), "no user types there");
            let found = found.pop().unwrap().unwrap().into_iter();
            found.map(|typist| (typist.user.into_string(), typist.until)).collect::<Vec<_>>()
        };
        let started = bench.functions.type_many(vec![update("bob", true), update("eve", true)]).await.unwrap();
        assert_eq!(started, [Ok(()), Ok(())]);
        let until = START + Span::seconds(5);
        assert_eq!(typists("alice").await, [("bob".to_owned(), until), ("eve".to_owned(), until)]);
        assert_eq!(typists("bob").await, [("eve".to_owned(), until)], "users are not shown their own typing");
        bench.clock.advance(Span::seconds(2));
        bench.functions.type_many(vec![update("bob", false)]).await.unwrap().remove(0).unwrap();
        assert_eq!(typists("alice").await, [("eve".to_owned(), until)]);
        bench.clock.advance(Span::seconds(3));
        assert_eq!(typists("alice").await, [], "a signal that is not repeated expires");
        assert_eq!(bench.functions.type_many(vec![update("bob", true); 1025]).await, Err(Error::TooMany(1024)));
    });
}

#[test]
fn offline_sweep() {
    assert_fits_its_world("offline-sweep");
    on_a_worker(Rules::default(), &[], async |bench| {
        bench.functions.beat(beat("bob", "web")).await.unwrap();
        bench.clock.advance(Span::seconds(30));
        bench.functions.beat(beat("bob", "web")).await.unwrap();
        bench.clock.advance(Span::seconds(15));
        let early = bench.functions.sweep(ALL_SHARDS, 100).await.unwrap();
        assert_eq!((early.examined, early.published, early.rescheduled), (1, 0, 1), "still alive, so scheduled again");
        bench.clock.advance(Span(30_250));
        let settled = bench.functions.settle(vec![user("bob"), user("bob")]).await.unwrap();
        assert_eq!((settled.examined, settled.published), (1, 1));
        assert_eq!(settled.lags, vec![Span(250)]);
        let again = bench.functions.sweep(ALL_SHARDS, 100).await.unwrap();
        assert_eq!(again.examined, 0, "published once");

        bench.clock.advance(Rules::default().evict_after);
        let archived = bench.functions.archive(ALL_SHARDS, 100).await.unwrap();
        assert_eq!((archived.kept, archived.dropped, bench.memory.sessions()), (1, 1, 0));
        let views = bench.functions.look_up(None, vec![user("bob")]).await.unwrap();
        let bob = views.into_iter().next().unwrap().unwrap().unwrap().published;
        assert_eq!(bob.last_seen, Some(START + Span::seconds(30)), "from the archive");
    });
}

/// The verdicts on these subjects for a viewer.
async fn rulings(bench: &InProcess, viewer: Option<&str>, subjects: &[&str]) -> Vec<(Ruling, bool)> {
    let subjects: Vec<UserId> = subjects.iter().map(|subject| user(subject)).collect();
    let verdicts = bench.functions.check(viewer.map(user), subjects.iter().collect()).await.unwrap();
    verdicts.into_iter().map(|Verdict { presence, last_seen }| (presence, last_seen)).collect()
}

#[test]
fn restriction_check() {
    assert_fits_its_world("restriction-check");
    let (open, hidden) = ((Ruling::Allowed, true), |ruling| (ruling, false));
    let privacy = |presence, last_seen| Privacy { presence, last_seen };
    // The answers are the same from memory and from the store.
    for warm in [false, true] {
        on_a_worker(Rules::default(), &[], async |bench| {
            if warm {
                warm_up(&bench.functions).await;
            }
            let changes = vec![
                PolicyChange::Restrict(user("mallory")),
                PolicyChange::Restrict(user("42")),
                PolicyChange::RestrictMany(Numbers::new(1, vec![0b0100_0001]).unwrap()),
                PolicyChange::Block(user("bob"), user("alice")),
                PolicyChange::SetPrivacy(user("carol"), privacy(Audience::Contacts, Audience::Everyone)),
                PolicyChange::AddContact(user("carol"), user("bob")),
                PolicyChange::SetPrivacy(user("dave"), privacy(Audience::Everyone, Audience::Nobody)),
            ];
            let outcomes = bench.functions.apply(changes).await.unwrap();
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            let asked = ["mallory", "42", "65537", "65538", "65543", "bob", "carol", "dave", "alice", "bob"];
            let restricted = hidden(Ruling::Restricted);
            let (blocked, private) = (hidden(Ruling::Blocked), hidden(Ruling::Private));
            let rules = [
                restricted,
                restricted,
                restricted,
                open,
                restricted,
                blocked,
                private,
                hidden(Ruling::Allowed),
                open,
                blocked,
            ];
            assert_eq!(rulings(&bench, Some("alice"), &asked).await, rules, "warm: {warm}");
            assert_eq!(rulings(&bench, Some("bob"), &["alice", "carol"]).await, [blocked, open], "warm: {warm}");
            assert_eq!(rulings(&bench, Some("mallory"), &["mallory"]).await, [open], "users see themselves");
            let seen = rulings(&bench, None, &["mallory", "bob", "carol", "dave"]).await;
            assert_eq!(seen, [restricted, open, open, open], "a service sees all but the restricted");

            let own = bench.functions.settings_of(user("carol")).await.unwrap();
            assert_eq!(own.privacy, privacy(Audience::Contacts, Audience::Everyone));
            assert_eq!((own.contacts, own.blocks), (vec![user("bob")], vec![]));
            let reverted = vec![
                PolicyChange::Unrestrict(user("42")),
                PolicyChange::UnrestrictMany(Numbers::new(1, vec![0b0100_0000]).unwrap()),
                PolicyChange::Unblock(user("bob"), user("alice")),
                PolicyChange::RemoveContact(user("carol"), user("bob")),
            ];
            let outcomes = bench.functions.apply(reverted).await.unwrap();
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            let asked = ["42", "65537", "65543", "bob"];
            assert_eq!(rulings(&bench, Some("alice"), &asked).await, [open, open, restricted, open], "warm: {warm}");
            assert_eq!(rulings(&bench, Some("bob"), &["carol"]).await, [private], "warm: {warm}");
            let crowd: Vec<UserId> = (0..=MAX_SUBJECTS).map(|number| user(&number.to_string())).collect();
            let check = bench.functions.check(None, crowd.iter().collect()).await;
            assert_eq!(check, Err(Error::TooMany(MAX_SUBJECTS as u32)));
        });
    }
}
