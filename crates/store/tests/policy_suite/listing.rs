//! A user's settings, relations to many subjects, and bounds.

use rollcall_core::policy::{Audience, MAX_LISTED, MAX_SUBJECTS, PolicyChange, Privacy, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::OwnSettings;
use rollcall_store::PolicyStore;

use super::model::Model;
use super::{
    MAX_CHANGES, Subject, add_contact, apply, block, changes_since, load, outcome, relation, relations, remove_contact,
    restrict, set_privacy, settings, unblock, user,
};

pub(crate) async fn settings_contain_only_the_users_own(subject: Subject) {
    let policies = &*subject.policies;
    let changes = [
        block("bob", "eve"),
        block("bob", "dan"),
        block("eve", "bob"),
        add_contact("bob", "ann"),
        add_contact("ann", "bob"),
        add_contact("bobby", "ann"),
        restrict("bob"),
        set_privacy("bob", Audience::Contacts, Audience::Nobody),
    ];
    apply(policies, &changes).await;
    let bobs = OwnSettings {
        privacy: Privacy { presence: Audience::Contacts, last_seen: Audience::Nobody },
        contacts: vec![user("ann")],
        blocks: vec![user("dan"), user("eve")],
    };
    assert_eq!(settings(policies, "bob").await, bobs);
    assert_eq!(settings(policies, "bobb").await, OwnSettings::default());
    apply(policies, &[unblock("bob", "dan"), unblock("bob", "eve"), remove_contact("bob", "ann")]).await;
    let rest = OwnSettings { contacts: Vec::new(), blocks: Vec::new(), ..bobs };
    assert_eq!(settings(policies, "bob").await, rest);
}

pub(crate) async fn relations_are_in_request_order(subject: Subject) {
    let policies = &*subject.policies;
    let mut changes = Vec::new();
    let names: Vec<String> =
        (0..200).map(|index| format!("user-{index}")).chain((0..100).map(|n| n.to_string())).collect();
    for (index, name) in names.iter().enumerate() {
        match index % 5 {
            0 => changes.push(block(name, "ann")),
            1 => changes.push(block("ann", name)),
            2 => changes.push(add_contact(name, "ann")),
            3 => changes.push(restrict(name)),
            _ => {}
        }
    }
    apply(policies, &changes).await;
    let model = Model::of(&changes);
    let asked: Vec<&str> = names.iter().rev().chain(&names).map(String::as_str).chain(["ann", "ann"]).collect();
    for viewer in [Some("ann"), Some("user-0"), None] {
        let expected: Vec<Relation> = asked.iter().map(|name| model.relation(viewer, name)).collect();
        assert_eq!(relations(policies, viewer, &asked).await, expected, "{viewer:?}");
    }
}

pub(crate) async fn full_batch_of_subjects_is_answered(subject: Subject) {
    let policies = &*subject.policies;
    let changes =
        [block("user-1", "ann"), block("ann", "user-9999"), add_contact("user-5000", "ann"), restrict("user-2")];
    apply(policies, &changes).await;
    let model = Model::of(&changes);
    let names: Vec<String> = (0..MAX_SUBJECTS).map(|index| format!("user-{index}")).collect();
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    for viewer in [Some("ann"), None] {
        let relations = relations(policies, viewer, &asked).await;
        assert!(names.iter().zip(relations).all(|(name, relation)| relation == model.relation(viewer, name)));
    }
}

pub(crate) async fn blocks_are_bounded(subject: Subject) {
    bounded(&*subject.policies, block, unblock, add_contact).await;
}

pub(crate) async fn contacts_are_bounded(subject: Subject) {
    bounded(&*subject.policies, add_contact, remove_contact, block).await;
}

/// A list takes no more items than its bound; the other list has a separate bound.
async fn bounded(
    policies: &dyn PolicyStore,
    add: fn(&str, &str) -> PolicyChange,
    remove: fn(&str, &str) -> PolicyChange,
    other_list: fn(&str, &str) -> PolicyChange,
) {
    let too_many = Err(Error::TooMany(MAX_LISTED as u32));
    let all: Vec<PolicyChange> = (0..MAX_LISTED - 1).map(|index| add("bob", &format!("user-{index}"))).collect();
    apply(policies, &all).await;
    // A duplicate counts once, and only the items beyond the bound are refused.
    let last =
        vec![add("bob", "user-0"), add("bob", "last"), add("bob", "beyond"), add("bob", "last"), add("ann", "bob")];
    let outcomes = policies.apply_many(last).await.unwrap();
    assert_eq!(outcomes, [Ok(()), Ok(()), too_many.clone(), Ok(()), Ok(())]);
    let (_, cursor) = load(policies).await;
    assert_eq!(outcome(policies, add("bob", "beyond")).await, too_many);
    assert_eq!(changes_since(policies, &cursor, 100).await.0, [], "a refused change is not logged");
    assert_eq!(outcome(policies, other_list("bob", "beyond")).await, Ok(()));
    assert_eq!(outcome(policies, remove("bob", "absent")).await, Ok(()), "removing an absent item succeeds");
    assert_eq!(outcome(policies, add("bob", "beyond")).await, too_many);
    assert_eq!(outcome(policies, remove("bob", "user-7")).await, Ok(()));
    assert_eq!(outcome(policies, add("bob", "beyond")).await, Ok(()));
    assert_eq!(outcome(policies, add("bob", "user-7")).await, too_many);
    let OwnSettings { contacts, blocks, .. } = settings(policies, "bob").await;
    let mut counts = [contacts.len(), blocks.len()];
    counts.sort_unstable();
    assert_eq!(counts, [1, MAX_LISTED]);
}

pub(crate) async fn oversized_batches_are_refused(subject: Subject) {
    let policies = &*subject.policies;
    let changes = vec![restrict("bob"); MAX_CHANGES + 1];
    assert_eq!(policies.apply_many(changes.clone()).await, Err(Error::TooMany(MAX_CHANGES as u32)));
    assert_eq!(relation(policies, "ann", "bob").await, Relation::default());
    let outcomes = policies.apply_many(changes[1..].to_vec()).await.unwrap();
    assert!(outcomes.len() == MAX_CHANGES && outcomes.iter().all(Result::is_ok));
    let bob = user("bob");
    let subjects: Ids<UserId> = std::iter::repeat_n(&bob, MAX_SUBJECTS + 1).collect();
    for viewer in [None, Some(user("ann"))] {
        let refused = policies.relations(viewer, subjects.clone()).await;
        assert_eq!(refused, Err(Error::TooMany(MAX_SUBJECTS as u32)));
    }
}

pub(crate) async fn empty_batches_are_answered(subject: Subject) {
    let policies = &*subject.policies;
    assert_eq!(policies.apply_many(Vec::new()).await, Ok(Vec::new()));
    for viewer in [None, Some("ann")] {
        assert_eq!(relations(policies, viewer, &[]).await, []);
    }
}
