//! Everything that anybody set, in memory: exact, small, and quick to ask.
//!
//! Who stands as all do and is in no block with the viewer, which is nearly everybody, is told from the bitset of restricted
//! numbers and from the filter alone. What the filter affirms is confirmed in the exact tables before anybody is hidden.
//!
//! Deliberately absent: limits. How many contacts a person may have is the store's business; a policy index takes what it is told.

use std::cell::OnceCell;
use std::fmt;
use std::hint::black_box;

use rollcall_core::UserId;
use rollcall_core::policy::{Audience, Change, Relation, Verdict, number_of};

use crate::filter::{FilterStats, ShardedFilter, Upkeep};
use crate::hashing::{Salt, pair, shard_of};
use crate::interner::{Handle, Interner};
use crate::number_set::NumberSet;
use crate::pair_set::PairSet;
use crate::standing::Standing;

/// Subjects whose looks wait for memory together: what a processor can have under way.
const AHEAD: usize = 16;

/// Everything that anybody set.
pub struct PolicyIndex {
    salt: Salt,
    numbers: NumberSet,
    names: Interner,
    /// Who blocked whom.
    blocks: PairSet,
    /// Who listed whom.
    contacts: PairSet,
    /// The hash of everybody who stands otherwise than all, and of every two of whom one blocked the other.
    filter: ShardedFilter,
    restricted_by_name: u64,
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Accounts that are restricted.
    pub restricted: u64,
    /// PairSet of which the first blocked the second.
    pub blocks: u64,
    /// PairSet of which the first listed the second.
    pub contacts: u64,
    /// People who are known by name: in a pair, restricted by a name, or with a setting of their own.
    pub people: u64,
}

/// Somebody on whose behalf a batch is asked.
struct Viewer<'a> {
    name: &'a str,
    hash: u64,
    /// Looked up once it is needed, which for most batches is never. None if they are in no pair.
    handle: OnceCell<Option<Handle>>,
}

/// What has to be looked up for one subject.
struct Look<'a> {
    subject: &'a str,
    number: Option<u32>,
    /// The hash of the subject, and of the subject with the viewer.
    alone: u64,
    paired: u64,
}

impl PolicyIndex {
    /// An empty one. The salt is a number that nobody outside knows: ids are chosen by strangers, and could be chosen to
    /// collide.
    pub fn new(salt: u64) -> Self {
        Self {
            salt: Salt::new(salt),
            numbers: NumberSet::default(),
            names: Interner::new(),
            blocks: PairSet::new(),
            contacts: PairSet::new(),
            filter: ShardedFilter::default(),
            restricted_by_name: 0,
        }
    }

