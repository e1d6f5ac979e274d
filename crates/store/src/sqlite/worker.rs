//! A thread with a connection and a work queue.
//!
//! Group commit: the work that queues up while a transaction is synced to disk becomes the next transaction, so that a
//! write costs less under load. Work is confirmed after the commit, never before.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rollcall_core::Error;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use super::open::OpenError;

/// The most jobs in one transaction: the first waits for the last.
const MAX_GROUP: usize = 512;

/// When a caller may retry. A lock or a full disk does not go away in milliseconds.
const RETRY_MS: u32 = 1000;

/// The work of a job. It is rolled back together with the others in its transaction.
type Work = Box<dyn FnOnce(&Connection) -> rusqlite::Result<()> + Send>;

struct Job {
    work: Work,
    done: oneshot::Sender<Result<(), Error>>,
}

/// What the thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Writes, many per transaction.
    Writing,
    /// Reads, one per transaction, so that a read does not wait for the read behind it.
    Reading,
}

/// A thread that processes a queue. Dropping it finishes the queue and closes the connection.
#[derive(Debug)]
pub(super) struct Worker {
    /// `None` only during drop.
    queue: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(connection: Connection, purpose: Purpose, path: &Path) -> Result<Self, OpenError> {
        let (queue, jobs) = channel();
        let name = match purpose {
            Purpose::Writing => "archive-writer",
            Purpose::Reading => "archive-reader",
        };
        let file = path.to_owned();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || WorkerLoop { connection, purpose, file, failing: false }.run(&jobs))
            .map_err(|error| OpenError::unusable(path, error))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Queues work when called, not when awaited. The future returns once the work is committed.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static {
        let (value, answer) = oneshot::channel();
        let (done, committed) = oneshot::channel();
        let work: Work = Box::new(move |connection| {
            // The caller may have dropped its future; the work is done anyway.
            let _ = value.send(work(connection)?);
            Ok(())
        });
        // If the thread has ended, the job is dropped, and `committed` returns an error.
        let _ = self.queue.as_ref().map(|queue| queue.send(Job { work, done }));
        async move {
            committed.await.map_err(|_| gone())??;
            answer.await.map_err(|_| gone())
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends when the queue is empty. If it panicked, the waiting callers have received an error.
            let _ = thread.join();
        }
    }
}

fn gone() -> Error {
    Error::Other("the SQLite thread has ended".to_owned())
}

struct WorkerLoop {
    connection: Connection,
    purpose: Purpose,
    file: PathBuf,
    /// Whether the last transaction failed, so that a full disk is logged once.
    failing: bool,
}

impl WorkerLoop {
    fn run(mut self, jobs: &Receiver<Job>) {
        let most = match self.purpose {
            Purpose::Writing => MAX_GROUP,
            Purpose::Reading => 1,
        };
        while let Ok(first) = jobs.recv() {
            let group = std::iter::once(first).chain(jobs.try_iter()).take(most);
            let (work, waiting): (Vec<_>, Vec<_>) = group.map(|job| (job.work, job.done)).unzip();
            let result = self.transact(work);
            self.log_transition(&result);
            let answer = result.map_err(|error| self.error_for_caller(&error));
            for done in waiting {
                let _ = done.send(answer.clone());
            }
        }
    }

    /// Runs the group in one transaction.
    fn transact(&self, group: Vec<Work>) -> rusqlite::Result<()> {
        self.connection.execute_batch(match self.purpose {
            Purpose::Writing => "BEGIN IMMEDIATE",
            Purpose::Reading => "BEGIN",
        })?;
        let done = group.into_iter().try_for_each(|work| work(&self.connection));
        let result = done.and_then(|()| self.connection.execute_batch("COMMIT"));
        // Some errors roll back by themselves; after others the transaction is still open.
        if result.is_err() && !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        result
    }

    fn log_transition(&mut self, result: &rusqlite::Result<()>) {
        match result {
            Err(error) if !self.failing => {
                tracing::warn!(
                    file = %self.file.display(),
                    %error,
                    "SQLite transaction failed; callers get `unavailable`"
                );
            }
            Ok(()) if self.failing => tracing::info!(file = %self.file.display(), "SQLite recovered"),
            _ => {}
        }
        self.failing = result.is_err();
    }

    /// A damaged file is permanent; every other error can be retried.
    fn error_for_caller(&self, error: &rusqlite::Error) -> Error {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Error::Other(format!("the archive {} is damaged: {error}", self.file.display()))
            }
            _ => Error::Unavailable(RETRY_MS),
        }
    }
}
