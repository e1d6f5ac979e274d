//! A naive model of the contract.

use std::collections::{BTreeMap, BTreeSet};

use rollcall_core::policy::{Numbers, PolicyChange, Privacy, Relation, number_of};

/// All settings of all users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) restricted: BTreeSet<String>,
    pub(crate) restricted_numbers: BTreeSet<u32>,
    pub(crate) blocks: BTreeSet<(String, String)>,
    pub(crate) contacts: BTreeSet<(String, String)>,
    pub(crate) privacy: BTreeMap<String, Privacy>,
}

impl Model {
    /// The result of these changes on an empty model.
    pub(crate) fn of(changes: &[PolicyChange]) -> Self {
        let mut model = Self::default();
        changes.iter().for_each(|change| model.apply(change));
        model
    }

    pub(crate) fn apply(&mut self, change: &PolicyChange) {
        match change {
            PolicyChange::Restrict(user) => {
                match number_of(user.as_str()) {
                    Some(number) => self.restricted_numbers.insert(number),
                    None => self.restricted.insert(user.to_string()),
                };
            }
            PolicyChange::Unrestrict(user) => {
                match number_of(user.as_str()) {
                    Some(number) => self.restricted_numbers.remove(&number),
                    None => self.restricted.remove(user.as_str()),
                };
            }
            PolicyChange::RestrictMany(numbers) => self.restricted_numbers.extend(each(numbers)),
            PolicyChange::UnrestrictMany(numbers) => {
                let (first, last) = (numbers.page() << 16, numbers.page() << 16 | 0xffff);
                let lifted: BTreeSet<u32> = each(numbers).collect();
                let kept: Vec<u32> = self
                    .restricted_numbers
                    .range(first..=last)
                    .filter(|number| !lifted.contains(number))
                    .copied()
                    .collect();
                self.restricted_numbers.retain(|number| !(first..=last).contains(number));
                self.restricted_numbers.extend(kept);
            }
            PolicyChange::Block(one, other) => {
                self.blocks.insert((one.to_string(), other.to_string()));
            }
            PolicyChange::Unblock(one, other) => {
                self.blocks.remove(&(one.to_string(), other.to_string()));
            }
            PolicyChange::AddContact(one, other) => {
                self.contacts.insert((one.to_string(), other.to_string()));
            }
            PolicyChange::RemoveContact(one, other) => {
                self.contacts.remove(&(one.to_string(), other.to_string()));
            }
            PolicyChange::SetPrivacy(user, privacy) if *privacy == Privacy::default() => {
                self.privacy.remove(user.as_str());
            }
            PolicyChange::SetPrivacy(user, privacy) => {
                self.privacy.insert(user.to_string(), *privacy);
            }
        }
    }

    pub(crate) fn relation(&self, viewer: Option<&str>, subject: &str) -> Relation {
        let has = |pairs: &BTreeSet<(String, String)>, one: &str, other: &str| {
            pairs.contains(&(one.to_owned(), other.to_owned()))
        };
        Relation {
            restricted: match number_of(subject) {
                Some(number) => self.restricted_numbers.contains(&number),
                None => self.restricted.contains(subject),
            },
            blocked: viewer
                .is_some_and(|viewer| has(&self.blocks, viewer, subject) || has(&self.blocks, subject, viewer)),
            contact: viewer.is_some_and(|viewer| has(&self.contacts, subject, viewer)),
            privacy: self.privacy.get(subject).copied().unwrap_or_default(),
        }
    }
}

fn each(numbers: &Numbers) -> impl Iterator<Item = u32> {
    let first = numbers.page() << 16;
    let of_page = (0..)
        .zip(numbers.bits())
        .flat_map(|(byte, bits)| (0..8).filter(move |bit| bits & (0x80_u8 >> bit) != 0).map(move |bit| byte * 8 + bit));
    of_page.map(move |number| first + number)
}
