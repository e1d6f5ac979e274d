//! The policy index against plain sets of strings.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a property that cannot be stated for an input should say which, not recover"
)]

use std::collections::{HashMap, HashSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use rollcall_core::UserId;
use rollcall_core::policy::{
    Audience, Numbers, PAGE_BYTES, PolicyChange, Privacy, Relation, Ruling, Verdict, number_of,
};
use rollcall_policy::{Counts, PolicyIndex};

/// The same cases in every run, so that a broken property fails in the run that broke it. For other cases set a seed:
/// `PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test -p rollcall-policy --test properties`.
fn config(cases: u32) -> Config {
    let default = Config::default();
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(1) } else { default.rng_seed };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { cases };
    Config { cases, rng_seed, failure_persistence: None, ..default }
}

/// Names, numbers at the edges of pages, and what only looks like a number.
const PEOPLE: [&str; 16] = [
    "alice",
    "bob",
    "carol",
    "名前@例.jp",
    "user-000000000042",
    "0",
    "7",
    "007",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "175928847299117063",
    "523234320",
    "-1",
    "+7",
];

/// The model: plain sets.
#[derive(Default)]
struct Model {
    restricted: HashSet<String>,
    blocks: HashSet<(String, String)>,
    contacts: HashSet<(String, String)>,
    privacies: HashMap<String, Privacy>,
}

impl Model {
    fn apply(&mut self, change: &PolicyChange) {
        let text = |user: &UserId| user.as_str().to_owned();
        let pair = |one, other| (text(one), text(other));
        match change {
            PolicyChange::Restrict(user) => drop(self.restricted.insert(text(user))),
            PolicyChange::Unrestrict(user) => drop(self.restricted.remove(user.as_str())),
            PolicyChange::RestrictMany(numbers) => self.restricted.extend(each(numbers)),
            PolicyChange::UnrestrictMany(numbers) => self.restricted = &self.restricted - &each(numbers).collect(),
            PolicyChange::Block(one, other) => drop(self.blocks.insert(pair(one, other))),
            PolicyChange::Unblock(one, other) => drop(self.blocks.remove(&pair(one, other))),
            PolicyChange::AddContact(one, other) => drop(self.contacts.insert(pair(one, other))),
            PolicyChange::RemoveContact(one, other) => drop(self.contacts.remove(&pair(one, other))),
            PolicyChange::SetPrivacy(user, privacy) => drop(self.privacies.insert(text(user), *privacy)),
        }
    }

    fn relation(&self, viewer: Option<&str>, subject: &str) -> Relation {
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        Relation {
            restricted: self.restricted.contains(subject),
            blocked: viewer.is_some_and(|viewer| {
                self.blocks.contains(&pair(viewer, subject)) || self.blocks.contains(&pair(subject, viewer))
            }),
            contact: viewer.is_some_and(|viewer| self.contacts.contains(&pair(subject, viewer))),
            privacy: self.privacies.get(subject).copied().unwrap_or_default(),
        }
    }

    fn verdict(&self, viewer: Option<&str>, subject: &str) -> Verdict {
        let relation = self.relation(viewer, subject);
        match viewer {
            None => relation.verdict_for_service(),
            Some(viewer) if viewer == subject => Verdict::OPEN,
            Some(_) => relation.verdict(),
        }
    }

    fn counts(&self) -> Counts {
        let paired = self.blocks.iter().chain(&self.contacts).flat_map(|(one, other)| [one, other]);
        let hiding = self.privacies.iter().filter(|(_, privacy)| **privacy != Privacy::default()).map(|(user, _)| user);
        let restricted = self.restricted.iter().filter(|user| number_of(user).is_none());
        Counts {
            restricted: self.restricted.len() as u64,
            blocks: self.blocks.len() as u64,
            contacts: self.contacts.len() as u64,
            users: paired.chain(hiding).chain(restricted).collect::<HashSet<_>>().len() as u64,
        }
    }

