//! The snapshot, the changes after it, and the notification of changes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rollcall_core::policy::{Audience, MAX_SUBJECTS, PolicyChange};
use rollcall_functions::capabilities::{ChangesSince, Cursor};
use rollcall_store::PolicyStore;
use tokio::sync::watch;

use super::model::Model;
use super::{
    PATIENCE, Random, Subject, add_contact, apply, block, changes_since, follow, load, load_with, numbers, owner,
    page_of, relations, remove_contact, restrict, set_privacy, unblock, unrestrict,
};

pub(crate) async fn empty_store_has_an_empty_snapshot(subject: Subject) {
    let policies = &*subject.policies;
    let (model, cursor) = load(policies).await;
    assert_eq!(model, Model::default());
    assert_eq!(changes_since(policies, &cursor, 100).await, (Vec::new(), cursor.clone()));
    apply(policies, &[restrict("bob")]).await;
    assert_eq!(changes_since(policies, &cursor, 100).await.0, [restrict("bob")]);
}

pub(crate) async fn empty_cursor_returns_end_of_log(subject: Subject) {
    let policies = &*subject.policies;
    let end_of_log = async || match policies.since(Cursor::new(), 1).await.unwrap() {
        ChangesSince::Changes(nothing, cursor) if nothing.is_empty() => cursor,
        other => panic!("{other:?}"),
    };
    let start = end_of_log().await;
    assert_eq!(start, load(policies).await.1);
    apply(policies, &[restrict("bob"), block("bob", "ann")]).await;
    let later = end_of_log().await;
    assert_eq!(changes_since(policies, &later, 100).await.0, []);
    assert_eq!(changes_since(policies, &start, 100).await.0.len(), 2);
    apply(policies, &[unrestrict("bob")]).await;
    assert_eq!(changes_since(policies, &later, 100).await.0, [unrestrict("bob")]);
}

pub(crate) async fn snapshot_contains_all_settings(subject: Subject) {
    let policies = &*subject.policies;
    let mut changes = Vec::new();
    for index in 0..700 {
        let (one, other) = (format!("user-{index}"), format!("user-{}", index * 7 % 700));
        changes.extend([block(&one, &other), add_contact(&other, &one)]);
        if index % 10 == 0 {
            changes.extend([restrict(&one), set_privacy(&other, Audience::Nobody, Audience::Contacts)]);
        }
    }
    // More pages of numbers than one read returns, some of them adjacent, and the last possible page.
    for page in (0..150).map(|index| index * index).chain([65_535]) {
        changes.push(PolicyChange::RestrictMany(numbers(page, &[0, 7, page % 65_536, 65_535])));
    }
    changes.extend([PolicyChange::UnrestrictMany(numbers(4, &[0, 4, 7, 65_535])), unrestrict("65535")]);
    apply(policies, &changes).await;
    let (model, cursor) = load(policies).await;
    assert_eq!(model, Model::of(&changes));
    assert_eq!(changes_since(policies, &cursor, 100).await.0, []);
}

pub(crate) async fn snapshot_and_log_match_a_naive_model(subject: Subject) {
    let policies = &*subject.policies;
    let mut random = Random(0x5eed);
    let mut model = Model::default();
    let (mut followed, mut cursor) = load(policies).await;
    for round in 0..40 {
        let changes: Vec<PolicyChange> = (0..random.below(60)).map(|_| random.change()).collect();
        apply(policies, &changes).await;
        changes.iter().for_each(|change| model.apply(change));
        cursor = follow(policies, &mut followed, &cursor).await;
        assert_eq!(followed, model, "round {round}");
        if round % 8 == 0 {
            let (loaded, at) = load(policies).await;
            assert_eq!(loaded, model, "round {round}");
            assert_eq!(at, cursor, "nothing changed meanwhile");
        }
    }
    let names: Vec<String> = (0..16).map(|_| random.name()).collect();
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(asked.len() <= MAX_SUBJECTS);
    for viewer in asked.iter().copied().map(Some).chain([None]) {
        let expected: Vec<_> = asked.iter().map(|name| model.relation(viewer, name)).collect();
        assert_eq!(relations(policies, viewer, &asked).await, expected, "{viewer:?}");
    }
}

pub(crate) async fn changes_between_pages_are_not_lost(subject: Subject) {
    let policies = &*subject.policies;
    let mut random = Random(0xbee);
    let first: Vec<PolicyChange> = (0..400).map(|_| random.change()).collect();
    apply(policies, &first).await;
    let mut model = Model::of(&first);
    let (mut followed, cursor) = load_with(policies, async |_| {
        let changes: Vec<PolicyChange> = (0..20).map(|_| random.change()).collect();
        apply(policies, &changes).await;
        changes.iter().for_each(|change| model.apply(change));
    })
    .await;
    follow(policies, &mut followed, &cursor).await;
    assert_eq!(followed, model);
}

