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
use super::open::{Connected, Driver, Failure, OpenError, describe};

/// When a caller may try again.
pub(super) const RETRY_MS: u32 = 1000;

/// How long a call waits for its answer. Less than the five seconds that a call of a function may take, so that it is
/// answered and not given up; ten thousand upserts take a tenth of one.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Between two attempts to connect. Four attempts a second are nothing to a server that is there, and a caller who was
/// told to come back in a second finds the connection made.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// How long the end waits for the server to be told.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);

/// The most calls that wait for one connection at once; beyond, they are turned away instead of piling up.
const MAX_CALLS: usize = 256;

/// The two connections: a look never waits behind a write.
pub(super) struct Connections {
    pub(super) writer: Arc<Connection>,
    pub(super) reader: Arc<Connection>,
    /// None only while being dropped; when it is gone, the thread ends.
    open: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Connections {
    /// Connects, makes sure that the database is fit, and tends both connections from then on.
    pub(super) async fn open(address: Address) -> Result<Self, OpenError> {
        let thread_failed =
            |endpoint: &str, reason: String| OpenError::Unreachable { endpoint: endpoint.to_owned(), reason };
        let endpoint = address.endpoint.clone();
        let writer = Arc::new(Connection::new("writing", &endpoint));
        let reader = Arc::new(Connection::new("reading", &endpoint));
        let (open, closed) = oneshot::channel();
        let (ready, opened) = oneshot::channel();
        let mut supervisor = Supervisor { address, writer: Arc::clone(&writer), reader: Arc::clone(&reader), closed };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| thread_failed(&endpoint, error.to_string()))?;
        let thread = std::thread::Builder::new()
            .name("archive-postgres".to_owned())
            .spawn(move || runtime.block_on(supervisor.run(ready)))
            .map_err(|error| thread_failed(&endpoint, error.to_string()))?;
        opened.await.map_err(|_| thread_failed(&endpoint, "its thread ended".to_owned()))??;
        Ok(Self { writer, reader, open: Some(open), thread: Some(thread) })
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.open = None;
        if let Some(thread) = self.thread.take() {
            // That it panicked is nothing that a drop could mend.
            let _ = thread.join();
        }
    }
}

/// What the thread does.
struct Supervisor {
    address: Address,
    writer: Arc<Connection>,
    reader: Arc<Connection>,
    closed: oneshot::Receiver<()>,
}

impl Supervisor {
    async fn run(&mut self, ready: oneshot::Sender<Result<(), OpenError>>) {
        let (address, closed) = (&self.address, &mut self.closed);
        let opened = tokio::select! {
            opened = connect_both(address) => opened,
            // Whoever opened it no longer waits.
            _ = &mut *closed => return,
        };
        let (writing, reading) = match opened {
            Ok((writer, reader)) => (self.writer.install(writer), self.reader.install(reader)),
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        let _ = ready.send(Ok(()));
        let supervised =
            async { tokio::join!(self.writer.supervise(address, writing), self.reader.supervise(address, reading)) };
        tokio::pin!(supervised);
        tokio::select! {
            _ = &mut supervised => return,
            _ = closed => {}
        }
        self.writer.close();
        self.reader.close();
        // A server that does not hear it finds the socket closed.
        let _ = timeout(CLOSE_TIMEOUT, supervised).await;
    }
}

async fn connect_both(address: &Address) -> Result<(Connected, Connected), OpenError> {
    Ok((Connected::first(address).await?, Connected::first(address).await?))
}

/// A connection as callers hold it.
pub(super) struct Handle {
    pub(super) client: Client,
    /// Called by whoever finds out that the other side is silent.
    broken: Arc<Notify>,
}

/// A connection as the thread holds it. It does not hold the client, whose end is the connection's.
struct Active {
    driver: Driver,
    broken: Arc<Notify>,
}

/// One connection, through all its lives.
pub(super) struct Connection {
    purpose: &'static str,
    endpoint: String,
    handle: Mutex<Option<Arc<Handle>>>,
    calls: Semaphore,
    /// Whether it failed last: a server that stays away is worth one line in the log, not four a second.
    failing: AtomicBool,
    closing: AtomicBool,
}

impl Connection {
    fn new(purpose: &'static str, endpoint: &str) -> Self {
        Self {
            purpose,
            endpoint: endpoint.to_owned(),
            handle: Mutex::new(None),
            calls: Semaphore::new(MAX_CALLS),
            failing: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        }
    }

