//! What is on disk: a whole copy, one being written, both or neither. Nothing here fails: a disk that does is reported
//! once, and then there is no copy.

use std::io;
use std::path::PathBuf;

use rollcall_core::policy::Change;
use rollcall_functions::capabilities::{Cursor, Page};

use super::FROM_DISK;
use super::image::Image;
use super::recording::Recording;

/// Where the generation stands in the number of a page; the rest says which part of the copy.
const GENERATION_SHIFT: u32 = 24;

/// Generations are told apart as long as nobody reads on from a page that is 128 copies old.
const GENERATIONS: u32 = 1 << (31 - GENERATION_SHIFT);

/// How many answers that do not continue the copy may pass before it asks for itself: fewer, and a reader that is a
/// little behind would cost a question; many more, and the copy would be far behind at the next start.
const STRAYED: u32 = 64;

/// Which recording a page is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    recording: u64,
    page: u32,
}

#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    identity: String,
    image: Option<Image>,
    /// Which image this is, counted from the start.
    generation: u32,
    recording: Option<Recording>,
    /// Which recording this is, counted from the start.
    recordings: u64,
    strayed: u32,
    /// Whether the disk's failing was reported.
    reported: bool,
}

impl Disk {
    pub(super) fn open(path: PathBuf, identity: &str) -> Self {
        let mut disk = Self {
            path,
            identity: identity.to_owned(),
            image: None,
            generation: 0,
            recording: None,
            recordings: 0,
            strayed: 0,
            reported: false,
        };
        match Image::open(&disk.path, &disk.identity) {
            Ok(Some(image)) => disk.image = Some(image),
            Ok(None) => tracing::info!(file = %disk.path.display(), "no whole copy of this store: it is read anew"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => disk.report(&error),
        }
        disk
    }

    /// The number of the copy's first page and its cursor, if it is worth reading.
    pub(super) fn fresh(&self) -> Option<(u32, Cursor)> {
        let image = self.image.as_ref().filter(|image| !image.outgrown())?;
        Some((self.number(0)?, image.cursor.clone()))
    }

    /// A page of the copy; none if it is not of the copy that is here now, or cannot be read.
    pub(super) fn page(&mut self, number: u32, salt: u64) -> Option<Page> {
        let part = (number & ((1 << GENERATION_SHIFT) - 1)) as usize;
        if self.number(part)? != number {
            return None;
        }
        let image = self.image.as_mut()?;
        let (cursor, parts) = (image.cursor.clone(), image.parts());
        match image.part(part) {
            Ok(changes) => {
                let next = (part + 1 < parts).then(|| self.number(part + 1)).flatten();
                Some(Page { changes, next, cursor, salt })
            }
            Err(error) => {
                self.report(&error);
                self.remove();
                None
            }
        }
    }

    /// Writes down what came after the asked cursor, if that is where the copy stands. If the copy was left behind,
    /// where it stands.
    pub(super) fn append(&mut self, asked: &Cursor, changes: &[Change], after: Cursor) -> Option<Cursor> {
        let image = self.image.as_mut().filter(|image| !image.outgrown())?;
        if image.cursor == *asked {
            self.strayed = 0;
            if let Err(error) = image.append(changes, after) {
                self.report(&error);
                self.remove();
            }
            return None;
        }
        self.strayed += 1;
        if self.strayed < STRAYED {
            return None;
        }
        self.strayed = 0;
        Some(image.cursor.clone())
    }

    /// The store cannot tell what came after this cursor: if the copy stands there, it is worth nothing.
    pub(super) fn forget(&mut self, asked: &Cursor) {
        if self.image.as_ref().is_some_and(|image| image.cursor == *asked) {
            self.remove();
        }
    }

    /// For a page about to be asked for, if it is the one that the recording needs next.
    pub(super) fn ticket(&self, page: u32) -> Option<Ticket> {
        let expected = self.recording.as_ref().and_then(Recording::expected);
        (page != 0 && expected == Some(page)).then_some(Ticket { recording: self.recordings, page })
    }

    /// Begins a recording with the store's first page. One that is under way is given up for it: whoever read it may be
    /// gone, and if not, its pages do as well for the new one.
    pub(super) fn begin(&mut self, page: &Page) {
        self.recording = None;
        self.recordings += 1;
        self.strayed = 0;
        match Recording::begin(&self.path, &self.identity, page) {
            Ok(recording) => self.keep(recording),
            Err(error) => self.report(&error),
        }
    }

    /// Adds a page to the recording that it was read for, unless another reader was faster.
    pub(super) fn record(&mut self, ticket: Ticket, page: &Page) {
        if self.ticket(ticket.page) != Some(ticket) {
            return;
        }
        let Some(mut recording) = self.recording.take() else { return };
        match recording.add(page) {
            Ok(()) => self.keep(recording),
            Err(error) => self.report(&error),
        }
    }

    /// Goes on with a recording, or moves it into place if it is whole.
    fn keep(&mut self, recording: Recording) {
        if recording.expected().is_some() {
            self.recording = Some(recording);
            return;
        }
        match recording.finish(&self.path) {
            Ok(image) => {
                self.image = Some(image);
                self.generation = (self.generation + 1) % GENERATIONS;
            }
            Err(error) => self.report(&error),
        }
    }

    /// The number that a part of the copy has as a page.
    fn number(&self, part: usize) -> Option<u32> {
        let part = u32::try_from(part).ok().filter(|part| part >> GENERATION_SHIFT == 0)?;
        Some(FROM_DISK | (self.generation << GENERATION_SHIFT) | part)
    }

    fn remove(&mut self) {
        self.image = None;
        self.generation = (self.generation + 1) % GENERATIONS;
        let _ = std::fs::remove_file(&self.path);
    }

    fn report(&mut self, error: &io::Error) {
        if !self.reported {
            tracing::warn!(file = %self.path.display(), %error, "policy cannot be copied: a start reads it all anew");
        }
        self.reported = true;
    }
}
