//! The suite of every policy store: each claim of `wit/policy.wit` is a function that takes a new store.
//!
//! To test a store, make a [`Subject`] of it and call `policy_suite!`. The macro lists every claim once; an unlisted one
//! is dead code, which the lints refuse.

pub(crate) mod changing;
pub(crate) mod following;
pub(crate) mod listing;
pub(crate) mod model;

use std::sync::Arc;
use std::time::Duration;

use rollcall_core::policy::{Audience, Numbers, PolicyChange, Privacy, Relation, number_of};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, OwnSettings};
use rollcall_store::PolicyStore;

use model::Model;

/// Timeout of every wait in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The most changes that a store accepts in one call.
pub(crate) const MAX_CHANGES: usize = 1024;

/// A new store.
pub(crate) struct Subject {
    pub(crate) policies: Arc<dyn PolicyStore>,
    /// The same data through another host; `None` if only one host can open them.
    pub(crate) elsewhere: Option<Arc<dyn PolicyStore>>,
}

/// Makes a test of every claim; `$subject` creates a new store for each.
#[macro_export]
macro_rules! policy_suite {
    ($subject:expr) => {
        $crate::policy_suite! { @list $subject;
            changing:
                user_without_settings_has_default_relation,
                restriction_applies_to_every_viewer_until_lifted,
                block_applies_to_both_until_removed,
                contact_applies_to_listed_users_only,
                privacy_applies_to_every_viewer,
                service_has_no_contacts_and_no_blocks,
                numeric_ids_and_similar_names_are_distinct,
                numeric_ids_are_restricted_in_bulk,
                changes_of_a_batch_apply_in_order,
                odd_user_ids_are_distinct;
            listing:
                settings_contain_only_the_users_own,
                relations_are_in_request_order,
                full_batch_of_subjects_is_answered,
                blocks_are_bounded,
                contacts_are_bounded,
                oversized_batches_are_refused,
                empty_batches_are_answered;
            following:
                empty_store_has_an_empty_snapshot,
                empty_cursor_returns_end_of_log,
                snapshot_contains_all_settings,
                snapshot_and_log_match_a_naive_model,
                changes_between_pages_are_not_lost,
                cursor_returns_exactly_the_later_changes,
                changes_of_one_user_stay_in_order,
                changes_without_effect_are_not_logged,
                bulk_restrictions_are_followed,
                readers_follow_independently,
                small_limit_loses_nothing,
                unknown_cursor_is_a_gap,
                changes_notify_followers_on_all_hosts;
        }
    };
    (@list $subject:expr; $($module:ident: $($claim:ident),+;)+) => {
        $(mod $module {
            #[allow(unused_imports, reason = "a factory may use anything of its module")]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $claim() {
                    $crate::policy_suite::$module::$claim($subject).await;
                }
            )+
        })+
    };
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub(crate) fn restrict(name: &str) -> PolicyChange {
    PolicyChange::Restrict(user(name))
}

pub(crate) fn unrestrict(name: &str) -> PolicyChange {
    PolicyChange::Unrestrict(user(name))
}

pub(crate) fn block(one: &str, other: &str) -> PolicyChange {
    PolicyChange::Block(user(one), user(other))
}

pub(crate) fn unblock(one: &str, other: &str) -> PolicyChange {
    PolicyChange::Unblock(user(one), user(other))
}

pub(crate) fn add_contact(one: &str, other: &str) -> PolicyChange {
    PolicyChange::AddContact(user(one), user(other))
}

pub(crate) fn remove_contact(one: &str, other: &str) -> PolicyChange {
    PolicyChange::RemoveContact(user(one), user(other))
}

pub(crate) fn set_privacy(name: &str, presence: Audience, last_seen: Audience) -> PolicyChange {
    PolicyChange::SetPrivacy(user(name), Privacy { presence, last_seen })
}

/// A set of numbers of one page.
pub(crate) fn numbers(page: u32, of_page: &[u32]) -> Numbers {
    let mut bits = vec![0; of_page.iter().max().map_or(0, |most| *most as usize / 8 + 1)];
    for number in of_page {
        bits[*number as usize / 8] |= 0x80 >> (number % 8);
    }
    Numbers::new(page, bits).unwrap()
}

/// Applies changes in full batches; all must succeed.
pub(crate) async fn apply(policies: &dyn PolicyStore, changes: &[PolicyChange]) {
    for part in changes.chunks(MAX_CHANGES) {
        let outcomes = policies.apply_many(part.to_vec()).await.unwrap();
        assert_eq!(outcomes.len(), part.len());
        for (outcome, change) in outcomes.iter().zip(part) {
            assert_eq!(*outcome, Ok(()), "{change:?}");
        }
    }
}

