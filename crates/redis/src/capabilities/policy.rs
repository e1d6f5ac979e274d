//! Who may see whom: asking, and changes. A change is one script, which also logs it and tells that there is something in
//! the log.
//!
//! Deliberately absent: a cache, which belongs to whoever reads.

use std::borrow::Cow;

use crate::keyspace::{
    Changed, Logging, Publishing, Whose, decode_blocks, decode_changed, decode_restricted, decode_settings,
    decode_standing,
};
use rollcall_core::policy::{Change, MAX_LISTED, MAX_SUBJECTS, Relation, number_of};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{Cursor, Followed, OwnSettings, Page, Policy};

use super::batch::{Batch, Value, piece, pieces};
use super::{Platform, Wire, bounded};

/// How many of a viewer's blocks are asked for by one command: few enough that the server is never busy with one for
/// long.
const BLOCKS_AT_ONCE: usize = 512;

impl<W: Wire> Policy for Platform<W> {
    async fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Relation>, Error> {
        self.relations_of(viewer.as_ref().map(UserId::as_str), &subjects).await
    }

    /// Reads the person's whole bucket, with the settings of everybody else in it: one part in 4,096 of all that
    /// anybody set. That is for a page on which somebody sees their own settings, not for a hot path.
    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error> {
        let mut batch = Batch::with_capacity(1, 1);
        batch.add("", |to| self.keys.bucket(to, self.keys.bucket_of(user.as_str())));
        let replies = self.run(&batch).await;
        let values = replies.items().next().unwrap_or(Ok(&[]))?;
        self.read(decode_settings(values.iter().flat_map(pieces), user.as_str()))
    }

    async fn snapshot(&self, page: u32) -> Result<Page, Error> {
        self.page(page).await
    }

    async fn since(&self, cursor: Cursor, limit: u32) -> Result<Followed, Error> {
        self.follow(cursor, limit).await
    }

    async fn apply_many(&self, changes: Vec<Change>) -> Result<Vec<Result<(), Error>>, Error> {
        bounded(&changes)?;
        let now = self.now().await?;
        let logging = Logging { now_us: now.us, most: self.policy_log, publishing: Publishing::Plain };
        let about: Vec<Cow<'_, str>> = changes.iter().map(about).collect();
        let mut batch = Batch::with_capacity(changes.len(), changes.len());
        for (change, who) in changes.iter().zip(&about) {
            batch.add(who, |to| self.keys.change(to, change, logging));
        }
        self.look_on_the_way(&mut batch, now);
        let replies = self.run(&batch).await;
        Ok(replies.items().map(|item| self.changed(item?)).collect())
    }
}

impl<W: Wire> Platform<W> {
    async fn relations_of(&self, viewer: Option<&str>, subjects: &Ids<UserId>) -> Result<Vec<Relation>, Error> {
        if subjects.len() > MAX_SUBJECTS {
            return Err(Error::TooMany(MAX_SUBJECTS as u32));
        }
        let names: Vec<&str> = subjects.iter().collect();
        let mut batch = Batch::with_capacity(names.len(), names.len());
        for subject in &names {
            batch.add("", |to| self.keys.standing(to, viewer, subject));
        }
        for number in names.iter().copied().filter_map(number_of) {
            batch.add("", |to| self.keys.is_restricted(to, number));
        }
        if let Some(viewer) = viewer {
            for part in names.chunks(BLOCKS_AT_ONCE) {
                batch.add("", |to| self.keys.which_blocked(to, viewer, part.iter().copied()));
            }
        }
        let replies = self.run(&batch).await;
        let mut items = replies.items();
        let mut relations = Vec::with_capacity(names.len());
        for item in items.by_ref().take(names.len()) {
            relations.push(self.read(decode_standing(item?.iter().flat_map(pieces)))?);
        }
        let numbered = names.iter().zip(&mut relations).filter(|(name, _)| number_of(name).is_some());
        for ((_, relation), item) in numbered.zip(items.by_ref()) {
            relation.restricted |= self.read(decode_restricted(piece(item?)))?;
        }
        for (part, item) in relations.chunks_mut(BLOCKS_AT_ONCE).zip(items) {
            let blocks = decode_blocks(item?.iter().flat_map(pieces));
            part.iter_mut().zip(blocks).for_each(|(relation, is_blocked)| relation.blocked |= is_blocked);
        }
        Ok(relations)
    }

    fn changed(&self, values: &[Value]) -> Result<(), Error> {
        match self.read(decode_changed(piece(values)))? {
            Changed::Applied | Changed::Already => Ok(()),
            Changed::TooMany => Err(Error::TooMany(MAX_LISTED as u32)),
        }
    }
}

/// What other changes a change keeps its order with. A page can have the number of a person: then they keep their order
/// too, which does no harm.
fn about(change: &Change) -> Cow<'_, str> {
    match Whose::of(change) {
        Whose::Person(user) => Cow::Borrowed(user),
        Whose::Page(page) => Cow::Owned(page.to_string()),
    }
}