    /// Takes in a change. To take in the same one again does nothing.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Restrict(user) => self.restrict(user, true),
            Change::Unrestrict(user) => self.restrict(user, false),
            Change::RestrictMany(numbers) => self.numbers.insert_many(numbers),
            Change::UnrestrictMany(numbers) => self.numbers.remove_many(numbers),
            Change::Block(one, other) => self.block(one, other),
            Change::Unblock(one, other) => self.unblock(one, other),
            Change::AddContact(one, other) => self.add_contact(one, other),
            Change::RemoveContact(one, other) => self.remove_contact(one, other),
            Change::SetPrivacy(user, privacy) => self.stand(user, |standing| standing.with_privacy(*privacy)),
        }
    }

    /// What a viewer may see of each subject, in order. Everybody may see themselves; a viewer of none is a service.
    pub fn check<'a>(
        &self,
        viewer: Option<&str>,
        subjects: impl IntoIterator<Item = &'a str>,
        verdicts: &mut Vec<Verdict>,
    ) {
        match viewer.map(|name| self.viewer(name)) {
            Some(viewer) => self.check_all_for(&viewer, subjects.into_iter(), verdicts),
            None => verdicts.extend(subjects.into_iter().map(|subject| self.check_for_service(subject))),
        }
    }

    /// How a viewer stands to a subject, exactly. To a viewer of none nobody is blocked and nobody a contact.
    pub fn relation(&self, viewer: Option<&str>, subject: &str) -> Relation {
        let restricted = number_of(subject).is_some_and(|number| self.numbers.contains(number));
        let hash = self.salt.text(subject);
        let Some(handle) = self.names.find(hash, subject) else {
            return Relation { restricted, ..Relation::default() };
        };
        let standing = self.names.standing(handle);
        let pair = viewer.and_then(|name| self.pair_of(&self.viewer(name), hash, handle));
        Relation {
            restricted: restricted || standing.restricted(),
            blocked: pair.is_some_and(|(shard, pair)| self.blocks.contains_either(shard, pair)),
            contact: pair.is_some_and(|(shard, pair)| self.contacts.contains(shard, pair)),
            privacy: standing.privacy(),
        }
    }

    /// The bytes that everything takes, without what the allocator adds.
    pub fn bytes(&self) -> u64 {
        self.numbers.bytes() + self.names.bytes() + self.blocks.bytes() + self.contacts.bytes() + self.filter.bytes()
    }

    /// How much there is.
    pub fn census(&self) -> Census {
        Census {
            restricted: self.numbers.len() + self.restricted_by_name,
            blocks: self.blocks.len(),
            contacts: self.contacts.len(),
            people: self.names.len(),
        }
    }

    /// How large the filter is.
    pub fn filter_stats(&self) -> FilterStats {
        self.filter.stats()
    }

    fn viewer<'a>(&self, name: &'a str) -> Viewer<'a> {
        Viewer { name, hash: self.salt.text(name), handle: OnceCell::new() }
    }

    /// The part of the pairs in which a viewer and a subject would be, and the pair.
    fn pair_of(&self, viewer: &Viewer<'_>, hash: u64, subject: Handle) -> Option<(usize, (Handle, Handle))> {
        let viewer_handle = (*viewer.handle.get_or_init(|| self.names.find(viewer.hash, viewer.name)))?;
        Some((shard_of(pair(viewer.hash, hash)), (subject, viewer_handle)))
    }

    /// A few at a time: first what each look will need is touched, so that all wait for memory together and not one after
    /// the other.
    fn check_all_for<'a>(
        &self,
        viewer: &Viewer<'_>,
        mut subjects: impl Iterator<Item = &'a str>,
        verdicts: &mut Vec<Verdict>,
    ) {
        let mut looks = Vec::with_capacity(subjects.size_hint().0.min(AHEAD));
        loop {
            looks.clear();
            looks.extend(subjects.by_ref().take(AHEAD).map(|subject| self.look(viewer, subject)));
            if looks.is_empty() {
                return;
            }
            let touch = |look: &Look<'_>| {
                let number = look.number.map_or(0, |number| self.numbers.touch(number));
                number ^ self.filter.touch(look.alone) ^ self.filter.touch(look.paired)
            };
            black_box(looks.iter().map(touch).fold(0, |all, one| all ^ one));
            verdicts.extend(looks.iter().map(|look| self.check_for(viewer, look)));
        }
    }

    #[inline]
    fn look<'a>(&self, viewer: &Viewer<'_>, subject: &'a str) -> Look<'a> {
        let alone = self.salt.text(subject);
        Look { subject, number: number_of(subject), alone, paired: pair(viewer.hash, alone) }
    }

    #[inline]
    fn check_for(&self, viewer: &Viewer<'_>, look: &Look<'_>) -> Verdict {
        // Whether the viewer is the subject is asked only where something would be hidden.
        if look.number.is_some_and(|number| self.numbers.contains(number)) {
            let itself = look.subject == viewer.name;
            return Relation { restricted: !itself, ..Relation::default() }.verdict();
        }
        // Both at once: the second look does not wait for what the first one brings.
        let (alone, paired) = (self.filter.may_contain(look.alone), self.filter.may_contain(look.paired));
        if !(alone | paired) {
            return Verdict::OPEN;
        }
        self.check_exactly(viewer, look.subject, look.alone, paired)
    }

    /// What the filter affirmed. The blocks are looked up only where the filter affirmed the pair, and the contacts only where
    /// the subject's setting asks for them.
    #[cold]
    fn check_exactly(&self, viewer: &Viewer<'_>, subject: &str, hash: u64, paired: bool) -> Verdict {
        if subject == viewer.name {
            return Verdict::OPEN;
        }
        let Some(handle) = self.names.find(hash, subject) else { return Verdict::OPEN };
        let standing = self.names.standing(handle);
        let privacy = standing.privacy();
        let asks = privacy.presence == Audience::Contacts || privacy.last_seen == Audience::Contacts;
        let pair = if paired || asks { self.pair_of(viewer, hash, handle) } else { None };
        Relation {
            restricted: standing.restricted(),
            blocked: paired && pair.is_some_and(|(shard, pair)| self.blocks.contains_either(shard, pair)),
            contact: asks && pair.is_some_and(|(shard, pair)| self.contacts.contains(shard, pair)),
            privacy,
        }
        .verdict()
    }

    #[inline]
    fn check_for_service(&self, subject: &str) -> Verdict {
        let restricted = match number_of(subject) {
            Some(number) => self.numbers.contains(number),
            None => {
                let hash = self.salt.text(subject);
                self.filter.may_contain(hash)
                    && self.names.find(hash, subject).is_some_and(|found| self.names.standing(found).restricted())
            }
        };
        Relation { restricted, ..Relation::default() }.verdict_for_service()
    }

    fn restrict(&mut self, user: &UserId, restricted: bool) {
        match (number_of(user.as_str()), restricted) {
            (Some(number), true) => self.numbers.insert(number),
            (Some(number), false) => self.numbers.remove(number),
            (None, _) => self.stand(user, |standing| standing.with_restricted(restricted)),
        }
    }

    fn stand(&mut self, user: &UserId, change: impl FnOnce(Standing) -> Standing) {
        let hash = self.salt.text(user.as_str());
        let found = self.names.find(hash, user.as_str());
        let before = found.map_or_else(Standing::default, |handle| self.names.standing(handle));
        let after = change(before);
        if after == before {
            return;
        }
        let Some(handle) = found.or_else(|| self.names.intern(hash, user.as_str())) else { return };
        self.names.stand(handle, after);
        self.restricted_by_name += u64::from(after.restricted());
        self.restricted_by_name -= u64::from(before.restricted());
        let upkeep = match (before.is_default(), after.is_default()) {
            (true, false) => self.filter.add(hash),
            (false, true) => self.filter.remove(hash),
            (true, true) | (false, false) => Upkeep::None,
        };
        self.keep_up(upkeep);
    }

    fn block(&mut self, one: &UserId, other: &UserId) {
        let Some((key, two)) = self.intern(one, other) else { return };
        let known = self.blocks.contains_either(shard_of(key), two);
        if self.blocks.insert(shard_of(key), two) {
            self.hold(two);
            if !known {
                let upkeep = self.filter.add(key);
                self.keep_up(upkeep);
            }
        }
    }

    fn unblock(&mut self, one: &UserId, other: &UserId) {
        let Some((key, two)) = self.find(one, other) else { return };
        if self.blocks.remove(shard_of(key), two) {
            if !self.blocks.contains_either(shard_of(key), two) {
                let upkeep = self.filter.remove(key);
                self.keep_up(upkeep);
            }
            self.release(two);
        }
    }

    fn add_contact(&mut self, one: &UserId, other: &UserId) {
        let Some((key, two)) = self.intern(one, other) else { return };
        if self.contacts.insert(shard_of(key), two) {
            self.hold(two);
        }
    }

    fn remove_contact(&mut self, one: &UserId, other: &UserId) {
        let Some((key, two)) = self.find(one, other) else { return };
        if self.contacts.remove(shard_of(key), two) {
            self.release(two);
        }
    }

    /// The hash of two people, and both of them, if both are known.
    fn find(&self, one: &UserId, other: &UserId) -> Option<(u64, (Handle, Handle))> {
        let hashes = (self.salt.text(one.as_str()), self.salt.text(other.as_str()));
        let two = (self.names.find(hashes.0, one.as_str())?, self.names.find(hashes.1, other.as_str())?);
        Some((pair(hashes.0, hashes.1), two))
    }

    /// The hash of two people, and both of them, known from now on. None if there is no room for one of them.
    fn intern(&mut self, one: &UserId, other: &UserId) -> Option<(u64, (Handle, Handle))> {
        let hashes = (self.salt.text(one.as_str()), self.salt.text(other.as_str()));
        let first = self.names.intern(hashes.0, one.as_str())?;
        let second = self.names.intern(hashes.1, other.as_str());
        if second.is_none() {
            self.names.stand(first, self.names.standing(first));
        }
        Some((pair(hashes.0, hashes.1), (first, second?)))
    }

    fn hold(&mut self, two: (Handle, Handle)) {
        self.names.hold(two.0);
        self.names.hold(two.1);
    }

    fn release(&mut self, two: (Handle, Handle)) {
        self.names.release(two.0);
        self.names.release(two.1);
    }

    fn keep_up(&mut self, upkeep: Upkeep) {
        match upkeep {
            Upkeep::None => {}
            Upkeep::Rebuild(shard) => {
                let hash_of = |who| self.names.hash_of(who);
                let blocked = self.blocks.iter(shard).map(|(one, other)| pair(hash_of(one), hash_of(other)));
                self.filter.rebuild(shard, self.names.standing_out(shard).chain(blocked));
            }
        }
    }
}

impl fmt::Debug for PolicyIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyIndex")
            .field("census", &self.census())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
