//! The files on disk: a complete copy, a recording in progress, both or neither. Methods do not fail: a disk error is
//! logged once, and then there is no copy.

use std::path::PathBuf;

use rollcall_core::policy::PolicyChange;
use rollcall_functions::capabilities::{Cursor, PolicyPage};

use super::FROM_COPY;
use super::database::{self, Complete, CopyError, Recording};

/// A page number of the copy has the generation above this bit, and the group of parts below.
const GENERATION_SHIFT: u32 = 24;

/// Generations stay distinct unless a reader continues from a page that is 128 copies old.
const GENERATIONS: u32 = 1 << (31 - GENERATION_SHIFT);

/// After this many answers that do not extend the copy, it reads the store itself. A lower limit would cause extra
/// reads for a reader slightly behind; with a much higher one, the copy would be far behind at the next start.
const MAX_STRAY_ANSWERS: u32 = 64;

/// The recording that a page is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    recording: u64,
    page: u32,
}

#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    identity: String,
    complete: Option<Complete>,
    /// Number of the complete copy, counted since the start.
    generation: u32,
    recording: Option<Recording>,
    /// Number of the recording, counted since the start.
    recordings: u64,
    stray_answers: u32,
    /// Whether a disk error was logged.
    reported: bool,
}

impl Disk {
    pub(super) fn open(path: PathBuf, identity: &str) -> Self {
        let complete = if path.exists() { Complete::open(&path, identity) } else { Ok(None) };
        let complete = complete.unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "Policy copy is unusable; reading policy from the store");
            None
        });
        Self {
            path,
            identity: identity.to_owned(),
            complete,
            generation: 0,
            recording: None,
            recordings: 0,
            stray_answers: 0,
            reported: false,
        }
    }

    /// The copy's first page number and cursor, if the copy is worth reading.
    pub(super) fn fresh(&self) -> Option<(u32, Cursor)> {
        let complete = self.complete.as_ref().filter(|complete| !complete.outgrown())?;
        Some((self.number(0)?, complete.cursor().clone()))
    }

    /// A page of the copy; `None` if it belongs to an earlier copy or cannot be read.
    pub(super) fn page(&mut self, number: u32, salt: u64) -> Option<PolicyPage> {
        let group = (number & ((1 << GENERATION_SHIFT) - 1)) as usize;
        if self.number(group)? != number {
            return None;
        }
        let complete = self.complete.as_ref()?;
        match complete.group(group) {
            Ok(changes) => {
                let next = (group + 1 < complete.groups()).then(|| self.number(group + 1)).flatten();
                Some(PolicyPage { changes, next, cursor: complete.cursor().clone(), salt })
            }
            Err(error) => {
                self.report(&error);
                self.remove();
                None
            }
        }
    }

    /// Adds what came after the asked cursor, if the copy ends there. Returns the copy's cursor if the copy was left behind.
    pub(super) fn append(&mut self, asked: &Cursor, changes: &[PolicyChange], after: Cursor) -> Option<Cursor> {
        let complete = self.complete.as_mut().filter(|complete| !complete.outgrown())?;
        if complete.cursor() == asked {
            self.stray_answers = 0;
            if let Err(error) = complete.append(changes, after) {
                self.report(&error);
                self.remove();
            }
            return None;
        }
        self.stray_answers += 1;
        if self.stray_answers < MAX_STRAY_ANSWERS {
            return None;
        }
        self.stray_answers = 0;
        Some(complete.cursor().clone())
    }

    /// Drops the copy if it ends at this cursor: the store cannot continue from it.
    pub(super) fn forget(&mut self, asked: &Cursor) {
        if self.complete.as_ref().is_some_and(|complete| complete.cursor() == asked) {
            self.remove();
        }
    }

    /// For a page about to be read, if the recording needs it next.
    pub(super) fn ticket(&self, page: u32) -> Option<Ticket> {
        let expected = self.recording.as_ref().and_then(Recording::expected);
        (page != 0 && expected == Some(page)).then_some(Ticket { recording: self.recordings, page })
    }

    /// Begins a recording with the store's first page, and abandons the one under way: its reader may be gone, and if not,
    /// its pages serve the new one as well.
    pub(super) fn begin(&mut self, page: &PolicyPage) {
        self.recording = None;
        self.recordings += 1;
        self.stray_answers = 0;
        match Recording::begin(&self.path, &self.identity, page) {
            Ok(recording) => self.proceed(recording),
            Err(error) => self.report(&error),
        }
    }

    /// Adds a page to the recording that it was read for, unless another reader was faster.
    pub(super) fn record(&mut self, ticket: Ticket, page: &PolicyPage) {
        if self.ticket(ticket.page) != Some(ticket) {
            return;
        }
        let Some(mut recording) = self.recording.take() else { return };
        match recording.add(page) {
            Ok(()) => self.proceed(recording),
            Err(error) => self.report(&error),
        }
    }

    /// Keeps a recording for its next page, or moves it into place if it is complete.
    fn proceed(&mut self, recording: Recording) {
        if recording.expected().is_some() {
            self.recording = Some(recording);
            return;
        }
        // Closed before its file is replaced.
        self.complete = None;
        self.generation = (self.generation + 1) % GENERATIONS;
        match recording.finish(&self.path) {
            Ok(complete) => self.complete = Some(complete),
            Err(error) => self.report(&error),
        }
    }

    /// The page number of a group of the copy.
    fn number(&self, group: usize) -> Option<u32> {
        let group = u32::try_from(group).ok().filter(|group| group >> GENERATION_SHIFT == 0)?;
        Some(FROM_COPY | (self.generation << GENERATION_SHIFT) | group)
    }

    fn remove(&mut self) {
        self.complete = None;
        self.generation = (self.generation + 1) % GENERATIONS;
        database::remove_copy(&self.path);
    }

    fn report(&mut self, error: &CopyError) {
        if !self.reported {
            tracing::warn!(file = %self.path.display(), %error, "Policy copy failed; the next start reads the store");
        }
        self.reported = true;
    }
}
