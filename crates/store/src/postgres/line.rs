//! Connections that come back by themselves, and the thread that tends them.
//!
//! The thread has a runtime of its own: whoever calls may be on any other, which may be busy or end. While a connection
//! is away, calls are answered at once; while it is there, none waits longer than [`CALL_TIMEOUT`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rollcall_core::Error;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use super::address::Address;
use super::open::{Connected, Driver, Failure, OpenError, tell};

/// When a caller may try again.
pub(super) const RETRY_MS: u32 = 1000;

/// How long a call waits for its answer. Less than the five seconds that a call of a function may take, so that it is
/// answered and not given up; ten thousand upserts take a tenth of one.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Between two attempts to connect. Four attempts a second are nothing to a server that is there, and a caller who was
/// told to come back in a second finds the connection made.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// How long the end waits for the server to be told.
const FAREWELL: Duration = Duration::from_millis(250);

/// The most calls that wait for one connection at once; beyond, they are turned away instead of piling up.
const MAX_CALLS: usize = 256;

/// The two connections: a look never waits behind a write.
pub(super) struct Lines {
    pub(super) writer: Arc<Line>,
    pub(super) reader: Arc<Line>,
    /// None only while being dropped; when it is gone, the thread ends.
    open: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    /// Connects, makes sure that the database is fit, and tends both connections from then on.
    pub(super) async fn open(address: Address) -> Result<Self, OpenError> {
        let thread_failed = |place: &str, reason: String| OpenError::Unreachable { place: place.to_owned(), reason };
        let place = address.place.clone();
        let writer = Arc::new(Line::new("writing", &place));
        let reader = Arc::new(Line::new("reading", &place));
        let (open, closed) = oneshot::channel();
        let (ready, opened) = oneshot::channel();
        let mut tender = Tender { address, writer: Arc::clone(&writer), reader: Arc::clone(&reader), closed };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| thread_failed(&place, error.to_string()))?;
        let thread = std::thread::Builder::new()
            .name("archive-postgres".to_owned())
            .spawn(move || runtime.block_on(tender.run(ready)))
            .map_err(|error| thread_failed(&place, error.to_string()))?;
        opened.await.map_err(|_| thread_failed(&place, "its thread ended".to_owned()))??;
        Ok(Self { writer, reader, open: Some(open), thread: Some(thread) })
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.open = None;
        if let Some(thread) = self.thread.take() {
            // That it panicked is nothing that a drop could mend.
            let _ = thread.join();
        }
    }
}

/// What the thread does.
struct Tender {
    address: Address,
    writer: Arc<Line>,
    reader: Arc<Line>,
    closed: oneshot::Receiver<()>,
}

impl Tender {
    async fn run(&mut self, ready: oneshot::Sender<Result<(), OpenError>>) {
        let (address, closed) = (&self.address, &mut self.closed);
        let opened = tokio::select! {
            opened = connect_both(address) => opened,
            // Whoever opened it no longer waits.
            _ = &mut *closed => return,
        };
        let (writing, reading) = match opened {
            Ok((writer, reader)) => (self.writer.up(writer), self.reader.up(reader)),
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        let _ = ready.send(Ok(()));
        let tended = async { tokio::join!(self.writer.tend(address, writing), self.reader.tend(address, reading)) };
        tokio::pin!(tended);
        tokio::select! {
            _ = &mut tended => return,
            _ = closed => {}
        }
        self.writer.hang_up();
        self.reader.hang_up();
        // A server that does not hear it finds the socket closed.
        let _ = timeout(FAREWELL, tended).await;
    }
}

async fn connect_both(address: &Address) -> Result<(Connected, Connected), OpenError> {
    Ok((Connected::first(address).await?, Connected::first(address).await?))
}

/// A connection as callers hold it.
pub(super) struct Link {
    pub(super) client: Client,
    /// Called by whoever finds out that the other side is silent.
    broken: Arc<Notify>,
}

/// A connection as the thread holds it. It does not hold the client, whose end is the connection's.
struct Held {
    driver: Driver,
    broken: Arc<Notify>,
}

/// One connection, through all its lives.
pub(super) struct Line {
    purpose: &'static str,
    place: String,
    link: Mutex<Option<Arc<Link>>>,
    calls: Semaphore,
    /// Whether it failed last: a server that stays away is worth one line in the log, not four a second.
    failing: AtomicBool,
    closing: AtomicBool,
}

impl Line {
    fn new(purpose: &'static str, place: &str) -> Self {
        Self {
            purpose,
            place: place.to_owned(),
            link: Mutex::new(None),
            calls: Semaphore::new(MAX_CALLS),
            failing: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        }
    }

