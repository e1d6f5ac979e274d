//! A function with `restriction-check` plugged in: one component that needs no host to link the two, and decides the same.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeSet;

use rollcall_api::call::{Beat, TypingUpdate};
use rollcall_core::policy::Change;
use rollcall_core::{ConversationId, DeviceId, DeviceKind, Rules, State, UserId};
use rollcall_tests::{component, on_a_worker};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Resolve, WorldItem, WorldKey};

const ASKING: [&str; 3] = ["query", "subscribe", "typing"];

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// What a component imports and exports.
fn shape(name: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let bytes = std::fs::read(component(name)).unwrap();
    let DecodedWasm::Component(resolve, world) = decode(&bytes).unwrap() else { panic!("not a component") };
    let world = &resolve.worlds[world];
    (names(&resolve, world.imports.iter()), names(&resolve, world.exports.iter()))
}

fn names<'a>(resolve: &Resolve, items: impl Iterator<Item = (&'a WorldKey, &'a WorldItem)>) -> BTreeSet<String> {
    items.map(|(key, _)| resolve.name_world_key(key)).collect()
}

#[test]
fn plugged_function_replaces_its_import() {
    let (needs, _) = shape("restriction-check");
    for asking in ASKING {
        let (alone, exports) = shape(asking);
        let (mut composed, same) = shape(&format!("composed/{asking}"));
        let asked = "rollcall:presence/restriction-check@0.1.0".to_owned();
        assert!(alone.contains(&asked) && !composed.contains(&asked), "{asking}: {composed:?}");
        assert!(composed.is_superset(&needs), "{asking}: {composed:?}");
        assert_eq!(same, exports, "{asking}");
        composed.retain(|import| !needs.contains(import));
        assert!(composed.is_subset(&alone), "{asking} needs nothing else: {composed:?}");
    }
}

#[test]
fn composed_function_decides_like_linked_one() {
    let composed = ASKING.map(|name| (name, format!("composed/{name}")));
    let composed: Vec<(&str, &str)> = composed.iter().map(|(name, file)| (*name, file.as_str())).collect();
    for replace in [&composed[..], &[]] {
        on_a_worker(Rules::default(), replace, async |bench| {
            let functions = &bench.functions;
            for name in ["bob", "carol"] {
                let device = DeviceId::parse("web").unwrap();
                let beat = Beat { user: user(name), device, kind: DeviceKind::Web, active: true };
                functions.beat(beat).await.unwrap();
            }
            functions.apply(vec![Change::Block(user("bob"), user("alice"))]).await.unwrap().remove(0).unwrap();
            let asked = vec![user("bob"), user("carol")];
            let views = functions.look_up(Some(user("alice")), asked.clone()).await.unwrap();
            assert_eq!(views[0], Ok(None), "bob blocked alice");
            assert_eq!(views[1].as_ref().unwrap().as_ref().unwrap().published.state, State::Online);
            let places = functions.open(Some(user("alice")), 0, asked).await.unwrap();
            let seen: Vec<bool> = places.into_iter().map(|place| place.unwrap().visibility.presence).collect();
            assert_eq!(seen, [false, true]);
            let conversation = ConversationId::parse("room").unwrap();
            for name in ["bob", "carol"] {
                let typing_update = TypingUpdate { user: user(name), conversation: conversation.clone(), typing: true };
                functions.type_many(vec![typing_update]).await.unwrap().remove(0).unwrap();
            }
            let typists = functions.typists(Some(user("alice")), vec![conversation]).await.unwrap().remove(0).unwrap();
            let typists: Vec<&str> = typists.iter().map(|typist| typist.user.as_str()).collect();
            assert_eq!(typists, ["carol"]);
        });
    }
}
