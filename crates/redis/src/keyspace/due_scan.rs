//! Finds users who are due or can be evicted, the earliest first, over many shards.
//!
//! Every shard has its own sorted sets. They are read side by side, a page of each, and merged; another page of a shard
//! is read only while it could still contain one of the first. That is exact, and a backlog of a million users is not
//! transferred to find the first thousand.
//!
//! The caller sends the [requests](DueScan::requests) and passes in the [answers](DueScan::answer), until there are no
//! more requests.

use std::collections::HashMap;

use rollcall_core::{Time, UserId};
use rollcall_functions::capabilities::Shards;

use crate::keyspace::command::Commands;
use crate::keyspace::keys::{Key, Keyspace};
use crate::keyspace::queues::{decode_member_scores, decode_score};
use crate::keyspace::reply::{BadReply, Piece};

/// What a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// The due queue.
    Due,
    /// The archive queue.
    Archive,
}

/// The smallest page: a round trip costs more than this many members.
const MIN_PAGE: usize = 16;
/// The largest page, so that no single reply keeps the server busy.
const MAX_PAGE: usize = 1024;

/// How many pages of the archive queue are searched for users who beat since. Such users are found here only if their
/// function died half-way, and the end of their beat finds them anyway; so a sweep must not read a backlog of the
/// archive queue to its end.
const MAX_ARCHIVE_PAGES: usize = 4;

/// A scan and what it has found so far.
#[derive(Debug)]
pub struct DueScan {
    queue: Queue,
    by: Time,
    limit: usize,
    page: usize,
    readings: Vec<Reading>,
    is_checking: bool,
    found: HashMap<UserId, Time>,
}

/// How far one sorted set of one shard has been read.
#[derive(Debug)]
struct Reading {
    shard: u32,
    set: Set,
    read: usize,
    pages_left: usize,
    /// The last instant read.
    last: Time,
    /// The members of the last page while it is not known whether they belong to the queue.
    unchecked: Vec<(Time, UserId)>,
}

/// Which of a shard's sorted sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Due,
    Archive,
}

/// A request to one shard.
#[derive(Debug)]
pub struct PageRequest<'a> {
    of: &'a DueScan,
    reading: &'a Reading,
}

impl DueScan {
    /// Looks for up to `limit` users of these shards whose instant is not after `by`.
    pub fn new(keys: &Keyspace, queue: Queue, shards: Shards, by: Time, limit: u32) -> Self {
        let (limit, end) = (limit as usize, shards.end.min(keys.shards()));
        let readings = (shards.first..end).filter(|_| limit > 0).flat_map(|shard| begin(queue, shard));
        let readings: Vec<Reading> = readings.collect();
        let page = (limit.saturating_mul(2) / readings.len().max(1)).clamp(MIN_PAGE, MAX_PAGE);
        Self { queue, by, limit, page, readings, is_checking: false, found: HashMap::new() }
    }

    /// The next requests, to be sent together; none if the scan is complete.
    pub fn requests(&self) -> impl Iterator<Item = PageRequest<'_>> {
        let asked = self.readings.iter().filter(|reading| !self.is_checking || !reading.unchecked.is_empty());
        asked.map(|reading| PageRequest { of: self, reading })
    }

    /// Applies the answers to the requests, in order. `None` if there was no answer: the users of that page are left
    /// out, and the next scan finds them.
    pub fn answer<'a, A: Iterator<Item = Piece<'a>>>(
        &mut self,
        answers: impl Iterator<Item = Option<A>>,
    ) -> Result<(), BadReply> {
        match std::mem::take(&mut self.is_checking) {
            false => self.take_pages(answers)?,
            true => self.take_checks(answers),
        }
        if !self.is_checking {
            let cutoff = cutoff(&self.found, self.limit);
            self.readings.retain(|reading| reading.pages_left > 0 && cutoff.is_none_or(|cutoff| reading.last < cutoff));
        }
        Ok(())
    }

    /// The users that were found, the earliest first.
    pub fn found(self) -> Vec<UserId> {
        let mut found: Vec<_> = self.found.into_iter().collect();
        found.sort_unstable_by(|(one, at), (other, then)| (at, one).cmp(&(then, other)));
        found.into_iter().take(self.limit).map(|(user, _)| user).collect()
    }

    /// Takes a page of each set. A set that has no more, or does not answer, gets no further requests.
    fn take_pages<'a, A: Iterator<Item = Piece<'a>>>(
        &mut self,
        answers: impl Iterator<Item = Option<A>>,
    ) -> Result<(), BadReply> {
        for (reading, answer) in self.readings.iter_mut().zip(answers) {
            let pages_left = std::mem::take(&mut reading.pages_left);
            let Some(answer) = answer else { continue };
            let mut pieces = 0;
            let members = decode_member_scores(answer.inspect(|_| pieces += 1))?;
            // Two pieces per member. Members that are not user ids count as read and are not in `members`.
            let read = pieces / 2;
            reading.read += read;
            reading.last = members.last().map_or(reading.last, |(at, _)| *at);
            if read >= self.page {
                reading.pages_left = pages_left.saturating_sub(1);
            }
            match reading.set {
                Set::Due => members.into_iter().for_each(|member| keep(&mut self.found, member)),
                Set::Archive => reading.unchecked = members,
            }
            self.is_checking |= !reading.unchecked.is_empty();
        }
        Ok(())
    }

    /// Which members of the archive queue are due after all. A user in both queues is due.
    fn take_checks<'a, A: Iterator<Item = Piece<'a>>>(&mut self, answers: impl Iterator<Item = Option<A>>) {
        let unchecked = self.readings.iter_mut().map(|reading| std::mem::take(&mut reading.unchecked));
        for (members, answer) in unchecked.filter(|members| !members.is_empty()).zip(answers) {
            let is_due =
                answer.into_iter().flatten().map(|score| decode_score(score).is_ok_and(|score| score.is_some()));
            for (member, is_due) in members.into_iter().zip(is_due) {
                if is_due == (self.queue == Queue::Due) {
                    keep(&mut self.found, member);
                }
            }
        }
    }
}