    /// The changes that undo everything.
    fn undoing(&self) -> Vec<PolicyChange> {
        let pair = |(one, other): &(String, String)| (user(one), user(other));
        let unblock = self.blocks.iter().map(pair).map(|(one, other)| PolicyChange::Unblock(one, other));
        let remove_contact = self.contacts.iter().map(pair).map(|(one, other)| PolicyChange::RemoveContact(one, other));
        let unrestrict = self.restricted.iter().map(|name| PolicyChange::Unrestrict(user(name)));
        let forget = self.privacies.keys().map(|name| PolicyChange::SetPrivacy(user(name), Privacy::default()));
        unblock.chain(remove_contact).chain(unrestrict).chain(forget).collect()
    }
}

fn each(numbers: &Numbers) -> impl Iterator<Item = String> {
    let set = |(place, byte): (usize, &u8)| {
        let byte = *byte;
        (0..8).filter(move |bit| byte & 0x80 >> bit != 0).map(move |bit| place * 8 + bit)
    };
    let first = numbers.page() as usize * PAGE_BYTES * 8;
    numbers.bits().iter().enumerate().flat_map(set).map(move |low| (first + low).to_string())
}

fn user(name: &str) -> UserId {
    UserId::parse(name).expect("a fit id")
}

fn any_user() -> impl Strategy<Value = UserId> {
    (0..PEOPLE.len()).prop_map(|place| user(PEOPLE[place]))
}

fn change() -> impl Strategy<Value = PolicyChange> {
    let audience = || prop_oneof![Just(Audience::Everyone), Just(Audience::Contacts), Just(Audience::Nobody)];
    let privacy = (audience(), audience()).prop_map(|(presence, last_seen)| Privacy { presence, last_seen });
    let sparse = (0..PAGE_BYTES, any::<u8>()).prop_map(|(place, byte)| [vec![0; place], vec![byte]].concat());
    // 4,800 in a row do not fit into a list.
    let bits = prop_oneof![6 => vec(any::<u8>(), 0..4), 6 => sparse, 1 => Just(vec![0xff; 600])];
    let page = prop_oneof![Just(0_u32), Just(1), Just(7983), Just(65_535)];
    let numbers = (page, bits).prop_map(|(page, bits)| Numbers::new(page, bits).expect("fit bits"));
    prop_oneof![
        3 => any_user().prop_map(PolicyChange::Restrict),
        2 => any_user().prop_map(PolicyChange::Unrestrict),
        1 => numbers.clone().prop_map(PolicyChange::RestrictMany),
        1 => numbers.prop_map(PolicyChange::UnrestrictMany),
        6 => (any_user(), any_user()).prop_map(|(one, other)| PolicyChange::Block(one, other)),
        4 => (any_user(), any_user()).prop_map(|(one, other)| PolicyChange::Unblock(one, other)),
        6 => (any_user(), any_user()).prop_map(|(one, other)| PolicyChange::AddContact(one, other)),
        4 => (any_user(), any_user()).prop_map(|(one, other)| PolicyChange::RemoveContact(one, other)),
        4 => (any_user(), privacy).prop_map(|(who, privacy)| PolicyChange::SetPrivacy(who, privacy)),
    ]
}

/// A service, and every user.
fn viewers() -> impl Iterator<Item = Option<&'static str>> {
    std::iter::once(None).chain(PEOPLE.into_iter().map(Some)).chain([Some("unknown")])
}

