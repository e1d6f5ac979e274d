//! A function composed with `restriction-check`: one component, so that no host has to link the two, with the same decisions.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeSet;

use rollcall_api::call::{Beat, TypingUpdate};
use rollcall_core::policy::PolicyChange;
use rollcall_core::{ConversationId, DeviceId, DeviceKind, Rules, State, UserId};
use rollcall_tests::{component, on_a_worker};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Resolve, WorldItem, WorldKey};

const CALLERS: [&str; 3] = ["query", "subscribe", "typing"];

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// The imports and exports of a component.
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
    for caller in CALLERS {
        let (alone, exports) = shape(caller);
        let (mut composed, same) = shape(&format!("composed/{caller}"));
        let asked = "rollcall:presence/restriction-check@0.1.0".to_owned();
        assert!(alone.contains(&asked) && !composed.contains(&asked), "{caller}: {composed:?}");
        assert!(composed.is_superset(&needs), "{caller}: {composed:?}");
        assert_eq!(same, exports, "{caller}");
        composed.retain(|import| !needs.contains(import));
        assert!(composed.is_subset(&alone), "{caller} imports more: {composed:?}");
    }
}

#[test]
fn composed_function_decides_like_linked_one() {
    let composed = CALLERS.map(|name| (name, format!("composed/{name}")));
    let composed: Vec<(&str, &str)> = composed.iter().map(|(name, file)| (*name, file.as_str())).collect();
    for replace in [&composed[..], &[]] {
        on_a_worker(Rules::default(), replace, async |bench| {
            let functions = &bench.functions;
            for name in ["bob", "carol"] {
                let device = DeviceId::parse("web").unwrap();
                let beat = Beat { user: user(name), device, kind: DeviceKind::Web, active: true };
                functions.beat(beat).await.unwrap();
            }
            functions.apply(vec![PolicyChange::Block(user("bob"), user("alice"))]).await.unwrap().remove(0).unwrap();
            let asked = vec![user("bob"), user("carol")];
            let views = functions.look_up(Some(user("alice")), asked.clone()).await.unwrap();
            assert_eq!(views[0], Ok(None), "bob has blocked alice");
            assert_eq!(views[1].as_ref().unwrap().as_ref().unwrap().published.state, State::Online);
            let initial = functions.open(Some(user("alice")), 0, asked).await.unwrap();
            let seen: Vec<bool> = initial.into_iter().map(|presence| presence.unwrap().visibility.presence).collect();
            assert_eq!(seen, [false, true]);
            let conversation = ConversationId::parse("room").unwrap();
            for name in ["bob", "carol"] {
                let update = TypingUpdate { user: user(name), conversation: conversation.clone(), typing: true };
                functions.type_many(vec![update]).await.unwrap().remove(0).unwrap();
            }
            let typists = functions.typists(Some(user("alice")), vec![conversation]).await.unwrap().remove(0).unwrap();
            let typists: Vec<&str> = typists.iter().map(|typist| typist.user.as_str()).collect();
            assert_eq!(typists, ["carol"]);
        });
    }
}