/// The outcome of one change.
pub(crate) async fn outcome(policies: &dyn PolicyStore, change: PolicyChange) -> Result<(), Error> {
    let mut outcomes = policies.apply_many(vec![change]).await.unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// The relations of a viewer, or of a service, to these subjects.
pub(crate) async fn relations(policies: &dyn PolicyStore, viewer: Option<&str>, subjects: &[&str]) -> Vec<Relation> {
    let subjects: Vec<UserId> = subjects.iter().map(|name| user(name)).collect();
    let relations = policies.relations(viewer.map(user), subjects.iter().collect::<Ids<UserId>>()).await.unwrap();
    assert_eq!(relations.len(), subjects.len());
    relations
}

pub(crate) async fn relation(policies: &dyn PolicyStore, viewer: &str, subject: &str) -> Relation {
    relations(policies, Some(viewer), &[subject]).await.remove(0)
}

/// The settings of a user, sorted.
pub(crate) async fn settings(policies: &dyn PolicyStore, name: &str) -> OwnSettings {
    let mut settings = policies.settings_of(user(name)).await.unwrap();
    settings.contacts.sort();
    settings.blocks.sort();
    settings
}

/// Loads all pages of the snapshot, and the cursor to follow from. Calls `between` after each page.
pub(crate) async fn load_with(policies: &dyn PolicyStore, mut between: impl AsyncFnMut(u32)) -> (Model, Cursor) {
    let (mut model, mut cursor, mut next) = (Model::default(), None, Some(0));
    let mut seen = Vec::new();
    while let Some(page) = next {
        assert!(!seen.contains(&page), "page {page} was returned again after {seen:?}");
        seen.push(page);
        let loaded = policies.snapshot(page).await.unwrap();
        loaded.changes.iter().for_each(|change| model.apply(change));
        cursor.get_or_insert(loaded.cursor);
        next = loaded.next;
        between(page).await;
    }
    (model, cursor.unwrap())
}

pub(crate) async fn load(policies: &dyn PolicyStore) -> (Model, Cursor) {
    load_with(policies, async |_| {}).await
}

/// All changes after a cursor, and the cursor after them.
pub(crate) async fn changes_since(
    policies: &dyn PolicyStore,
    cursor: &Cursor,
    limit: u32,
) -> (Vec<PolicyChange>, Cursor) {
    let (mut all, mut cursor) = (Vec::new(), cursor.clone());
    loop {
        match policies.since(cursor.clone(), limit).await.unwrap() {
            ChangesSince::Changes(changes, after) if changes.is_empty() => {
                assert_eq!(after, cursor, "the cursor moved without a change");
                return (all, cursor);
            }
            ChangesSince::Changes(changes, after) => {
                assert_ne!(after, cursor, "{changes:?} would be returned again");
                all.extend(changes);
                cursor = after;
            }
            ChangesSince::Gap => panic!("a gap after {cursor:?}"),
        }
    }
}

/// Applies all changes after a cursor to a model.
pub(crate) async fn follow(policies: &dyn PolicyStore, model: &mut Model, cursor: &Cursor) -> Cursor {
    let (changes, after) = changes_since(policies, cursor, 1000).await;
    changes.iter().for_each(|change| model.apply(change));
    after
}

/// A generator of the same numbers in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn audience(&mut self) -> Audience {
        match self.below(3) {
            0 => Audience::Everyone,
            1 => Audience::Contacts,
            _ => Audience::Nobody,
        }
    }

    /// One of a few user ids: some are numeric, some only look numeric.
    pub(crate) fn name(&mut self) -> String {
        match self.below(16) {
            0 => "7".to_owned(),
            1 => "007".to_owned(),
            2 => "65543".to_owned(),
            3 => "4294967295".to_owned(),
            4 => "4294967296".to_owned(),
            other => format!("user-{other}"),
        }
    }

    /// A random change.
    pub(crate) fn change(&mut self) -> PolicyChange {
        let (one, other) = (self.name(), self.name());
        match self.below(12) {
            0 | 1 => restrict(&one),
            2 => unrestrict(&one),
            3 | 4 => block(&one, &other),
            5 => unblock(&one, &other),
            6 | 7 => add_contact(&one, &other),
            8 => remove_contact(&one, &other),
            9 => set_privacy(&one, self.audience(), self.audience()),
            10 => PolicyChange::RestrictMany(self.numbers()),
            _ => PolicyChange::UnrestrictMany(self.numbers()),
        }
    }

    fn numbers(&mut self) -> Numbers {
        let page = [0, 1, 65_535][self.below(3) as usize];
        let of_page: Vec<u32> =
            (0..self.below(4)).map(|_| [0, 6, 7, 8, 4096, 65_535][self.below(6) as usize]).collect();
        numbers(page, &of_page)
    }
}

/// The user that a change belongs to; empty for a change of a page of numbers.
pub(crate) fn owner(change: &PolicyChange) -> &str {
    match change {
        PolicyChange::Restrict(user) | PolicyChange::Unrestrict(user) | PolicyChange::SetPrivacy(user, _) => {
            user.as_str()
        }
        PolicyChange::Block(one, _)
        | PolicyChange::Unblock(one, _)
        | PolicyChange::AddContact(one, _)
        | PolicyChange::RemoveContact(one, _) => one.as_str(),
        PolicyChange::RestrictMany(_) | PolicyChange::UnrestrictMany(_) => "",
    }
}

/// The page of a numeric id; `None` for a name.
pub(crate) fn page_of(name: &str) -> Option<u32> {
    number_of(name).map(|number| number >> 16)
}
