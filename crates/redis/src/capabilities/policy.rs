//! Policy: relations and changes. A change is one script, which also appends it to the log and publishes a hint.

use std::borrow::Cow;

use rollcall_core::policy::{MAX_LISTED, MAX_SUBJECTS, PolicyChange, Relation, number_of};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, OwnSettings, Policy, PolicyPage};

use super::{MAX_BATCH, RedisStore, bounded};
use crate::keyspace::{
    ChangeKey, Changed, Keyspace, Logging, decode_blocks, decode_changed, decode_restricted, decode_settings,
    decode_subject_side,
};
use crate::transport::{Batch, Transport, piece, pieces};

/// How many of a viewer's blocks one command asks for: few enough that a command never keeps the server busy for long.
const BLOCKS_AT_ONCE: usize = 512;

impl<T: Transport> Policy for RedisStore<T> {
    async fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Relation>, Error> {
        self.relations_of(viewer.as_ref().map(UserId::as_str), &subjects).await
    }

    /// Reads the user's whole bucket, including the settings of other users in it: 1/4,096 of all policy. That is for a
    /// settings page, not for a hot path.
    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error> {
        let (keys, mut batch) = (self.keys(), Batch::with_capacity(1, 1));
        let bucket = keys.bucket_of(user.as_str());
        batch.add("", keys.group_of_bucket(bucket), |to| keys.bucket(to, bucket));
        let replies = self.transport.run(batch).await;
        let values = replies.items().next().unwrap_or(Ok(&[]))?;
        self.read(decode_settings(pieces(values), user.as_str()))
    }

    async fn snapshot(&self, page: u32) -> Result<PolicyPage, Error> {
        self.page(page).await
    }

    async fn since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        self.follow(cursor, limit).await
    }

    async fn apply_many(&self, changes: Vec<PolicyChange>) -> Result<Vec<Result<(), Error>>, Error> {
        bounded(changes.len(), MAX_BATCH)?;
        let (keys, now) = (self.keys(), self.transport.now().await?);
        let logging = Logging { now_us: now.us, most: self.policy_log, publishing: self.transport.publishing() };
        let about: Vec<(u32, Cow<'_, str>)> = changes.iter().map(|change| about(keys, change)).collect();
        let mut batch = Batch::decided_at(now, changes.len(), changes.len());
        // A policy change must survive the loss of a master.
        batch.wants_replica = true;
        for (change, (group, about)) in changes.iter().zip(&about) {
            batch.add(about, *group, |to| keys.change(to, change, logging));
        }
        let replies = self.transport.run(batch).await;
        Ok(replies.items().map(|item| self.changed(item?)).collect())
    }
}

impl<T: Transport> RedisStore<T> {
    async fn relations_of(&self, viewer: Option<&str>, subjects: &Ids<UserId>) -> Result<Vec<Relation>, Error> {
        bounded(subjects.len(), MAX_SUBJECTS)?;
        let (keys, names) = (self.keys(), subjects.iter().collect::<Vec<&str>>());
        let mut batch = Batch::with_capacity(names.len(), names.len());
        for &subject in &names {
            batch.add("", keys.group_of(ChangeKey::User(subject)), |to| keys.read_subject_side(to, viewer, subject));
        }
        for number in names.iter().copied().filter_map(number_of) {
            batch.add("", keys.group_of(ChangeKey::Page(number >> 16)), |to| keys.is_restricted(to, number));
        }
        if let Some(viewer) = viewer {
            let group = keys.group_of(ChangeKey::User(viewer));
            for part in names.chunks(BLOCKS_AT_ONCE) {
                batch.add("", group, |to| keys.which_blocked(to, viewer, part.iter().copied()));
            }
        }
        let replies = self.transport.run(batch).await;
        let mut items = replies.items();
        let mut relations = Vec::with_capacity(names.len());
        for item in items.by_ref().take(names.len()) {
            relations.push(self.read(decode_subject_side(pieces(item?)))?);
        }
        let numbered = names.iter().zip(&mut relations).filter(|(name, _)| number_of(name).is_some());
        for ((_, relation), item) in numbered.zip(items.by_ref()) {
            relation.restricted |= self.read(decode_restricted(piece(item?)))?;
        }
        for (part, item) in relations.chunks_mut(BLOCKS_AT_ONCE).zip(items) {
            let blocks = decode_blocks(pieces(item?));
            part.iter_mut().zip(blocks).for_each(|(relation, is_blocked)| relation.blocked |= is_blocked);
        }
        Ok(relations)
    }

    fn changed(&self, values: &[T::Reply]) -> Result<(), Error> {
        match self.read(decode_changed(piece(values)))? {
            Changed::Applied | Changed::Already => Ok(()),
            Changed::TooMany => Err(Error::TooMany(MAX_LISTED as u32)),
        }
    }
}

/// The group of a change, and the name under which changes keep their order. If a page has the number of a user, their
/// changes are ordered with each other too, which does no harm.
fn about<'a>(keys: &Keyspace, change: &'a PolicyChange) -> (u32, Cow<'a, str>) {
    let key = ChangeKey::of(change);
    let name = match key {
        ChangeKey::User(user) => Cow::Borrowed(user),
        ChangeKey::Page(page) => Cow::Owned(page.to_string()),
    };
    (keys.group_of(key), name)
}