    /// Asks the server something; the answer, or [`Error::Unavailable`], comes within [`CALL_TIMEOUT`].
    pub(super) async fn ask<T, F>(&self, call: impl FnOnce(Arc<Handle>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let unavailable = || Error::Unavailable(RETRY_MS);
        let handle = self.handle.lock().clone().ok_or_else(unavailable)?;
        let _permit = self.calls.try_acquire().map_err(|_| unavailable())?;
        match timeout(CALL_TIMEOUT, call(Arc::clone(&handle))).await {
            Ok(Ok(answer)) => {
                self.report_recovery();
                Ok(answer)
            }
            Ok(Err(error)) => {
                self.report_failure(&describe(&error));
                let (answer, action) = classify(&error);
                if action == Action::Replace {
                    self.discard(&handle);
                }
                Err(answer)
            }
            Err(_) => {
                self.report_failure(&Failure::TimedOut.to_string());
                self.discard(&handle);
                Err(unavailable())
            }
        }
    }

    /// Takes a connection out of use. Another caller may have done so already, and a new one may be there since.
    fn discard(&self, handle: &Arc<Handle>) {
        let mut current = self.handle.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, handle)) {
            *current = None;
            handle.broken.notify_one();
        }
    }

    fn install(&self, connected: Connected) -> Active {
        let broken = Arc::new(Notify::new());
        let handle = Handle { client: connected.client, broken: Arc::clone(&broken) };
        *self.handle.lock() = Some(Arc::new(handle));
        self.report_recovery();
        Active { driver: connected.driver, broken }
    }

    /// Drives the connection and replaces it whenever it ends, until the line is hung up.
    async fn supervise(&self, address: &Address, mut active: Active) {
        loop {
            tokio::select! {
                ended = &mut active.driver => {
                    self.handle.lock().take();
                    if self.closing.load(Ordering::Relaxed) {
                        return;
                    }
                    self.report_failure(&ended.err().map_or(Failure::Closed, Failure::Client).to_string());
                }
                () = active.broken.notified() => {}
            }
            // Before the next is made: the old one may be all that the server grants us.
            drop(active);
            active = self.install(self.reconnect(address).await);
        }
    }

    async fn reconnect(&self, address: &Address) -> Connected {
        loop {
            sleep(RECONNECT_PAUSE).await;
            match Connected::to(address).await {
                Ok(connected) => return connected,
                Err(failure) => self.report_failure(&failure.to_string()),
            }
        }
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.handle.lock().take();
    }

    fn report_failure(&self, reason: &str) {
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(endpoint = self.endpoint, purpose = self.purpose, reason, "the archive fails");
        }
    }

    fn report_recovery(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(endpoint = self.endpoint, purpose = self.purpose, "the archive works again");
        }
    }
}

/// What becomes of a connection after an error on it.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Keep,
    Replace,
}

/// What the caller can do about an error, and whether the connection is still good.
fn classify(error: &tokio_postgres::Error) -> (Error, Action) {
    match error.code().map(|code| code.code()) {
        Some(code) => classify_code(code, &describe(error)),
        // Without a code it was not the server that complained: the connection broke, or somebody else answers there.
        None => (Error::Unavailable(RETRY_MS), Action::Replace),
    }
}

fn classify_code(code: &str, said: &str) -> (Error, Action) {
    match code.get(..2).unwrap_or_default() {
        // It only reads since a switch-over: elsewhere there is one that writes, and a new connection may find it.
        _ if code == "25006" => (Error::Unavailable(RETRY_MS), Action::Replace),
        // Somebody holds the table or a row for too long, or the disk is full: the connection is not to blame.
        "40" | "53" | "55" | "57" | "58" => (Error::Unavailable(RETRY_MS), Action::Keep),
        "08" => (Error::Unavailable(RETRY_MS), Action::Replace),
        _ => (Error::Other(format!("the archive refuses: {said}")), Action::Keep),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        let unavailable = Error::Unavailable(RETRY_MS);
        for code in ["40P01", "40001", "53100", "53300", "55P03", "57014", "57P01", "58030"] {
            assert_eq!(classify_code(code, ""), (unavailable.clone(), Action::Keep), "{code}");
        }
        for code in ["25006", "08006"] {
            assert_eq!(classify_code(code, ""), (unavailable.clone(), Action::Replace), "{code}");
        }
        for code in ["42P01", "42501", "22021", "XX001"] {
            assert!(
                matches!(classify_code(code, "why"), (Error::Other(text), Action::Keep) if text.contains("why")),
                "{code}"
            );
        }
    }
}