impl PageRequest<'_> {
    /// The shard to send it to.
    pub fn shard(&self) -> u32 {
        self.reading.shard
    }

    /// Adds its command.
    pub fn ask(&self, keys: &Keyspace, to: &mut Commands) {
        let Self { of, reading } = self;
        if of.is_checking {
            return keys.which_due(to, reading.shard, reading.unchecked.iter().map(|(_, user)| user.as_str()));
        }
        keys.passed(to, reading.key(keys), of.by, reading.read, of.page);
    }
}

impl Reading {
    fn key<'a>(&self, keys: &'a Keyspace) -> Key<'a> {
        match self.set {
            Set::Due => keys.due(self.shard),
            Set::Archive => keys.archive_queue(self.shard),
        }
    }
}

/// The sets of a shard that have to be read.
fn begin(queue: Queue, shard: u32) -> impl Iterator<Item = Reading> {
    let reading =
        move |set, pages_left| Reading { shard, set, read: 0, pages_left, last: Time(0), unchecked: Vec::new() };
    let readings = match queue {
        Queue::Due => [Some(reading(Set::Due, usize::MAX)), Some(reading(Set::Archive, MAX_ARCHIVE_PAGES))],
        Queue::Archive => [None, Some(reading(Set::Archive, usize::MAX))],
    };
    readings.into_iter().flatten()
}

/// A user may be found twice; the earlier instant counts.
fn keep(found: &mut HashMap<UserId, Time>, (at, user): (Time, UserId)) {
    let known = found.entry(user).or_insert(at);
    *known = at.min(*known);
}