    /// Asks the server something; the answer, or [`Error::Unavailable`], comes within [`CALL_TIMEOUT`].
    pub(super) async fn ask<T, F>(&self, call: impl FnOnce(Arc<Link>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let away = || Error::Unavailable(RETRY_MS);
        let link = self.link.lock().clone().ok_or_else(away)?;
        let _permit = self.calls.try_acquire().map_err(|_| away())?;
        match timeout(CALL_TIMEOUT, call(Arc::clone(&link))).await {
            Ok(Ok(answer)) => {
                self.works();
                Ok(answer)
            }
            Ok(Err(error)) => {
                self.fails(&tell(&error));
                let (answer, fate) = classify(&error);
                if fate == Fate::GiveUp {
                    self.give_up(&link);
                }
                Err(answer)
            }
            Err(_) => {
                self.fails(&Failure::TimedOut.to_string());
                self.give_up(&link);
                Err(away())
            }
        }
    }

    /// Takes a connection out of use. Another caller may have done so already, and a new one may be there since.
    fn give_up(&self, link: &Arc<Link>) {
        let mut current = self.link.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *current = None;
            link.broken.notify_one();
        }
    }

    fn up(&self, connected: Connected) -> Held {
        let broken = Arc::new(Notify::new());
        let link = Link { client: connected.client, broken: Arc::clone(&broken) };
        *self.link.lock() = Some(Arc::new(link));
        self.works();
        Held { driver: connected.driver, broken }
    }

    /// Drives the connection and replaces it whenever it ends, until the line is hung up.
    async fn tend(&self, address: &Address, mut held: Held) {
        loop {
            tokio::select! {
                ended = &mut held.driver => {
                    self.link.lock().take();
                    if self.closing.load(Ordering::Relaxed) {
                        return;
                    }
                    self.fails(&ended.err().map_or(Failure::Closed, Failure::Said).to_string());
                }
                () = held.broken.notified() => {}
            }
            // Before the next is made: the old one may be all that the server grants us.
            drop(held);
            held = self.up(self.reconnected(address).await);
        }
    }

    async fn reconnected(&self, address: &Address) -> Connected {
        loop {
            sleep(RECONNECT_PAUSE).await;
            match Connected::to(address).await {
                Ok(connected) => return connected,
                Err(failure) => self.fails(&failure.to_string()),
            }
        }
    }

    fn hang_up(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.link.lock().take();
    }

    fn fails(&self, reason: &str) {
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(place = self.place, purpose = self.purpose, reason, "the archive fails");
        }
    }

    fn works(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(place = self.place, purpose = self.purpose, "the archive works again");
        }
    }
}

/// What becomes of a connection after an error on it.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Keep,
    GiveUp,
}

/// What the caller can do about an error, and whether the connection is still good.
fn classify(error: &tokio_postgres::Error) -> (Error, Fate) {
    match error.code().map(|code| code.code()) {
        Some(code) => classify_code(code, &tell(error)),
        // Without a code it was not the server that complained: the connection broke, or somebody else answers there.
        None => (Error::Unavailable(RETRY_MS), Fate::GiveUp),
    }
}

fn classify_code(code: &str, said: &str) -> (Error, Fate) {
    match code.get(..2).unwrap_or_default() {
        // It only reads since a switch-over: elsewhere there is one that writes, and a new connection may find it.
        _ if code == "25006" => (Error::Unavailable(RETRY_MS), Fate::GiveUp),
        // Somebody holds the table or a row for too long, or the disk is full: the connection is not to blame.
        "40" | "53" | "55" | "57" | "58" => (Error::Unavailable(RETRY_MS), Fate::Keep),
        "08" => (Error::Unavailable(RETRY_MS), Fate::GiveUp),
        _ => (Error::Other(format!("the archive refuses: {said}")), Fate::Keep),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        let away = Error::Unavailable(RETRY_MS);
        for code in ["40P01", "40001", "53100", "53300", "55P03", "57014", "57P01", "58030"] {
            assert_eq!(classify_code(code, ""), (away.clone(), Fate::Keep), "{code}");
        }
        for code in ["25006", "08006"] {
            assert_eq!(classify_code(code, ""), (away.clone(), Fate::GiveUp), "{code}");
        }
        for code in ["42P01", "42501", "22021", "XX001"] {
            assert!(
                matches!(classify_code(code, "why"), (Error::Other(text), Fate::Keep) if text.contains("why")),
                "{code}"
            );
        }
    }
}
