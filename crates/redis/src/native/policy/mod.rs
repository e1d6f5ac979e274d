//! Who may see whom, in Redis: see `docs/KEYSPACE.md` for what is kept.
//!
//! A change is one script, which also logs it and tells that there is something in the log. Whoever holds everything in
//! memory reads a snapshot and then follows the logs; whoever holds nothing asks, which is one round trip per master.
//!
//! Deliberately absent: a cache, which belongs to whoever reads.

mod following;
mod stirring;
mod witness;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::keyspace::{
    Changed, Garbled, Logging, Whose, decode_blocks, decode_changed, decode_restricted, decode_settings,
    decode_standing,
};
use redis::Value;
use rollcall_core::policy::{Change, MAX_LISTED, MAX_SUBJECTS, Relation, number_of};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{Cursor, Followed, OwnSettings, Page};
use tokio::sync::watch;

use super::batch::{Batch, piece, pieces};
use super::{Inner, Redis, bounded};
use rollcall_store::{Answer, Policies};

pub(super) use stirring::Stirring;
pub(super) use witness::Witnesses;

/// How many of a viewer's blocks are asked for by one command: few enough that the server is never busy with one for
/// long.
const BLOCKS_AT_ONCE: usize = 512;

impl Policies for Redis {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Answer<'_, Vec<Relation>> {
        Box::pin(async move { self.inner.relations(viewer.as_ref().map(UserId::as_str), &subjects).await })
    }
    fn settings_of(&self, user: UserId) -> Answer<'_, OwnSettings> {
        Box::pin(async move { self.inner.settings_of(user.as_str()).await })
    }
    fn snapshot(&self, page: u32) -> Answer<'_, Page> {
        Box::pin(self.inner.snapshot(page))
    }
    fn since(&self, cursor: Cursor, limit: u32) -> Answer<'_, Followed> {
        Box::pin(self.inner.since(cursor, limit))
    }
    fn apply_many(&self, changes: Vec<Change>) -> Answer<'_, Vec<Result<(), Error>>> {
        Box::pin(async move {
            let outcomes = self.inner.apply(&changes).await?;
            self.stirring.invalidation();
            Ok(outcomes)
        })
    }
    fn invalidated(&self) -> watch::Receiver<u64> {
        self.stirring.listen(&self.inner)
    }
}

impl Inner {
    async fn relations(&self, viewer: Option<&str>, subjects: &Ids<UserId>) -> Result<Vec<Relation>, Error> {
        if subjects.len() > MAX_SUBJECTS {
            return Err(Error::TooMany(MAX_SUBJECTS as u32));
        }
        let keys = &self.keys;
        let mut batch = Batch::with_capacity(subjects.len(), subjects.len());
        for subject in subjects.iter() {
            let group = keys.group_of(Whose::Person(subject));
            batch.add("", group, |to| keys.standing(to, viewer, subject));
        }
        for number in subjects.iter().filter_map(number_of) {
            batch.add("", keys.group_of(Whose::Page(number >> 16)), |to| keys.is_restricted(to, number));
        }
        let names: Vec<&str> = subjects.iter().collect();
        for (viewer, part) in
            viewer.into_iter().flat_map(|viewer| names.chunks(BLOCKS_AT_ONCE).map(move |part| (viewer, part)))
        {
            let group = keys.group_of(Whose::Person(viewer));
            batch.add("", group, |to| keys.which_blocked(to, viewer, part.iter().copied()));
        }
        let replies = self.run(&batch).await;
        let mut items = replies.items().map(|item| item?.first().ok_or_else(|| self.garbled(&Garbled("a reply"))));
        let mut relations = Vec::with_capacity(names.len());
        for value in items.by_ref().take(names.len()) {
            relations.push(decode_standing(pieces(value?)).map_err(|error| self.garbled(&error))?);
        }
        let numbered = names.iter().zip(&mut relations).filter(|(name, _)| number_of(name).is_some());
        for ((_, relation), value) in numbered.zip(items.by_ref()) {
            relation.restricted |= decode_restricted(piece(value?)).map_err(|error| self.garbled(&error))?;
        }
        for (part, value) in relations.chunks_mut(BLOCKS_AT_ONCE).zip(items) {
            let blocks = decode_blocks(pieces(value?));
            part.iter_mut().zip(blocks).for_each(|(relation, is_blocked)| relation.blocked |= is_blocked);
        }
        Ok(relations)
    }

    /// Reads the person's whole bucket, with the settings of everybody else in it: one part in 4,096 of all that
    /// anybody set. That is for a page on which somebody sees their own settings, not for a hot path.
    async fn settings_of(&self, user: &str) -> Result<OwnSettings, Error> {
        let mut batch = Batch::with_capacity(1, 1);
        let bucket = self.keys.bucket_of(user);
        batch.add(user, self.keys.group_of_bucket(bucket), |to| self.keys.bucket(to, bucket));
        let replies = self.run(&batch).await;
        let values = replies.items().next().unwrap_or(Ok(&[]))?;
        decode_settings(values.iter().flat_map(pieces), user).map_err(|error| self.garbled(&error))
    }

    async fn apply(&self, changes: &[Change]) -> Result<Vec<Result<(), Error>>, Error> {
        bounded(changes)?;
        // Whoever has the slots now answers for what is written to them: not one who takes over in between.
        let topology = self.fleet.topology();
        let logging =
            Logging { now_us: self.around.time.now_us(), most: self.policy_log, publishing: self.publishing() };
        let about: Vec<(u32, Cow<'_, str>)> = changes.iter().map(|change| self.about(change)).collect();
        let mut batch = Batch::with_capacity(changes.len(), changes.len());
        for (change, (group, who)) in changes.iter().zip(&about) {
            batch.add(who, *group, |to| self.keys.change(to, change, logging));
        }
        let replies = self.run(&batch).await;
        let outcomes: Vec<Result<(), Error>> = replies.items().map(|item| self.changed(item?)).collect();
        let written: BTreeSet<u32> =
            about.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()).map(|((group, _), _)| *group).collect();
        self.bear_witness(&topology, &written).await;
        Ok(outcomes)
    }

    /// The group of a change, and what other changes it keeps its order with.
    fn about<'a>(&self, change: &'a Change) -> (u32, Cow<'a, str>) {
        let whose = Whose::of(change);
        let who = match whose {
            Whose::Person(user) => Cow::Borrowed(user),
            Whose::Page(page) => Cow::Owned(page.to_string()),
        };
        (self.keys.group_of(whose), who)
    }

    fn changed(&self, values: &[Value]) -> Result<(), Error> {
        let changed = values.first().map_or(Err(Garbled("a reply")), |value| decode_changed(piece(value)));
        match changed.map_err(|error| self.garbled(&error))? {
            Changed::Applied | Changed::Already => Ok(()),
            Changed::TooMany => Err(Error::TooMany(MAX_LISTED as u32)),
        }
    }
}