/// The instant of the last of the first `limit` users; `None` if fewer were found.
fn cutoff(found: &HashMap<UserId, Time>, limit: usize) -> Option<Time> {
    let mut instants: Vec<Time> = found.values().copied().collect();
    let last = limit.checked_sub(1).filter(|last| *last < instants.len())?;
    Some(*instants.select_nth_unstable(last).1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    const ALL: Shards = Shards { first: 0, end: u32::MAX };
    const NOW: Time = Time(1000);

    /// Sorted sets by key, as in Redis.
    struct Sets {
        keys: Keyspace,
        sets: BTreeMap<String, BTreeSet<(u64, Vec<u8>)>>,
        lost: Option<u32>,
        /// How many members were transferred.
        transferred: usize,
    }

    impl Sets {
        fn new(shards: u32) -> Self {
            Self { keys: Keyspace::of_hosts(shards), sets: BTreeMap::new(), lost: None, transferred: 0 }
        }

        fn add(&mut self, set: &str, shard: u32, at: u64, member: impl AsRef<[u8]>) {
            let set = self.sets.entry(format!("rc:{{{shard}}}:{set}")).or_default();
            set.insert((at, member.as_ref().to_vec()));
        }

        /// What Redis would reply.
        fn run(&mut self, command: &[Vec<u8>]) -> Vec<Vec<u8>> {
            let words: Vec<_> = command.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
            let none = BTreeSet::new();
            let set = self.sets.get(&*words[1]).unwrap_or(&none);
            if words[0] == "ZMSCORE" {
                let score = |member: &Vec<u8>| set.iter().find(|(_, one)| one == member).map(|(at, _)| at.to_string());
                return command[2..].iter().map(|member| score(member).unwrap_or_default().into_bytes()).collect();
            }
            assert_eq!(
                (&*words[0], &*words[2], &*words[4], &*words[5]),
                ("ZRANGEBYSCORE", "-inf", "WITHSCORES", "LIMIT")
            );
            let [by, skip, page] = [3, 6, 7].map(|place: usize| words[place].parse::<u64>().unwrap());
            let passed = set.iter().take_while(|(at, _)| *at <= by).skip(skip as usize).take(page as usize);
            let transferred: Vec<_> =
                passed.flat_map(|(at, member)| [member.clone(), at.to_string().into_bytes()]).collect();
            self.transferred += transferred.len() / 2;
            transferred
        }

        fn scan(&mut self, queue: Queue, limit: u32) -> Vec<String> {
            let mut scan = DueScan::new(&self.keys, queue, ALL, NOW, limit);
            loop {
                let (mut commands, mut shards) = (Commands::default(), Vec::new());
                for request in scan.requests() {
                    request.ask(&self.keys, &mut commands);
                    shards.push(request.shard());
                }
                if shards.is_empty() {
                    return scan.found().iter().map(|user| user.as_str().to_owned()).collect();
                }
                let commands: Vec<_> = commands.iter().map(|command| command.to_owned()).collect();
                assert_eq!(commands.len(), shards.len());
                let answers: Vec<_> = commands.iter().map(|command| self.run(command)).collect();
                let transferred = shards.iter().zip(&answers).map(|(shard, answer)| {
                    (self.lost != Some(*shard)).then(|| answer.iter().map(|bytes| piece(bytes)))
                });
                scan.answer(transferred).unwrap();
            }
        }
    }

    fn piece(bytes: &[u8]) -> Piece<'_> {
        if bytes.is_empty() { Piece::Nil } else { Piece::Bytes(bytes) }
    }

    #[test]
    fn earliest_come_first_across_shards() {
        const SHARDS: u32 = 7;
        let (mut sets, mut state) = (Sets::new(SHARDS), 1_u64);
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut due, mut cold) = (Vec::new(), Vec::new());
        for n in 0..600 {
            let (user, shard, at) = (format!("u{n}"), next(u64::from(SHARDS)) as u32, next(1200));
            // A user who was evictable and beat since is in both queues; a few users are in neither.
            let (is_due, is_evictable) = (n % 3 > 0, n % 8 == 0);
            if is_due {
                sets.add("due", shard, at, &user);
                due.push((at, user.clone()));
            }
            if is_evictable {
                let since = next(1200);
                sets.add("archive", shard, since, &user);
                if is_due { &mut due } else { &mut cold }.push((since, user));
            }
        }
        for (queue, mut expected) in [(Queue::Due, due), (Queue::Archive, cold)] {
            expected.retain(|(at, _)| *at <= NOW.0);
            expected.sort();
            let mut seen = BTreeSet::new();
            let expected: Vec<_> =
                expected.into_iter().map(|(_, user)| user).filter(|user| seen.insert(user.clone())).collect();
            for limit in [0, 1, 2, 10, 100, 10_000] {
                assert_eq!(
                    sets.scan(queue, limit),
                    expected[..expected.len().min(limit as usize)],
                    "{queue:?}, {limit}"
                );
            }
        }
    }

    #[test]
    fn backlog_is_not_transferred_for_a_small_limit() {
        let mut sets = Sets::new(4);
        for n in 0..8000_u32 {
            sets.add("due", n % 4, 1, format!("u{n}"));
            sets.add("archive", n % 4, 1, format!("c{n}"));
        }
        assert_eq!(sets.scan(Queue::Due, 10).len(), 10);
        assert_eq!(sets.transferred, 4 * 2 * MIN_PAGE);
    }

    #[test]
    fn due_scan_stops_early_in_the_archive_queue() {
        let mut sets = Sets::new(1);
        (0..1000).for_each(|n| sets.add("archive", 0, 1, format!("c{n:04}")));
        assert!(sets.scan(Queue::Due, 10).is_empty());
        assert_eq!(sets.transferred, MAX_ARCHIVE_PAGES * MIN_PAGE);
    }

    #[test]
    fn invalid_member_does_not_hide_users() {
        for (queue, set) in [(Queue::Due, "due"), (Queue::Archive, "archive")] {
            let mut sets = Sets::new(1);
            for n in 0..100_u8 {
                sets.add(set, 0, 1, [b'\n', n]);
                sets.add(set, 0, 2, [0xff, n]);
            }
            sets.add(set, 0, 3, "bob");
            assert_eq!(sets.scan(queue, 1), ["bob"]);
        }
    }

    #[test]
    fn silent_shard_leaves_out_only_its_users() {
        let mut sets = Sets::new(2);
        for (shard, name) in [(0, "bob"), (1, "eve")] {
            sets.add("due", shard, 1, name);
            sets.add("archive", shard, 1, format!("{name}-of-old"));
        }
        sets.lost = Some(0);
        assert_eq!(sets.scan(Queue::Due, 10), ["eve"]);
        assert_eq!(sets.scan(Queue::Archive, 10), ["eve-of-old"]);
    }
}
