//! Each kind of change, its effect on relations, and its reversal.

use rollcall_core::policy::{Audience, PolicyChange, Privacy, Relation};

use super::model::Model;
use super::{
    Subject, add_contact, apply, block, numbers, relation, relations, remove_contact, restrict, set_privacy, settings,
    unblock, unrestrict, user,
};

/// Ids with characters that are special in Redis, SQL, JSON or Unicode.
const ODD: [&str; 24] = [
    "bob",
    "Bob",
    "bob ",
    " bob",
    "b o b",
    "b{o}b",
    "{}",
    "}{",
    "{bob",
    "*",
    "b?b",
    "[a-z]",
    "\\",
    "\\n",
    "b\\",
    "b:b",
    "#b",
    "'",
    "\"",
    "%00",
    "0",
    "名前@例.jp",
    "🦀",
    "b\u{a0}b",
];

pub(crate) async fn user_without_settings_has_default_relation(subject: Subject) {
    let policies = &*subject.policies;
    assert_eq!(relation(policies, "ann", "bob").await, Relation::default());
    assert_eq!(relations(policies, None, &["bob", "7"]).await, [Relation::default(); 2]);
    assert_eq!(settings(policies, "bob").await, rollcall_functions::capabilities::OwnSettings::default());
}

pub(crate) async fn restriction_applies_to_every_viewer_until_lifted(subject: Subject) {
    let policies = &*subject.policies;
    let restricted = Relation { restricted: true, ..Relation::default() };
    for name in ["bob", "7"] {
        apply(policies, &[restrict(name)]).await;
        assert_eq!(relation(policies, "ann", name).await, restricted, "{name}");
        assert_eq!(relation(policies, name, name).await, restricted, "{name} as their own viewer");
        assert_eq!(relations(policies, None, &[name]).await, [restricted], "a service as viewer of {name}");
        assert_eq!(relation(policies, name, "ann").await, Relation::default(), "ann is not restricted");
        apply(policies, &[restrict(name)]).await;
        apply(policies, &[unrestrict(name)]).await;
        assert_eq!(relation(policies, "ann", name).await, Relation::default(), "{name}");
        apply(policies, &[unrestrict(name)]).await;
        assert_eq!(relation(policies, "ann", name).await, Relation::default(), "{name}");
    }
}

pub(crate) async fn block_applies_to_both_until_removed(subject: Subject) {
    let policies = &*subject.policies;
    let blocked = Relation { blocked: true, ..Relation::default() };
    apply(policies, &[block("bob", "ann")]).await;
    assert_eq!(relation(policies, "ann", "bob").await, blocked);
    assert_eq!(relation(policies, "bob", "ann").await, blocked);
    assert_eq!(relation(policies, "bob", "cid").await, Relation::default());
    assert_eq!(relation(policies, "cid", "bob").await, Relation::default());
    apply(policies, &[block("ann", "bob"), unblock("bob", "ann")]).await;
    assert_eq!(relation(policies, "bob", "ann").await, blocked, "each user has to remove their own block");
    apply(policies, &[unblock("ann", "bob"), unblock("ann", "bob")]).await;
    assert_eq!(relation(policies, "ann", "bob").await, Relation::default());
    assert_eq!(relation(policies, "bob", "ann").await, Relation::default());
}

pub(crate) async fn contact_applies_to_listed_users_only(subject: Subject) {
    let policies = &*subject.policies;
    apply(policies, &[add_contact("bob", "ann"), add_contact("bob", "ann")]).await;
    assert_eq!(relation(policies, "ann", "bob").await, Relation { contact: true, ..Relation::default() });
    assert_eq!(relation(policies, "bob", "ann").await, Relation::default(), "bob is not a contact of ann");
    assert_eq!(relation(policies, "cid", "bob").await, Relation::default());
    apply(policies, &[remove_contact("bob", "ann")]).await;
    assert_eq!(relation(policies, "ann", "bob").await, Relation::default());
}

pub(crate) async fn privacy_applies_to_every_viewer(subject: Subject) {
    let policies = &*subject.policies;
    let all = [Audience::Everyone, Audience::Contacts, Audience::Nobody];
    for (presence, last_seen) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other))) {
        let privacy = Privacy { presence, last_seen };
        apply(policies, &[set_privacy("bob", presence, last_seen)]).await;
        assert_eq!(relation(policies, "ann", "bob").await, Relation { privacy, ..Relation::default() });
        assert_eq!(relations(policies, None, &["bob", "ann"]).await[0].privacy, privacy);
        assert_eq!(relation(policies, "bob", "ann").await, Relation::default());
        assert_eq!(settings(policies, "bob").await.privacy, privacy);
    }
    apply(policies, &[set_privacy("bob", Audience::Everyone, Audience::Everyone)]).await;
    assert_eq!(relation(policies, "ann", "bob").await, Relation::default());
}

pub(crate) async fn service_has_no_contacts_and_no_blocks(subject: Subject) {
    let policies = &*subject.policies;
    let changes = [
        block("bob", "ann"),
        add_contact("bob", "cid"),
        restrict("bob"),
        set_privacy("bob", Audience::Nobody, Audience::Contacts),
    ];
    apply(policies, &changes).await;
    let privacy = Privacy { presence: Audience::Nobody, last_seen: Audience::Contacts };
    let seen = Relation { restricted: true, privacy, ..Relation::default() };
    assert_eq!(relations(policies, None, &["bob", "ann"]).await, [seen, Relation::default()]);
}

