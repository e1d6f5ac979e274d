//! Reads files into batches of changes, each small enough to be applied in one call.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use rollcall_core::UserId;
use rollcall_core::policy::{Numbers, PAGE_BYTES, PAGE_NUMBERS, PolicyChange, number_of};
use rollcall_functions::capabilities::MAX_BATCH;

use super::accounts::{self, Accounts};
use super::lines::{Line, Lines};
use super::{BadLine, FileError, ImportAction, MAX_REPORTED};

/// Pages of 8 KiB per batch: half a megabyte. A store writes that while other callers wait for a few milliseconds.
const BATCH_PAGES: usize = 64;

/// Up to this many numbers of a page become single changes: they take less space than a page, and do not invalidate the
/// cached visibility of everyone.
const MAX_SINGLE_CHANGES: u64 = 16;

/// How many bytes are processed between two progress reports.
const REPORT_BYTES: u64 = 1 << 20;

/// The bytes of a bitmap of all numbers.
const MAX_BITMAP: u64 = PAGE_BYTES as u64 * PAGE_NUMBERS as u64;

/// Batches of changes. They may be applied in any order and more than once: after a failure, start again.
pub struct Batches<'a> {
    source: Source,
    action: ImportAction,
    progress: Progress<'a>,
}

enum Source {
    Ids {
        pages: std::collections::btree_map::IntoIter<u32, Vec<u8>>,
        /// How many bytes of progress one page counts for.
        page_bytes: u64,
        /// The second pass over the file, for its names; `None` if it has no names.
        lines: Option<Lines<BufReader<File>>>,
    },
    Bitmap {
        file: BufReader<File>,
        page: u32,
    },
    Done,
}

struct Progress<'a> {
    report: Box<dyn FnMut(u64, u64) + Send + 'a>,
    done: u64,
    of: u64,
    reported: u64,
}

impl Progress<'_> {
    fn add(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes).min(self.of);
        if self.done - self.reported >= REPORT_BYTES {
            self.report();
        }
    }

    fn report(&mut self) {
        self.reported = self.done;
        (self.report)(self.done, self.of);
    }
}

/// Reads a file of ids. The whole file is checked before this returns. Numbers stay in memory; names are read again as the
/// batches are taken. Progress counts the bytes of the file twice: once checked, once in a batch.
pub fn read_ids<'a>(
    path: impl AsRef<Path>,
    action: ImportAction,
    progress: impl FnMut(u64, u64) + Send + 'a,
) -> Result<Batches<'a>, FileError> {
    let file = File::open(path.as_ref())?;
    let length = file.metadata()?.len();
    let of = length.saturating_mul(2);
    let mut progress = Progress { report: Box::new(progress), done: 0, of, reported: 0 };
    let (mut accounts, mut number_bytes, mut names) = (Accounts::default(), 0, false);
    let (mut bad, mut count) = (Vec::new(), 0);
    for line in Lines::new(BufReader::with_capacity(1 << 18, file)) {
        let Line { number, bytes, id } = line?;
        progress.add(bytes);
        match id.map(|id| id.map(|id| number_of(id.as_str()))) {
            Ok(Some(Some(number))) => {
                accounts.add(number);
                number_bytes += bytes;
            }
            Ok(Some(None)) => names = true,
            Ok(None) => {}
            Err(rule) => {
                count += 1;
                bad.extend((bad.len() < MAX_REPORTED).then_some(BadLine { line: number, rule }));
            }
        }
    }
    if count > 0 {
        return Err(FileError::BadLines { lines: bad, count });
    }
    let lines = if names { Some(Lines::new(BufReader::with_capacity(1 << 18, File::open(path)?))) } else { None };
    let page_bytes = number_bytes / (accounts.pages.len() as u64).max(1);
    Ok(Batches { source: Source::Ids { pages: accounts.pages.into_iter(), page_bytes, lines }, action, progress })
}

