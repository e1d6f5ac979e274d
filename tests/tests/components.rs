//! Each built component, by itself: what it imports and exports, and that it does what its function promises.
//!
//! A component without a test here stops the build: `for_each_component!` asks for a test of every name.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeSet;

use rollcall_api::call::{Beat, Choosing, Departure, Reason};
use rollcall_core::{DeviceId, DeviceKind, Error, Rules, Span, Stance, State, Time, UserId};
use rollcall_functions::capabilities::Shards;
use rollcall_tests::{component, on_a_worker, root};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Resolve, WorldId, WorldItem};

include!(concat!(env!("OUT_DIR"), "/components.rs"));

macro_rules! has_a_test {
    ($name:ident) => {
        #[allow(unused_imports, reason = "that it exists is the point")]
        use self::$name as _;
    };
}

mod every_component_has_a_test {
    #[allow(unused_imports, reason = "the macro names what it finds here")]
    use super::{heartbeat, offline_sweep, query};
    for_each_component!(has_a_test);
}

const START: Time = Time(1_700_000_000_000);
const EVERYWHERE: Shards = Shards { first: 0, end: 256 };

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn beat(name: &str, device: &str) -> Beat {
    Beat { user: user(name), device: DeviceId::parse(device).unwrap(), kind: DeviceKind::Web, active: true }
}

/// The names of all that a world imports and exports.
fn shape(resolve: &Resolve, world: WorldId) -> (BTreeSet<String>, BTreeSet<String>) {
    let names = |items: Vec<(&wit_parser::WorldKey, &WorldItem)>| {
        items.into_iter().map(|(key, _)| resolve.name_world_key(key)).collect()
    };
    let world = &resolve.worlds[world];
    (names(world.imports.iter().collect()), names(world.exports.iter().collect()))
}

/// What `wit/` says about a function, and what its component says about itself.
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
        let standing = bench.crew.beat(beat("bob", "web")).await.unwrap();
        assert_eq!((standing.state, standing.next_beat_ms), (State::Online, 30_000));
        assert_eq!(standing.version, START.0 * 1000);

        let idle = Beat { kind: DeviceKind::Mobile, active: false, ..beat("eve", "phone") };
        let answers = bench.crew.beat_many(vec![beat("bob", "web"), idle]).await.unwrap();
        assert_eq!(answers[0].as_ref().map(|s| s.version), Ok(START.0 * 1000), "a second beat publishes nothing");
        assert_eq!(answers[1].as_ref().map(|s| s.state), Ok(State::Away), "never used");

        let choosing = Choosing { user: user("bob"), stance: Stance::Busy, for_s: Some(60), note: None };
        let chosen = bench.crew.choose_many(vec![choosing]).await.unwrap().remove(0).unwrap();
        assert_eq!((chosen.standing.state, chosen.choice.until), (State::Busy, Some(START + Span::seconds(60))));

        let device = DeviceId::parse("web").unwrap();
        let departure = Departure { user: user("bob"), device, reason: Reason::Logout };
        let left = bench.crew.leave_many(vec![departure]).await.unwrap().remove(0).unwrap();
        assert_eq!(left.state, State::Offline);
        let too_many = vec![beat("bob", "web"); 1025];
        assert_eq!(bench.crew.beat_many(too_many).await, Err(Error::TooMany(1024)));
    });
}

#[test]
fn query() {
    assert_fits_its_world("query");
    on_a_worker(Rules::default(), &[], async |bench| {
        bench.crew.beat(beat("bob", "web")).await.unwrap();
        bench.clock.advance(Span::seconds(20));
        let asked = vec![user("nobody"), user("bob"), user("bob")];
        let views = bench.crew.look_up(Some(user("alice")), asked).await.unwrap();
        let seen: Vec<_> = views.into_iter().map(|view| view.unwrap().unwrap().published).collect();
        assert_eq!((seen[0].state, seen[0].last_seen, seen[0].version), (State::Offline, None, 0));
        assert_eq!((seen[1].state, seen[1].since, seen[1].last_seen), (State::Online, Some(START), Some(START)));
        assert_eq!(seen[1], seen[2], "duplicates are answered twice");
        bench.clock.advance(Span::seconds(25));
        let views = bench.crew.look_up(None, vec![user("bob")]).await.unwrap();
        let bob = views.into_iter().next().unwrap().unwrap().unwrap().published;
        assert_eq!(bob.state, State::Offline, "derived, although nobody has noticed yet");
        assert_eq!(bob.last_seen, Some(START));
    });
}

#[test]
fn offline_sweep() {
    assert_fits_its_world("offline-sweep");
    on_a_worker(Rules::default(), &[], async |bench| {
        bench.crew.beat(beat("bob", "web")).await.unwrap();
        bench.clock.advance(Span::seconds(30));
        bench.crew.beat(beat("bob", "web")).await.unwrap();
        bench.clock.advance(Span::seconds(15));
        let early = bench.crew.sweep(EVERYWHERE, 100).await.unwrap();
        assert_eq!((early.examined, early.published, early.rescheduled), (1, 0, 1), "found alive, scheduled anew");
        bench.clock.advance(Span(30_250));
        let settled = bench.crew.settle(vec![user("bob"), user("bob")]).await.unwrap();
        assert_eq!((settled.examined, settled.published), (1, 1));
        assert_eq!(settled.lags, vec![Span(250)]);
        let again = bench.crew.sweep(EVERYWHERE, 100).await.unwrap();
        assert_eq!(again.examined, 0, "published once");

        bench.clock.advance(Span::seconds(5));
        let archived = bench.crew.archive(EVERYWHERE, 100).await.unwrap();
        assert_eq!((archived.kept, archived.dropped, bench.memory.sessions()), (1, 1, 0));
        let views = bench.crew.look_up(None, vec![user("bob")]).await.unwrap();
        let bob = views.into_iter().next().unwrap().unwrap().unwrap().published;
        assert_eq!(bob.last_seen, Some(START + Span::seconds(30)), "the archive remembers");
    });
}