/// The changes of each user, in order; across users no order is guaranteed.
fn by_owner(changes: &[PolicyChange]) -> BTreeMap<String, Vec<PolicyChange>> {
    let mut by_owner: BTreeMap<String, Vec<PolicyChange>> = BTreeMap::new();
    for change in changes {
        by_owner.entry(owner(change).to_owned()).or_default().push(change.clone());
    }
    by_owner
}

pub(crate) async fn cursor_returns_exactly_the_later_changes(subject: Subject) {
    let policies = &*subject.policies;
    let (_, start) = load(policies).await;
    let before: Vec<PolicyChange> = (0..50).map(|index| block(&format!("user-{index}"), "ann")).collect();
    apply(policies, &before).await;
    let (returned, middle) = changes_since(policies, &start, 1000).await;
    assert_eq!(by_owner(&returned), by_owner(&before));
    let after = [
        unblock("user-7", "ann"),
        add_contact("user-7", "ann"),
        remove_contact("user-7", "ann"),
        restrict("user-8"),
        unrestrict("user-8"),
        set_privacy("user-9", Audience::Contacts, Audience::Nobody),
        set_privacy("user-9", Audience::Everyone, Audience::Everyone),
    ];
    apply(policies, &after).await;
    let (returned, end) = changes_since(policies, &middle, 1000).await;
    assert_eq!(by_owner(&returned), by_owner(&after), "each kind of change is returned as it was made");
    assert_eq!(changes_since(policies, &end, 1000).await, (Vec::new(), end.clone()));
    let (returned, again) = changes_since(policies, &start, 1000).await;
    assert_eq!(by_owner(&returned), by_owner(&[before.as_slice(), &after].concat()));
    assert_eq!(again, end);
}

pub(crate) async fn changes_of_one_user_stay_in_order(subject: Subject) {
    let policies = &*subject.policies;
    let (_, cursor) = load(policies).await;
    let of = |name: &str| -> Vec<PolicyChange> {
        let changes = (0..60).flat_map(|index| {
            let other = format!("user-{}", index % 3);
            [block(name, &other), unblock(name, &other), add_contact(name, &other), remove_contact(name, &other)]
        });
        changes.collect()
    };
    let (bobs, anns) = (of("bob"), of("ann"));
    let both: Vec<PolicyChange> =
        bobs.iter().zip(&anns).flat_map(|(one, other)| [one.clone(), other.clone()]).collect();
    apply(policies, &both).await;
    let returned = by_owner(&changes_since(policies, &cursor, 64).await.0);
    assert_eq!(returned["bob"], bobs);
    assert_eq!(returned["ann"], anns);
}

pub(crate) async fn changes_without_effect_are_not_logged(subject: Subject) {
    let policies = &*subject.policies;
    let effective = [
        restrict("bob"),
        restrict("7"),
        block("bob", "ann"),
        add_contact("bob", "ann"),
        set_privacy("bob", Audience::Nobody, Audience::Contacts),
        PolicyChange::RestrictMany(numbers(3, &[1, 2, 3])),
    ];
    let ineffective = [
        unrestrict("eve"),
        unrestrict("8"),
        unrestrict("65600"),
        unblock("bob", "eve"),
        remove_contact("eve", "ann"),
        set_privacy("eve", Audience::Everyone, Audience::Everyone),
        PolicyChange::UnrestrictMany(numbers(3, &[4, 5])),
        PolicyChange::UnrestrictMany(numbers(9, &[4, 5])),
        PolicyChange::RestrictMany(numbers(3, &[2, 3])),
        PolicyChange::RestrictMany(numbers(5, &[])),
    ];
    apply(policies, &effective).await;
    let (model, cursor) = load(policies).await;
    apply(policies, &effective).await;
    apply(policies, &ineffective).await;
    assert_eq!(changes_since(policies, &cursor, 100).await, (Vec::new(), cursor.clone()));
    assert_eq!(load(policies).await, (model, cursor));
}

