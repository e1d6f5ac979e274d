//! Connections that reconnect, and the thread that supervises them.
//!
//! The thread has its own runtime, because a caller's runtime may be busy or shut down. While a connection is down, calls
//! fail at once; while it is up, no call waits longer than [`CALL_TIMEOUT`].

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

/// How long a call waits for the server. Less than the five seconds that a function call may take, so that the function
/// gets an error and is not aborted. Ten thousand upserts take about 0.1 s.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause between two attempts to connect. Four attempts a second do not load a running server, and a caller that retries
/// after [`RETRY_MS`] finds the connection made.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// How long closing waits for the server to receive the termination message.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);

/// The most calls that wait for one connection; further calls fail instead of queueing up.
const MAX_CALLS: usize = 256;

/// The two connections: a read never waits behind a write.
pub(super) struct Connections {
    pub(super) writer: Arc<Connection>,
    pub(super) reader: Arc<Connection>,
    /// Dropping the sender ends the thread. `None` only during drop.
    open: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Connections {
    /// Connects, checks the database, and starts the thread that supervises both connections.
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
        opened.await.map_err(|_| thread_failed(&endpoint, "the connection thread has ended".to_owned()))??;
        Ok(Self { writer, reader, open: Some(open), thread: Some(thread) })
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.open = None;
        if let Some(thread) = self.thread.take() {
            // A drop cannot handle a panic of the thread.
            let _ = thread.join();
        }
    }
}

/// The thread's task: opens both connections and reconnects them.
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
            // The caller of `open` is gone.
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
        // A server that does not receive the message in time finds the socket closed.
        let _ = timeout(CLOSE_TIMEOUT, supervised).await;
    }
}

async fn connect_both(address: &Address) -> Result<(Connected, Connected), OpenError> {
    Ok((Connected::first(address).await?, Connected::first(address).await?))
}

/// A connection as callers hold it.
pub(super) struct Handle {
    pub(super) client: Client,
    /// Notified by the caller that finds the connection unusable.
    broken: Arc<Notify>,
}

/// A connection as the thread holds it. Without the client: dropping the last client ends the connection.
struct Active {
    driver: Driver,
    broken: Arc<Notify>,
}

/// One connection, replaced whenever it ends.
pub(super) struct Connection {
    purpose: &'static str,
    endpoint: String,
    handle: Mutex<Option<Arc<Handle>>>,
    calls: Semaphore,
    /// Whether the last attempt failed, so that an outage is logged once, not four times a second.
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

    /// Runs a call on the connection. Returns its result, or [`Error::Unavailable`], within [`CALL_TIMEOUT`].
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

    /// Takes a connection out of use, unless another caller did so already and a new one is in its place.
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

    /// Drives the connection and replaces it whenever it ends, until it is closed.
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
            // Before reconnecting: the server's connection limit may not allow both.
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
            tracing::warn!(
                endpoint = self.endpoint,
                purpose = self.purpose,
                reason,
                "PostgreSQL archive failed; retrying"
            );
        }
    }

    fn report_recovery(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(endpoint = self.endpoint, purpose = self.purpose, "PostgreSQL archive recovered");
        }
    }
}

/// What to do with a connection after an error on it.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Keep,
    Replace,
}

/// The error for the caller, and whether the connection is still usable.
fn classify(error: &tokio_postgres::Error) -> (Error, Action) {
    match error.code().map(|code| code.code()) {
        Some(code) => classify_code(code, &describe(error)),
        // Without a code the error is not the server's: the connection broke, or the peer is not PostgreSQL.
        None => (Error::Unavailable(RETRY_MS), Action::Replace),
    }
}

fn classify_code(code: &str, message: &str) -> (Error, Action) {
    match code.get(..2).unwrap_or_default() {
        // Read-only since a failover: a new connection may reach the new primary.
        _ if code == "25006" => (Error::Unavailable(RETRY_MS), Action::Replace),
        // A lock held for too long, or a full disk: the connection is usable.
        "40" | "53" | "55" | "57" | "58" => (Error::Unavailable(RETRY_MS), Action::Keep),
        "08" => (Error::Unavailable(RETRY_MS), Action::Replace),
        _ => (Error::Other(format!("PostgreSQL archive rejected the statement: {message}")), Action::Keep),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_decide_retry_and_reconnect() {
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
