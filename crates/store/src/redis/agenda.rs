//! Who is due and who is to be retired, longest overdue first, over many shards.
//!
//! Every shard has its own sorted sets, so they are read side by side, a page of each, and merged; a shard is asked
//! for more only while its last answer might still be among the first of all. That is exact, and a backlog of a
//! million does not travel for the sake of the first thousand.

use std::collections::HashMap;

use rollcall_core::{Error, Span, Time, UserId};
use rollcall_functions::capabilities::Shards;
use rollcall_keyspace::{Key, decode_member_scores, decode_score};

use super::Inner;
use super::batch::{Batch, RETRY_MS, pieces};

/// What a session can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agenda {
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

/// Which of a shard's sorted sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Due,
    Cold,
}

impl Inner {
    /// People of these shards whose time came at least so long ago. On a Cluster whose masters are not all there, those
    /// of the others.
    pub(super) async fn overdue(
        &self,
        agenda: Agenda,
        shards: Shards,
        limit: u32,
        late_by: Span,
    ) -> Result<Vec<UserId>, Error> {
        let now = Time(self.around.time.now().0.saturating_sub(late_by.0));
        let limit = limit as usize;
        let end = shards.end.min(self.keys.shards());
        let mut readings: Vec<Reading> = (shards.first..end).flat_map(|shard| begin(agenda, shard)).collect();
        if readings.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let page = (limit.saturating_mul(2) / readings.len()).clamp(MIN_PAGE, MAX_PAGE);
        let mut found: HashMap<UserId, Time> = HashMap::new();
        let (mut answered, mut open) = (false, true);
        while open {
            let pages = self.read_pages(&mut readings, now, page).await;
            answered |= !pages.is_empty();
            for (at, user) in self.filtered(agenda, pages).await {
                let known = found.entry(user).or_insert(at);
                *known = at.min(*known);
            }
            let bar = bar(&found, limit);
            readings.retain(|reading| reading.pages_left > 0 && bar.is_none_or(|bar| reading.last < bar));
            open = !readings.is_empty();
        }
        if !answered {
            return Err(Error::Unavailable(RETRY_MS));
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_unstable_by(|(one, at), (other, then)| (at, one).cmp(&(then, other)));
        Ok(found.into_iter().take(limit).map(|(user, _)| user).collect())
    }

    /// The next page of each; whoever has no more, or does not answer, is marked so.
    async fn read_pages(&self, readings: &mut [Reading], now: Time, page: usize) -> Vec<Page> {
        let mut batch = Batch::with_capacity(readings.len(), readings.len());
        for reading in readings.iter() {
            let key = self.key(reading);
            batch.add("", reading.shard, |to| self.keys.passed(to, key, now, reading.read, page));
        }
        let replies = self.run(&batch).await;
        let mut pages = Vec::new();
        for (reading, item) in readings.iter_mut().zip(replies.items()) {
            let members = item.ok().and_then(|values| decode_member_scores(pieces(values.first()?)).ok());
            let Some(members) = members else {
                reading.pages_left = 0;
                continue;
            };
            reading.read += page;
            reading.pages_left = if members.len() < page { 0 } else { reading.pages_left.saturating_sub(1) };
            reading.last = members.last().map_or(reading.last, |(at, _)| *at);
            pages.push(Page { shard: reading.shard, set: reading.set, members });
        }
        pages
    }

    /// Those among them who are on this agenda. Whoever is both due and to be retired is due.
    async fn filtered(&self, agenda: Agenda, pages: Vec<Page>) -> Vec<(Time, UserId)> {
        let (cold, due): (Vec<Page>, Vec<Page>) = pages.into_iter().partition(|page| page.set == Set::Cold);
        let mut kept: Vec<_> = due.into_iter().flat_map(|page| page.members).collect();
        let cold: Vec<Page> = cold.into_iter().filter(|page| !page.members.is_empty()).collect();
        if cold.is_empty() {
            return kept;
        }
        let mut batch = Batch::with_capacity(cold.len(), cold.len());
        for page in &cold {
            let users = page.members.iter().map(|(_, user)| user.as_str());
            batch.add("", page.shard, |to| self.keys.which_due(to, page.shard, users));
        }
        let replies = self.run(&batch).await;
        for (page, item) in cold.into_iter().zip(replies.items()) {
            // Whose server was lost in between are found the next time.
            let Some(scores) = item.ok().and_then(|values| values.first()) else { continue };
            let is_due = pieces(scores).map(|score| decode_score(score).is_ok_and(|score| score.is_some()));
            let wanted =
                page.members.into_iter().zip(is_due).filter(|(_, is_due)| *is_due == (agenda == Agenda::Settle));
            kept.extend(wanted.map(|(member, _)| member));
        }
        kept
    }

    fn key(&self, reading: &Reading) -> Key<'_> {
        match reading.set {
            Set::Due => self.keys.due(reading.shard),
            Set::Cold => self.keys.cold(reading.shard),
        }
    }
}

/// A part of a sorted set.
struct Page {
    shard: u32,
    set: Set,
    members: Vec<(Time, UserId)>,
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