pub(crate) async fn bulk_restrictions_are_followed(subject: Subject) {
    let policies = &*subject.policies;
    let (mut followed, start) = load(policies).await;
    let mut cursor = start.clone();
    let full: Vec<u32> = (0..65_536).collect();
    let steps = [
        vec![PolicyChange::RestrictMany(numbers(1, &[0, 9, 65_535])), restrict("65538")],
        vec![unrestrict("65536"), PolicyChange::RestrictMany(numbers(2, &full))],
        vec![
            PolicyChange::UnrestrictMany(numbers(2, &[5, 6])),
            PolicyChange::UnrestrictMany(numbers(1, &[9])),
            restrict("7"),
        ],
        vec![PolicyChange::UnrestrictMany(numbers(2, &full)), unrestrict("7"), restrict("8")],
    ];
    let mut model = Model::default();
    for step in steps {
        apply(policies, &step).await;
        step.iter().for_each(|change| model.apply(change));
        cursor = follow(policies, &mut followed, &cursor).await;
        assert_eq!(followed, model, "{step:?}");
    }
    // A late reader may receive the pages in their current state, and ends with the same model.
    let mut late = Model::default();
    let (changes, _) = changes_since(policies, &start, 10_000).await;
    assert!(changes.iter().all(|change| match change {
        PolicyChange::RestrictMany(numbers) | PolicyChange::UnrestrictMany(numbers) =>
            [0, 1, 2].contains(&numbers.page()),
        PolicyChange::Restrict(user) | PolicyChange::Unrestrict(user) => page_of(user.as_str()).is_some(),
        _ => false,
    }));
    changes.iter().for_each(|change| late.apply(change));
    assert_eq!(late, model);
}

pub(crate) async fn readers_follow_independently(subject: Subject) {
    let policies = &*subject.policies;
    let mut random = Random(0xcafe);
    let (mut quick, mut at_quick) = load(policies).await;
    let (mut slow, at_slow) = (quick.clone(), at_quick.clone());
    let mut model = Model::default();
    for _ in 0..10 {
        let changes: Vec<PolicyChange> = (0..15).map(|_| random.change()).collect();
        apply(policies, &changes).await;
        changes.iter().for_each(|change| model.apply(change));
        at_quick = follow(policies, &mut quick, &at_quick).await;
        assert_eq!(quick, model);
    }
    let at_slow = follow(policies, &mut slow, &at_slow).await;
    assert_eq!((slow, at_slow), (model, at_quick));
}

pub(crate) async fn small_limit_loses_nothing(subject: Subject) {
    let policies = &*subject.policies;
    let (_, cursor) = load(policies).await;
    let changes: Vec<PolicyChange> =
        (0..3000).map(|index| block(&format!("user-{}", index % 40), &index.to_string())).collect();
    apply(policies, &changes).await;
    for limit in [1, 100] {
        let (returned, _) = changes_since(policies, &cursor, limit).await;
        assert_eq!(by_owner(&returned), by_owner(&changes), "limit {limit}");
    }
    let ChangesSince::Changes(first, _) = policies.since(cursor, 100).await.unwrap() else { panic!("a gap") };
    assert!(first.len() < changes.len(), "{} changes in one answer", first.len());
}

pub(crate) async fn unknown_cursor_is_a_gap(subject: Subject) {
    let policies = &*subject.policies;
    for filled in [false, true] {
        if filled {
            apply(policies, &[restrict("bob"), restrict("7"), block("ann", "eve")]).await;
        }
        let (_, cursor) = load(policies).await;
        let longer: Vec<u64> = cursor.iter().copied().chain([0]).collect();
        let future: Vec<u64> = cursor.iter().map(|place| place + 1_000_000_000).collect();
        for wrong in [longer, future] {
            assert_eq!(policies.since(wrong.clone(), 100).await, Ok(ChangesSince::Gap), "{wrong:?}, filled: {filled}");
        }
        assert_eq!(policies.since(cursor.clone(), 100).await, Ok(ChangesSince::Changes(Vec::new(), cursor)));
    }
}

/// Waits until changes made through `policies` notify `invalidated` at once, five times in a row: the first few may
/// precede the subscription.
async fn assert_notified(policies: &dyn PolicyStore, invalidated: &mut watch::Receiver<u64>) {
    let (deadline, mut in_a_row) = (Instant::now() + PATIENCE, 0);
    for round in 0.. {
        assert!(Instant::now() < deadline, "a change does not notify");
        invalidated.mark_unchanged();
        apply(policies, &[if round % 2 == 0 { block("bob", "ann") } else { unblock("bob", "ann") }]).await;
        match tokio::time::timeout(Duration::from_millis(500), invalidated.changed()).await {
            Ok(moved) => {
                moved.unwrap();
                in_a_row += 1;
            }
            Err(_) => in_a_row = 0,
        }
        if in_a_row == 5 {
            return;
        }
    }
}

pub(crate) async fn changes_notify_followers_on_all_hosts(subject: Subject) {
    let mut invalidated = subject.policies.invalidated();
    assert_notified(&*subject.policies, &mut invalidated).await;
    if let Some(elsewhere) = &subject.elsewhere {
        assert_notified(&**elsewhere, &mut invalidated).await;
        assert_notified(&*subject.policies, &mut elsewhere.invalidated()).await;
        let (mut followed, cursor) = load(&**elsewhere).await;
        apply(&*subject.policies, &[block("bob", "eve")]).await;
        follow(&**elsewhere, &mut followed, &cursor).await;
        assert_eq!(followed, load(&*subject.policies).await.0);
    }
}