/// Reads a bitmap: bit i is account i, and bit 0 is the highest bit of the first byte. Empty pages give no change.
pub fn read_bitmap<'a>(
    path: impl AsRef<Path>,
    action: ImportAction,
    progress: impl FnMut(u64, u64) + Send + 'a,
) -> Result<Batches<'a>, FileError> {
    let file = File::open(path)?;
    let of = file.metadata()?.len();
    if of > MAX_BITMAP {
        return Err(FileError::TooLong(of));
    }
    let progress = Progress { report: Box::new(progress), done: 0, of, reported: 0 };
    Ok(Batches { source: Source::Bitmap { file: BufReader::with_capacity(1 << 18, file), page: 0 }, action, progress })
}

impl Batches<'_> {
    fn read(&mut self) -> Result<Option<Vec<PolicyChange>>, FileError> {
        let (action, mut changes, mut page_count) = (self.action, Vec::new(), 0);
        while page_count < BATCH_PAGES && changes.len() + MAX_SINGLE_CHANGES as usize <= MAX_BATCH {
            match &mut self.source {
                Source::Ids { pages, page_bytes, lines } => {
                    if let Some((page, bits)) = pages.next() {
                        self.progress.add(*page_bytes);
                        page_count += add_page(&mut changes, action, page, bits)?;
                    } else if let Some(line) = lines.as_mut().and_then(Iterator::next) {
                        let Line { number, bytes, id } = line?;
                        // The file was checked, but may have changed since.
                        let bad = |rule| FileError::BadLines { lines: vec![BadLine { line: number, rule }], count: 1 };
                        let name = id.map_err(bad)?.filter(|id| number_of(id.as_str()).is_none());
                        if let Some(name) = name {
                            self.progress.add(bytes);
                            changes.push(single(action, name));
                        }
                    } else {
                        self.source = Source::Done;
                    }
                }
                Source::Bitmap { file, page } => {
                    let mut bits = Vec::new();
                    file.take(PAGE_BYTES as u64).read_to_end(&mut bits)?;
                    self.progress.add(bits.len() as u64);
                    if bits.is_empty() {
                        self.source = Source::Done;
                        continue;
                    }
                    let at = *page;
                    *page += 1;
                    page_count += add_page(&mut changes, action, at, bits)?;
                }
                Source::Done => break,
            }
        }
        if matches!(self.source, Source::Done) && self.progress.reported < self.progress.of {
            self.progress.done = self.progress.of;
            self.progress.report();
        }
        Ok(Some(changes).filter(|changes| !changes.is_empty()))
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Vec<PolicyChange>, FileError>;

    /// The next batch; after an error, `None`.
    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.read();
        if batch.is_err() {
            (self.source, self.progress.reported) = (Source::Done, self.progress.of);
        }
        batch.transpose()
    }
}

/// Adds the changes for the bits of a page. Returns how many page changes it added.
fn add_page(
    changes: &mut Vec<PolicyChange>,
    action: ImportAction,
    page: u32,
    mut bits: Vec<u8>,
) -> Result<usize, FileError> {
    if accounts::count(&bits) <= MAX_SINGLE_CHANGES {
        for number in accounts::each(page, &bits) {
            changes.push(single(action, UserId::parse(number.to_string()).map_err(rollcall_core::Error::from)?));
        }
        return Ok(0);
    }
    bits.truncate(bits.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
    let numbers = Numbers::new(page, bits).map_err(rollcall_core::Error::from)?;
    changes.push(match action {
        ImportAction::Restrict => PolicyChange::RestrictMany(numbers),
        ImportAction::Unrestrict => PolicyChange::UnrestrictMany(numbers),
    });
    Ok(1)
}

fn single(action: ImportAction, user: UserId) -> PolicyChange {
    match action {
        ImportAction::Restrict => PolicyChange::Restrict(user),
        ImportAction::Unrestrict => PolicyChange::Unrestrict(user),
    }
}
