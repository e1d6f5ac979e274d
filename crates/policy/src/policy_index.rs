//! The policy index: all policy in memory, exact, compact and fast.
//!
//! Nearly every check is answered by the bitset of restricted numbers and the Bloom filter alone: a miss means default privacy and
//! no block. A hit is confirmed in the exact tables.
//!
//! Deliberately absent: limits. The store enforces how many contacts a user may have; the index applies every change.

use std::cell::OnceCell;
use std::fmt;
use std::hint::black_box;

use rollcall_core::UserId;
use rollcall_core::policy::{Audience, PolicyChange, Relation, Verdict, number_of};

use crate::filter::{FilterStats, ShardedFilter, Upkeep};
use crate::hashing::{Salt, pair, shard_of};
use crate::interner::{Handle, Interner};
use crate::number_set::NumberSet;
use crate::pair_set::PairSet;
use crate::user_flags::UserFlags;

/// Subjects whose lookups wait for memory together: the number of cache misses a core can have in flight.
const PREFETCH: usize = 16;

/// All restrictions, blocks, contacts and privacy settings.
pub struct PolicyIndex {
    salt: Salt,
    numbers: NumberSet,
    names: Interner,
    /// (user, blocked user)
    blocks: PairSet,
    /// (user, contact)
    contacts: PairSet,
    /// The hash of every user with flags, and of every pair of which one blocked the other.
    filter: ShardedFilter,
    restricted_by_name: u64,
}

/// The sizes of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Restricted accounts.
    pub restricted: u64,
    /// Blocks.
    pub blocks: u64,
    /// Contacts.
    pub contacts: u64,
    /// Interned users: in a pair, restricted by name, or with a privacy setting.
    pub users: u64,
}

/// The viewer of a batch.
struct Viewer<'a> {
    name: &'a str,
    hash: u64,
    /// Looked up when needed, which most batches never do. `None` if the viewer is not interned.
    handle: OnceCell<Option<Handle>>,
}

/// What has to be looked up for one subject.
struct Lookup<'a> {
    subject: &'a str,
    number: Option<u32>,
    /// The hash of the subject, and of the subject with the viewer.
    alone: u64,
    paired: u64,
}

impl PolicyIndex {
    /// An empty index. The salt must be secret: clients choose ids, and could choose them to collide.
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

    /// Applies a change. Applying it again does nothing.
    pub fn apply(&mut self, change: &PolicyChange) {
        match change {
            PolicyChange::Restrict(user) => self.restrict(user, true),
            PolicyChange::Unrestrict(user) => self.restrict(user, false),
            PolicyChange::RestrictMany(numbers) => self.numbers.insert_many(numbers),
            PolicyChange::UnrestrictMany(numbers) => self.numbers.remove_many(numbers),
            PolicyChange::Block(one, other) => self.block(one, other),
            PolicyChange::Unblock(one, other) => self.unblock(one, other),
            PolicyChange::AddContact(one, other) => self.add_contact(one, other),
            PolicyChange::RemoveContact(one, other) => self.remove_contact(one, other),
            PolicyChange::SetPrivacy(user, privacy) => self.set_flags(user, |flags| flags.with_privacy(*privacy)),
        }
    }

    /// Appends the verdict about each subject, in order. Users see themselves; no viewer means a service.
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

    /// The exact relation of a viewer to a subject. Without a viewer there are no blocks and no contacts.
    pub fn relation(&self, viewer: Option<&str>, subject: &str) -> Relation {
        let restricted = number_of(subject).is_some_and(|number| self.numbers.contains(number));
        let hash = self.salt.text(subject);
        let Some(handle) = self.names.find(hash, subject) else {
            return Relation { restricted, ..Relation::default() };
        };
        let flags = self.names.flags(handle);
        let pair = viewer.and_then(|name| self.pair_of(&self.viewer(name), hash, handle));
        Relation {
            restricted: restricted || flags.restricted(),
            blocked: pair.is_some_and(|(shard, pair)| self.blocks.contains_either(shard, pair)),
            contact: pair.is_some_and(|(shard, pair)| self.contacts.contains(shard, pair)),
            privacy: flags.privacy(),
        }
    }

