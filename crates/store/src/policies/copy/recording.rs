//! A copy being written, page by page as somebody reads them, in a file beside the one that it will replace.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rollcall_functions::capabilities::{Cursor, Page};

use super::frames::{self, Kind, MAGIC};
use super::image::{Image, Index};

/// A copy that is not whole yet. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Recording {
    /// None once it was moved into place.
    writer: Option<BufWriter<File>>,
    beside: PathBuf,
    index: Index,
    cursor: Cursor,
    /// The page that comes next; none: that was the last.
    expected: Option<u32>,
}

impl Recording {
    /// Begins one in place of any that was begun before, with its first page.
    pub(super) fn begin(path: &Path, identity: &str, page: &Page) -> io::Result<Self> {
        let beside = beside(path);
        // Never the same file as one that is still open somewhere.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut writer = BufWriter::with_capacity(1 << 20, private(&beside)?);
        let (bytes, sum) = framed(0, Kind::First, &frames::first(identity, &page.cursor))?;
        let index = Index::after_first(bytes.len() as u64, sum);
        let begun = writer.write_all(&MAGIC).and_then(|()| writer.write_all(&bytes));
        let mut recording =
            Self { writer: Some(writer), beside, index, cursor: page.cursor.clone(), expected: Some(0) };
        begun?;
        recording.add(page)?;
        Ok(recording)
    }

    /// The page that comes next; none if it is whole.
    pub(super) fn expected(&self) -> Option<u32> {
        self.expected
    }

    /// Adds the page that was expected.
    pub(super) fn add(&mut self, page: &Page) -> io::Result<()> {
        self.write(Kind::Page, &frames::page(&page.changes))?;
        self.expected = page.next;
        Ok(())
    }

    /// Moves it into place.
    pub(super) fn finish(mut self, path: &Path) -> io::Result<Image> {
        self.write(Kind::End, &[])?;
        let writer = self.writer.take().ok_or_else(|| io::Error::other("the recording was finished before"))?;
        let moved = writer.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| {
            fs::rename(&self.beside, path)?;
            Ok(file)
        });
        if moved.is_err() {
            let _ = fs::remove_file(&self.beside);
        }
        Ok(Image::new(moved?, std::mem::take(&mut self.index), std::mem::take(&mut self.cursor)))
    }

    fn write(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let (bytes, sum) = framed(self.index.sum, kind, payload)?;
        let writer = self.writer.as_mut().ok_or_else(|| io::Error::other("the recording was finished before"))?;
        writer.write_all(&bytes)?;
        self.index.add(bytes.len() as u64, sum);
        Ok(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            // What is still buffered is not worth a write.
            drop(writer.into_parts());
            let _ = fs::remove_file(&self.beside);
        }
    }
}

fn framed(before: u32, kind: Kind, payload: &[u8]) -> io::Result<(Vec<u8>, u32)> {
    frames::written(before, kind, payload).ok_or_else(|| io::Error::other("a page is too long for a frame"))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    PathBuf::from(name)
}

/// Who blocked whom is nobody else's business on this machine.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
