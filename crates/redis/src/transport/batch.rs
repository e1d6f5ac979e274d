//! A batch of commands, and the replies to it. Each item fails alone.
//!
//! Items about the same user keep their order. If one has to be sent again, because the server lost a script or the
//! slot moved, everything later about that user is sent again after it. Sending twice is safe: a touch overwrites
//! itself, and a commit finds whether it was applied.

#![cfg_attr(not(feature = "native"), allow(dead_code, reason = "only the native transport routes by shard"))]

use std::collections::HashSet;
use std::ops::Range;

use rollcall_core::{Error, Moment, Time};

use super::probed_time::Failure;
use crate::keyspace::{Commands, Piece};

/// After how long a caller may retry: a reconnection takes a few tenths of a second.
pub const RETRY_MS: u32 = 500;

/// Items under this name keep their order among each other.
pub(crate) const IN_ORDER: &str = "in order";

/// Commands, grouped into items.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    pub(crate) commands: Commands,
    pub(crate) items: Vec<Item<'a>>,
    /// When the commands were decided on; `None` if they do not depend on the time.
    pub(crate) decided_at: Option<Now>,
    /// The item that is the transport's own time probe.
    pub(crate) probe: Option<usize>,
    /// The failure that the time probe reports.
    pub(crate) reported: Option<Failure>,
    /// The caller needs [`Replies::moment`].
    pub(crate) wants_moment: bool,
    /// The caller waits until a replica has the writes, if there is a replica.
    pub(crate) wants_replica: bool,
}

/// One item: its commands go to one shard.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    /// What it is about; items of the same name keep their order. If it is empty, there is no order.
    pub(crate) about: &'a str,
    pub(crate) shard: u32,
    pub(crate) commands: Range<usize>,
}

/// An instant of the store's clock. One serves a whole batch, because reading the clock may be a call of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds on Redis's clock.
    pub us: u64,
    /// The same instant on the transport's own clock.
    pub(crate) ticks_us: u64,
}

impl Now {
    /// The same in milliseconds.
    pub fn time(self) -> Time {
        Time(self.us / 1000)
    }
}

impl<'a> Batch<'a> {
    /// An empty batch with room for this many.
    pub fn with_capacity(items: usize, commands: usize) -> Self {
        // One more of each for a time probe.
        let (commands, items) = (Commands::with_capacity(commands + 1), Vec::with_capacity(items + 1));
        Self { commands, items, ..Self::default() }
    }

    /// An empty batch whose commands were decided on at this instant.
    pub fn decided_at(now: Now, items: usize, commands: usize) -> Self {
        Self { decided_at: Some(now), ..Self::with_capacity(items, commands) }
    }

    /// Adds an item: the commands that `add` adds.
    pub fn add<T>(&mut self, about: &'a str, shard: u32, add: impl FnOnce(&mut Commands) -> T) -> T {
        let start = self.commands.len();
        let added = add(&mut self.commands);
        self.items.push(Item { about, shard, commands: start..self.commands.len() });
        added
    }

    /// Adds a read. If the batch begins with a time probe, the two are sent again together.
    pub fn read<T>(&mut self, shard: u32, add: impl FnOnce(&mut Commands) -> T) -> T {
        self.add(if self.probe.is_some() { IN_ORDER } else { "" }, shard, add)
    }

    /// The item that a command belongs to.
    pub(crate) fn item_of(&self, command: usize) -> usize {
        self.items.partition_point(|item| item.commands.end <= command)
    }

    /// The commands to send again, each with its item: from an item's first failed command on, and everything later
    /// about the same user. Items that failed for good are left out.
    pub(crate) fn repeat<R>(
        &self,
        is_failed: impl Fn(usize) -> bool,
        replies: &Replies<R>,
    ) -> impl Iterator<Item = (usize, usize)> {
        let (mut repeated, mut commands) = (HashSet::new(), Vec::new());
        for (index, (item, outcome)) in self.items.iter().zip(&replies.items).enumerate() {
            let mut range = item.commands.clone();
            let first = match repeated.contains(item.about) {
                true => range.next(),
                false => range.find(|command| is_failed(*command)),
            };
            if let (Some(first), Ok(_)) = (first, outcome) {
                commands.extend((first..item.commands.end).map(|command| (index, command)));
                if !item.about.is_empty() {
                    repeated.insert(item.about);
                }
            }
        }
        commands.into_iter()
    }
}

/// A reply to one command, as a client library provides it.
pub trait Reply: Clone {
    /// No reply.
    fn nil() -> Self;
    /// Its pieces: a nested array is its pieces in order.
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>>;
    /// Its only piece.
    fn piece(&self) -> Piece<'_>;
}

/// The replies to a batch.
#[derive(Debug)]
pub struct Replies<R> {
    pub(crate) values: Vec<R>,
    pub(crate) items: Vec<Result<Range<usize>, Error>>,
    pub(crate) probe: Option<usize>,
    pub(crate) moment: Option<Moment>,
}

impl<R: Reply> Replies<R> {
    /// No replies yet.
    pub(crate) fn to(batch: &Batch<'_>) -> Self {
        Self {
            values: (0..batch.commands.len()).map(|_| R::nil()).collect(),
            items: batch.items.iter().map(|item| Ok(item.commands.clone())).collect(),
            probe: batch.probe,
            moment: None,
        }
    }

    /// The replies of each item, in order, without the time probe.
    pub fn items(&self) -> impl Iterator<Item = Result<&[R], Error>> {
        let items = self.items.iter().enumerate().filter(|(index, _)| Some(*index) != self.probe);
        items.map(|(_, item)| match item {
            Ok(range) => Ok(self.values.get(range.clone()).unwrap_or_default()),
            Err(error) => Err(error.clone()),
        })
    }

    /// The instant before anything was read, with the outage grace in force after it.
    pub fn moment(&self) -> Result<Moment, Error> {
        match (self.moment, self.probe.and_then(|probe| self.items.get(probe))) {
            (Some(moment), _) => Ok(moment),
            (None, Some(Err(error))) => Err(error.clone()),
            (None, _) => Err(Error::Unavailable(RETRY_MS)),
        }
    }

    pub(crate) fn fail(&mut self, item: usize, error: Error) {
        if let Some(place) = self.items.get_mut(item) {
            *place = Err(error);
        }
    }

    pub(crate) fn keep(&mut self, command: usize, value: R) {
        if let Some(place) = self.values.get_mut(command) {
            *place = value;
        }
    }
}

/// All pieces of an item.
pub(crate) fn pieces<R: Reply>(values: &[R]) -> impl Iterator<Item = Piece<'_>> {
    values.iter().flat_map(Reply::pieces)
}

/// The only piece of an item of one command.
pub(crate) fn piece<R: Reply>(values: &[R]) -> Piece<'_> {
    values.first().map_or(Piece::Nil, Reply::piece)
}