    /// The bytes that the index takes, without the allocator's overhead.
    pub fn bytes(&self) -> u64 {
        self.numbers.bytes() + self.names.bytes() + self.blocks.bytes() + self.contacts.bytes() + self.filter.bytes()
    }

    /// The sizes of the index.
    pub fn counts(&self) -> Counts {
        Counts {
            restricted: self.numbers.len() + self.restricted_by_name,
            blocks: self.blocks.len(),
            contacts: self.contacts.len(),
            users: self.names.len(),
        }
    }

    /// The size of the filter.
    pub fn filter_stats(&self) -> FilterStats {
        self.filter.stats()
    }

    fn viewer<'a>(&self, name: &'a str) -> Viewer<'a> {
        Viewer { name, hash: self.salt.text(name), handle: OnceCell::new() }
    }

    /// The shard and the pair of a viewer and a subject.
    fn pair_of(&self, viewer: &Viewer<'_>, hash: u64, subject: Handle) -> Option<(usize, (Handle, Handle))> {
        let viewer_handle = (*viewer.handle.get_or_init(|| self.names.find(viewer.hash, viewer.name)))?;
        Some((shard_of(pair(viewer.hash, hash)), (subject, viewer_handle)))
    }

    /// Checks a few subjects at a time: first touches the memory that each lookup needs, so that the cache misses overlap.
    fn check_all_for<'a>(
        &self,
        viewer: &Viewer<'_>,
        mut subjects: impl Iterator<Item = &'a str>,
        verdicts: &mut Vec<Verdict>,
    ) {
        let mut lookups = Vec::with_capacity(subjects.size_hint().0.min(PREFETCH));
        loop {
            lookups.clear();
            lookups.extend(subjects.by_ref().take(PREFETCH).map(|subject| self.lookup(viewer, subject)));
            if lookups.is_empty() {
                return;
            }
            let prefetch = |lookup: &Lookup<'_>| {
                let number = lookup.number.map_or(0, |number| self.numbers.prefetch(number));
                number ^ self.filter.prefetch(lookup.alone) ^ self.filter.prefetch(lookup.paired)
            };
            black_box(lookups.iter().map(prefetch).fold(0, |all, one| all ^ one));
            verdicts.extend(lookups.iter().map(|lookup| self.check_for(viewer, lookup)));
        }
    }

    #[inline]
    fn lookup<'a>(&self, viewer: &Viewer<'_>, subject: &'a str) -> Lookup<'a> {
        let alone = self.salt.text(subject);
        Lookup { subject, number: number_of(subject), alone, paired: pair(viewer.hash, alone) }
    }

    #[inline]
    fn check_for(&self, viewer: &Viewer<'_>, lookup: &Lookup<'_>) -> Verdict {
        // Whether the viewer is the subject matters only where something would be hidden.
        if lookup.number.is_some_and(|number| self.numbers.contains(number)) {
            let itself = lookup.subject == viewer.name;
            return Relation { restricted: !itself, ..Relation::default() }.verdict();
        }
        // Both at once, so that the second lookup does not wait for the first.
        let (alone, paired) = (self.filter.may_contain(lookup.alone), self.filter.may_contain(lookup.paired));
        if !(alone | paired) {
            return Verdict::OPEN;
        }
        self.check_exactly(viewer, lookup.subject, lookup.alone, paired)
    }

    /// After a hit in the filter. Blocks are looked up only if the pair was the hit, and contacts only if the subject's privacy
    /// depends on them.
    #[cold]
    fn check_exactly(&self, viewer: &Viewer<'_>, subject: &str, hash: u64, paired: bool) -> Verdict {
        if subject == viewer.name {
            return Verdict::OPEN;
        }
        let Some(handle) = self.names.find(hash, subject) else { return Verdict::OPEN };
        let flags = self.names.flags(handle);
        let privacy = flags.privacy();
        let needs_contact = privacy.presence == Audience::Contacts || privacy.last_seen == Audience::Contacts;
        let pair = if paired || needs_contact { self.pair_of(viewer, hash, handle) } else { None };
        Relation {
            restricted: flags.restricted(),
            blocked: paired && pair.is_some_and(|(shard, pair)| self.blocks.contains_either(shard, pair)),
            contact: needs_contact && pair.is_some_and(|(shard, pair)| self.contacts.contains(shard, pair)),
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
                    && self.names.find(hash, subject).is_some_and(|found| self.names.flags(found).restricted())
            }
        };
        Relation { restricted, ..Relation::default() }.verdict_for_service()
    }

    fn restrict(&mut self, user: &UserId, restricted: bool) {
        match (number_of(user.as_str()), restricted) {
            (Some(number), true) => self.numbers.insert(number),
            (Some(number), false) => self.numbers.remove(number),
            (None, _) => self.set_flags(user, |flags| flags.with_restricted(restricted)),
        }
    }

    fn set_flags(&mut self, user: &UserId, change: impl FnOnce(UserFlags) -> UserFlags) {
        let hash = self.salt.text(user.as_str());
        let found = self.names.find(hash, user.as_str());
        let before = found.map_or_else(UserFlags::default, |handle| self.names.flags(handle));
        let after = change(before);
        if after == before {
            return;
        }
        let Some(handle) = found.or_else(|| self.names.intern(hash, user.as_str())) else { return };
        self.names.set_flags(handle, after);
        self.restricted_by_name += u64::from(after.restricted());
        self.restricted_by_name -= u64::from(before.restricted());
        let upkeep = match (before.is_default(), after.is_default()) {
            (true, false) => self.filter.add(hash),
            (false, true) => self.filter.remove(hash),
            (true, true) | (false, false) => Upkeep::None,
        };
        self.maintain(upkeep);
    }

    fn block(&mut self, one: &UserId, other: &UserId) {
        let Some((key, two)) = self.intern(one, other) else { return };
        let known = self.blocks.contains_either(shard_of(key), two);
        if self.blocks.insert(shard_of(key), two) {
            self.hold(two);
            if !known {
                let upkeep = self.filter.add(key);
                self.maintain(upkeep);
            }
        }
    }

    fn unblock(&mut self, one: &UserId, other: &UserId) {
        let Some((key, two)) = self.find(one, other) else { return };
        if self.blocks.remove(shard_of(key), two) {
            if !self.blocks.contains_either(shard_of(key), two) {
                let upkeep = self.filter.remove(key);
                self.maintain(upkeep);
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

    /// The hash of a pair and both handles, if both users are interned.
    fn find(&self, one: &UserId, other: &UserId) -> Option<(u64, (Handle, Handle))> {
        let hashes = (self.salt.text(one.as_str()), self.salt.text(other.as_str()));
        let two = (self.names.find(hashes.0, one.as_str())?, self.names.find(hashes.1, other.as_str())?);
        Some((pair(hashes.0, hashes.1), two))
    }

    /// The hash of a pair and both handles; interns both users. `None` if there is no room.
    fn intern(&mut self, one: &UserId, other: &UserId) -> Option<(u64, (Handle, Handle))> {
        let hashes = (self.salt.text(one.as_str()), self.salt.text(other.as_str()));
        let first = self.names.intern(hashes.0, one.as_str())?;
        let second = self.names.intern(hashes.1, other.as_str());
        if second.is_none() {
            self.names.set_flags(first, self.names.flags(first));
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

    fn maintain(&mut self, upkeep: Upkeep) {
        match upkeep {
            Upkeep::None => {}
            Upkeep::Rebuild(shard) => {
                let hash_of = |who| self.names.hash_of(who);
                let blocked = self.blocks.iter(shard).map(|(one, other)| pair(hash_of(one), hash_of(other)));
                self.filter.rebuild(shard, self.names.flagged(shard).chain(blocked));
            }
        }
    }
}

impl fmt::Debug for PolicyIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyIndex")
            .field("counts", &self.counts())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
