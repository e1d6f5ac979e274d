//! Who is due and who is to be retired, longest overdue first, over many shards.
//!
//! Every shard has its own sorted sets, so a page of each is read in one go and they are merged; a shard is asked for
//! more only while its last answer might still be among the first of all. That is exact, and a backlog of a million
//! does not travel for the sake of the first thousand.

use std::collections::HashMap;

use rollcall_core::{Error, Time, UserId};
use rollcall_functions::capabilities::Shards;
use rollcall_keyspace::{Key, decode_member_scores, decode_score};

use crate::batch::{Batch, pieces};
use crate::{Platform, Wire};

/// What a session can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agenda {
    /// To be settled.
    Settle,
    /// To be retired.
    Retire,
}

/// A page has at least so many: a round trip costs more than they do.
const MIN_PAGE: usize = 16;
/// And at most so many, so that no single answer holds up the server.
const MAX_PAGE: usize = 1024;

/// How many pages of those to be retired are looked through for somebody who beat since. Those are found here only if
/// their function died on the way; in any case their beat's own end finds them, so a backlog of the archive must not be
/// read to its end for every sweep.
const MAX_COLD_PAGES: usize = 4;

/// Which of a shard's sorted sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Due,
    Cold,
}

/// One sorted set of one shard, as far as it was read.
#[derive(Debug)]
struct Reading {
    shard: u32,
    set: Set,
    read: usize,
    pages_left: usize,
    /// The last instant that was read.
    last: Time,
}

/// A part of a sorted set.
struct Page {
    shard: u32,
    set: Set,
    members: Vec<(Time, UserId)>,
}

impl<W: Wire> Platform<W> {
    /// People of these shards whose time has come.
    pub(crate) async fn overdue(&self, agenda: Agenda, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        let limit = limit as usize;
        let end = shards.end.min(self.keys.shards());
        let mut readings: Vec<Reading> = (shards.first..end).flat_map(|shard| begin(agenda, shard)).collect();
        if readings.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let by = self.now().await?.time();
        let page = (limit.saturating_mul(2) / readings.len()).clamp(MIN_PAGE, MAX_PAGE);
        let mut found: HashMap<UserId, Time> = HashMap::new();
        while !readings.is_empty() {
            let pages = self.read_pages(&mut readings, by, page).await?;
            for (at, user) in self.filtered(agenda, pages).await? {
                let known = found.entry(user).or_insert(at);
                *known = at.min(*known);
            }
            let bar = bar(&found, limit);
            readings.retain(|reading| reading.pages_left > 0 && bar.is_none_or(|bar| reading.last < bar));
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_unstable_by(|(one, at), (other, then)| (at, one).cmp(&(then, other)));
        Ok(found.into_iter().take(limit).map(|(user, _)| user).collect())
    }

    /// The next page of each; whoever has no more is marked so.
    async fn read_pages(&self, readings: &mut [Reading], by: Time, page: usize) -> Result<Vec<Page>, Error> {
        let now = self.now().await?;
        let mut batch = Batch::with_capacity(readings.len(), readings.len());
        self.look_on_the_way(&mut batch, now);
        for reading in readings.iter() {
            batch.add("", |to| self.keys.passed(to, self.key(reading), by, reading.read, page));
        }
        let replies = self.run(&batch).await;
        let mut pages = Vec::with_capacity(readings.len());
        for (reading, item) in readings.iter_mut().zip(replies.items()) {
            let answer = item?.iter().flat_map(pieces);
            // Two pieces each; whoever is not a person is among them and not among the members.
            let (read, members) = (answer.clone().count() / 2, self.read(decode_member_scores(answer))?);
            reading.read += read;
            reading.pages_left = if read < page { 0 } else { reading.pages_left.saturating_sub(1) };
            reading.last = members.last().map_or(reading.last, |(at, _)| *at);
            pages.push(Page { shard: reading.shard, set: reading.set, members });
        }
        Ok(pages)
    }

    /// Those among them who are on this agenda. Whoever is both due and to be retired is due.
    async fn filtered(&self, agenda: Agenda, pages: Vec<Page>) -> Result<Vec<(Time, UserId)>, Error> {
        let (cold, due): (Vec<Page>, Vec<Page>) = pages.into_iter().partition(|page| page.set == Set::Cold);
        let mut kept: Vec<_> = due.into_iter().flat_map(|page| page.members).collect();
        let cold: Vec<Page> = cold.into_iter().filter(|page| !page.members.is_empty()).collect();
        let mut batch = Batch::with_capacity(cold.len(), cold.len());
        for page in &cold {
            let users = page.members.iter().map(|(_, user)| user.as_str());
            batch.add("", |to| self.keys.which_due(to, page.shard, users));
        }
        let replies = self.run(&batch).await;
        for (page, item) in cold.into_iter().zip(replies.items()) {
            let scores = item?.iter().flat_map(pieces);
            let is_due = scores.map(|score| decode_score(score).is_ok_and(|score| score.is_some()));
            let wanted =
                page.members.into_iter().zip(is_due).filter(|(_, is_due)| *is_due == (agenda == Agenda::Settle));
            kept.extend(wanted.map(|(member, _)| member));
        }
        Ok(kept)
    }

    fn key(&self, reading: &Reading) -> Key<'_> {
        match reading.set {
            Set::Due => self.keys.due(reading.shard),
            Set::Cold => self.keys.cold(reading.shard),
        }
    }
}

/// What has to be read of a shard.
fn begin(agenda: Agenda, shard: u32) -> impl Iterator<Item = Reading> {
    let reading = move |set, pages_left| Reading { shard, set, read: 0, pages_left, last: Time(0) };
    let readings = match agenda {
        Agenda::Settle => [Some(reading(Set::Due, usize::MAX)), Some(reading(Set::Cold, MAX_COLD_PAGES))],
        Agenda::Retire => [None, Some(reading(Set::Cold, usize::MAX))],
    };
    readings.into_iter().flatten()
}

/// The instant of the last among the first `limit`; none if there are not so many.
fn bar(found: &HashMap<UserId, Time>, limit: usize) -> Option<Time> {
    let mut instants: Vec<Time> = found.values().copied().collect();
    let last = limit.checked_sub(1).filter(|last| *last < instants.len())?;
    Some(*instants.select_nth_unstable(last).1)
}
