//! The baselines: plain hash sets in memory, and Redis.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use rollcall_core::policy::{PAGE_NUMBERS, PolicyChange, number_of};
use rollcall_core::{Ids, UserId};
use rollcall_servers::redis::Redis as Server;

/// Bytes of commands per write while Redis is filled.
const FILLING_BYTES: usize = 1 << 20;

/// Restrictions and blocks in hash sets of strings, without privacy settings.
#[derive(Default)]
pub(super) struct HashSets {
    restricted: HashSet<String>,
    blocks: HashSet<(String, String)>,
}

impl HashSets {
    pub(super) fn of(changes: &[PolicyChange]) -> Self {
        let mut sets = Self::default();
        for change in changes {
            match change {
                PolicyChange::Block(one, other) => {
                    sets.blocks.insert((one.to_string(), other.to_string()));
                }
                PolicyChange::RestrictMany(numbers) => {
                    let first = numbers.page() * PAGE_NUMBERS;
                    let places = numbers.bits().iter().zip((0..).step_by(8));
                    let bits =
                        places.flat_map(|(byte, at)| (0..8).map(move |bit| (byte & (0x80 >> bit) != 0, at + bit)));
                    let numbers = bits.filter(|(set, _)| *set).map(|(_, low): (bool, u32)| (first + low).to_string());
                    sets.restricted.extend(numbers);
                }
                PolicyChange::Restrict(_)
                | PolicyChange::Unrestrict(_)
                | PolicyChange::UnrestrictMany(_)
                | PolicyChange::Unblock(..)
                | PolicyChange::AddContact(..)
                | PolicyChange::RemoveContact(..)
                | PolicyChange::SetPrivacy(..) => {}
            }
        }
        sets
    }

    /// Whether each is hidden. The pair used as a key is allocated once and refilled.
    pub(super) fn hidden(&self, viewer: &str, subjects: &Ids<UserId>) -> Vec<bool> {
        let (mut there, mut back) = ((viewer.to_owned(), String::new()), (String::new(), viewer.to_owned()));
        let is_hidden = |subject: &str| {
            there.1.clear();
            there.1.push_str(subject);
            back.0.clear();
            back.0.push_str(subject);
            self.restricted.contains(subject) || self.blocks.contains(&there) || self.blocks.contains(&back)
        };
        subjects.iter().map(is_hidden).collect()
    }
}

/// Restricted numbers in one bitmap and each user's blocks in a set, in Redis, over one connection.
pub(super) struct RedisSets {
    stream: TcpStream,
    commands: Vec<u8>,
    replies: Vec<u8>,
}

impl RedisSets {
    /// Fills the server.
    pub(super) fn fill(server: &Server, changes: &[PolicyChange]) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
        stream.set_nodelay(true)?;
        let mut asked = Self { stream, commands: Vec::new(), replies: vec![0; 1 << 16] };
        let mut waiting = 0;
        for change in changes {
            match change {
                PolicyChange::Block(one, other) => {
                    asked.command(&[b"SADD", &key(one.as_str()), other.as_str().as_bytes()])
                }
                PolicyChange::RestrictMany(numbers) => {
                    let at = (u64::from(numbers.page()) * u64::from(PAGE_NUMBERS / 8)).to_string();
                    asked.command(&[b"SETRANGE", b"restricted", at.as_bytes(), numbers.bits()]);
                }
                PolicyChange::Restrict(_)
                | PolicyChange::Unrestrict(_)
                | PolicyChange::UnrestrictMany(_)
                | PolicyChange::Unblock(..)
                | PolicyChange::AddContact(..)
                | PolicyChange::RemoveContact(..)
                | PolicyChange::SetPrivacy(..) => continue,
            }
            waiting += 1;
            if asked.commands.len() > FILLING_BYTES {
                asked.lines(std::mem::take(&mut waiting), |_| ())?;
            }
        }
        asked.lines(waiting, |_| ())?;
        Ok(asked)
    }

    /// Whether each is hidden: one `SMISMEMBER` of the viewer's blocks, and a `GETBIT` for each subject that is a
    /// number.
    pub(super) fn hidden(&mut self, viewer: &str, subjects: &Ids<UserId>) -> Result<Vec<bool>> {
        let blocks = key(viewer);
        let mut words = vec![b"SMISMEMBER".as_slice(), &blocks];
        words.extend(subjects.iter().map(str::as_bytes));
        self.command(&words);
        let mut numbered = Vec::with_capacity(subjects.len());
        for (place, subject) in subjects.iter().enumerate() {
            if number_of(subject).is_some() {
                self.command(&[b"GETBIT", b"restricted", subject.as_bytes()]);
                numbered.push(place);
            }
        }
        let (mut hidden, mut seen) = (vec![false; subjects.len()], 0);
        let count = subjects.len();
        self.lines(1 + count + numbered.len(), |line| {
            // The array length, then whether each is blocked, then whether each number is restricted.
            let place = match seen {
                0 => None,
                place if place <= count => Some(place - 1),
                place => numbered.get(place - 1 - count).copied(),
            };
            if let Some(hidden) = place.and_then(|place| hidden.get_mut(place)) {
                *hidden |= line == b":1";
            }
            seen += 1;
        })?;
        Ok(hidden)
    }

    fn command(&mut self, words: &[&[u8]]) {
        self.commands.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            self.commands.extend(format!("${}\r\n", word.len()).bytes());
            self.commands.extend_from_slice(word);
            self.commands.extend(b"\r\n");
        }
    }

    /// Sends the commands and reads this many reply lines.
    fn lines(&mut self, count: usize, mut each: impl FnMut(&[u8])) -> Result<()> {
        self.stream.write_all(&self.commands)?;
        self.commands.clear();
        let (mut read, mut filled) = (0, 0);
        while read < count {
            let room = self.replies.get_mut(filled..).unwrap_or_default();
            let more = self.stream.read(room)?;
            ensure!(more > 0, "Redis closed the connection");
            filled += more;
            let mut from = 0;
            let whole = self.replies.get(..filled).unwrap_or_default();
            while let Some(end) = whole.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
                let line = whole.get(from..(from + end).saturating_sub(1)).unwrap_or_default();
                ensure!(!line.starts_with(b"-"), "{}", String::from_utf8_lossy(line));
                each(line);
                read += 1;
                from += end + 1;
            }
            self.replies.copy_within(from..filled, 0);
            filled -= from;
        }
        ensure!(read == count && filled == 0, "Redis sent more replies than expected");
        Ok(())
    }
}

fn key(viewer: &str) -> Vec<u8> {
    [b"blocks:", viewer.as_bytes()].concat()
}

/// The server's `used_memory` in bytes.
pub(super) fn used_memory(server: &Server) -> Result<f64> {
    let text = server.ask(&["INFO", "memory"])?;
    let value = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(value.context("no used_memory")?.trim().parse()?)
}
