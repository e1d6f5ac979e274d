//! A whole copy: a snapshot and what came after it, in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rollcall_core::policy::Change;
use rollcall_functions::capabilities::Cursor;

use super::frames::{self, Kind, MAGIC};

/// The news of a copy may always take this much.
const LEAST_GROWTH: u64 = 16 << 20;

/// What is read at once, or the one frame that is larger: many small frames make one page.
const GROUP_BYTES: u64 = 256 << 10;

/// Where the frames of a file are.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    groups: Vec<Group>,
    /// The checksum that the next frame continues.
    pub(super) sum: u32,
    /// Where the next frame begins.
    pub(super) end: u64,
}

/// Frames that are read together.
#[derive(Debug, Clone, Copy)]
struct Group {
    begin: u64,
    end: u64,
    /// The checksum that its first frame continues.
    sum: u32,
}

impl Index {
    /// Of a file that has its magic and its first frame, and nothing else.
    pub(super) fn after_first(frame_bytes: u64, sum: u32) -> Self {
        Self { groups: Vec::new(), sum, end: MAGIC.len() as u64 + frame_bytes }
    }

    /// Takes note of the frame that follows.
    pub(super) fn add(&mut self, frame_bytes: u64, sum: u32) {
        let (begin, end) = (self.end, self.end + frame_bytes);
        match self.groups.last_mut().filter(|group| group.end - group.begin < GROUP_BYTES) {
            Some(group) => group.end = end,
            None => self.groups.push(Group { begin, end, sum: self.sum }),
        }
        (self.end, self.sum) = (end, sum);
    }
}

/// A copy that is whole.
#[derive(Debug)]
pub(super) struct Image {
    file: File,
    index: Index,
    /// Where the snapshot ends and the news begin.
    snapshot_end: u64,
    /// Up to where it is a copy.
    pub(super) cursor: Cursor,
}

impl Image {
    /// A file that was just written whole.
    pub(super) fn new(file: File, index: Index, cursor: Cursor) -> Self {
        Self { file, snapshot_end: index.end, index, cursor }
    }

    /// Reads a file and cuts off what does not belong to it; none if it is no whole copy of this store.
    pub(super) fn open(path: &Path, identity: &str) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut reader = BufReader::with_capacity(1 << 20, &file);
        let mut magic = Vec::new();
        (&mut reader).take(MAGIC.len() as u64).read_to_end(&mut magic)?;
        let first = if magic == MAGIC { frames::read(&mut reader, 0)? } else { None };
        let Some(first) = first.filter(|frame| frame.kind == Kind::First) else { return Ok(None) };
        let Some(mut cursor) = frames::read_first(&first.payload, identity) else { return Ok(None) };
        let mut index = Index::after_first(first.bytes(), first.sum);
        let mut snapshot_end = None;
        while let Some(frame) = frames::read(&mut reader, index.sum)? {
            match (frame.kind, snapshot_end) {
                (Kind::Page, None) => {}
                (Kind::End, None) => snapshot_end = Some(index.end + frame.bytes()),
                (Kind::News, Some(_)) => match frames::cursor_of_news(&frame.payload) {
                    Some(after) => cursor = after,
                    None => break,
                },
                (Kind::First, _) | (Kind::News, None) | (Kind::Page | Kind::End, Some(_)) => break,
            }
            index.add(frame.bytes(), frame.sum);
        }
        let Some(snapshot_end) = snapshot_end else { return Ok(None) };
        file.set_len(index.end)?;
        Ok(Some(Self { file, index, snapshot_end, cursor }))
    }

    /// Whether the news have outgrown the snapshot: to read it anew costs less than to read all of this.
    pub(super) fn outgrown(&self) -> bool {
        self.index.end - self.snapshot_end > self.snapshot_end.max(LEAST_GROWTH)
    }

    /// Writes down what came after the copy.
    pub(super) fn append(&mut self, changes: &[Change], after: Cursor) -> io::Result<()> {
        let frame = frames::written(self.index.sum, Kind::News, &frames::news(changes, &after));
        let (bytes, sum) = frame.ok_or_else(|| io::Error::other("an answer is too long for a frame"))?;
        self.file.seek(SeekFrom::Start(self.index.end))?;
        self.file.write_all(&bytes)?;
        self.index.add(bytes.len() as u64, sum);
        self.cursor = after;
        Ok(())
    }

    /// How many parts it is read in.
    pub(super) fn parts(&self) -> usize {
        self.index.groups.len()
    }

    /// One part of it. It is checked once more: a disk may fail after the copy was opened.
    pub(super) fn part(&mut self, part: usize) -> io::Result<Vec<Change>> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the copy was damaged while in use");
        let group = *self.index.groups.get(part).ok_or_else(damaged)?;
        self.file.seek(SeekFrom::Start(group.begin))?;
        let mut reader = BufReader::new((&self.file).take(group.end - group.begin));
        let (mut at, mut sum, mut changes) = (group.begin, group.sum, Vec::new());
        while at < group.end {
            let frame = frames::read(&mut reader, sum)?.ok_or_else(damaged)?;
            changes.extend(frames::changes(&frame).ok_or_else(damaged)?);
            at += frame.bytes();
            sum = frame.sum;
        }
        Ok(changes)
    }
}