pub(crate) async fn numeric_ids_and_similar_names_are_distinct(subject: Subject) {
    let policies = &*subject.policies;
    let names = ["7", "007", "07", "+7", "7 ", "65543", "0", "00", "4294967295", "4294967296", "8"];
    for (index, name) in names.iter().enumerate() {
        apply(policies, &[restrict(name)]).await;
        let restricted: Vec<bool> =
            relations(policies, Some("ann"), &names).await.iter().map(|r| r.restricted).collect();
        let expected: Vec<bool> = (0..names.len()).map(|place| place == index).collect();
        assert_eq!(restricted, expected, "{name}");
        apply(policies, &[unrestrict(name)]).await;
    }
    assert!(relations(policies, None, &names).await.iter().all(|relation| !relation.restricted));
}

pub(crate) async fn numeric_ids_are_restricted_in_bulk(subject: Subject) {
    let policies = &*subject.policies;
    let names = ["65536", "65537", "65543", "65544", "65545", "131071", "7", "131072", "007"];
    let restricted = async || -> Vec<&str> {
        let relations = relations(policies, Some("ann"), &names).await;
        names.iter().zip(relations).filter(|(_, relation)| relation.restricted).map(|(name, _)| *name).collect()
    };
    apply(policies, &[restrict("65545"), PolicyChange::RestrictMany(numbers(1, &[0, 7, 65_535]))]).await;
    assert_eq!(restricted().await, ["65536", "65543", "65545", "131071"], "other numbers keep their restrictions");
    apply(policies, &[PolicyChange::RestrictMany(numbers(1, &[7, 8]))]).await;
    assert_eq!(restricted().await, ["65536", "65543", "65544", "65545", "131071"]);
    apply(policies, &[PolicyChange::UnrestrictMany(numbers(1, &[0, 1, 9]))]).await;
    assert_eq!(
        restricted().await,
        ["65543", "65544", "131071"],
        "a page also lifts numbers that were restricted one by one"
    );
    apply(policies, &[unrestrict("65543"), PolicyChange::RestrictMany(numbers(1, &[]))]).await;
    assert_eq!(restricted().await, ["65544", "131071"]);
    apply(policies, &[PolicyChange::UnrestrictMany(numbers(1, &[0, 8, 65_535])), restrict("7")]).await;
    assert_eq!(restricted().await, ["7"]);
    apply(policies, &[PolicyChange::UnrestrictMany(numbers(1, &[8])), PolicyChange::UnrestrictMany(numbers(9, &[8]))])
        .await;
    assert_eq!(restricted().await, ["7"]);
}

pub(crate) async fn changes_of_a_batch_apply_in_order(subject: Subject) {
    let policies = &*subject.policies;
    let changes = [
        block("bob", "ann"),
        unblock("bob", "ann"),
        unblock("bob", "cid"),
        block("bob", "cid"),
        set_privacy("bob", Audience::Nobody, Audience::Nobody),
        set_privacy("bob", Audience::Contacts, Audience::Nobody),
        restrict("bob"),
        unrestrict("bob"),
        unrestrict("7"),
        restrict("7"),
        PolicyChange::RestrictMany(numbers(0, &[8, 9])),
        unrestrict("8"),
        PolicyChange::UnrestrictMany(numbers(0, &[9, 10])),
        restrict("10"),
    ];
    apply(policies, &changes).await;
    let model = Model::of(&changes);
    let subjects = ["bob", "7", "8", "9", "10"];
    for viewer in ["ann", "cid"] {
        let expected: Vec<Relation> = subjects.iter().map(|name| model.relation(Some(viewer), name)).collect();
        assert_eq!(relations(policies, Some(viewer), &subjects).await, expected, "{viewer}");
    }
}

pub(crate) async fn odd_user_ids_are_distinct(subject: Subject) {
    let policies = &*subject.policies;
    let mut changes = Vec::new();
    for (index, name) in ODD.iter().enumerate() {
        let next = ODD[(index + 1) % ODD.len()];
        changes.extend([block(name, next), add_contact(next, name)]);
        if index % 2 == 0 {
            changes.extend([restrict(name), set_privacy(name, Audience::Contacts, Audience::Nobody)]);
        }
    }
    apply(policies, &changes).await;
    let model = Model::of(&changes);
    for viewer in ODD {
        let expected: Vec<Relation> = ODD.iter().map(|name| model.relation(Some(viewer), name)).collect();
        assert_eq!(relations(policies, Some(viewer), &ODD).await, expected, "{viewer:?}");
        let own = settings(policies, viewer).await;
        let of_model = |pairs: &std::collections::BTreeSet<(String, String)>| -> Vec<_> {
            pairs.iter().filter(|(one, _)| one == viewer).map(|(_, other)| user(other)).collect()
        };
        assert_eq!(own.blocks, of_model(&model.blocks), "{viewer:?}");
        assert_eq!(own.contacts, of_model(&model.contacts), "{viewer:?}");
    }
    let (loaded, _) = super::load(policies).await;
    assert_eq!(loaded, model);
}