fn verdicts_of(policy_index: &PolicyIndex, viewer: Option<&str>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    policy_index.check(viewer, PEOPLE, &mut verdicts);
    verdicts
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn policy_index_matches_plain_sets(changes in vec(change(), 0..120), salts: [u64; 2]) {
        let mut model = Model::default();
        let mut policy_indexes = salts.map(PolicyIndex::new);
        let floor = policy_indexes[0].bytes();
        for change in &changes {
            model.apply(change);
            policy_indexes.iter_mut().for_each(|policy_index| policy_index.apply(change));
        }
        for policy_index in &mut policy_indexes {
            prop_assert_eq!(policy_index.counts(), model.counts());
            for viewer in viewers() {
                for subject in PEOPLE {
                    prop_assert_eq!(policy_index.relation(viewer, subject), model.relation(viewer, subject), "{:?} {}", viewer, subject);
                }
                let expected = PEOPLE.map(|subject| model.verdict(viewer, subject));
                prop_assert_eq!(verdicts_of(policy_index, viewer), expected, "{:?}", viewer);
            }
            model.undoing().iter().for_each(|change| policy_index.apply(change));
            prop_assert_eq!(policy_index.counts(), Counts::default());
            prop_assert_eq!(policy_index.bytes(), floor);
        }
    }

    #[test]
    fn reapplying_last_changes_changes_nothing(changes in vec(change(), 0..60), from in 0..60_usize) {
        let mut once = PolicyIndex::new(1);
        changes.iter().for_each(|change| once.apply(change));
        let mut twice = PolicyIndex::new(1);
        changes.iter().for_each(|change| twice.apply(change));
        changes.iter().skip(from).for_each(|change| twice.apply(change));
        prop_assert_eq!(once.counts(), twice.counts());
        for viewer in viewers() {
            prop_assert_eq!(verdicts_of(&once, viewer), verdicts_of(&twice, viewer));
        }
    }
}

#[test]
fn churn_leaves_no_memory_behind() {
    let mut policy_index = PolicyIndex::new(3);
    let lasting = |number: u32| (user(&format!("lasting-{number}")), user(&format!("other-{number}")));
    (0..1000).map(lasting).for_each(|(one, other)| policy_index.apply(&PolicyChange::Block(one, other)));
    let mut most = 0;
    for number in 0..100_000 {
        let (one, other) = (user(&format!("passing-{number}")), user(&format!("other-passing-{number}")));
        policy_index.apply(&PolicyChange::Block(one.clone(), other.clone()));
        policy_index.apply(&PolicyChange::Unblock(one, other));
        if number == 1000 {
            most = policy_index.bytes() * 5 / 4;
        }
    }
    assert!(policy_index.bytes() < most, "{} where {most} was enough for a hundredth", policy_index.bytes());
    assert_eq!(policy_index.counts(), Counts { blocks: 1000, users: 2000, ..Counts::default() });
    for number in 0..1000 {
        let (one, other) = lasting(number);
        let mut verdicts = Vec::new();
        policy_index.check(Some(other.as_str()), [one.as_str()], &mut verdicts);
        assert_eq!(verdicts[0].presence, Ruling::Blocked);
    }
}

#[test]
fn blocks_hide_exactly_the_blocked_pairs() {
    let mut policy_index = PolicyIndex::new(9);
    let name = |number: u32| format!("user-{number:011}");
    // Each blocks the next.
    for number in 0..100_000 {
        policy_index.apply(&PolicyChange::Block(user(&name(number)), user(&name(number + 1))));
    }
    for number in (1..100_000).step_by(997) {
        let subjects = (0..1000).map(|offset| name(number + offset - 1)).collect::<Vec<_>>();
        let mut verdicts = Vec::new();
        policy_index.check(Some(&name(number)), subjects.iter().map(String::as_str), &mut verdicts);
        for (subject, verdict) in subjects.iter().zip(verdicts) {
            let hidden = *subject == name(number - 1) || (*subject == name(number + 1) && number < 100_000);
            assert_eq!(verdict.presence == Ruling::Blocked, hidden, "{subject} to {number}");
        }
    }
    let stats = policy_index.filter_stats();
    assert_eq!(stats.keys, 100_000);
    assert!(stats.bits < 2_000_000, "at most 18 per key, and the minimum of each shard: {stats:?}");
}
