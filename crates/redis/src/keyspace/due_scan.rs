//! Who is due and who is to be evicted, longest overdue first, over many shards.
//!
//! Every shard has its own sorted sets, so they are read side by side, a page of each, and merged; a shard is asked for
//! more only while its last answer might still be among the first of all. That is exact, and a backlog of a million does
//! not travel for the sake of the first thousand.
//!
//! Whoever looks sends the [questions](DueScan::questions) and hands over the [answers](DueScan::answer), until there are no more
//! questions.

use std::collections::HashMap;

use rollcall_core::{Time, UserId};
use rollcall_functions::capabilities::Shards;

use crate::keyspace::command::Commands;
use crate::keyspace::keys::{Key, Keyspace};
use crate::keyspace::queues::{decode_member_scores, decode_score};
use crate::keyspace::reply::{BadReply, Piece};

/// What a session can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// To be settled.
    Due,
    /// To be evicted.
    Archive,
}

/// A page has at least so many: a round trip costs more than they do.
const MIN_PAGE: usize = 16;
/// And at most so many, so that no single answer holds up the server.
const MAX_PAGE: usize = 1024;

/// How many pages of those to be evicted are looked through for somebody who beat since. Those are found here only if
/// their function died on the way; in any case their beat's own end finds them, so a backlog of the archive must not be
/// read to its end for every sweep.
const MAX_COLD_PAGES: usize = 4;

/// The people whose time has come, as far as they were found.
#[derive(Debug)]
pub struct DueScan {
    queue: Queue,
    by: Time,
    limit: usize,
    page: usize,
    readings: Vec<Reading>,
    is_in_doubt: bool,
    found: HashMap<UserId, Time>,
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
    /// Who is in the page that was read last, as long as it is not known whether they belong on the queue.
    doubtful: Vec<(Time, UserId)>,
}

/// Which of a shard's sorted sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Due,
    Cold,
}

/// What is to be asked of one shard.
#[derive(Debug)]
pub struct PageRequest<'a> {
    of: &'a DueScan,
    reading: &'a Reading,
}

impl DueScan {
    /// Looks for so many people of these shards whose time has come by then.
    pub fn new(keys: &Keyspace, queue: Queue, shards: Shards, by: Time, limit: u32) -> Self {
        let (limit, end) = (limit as usize, shards.end.min(keys.shards()));
        let readings = (shards.first..end).filter(|_| limit > 0).flat_map(|shard| begin(queue, shard));
        let readings: Vec<Reading> = readings.collect();
        let page = (limit.saturating_mul(2) / readings.len().max(1)).clamp(MIN_PAGE, MAX_PAGE);
        Self { queue, by, limit, page, readings, is_in_doubt: false, found: HashMap::new() }
    }

    /// What is to be asked next, all at once. Nothing: everybody was found.
    pub fn requests(&self) -> impl Iterator<Item = PageRequest<'_>> {
        let asked = self.readings.iter().filter(|reading| !self.is_in_doubt || !reading.doubtful.is_empty());
        asked.map(|reading| PageRequest { of: self, reading })
    }

    /// Takes what these were answered, in order. None: a request was not answered; whoever it would have told of is left
    /// out, and is found the next time that somebody looks.
    pub fn answer<'a, A: Iterator<Item = Piece<'a>>>(
        &mut self,
        answers: impl Iterator<Item = Option<A>>,
    ) -> Result<(), BadReply> {
        match std::mem::take(&mut self.is_in_doubt) {
            false => self.take_pages(answers)?,
            true => self.take_doubts(answers),
        }
        if !self.is_in_doubt {
            let bar = bar(&self.found, self.limit);
            self.readings.retain(|reading| reading.pages_left > 0 && bar.is_none_or(|bar| reading.last < bar));
        }
        Ok(())
    }

    /// Everybody who was found, longest overdue first.
    pub fn found(self) -> Vec<UserId> {
        let mut found: Vec<_> = self.found.into_iter().collect();
        found.sort_unstable_by(|(one, at), (other, then)| (at, one).cmp(&(then, other)));
        found.into_iter().take(self.limit).map(|(user, _)| user).collect()
    }

    /// A page of each; whoever has no more, or does not answer, is marked so.
    fn take_pages<'a, A: Iterator<Item = Piece<'a>>>(
        &mut self,
        answers: impl Iterator<Item = Option<A>>,
    ) -> Result<(), BadReply> {
        for (reading, answer) in self.readings.iter_mut().zip(answers) {
            let pages_left = std::mem::take(&mut reading.pages_left);
            let Some(answer) = answer else { continue };
            let mut pieces = 0;
            let members = decode_member_scores(answer.inspect(|_| pieces += 1))?;
            // Two pieces each; whoever is not a person is among them and not among the members.
            let read = pieces / 2;
            reading.read += read;
            reading.last = members.last().map_or(reading.last, |(at, _)| *at);
            if read >= self.page {
                reading.pages_left = pages_left.saturating_sub(1);
            }
            match reading.set {
                Set::Due => members.into_iter().for_each(|member| keep(&mut self.found, member)),
                Set::Cold => reading.doubtful = members,
            }
            self.is_in_doubt |= !reading.doubtful.is_empty();
        }
        Ok(())
    }

    /// Which of those who wait to be evicted are due after all. Whoever is both is due.
    fn take_doubts<'a, A: Iterator<Item = Piece<'a>>>(&mut self, answers: impl Iterator<Item = Option<A>>) {
        let doubtful = self.readings.iter_mut().map(|reading| std::mem::take(&mut reading.doubtful));
        for (members, answer) in doubtful.filter(|members| !members.is_empty()).zip(answers) {
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
    /// The shard that it is asked of.
    pub fn shard(&self) -> u32 {
        self.reading.shard
    }

    /// Adds the command that asks it.
    pub fn ask(&self, keys: &Keyspace, to: &mut Commands) {
        let Self { of, reading } = self;
        if of.is_in_doubt {
            return keys.which_due(to, reading.shard, reading.doubtful.iter().map(|(_, user)| user.as_str()));
        }
        keys.passed(to, reading.key(keys), of.by, reading.read, of.page);
    }
}

impl Reading {
    fn key<'a>(&self, keys: &'a Keyspace) -> Key<'a> {
        match self.set {
            Set::Due => keys.due(self.shard),
            Set::Cold => keys.archive_queue(self.shard),
        }
    }
}

/// What has to be read of a shard.
fn begin(queue: Queue, shard: u32) -> impl Iterator<Item = Reading> {
    let reading =
        move |set, pages_left| Reading { shard, set, read: 0, pages_left, last: Time(0), doubtful: Vec::new() };
    let readings = match queue {
        Queue::Due => [Some(reading(Set::Due, usize::MAX)), Some(reading(Set::Cold, MAX_COLD_PAGES))],
        Queue::Archive => [None, Some(reading(Set::Cold, usize::MAX))],
    };
    readings.into_iter().flatten()
}

/// Somebody may be found twice: the earlier instant counts.
fn keep(found: &mut HashMap<UserId, Time>, (at, user): (Time, UserId)) {
    let known = found.entry(user).or_insert(at);
    *known = at.min(*known);
}

/// The instant of the last among the first `limit`; none if there are not so many.
fn bar(found: &HashMap<UserId, Time>, limit: usize) -> Option<Time> {
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

    /// Sorted sets by their keys, as Redis has them.
    struct Sets {
        keys: Keyspace,
        sets: BTreeMap<String, BTreeSet<(u64, Vec<u8>)>>,
        lost: Option<u32>,
        /// How many members travelled.
        told: usize,
    }

    impl Sets {
        fn new(shards: u32) -> Self {
            Self { keys: Keyspace::of_hosts(shards), sets: BTreeMap::new(), lost: None, told: 0 }
        }

        fn add(&mut self, set: &str, shard: u32, at: u64, member: impl AsRef<[u8]>) {
            let set = self.sets.entry(format!("rc:{{{shard}}}:{set}")).or_default();
            set.insert((at, member.as_ref().to_vec()));
        }

        /// What Redis would say.
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
            let told: Vec<_> = passed.flat_map(|(at, member)| [member.clone(), at.to_string().into_bytes()]).collect();
            self.told += told.len() / 2;
            told
        }

        fn overdue(&mut self, queue: Queue, limit: u32) -> Vec<String> {
            let mut overdue = DueScan::new(&self.keys, queue, ALL, NOW, limit);
            loop {
                let (mut commands, mut shards) = (Commands::default(), Vec::new());
                for request in overdue.requests() {
                    request.ask(&self.keys, &mut commands);
                    shards.push(request.shard());
                }
                if shards.is_empty() {
                    return overdue.found().iter().map(|user| user.as_str().to_owned()).collect();
                }
                let commands: Vec<_> = commands.iter().map(|command| command.to_owned()).collect();
                assert_eq!(commands.len(), shards.len());
                let answers: Vec<_> = commands.iter().map(|command| self.run(command)).collect();
                let told = shards.iter().zip(&answers).map(|(shard, answer)| {
                    (self.lost != Some(*shard)).then(|| answer.iter().map(|bytes| piece(bytes)))
                });
                overdue.answer(told).unwrap();
            }
        }
    }

    fn piece(bytes: &[u8]) -> Piece<'_> {
        if bytes.is_empty() { Piece::Nil } else { Piece::Bytes(bytes) }
    }

    #[test]
    fn the_first_of_all_are_found_in_order_wherever_they_are() {
        const SHARDS: u32 = 7;
        let (mut sets, mut state) = (Sets::new(SHARDS), 1_u64);
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut due, mut cold) = (Vec::new(), Vec::new());
        for n in 0..600 {
            let (user, shard, at) = (format!("u{n}"), next(u64::from(SHARDS)) as u32, next(1200));
            // Whoever is to be evicted and beat since is in both, and so are a few who wait for neither.
            let (is_due, is_cold) = (n % 3 > 0, n % 8 == 0);
            if is_due {
                sets.add("due", shard, at, &user);
                due.push((at, user.clone()));
            }
            if is_cold {
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
                    sets.overdue(queue, limit),
                    expected[..expected.len().min(limit as usize)],
                    "{queue:?}, {limit}"
                );
            }
        }
    }

    #[test]
    fn a_backlog_does_not_travel_for_the_sake_of_the_first() {
        let mut sets = Sets::new(4);
        for n in 0..8000_u32 {
            sets.add("due", n % 4, 1, format!("u{n}"));
            sets.add("archive", n % 4, 1, format!("c{n}"));
        }
        assert_eq!(sets.overdue(Queue::Due, 10).len(), 10);
        assert_eq!(sets.told, 4 * 2 * MIN_PAGE);
    }

    #[test]
    fn the_archives_backlog_is_not_read_to_its_end_for_whoever_is_due() {
        let mut sets = Sets::new(1);
        (0..1000).for_each(|n| sets.add("archive", 0, 1, format!("c{n:04}")));
        assert!(sets.overdue(Queue::Due, 10).is_empty());
        assert_eq!(sets.told, MAX_COLD_PAGES * MIN_PAGE);
    }

    #[test]
    fn what_is_no_person_hides_nobody() {
        for (queue, set) in [(Queue::Due, "due"), (Queue::Archive, "archive")] {
            let mut sets = Sets::new(1);
            for n in 0..100_u8 {
                sets.add(set, 0, 1, [b'\n', n]);
                sets.add(set, 0, 2, [0xff, n]);
            }
            sets.add(set, 0, 3, "bob");
            assert_eq!(sets.overdue(queue, 1), ["bob"]);
        }
    }

    #[test]
    fn a_shard_that_does_not_answer_leaves_out_its_own() {
        let mut sets = Sets::new(2);
        for (shard, name) in [(0, "bob"), (1, "eve")] {
            sets.add("due", shard, 1, name);
            sets.add("archive", shard, 1, format!("{name}-of-old"));
        }
        sets.lost = Some(0);
        assert_eq!(sets.overdue(Queue::Due, 10), ["eve"]);
        assert_eq!(sets.overdue(Queue::Archive, 10), ["eve-of-old"]);
    }
}
