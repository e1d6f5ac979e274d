//! Starts every background job by name, and restarts one that panics or ends.
//!
//! A job is made by a closure, so that it can be made again. What must survive a restart, such as the receiving end of a
//! channel, belongs to the closure and is lent to each run.
//!
//! Deliberately absent: a limit on restarts. A job that fails at every start does no harm but its own absence, and the
//! alert on `rollcall_job_restarts_total` reports it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::metrics::Metrics;

/// The pause before the first restart. It doubles with every further one, up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// A job that ran for this long is taken for healthy: its next restart waits for the first pause again.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// How a run of a job ended, if it did not panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Its input was closed on purpose: there is nothing left to do, and it is not restarted.
    Closed,
    /// It should have gone on, for this reason.
    Unexpected(&'static str),
}

/// The jobs of one thread, or of the host.
pub(crate) struct Supervisor {
    metrics: Arc<Metrics>,
    jobs: Mutex<Vec<AbortHandle>>,
}

impl Supervisor {
    pub(crate) fn new(metrics: &Arc<Metrics>) -> Self {
        Self { metrics: Arc::clone(metrics), jobs: Mutex::default() }
    }

    /// Runs a job on the current thread's local task set.
    pub(crate) fn spawn_local<F>(&self, job: &'static str, start: impl FnMut() -> F + 'static)
    where
        F: Future<Output = Exit> + 'static,
    {
        self.metrics.job_started(job);
        let task = tokio::task::spawn_local(supervise(Arc::clone(&self.metrics), job, start));
        self.keep(task.abort_handle());
    }

    /// Runs a job on the current runtime.
    pub(crate) fn spawn<F>(&self, job: &'static str, start: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = Exit> + Send + 'static,
    {
        self.metrics.job_started(job);
        let task = tokio::spawn(supervise(Arc::clone(&self.metrics), job, start));
        self.keep(task.abort_handle());
    }

    /// Stops every job, without a restart. Jobs that are not stopped end with their runtime.
    pub(crate) fn stop(&self) {
        self.lock().drain(..).for_each(|job| job.abort());
    }

    fn keep(&self, job: AbortHandle) {
        self.lock().push(job);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<AbortHandle>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn supervise<F: Future<Output = Exit>>(metrics: Arc<Metrics>, job: &'static str, mut start: impl FnMut() -> F) {
    let mut backoff = FIRST_BACKOFF;
    loop {
        let began = Instant::now();
        // The state that a run shares with others is behind `RefCell` and `Mutex`, whose guards are released on unwinding.
        let reason = match AssertUnwindSafe(async { start().await }).catch_unwind().await {
            Ok(Exit::Closed) => return,
            Ok(Exit::Unexpected(reason)) => reason.to_owned(),
            Err(panic) => format!("panicked: {}", panic_message(&*panic)),
        };
        if began.elapsed() >= HEALTHY_AFTER {
            backoff = FIRST_BACKOFF;
        }
        metrics.job_restarted(job);
        tracing::error!(job, reason, backoff_ms = backoff.as_millis() as u64, "Job ended; restarting");
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(LONGEST_BACKOFF);
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
#[allow(clippy::panic, reason = "what happens after a panic is what is tested")]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::sync::{Mutex as AsyncMutex, mpsc};
    use tokio::task::LocalSet;

    use super::*;

    fn restarts(metrics: &Metrics, job: &str) -> Option<u64> {
        let name = format!("rollcall_job_restarts_total{{job=\"{job}\"}} ");
        metrics.text().lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
    }

    /// Runs a test on a local task set whose clock advances by itself.
    async fn on_local_set(test: impl AsyncFnOnce(&Arc<Metrics>, &Supervisor)) {
        tokio::time::pause();
        let metrics = Arc::new(Metrics::default());
        let supervisor = Supervisor::new(&metrics);
        LocalSet::new().run_until(test(&metrics, &supervisor)).await;
    }

    #[tokio::test]
    async fn panicking_job_is_restarted_and_counted() {
        on_local_set(async |metrics, supervisor| {
            let runs = Rc::new(Cell::new(0));
            let (sender, receiver) = mpsc::unbounded_channel();
            let receiver = Rc::new(AsyncMutex::new(receiver));
            let handled = Rc::new(Cell::new(0));
            supervisor.spawn_local("test", {
                let (runs, handled) = (Rc::clone(&runs), Rc::clone(&handled));
                move || {
                    runs.set(runs.get() + 1);
                    let (receiver, handled) = (Rc::clone(&receiver), Rc::clone(&handled));
                    async move {
                        while let Some(number) = receiver.lock().await.recv().await {
                            assert_ne!(number, 2, "two is one too many");
                            handled.set(handled.get() + number);
                        }
                        Exit::Closed
                    }
                }
            });
            assert_eq!(restarts(metrics, "test"), Some(0), "exported before the first restart");
            (1..=3).for_each(|number| sender.send(number).unwrap_or_default());
            tokio::time::sleep(FIRST_BACKOFF * 2).await;
            assert_eq!((runs.get(), restarts(metrics, "test")), (2, Some(1)));
            assert_eq!(handled.get(), 4, "the input outlived the run");
            drop(sender);
            tokio::time::sleep(LONGEST_BACKOFF).await;
            assert_eq!((runs.get(), restarts(metrics, "test")), (2, Some(1)), "a closed job stays closed");
        })
        .await;
    }

    #[tokio::test]
    async fn job_that_ends_is_restarted_with_backoff() {
        on_local_set(async |metrics, supervisor| {
            let began = Instant::now();
            let starts = Rc::new(std::cell::RefCell::new(Vec::new()));
            supervisor.spawn_local("test", {
                let starts = Rc::clone(&starts);
                move || {
                    starts.borrow_mut().push(began.elapsed().as_millis());
                    async { Exit::Unexpected("the stream ended") }
                }
            });
            tokio::time::sleep(Duration::from_millis(750)).await;
            let (first, second, third) = (101, 302, 703);
            let starts = starts.borrow().clone();
            assert_eq!(starts.len(), 4, "{starts:?}");
            let expected = [0, first, second, third];
            let late = starts.iter().zip(expected).map(|(at, expected)| expected.abs_diff(*at)).max();
            assert!(late.is_some_and(|late| late <= 3), "{starts:?}");
            assert_eq!(restarts(metrics, "test"), Some(4));
        })
        .await;
    }

    #[tokio::test]
    async fn panic_before_the_first_await_is_restarted() {
        on_local_set(async |metrics, supervisor| {
            let runs = Rc::new(Cell::new(0));
            supervisor.spawn_local("test", {
                let runs = Rc::clone(&runs);
                move || {
                    runs.set(runs.get() + 1);
                    assert!(runs.get() > 1, "cannot start");
                    std::future::pending()
                }
            });
            tokio::time::sleep(LONGEST_BACKOFF).await;
            assert_eq!((runs.get(), restarts(metrics, "test")), (2, Some(1)));
        })
        .await;
    }

    #[tokio::test]
    async fn stop_ends_jobs_without_restarts() {
        on_local_set(async |metrics, supervisor| {
            let alive = Rc::new(());
            supervisor.spawn_local("local", {
                let alive = Rc::clone(&alive);
                move || {
                    let alive = Rc::clone(&alive);
                    async move {
                        std::future::pending::<()>().await;
                        drop(alive);
                        Exit::Closed
                    }
                }
            });
            supervisor.spawn("shared", || async { Exit::Unexpected("always") });
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!((Rc::strong_count(&alive), restarts(metrics, "shared")), (3, Some(1)));
            supervisor.stop();
            tokio::time::sleep(LONGEST_BACKOFF * 10).await;
            assert_eq!(Rc::strong_count(&alive), 1, "the job and its closure are gone");
            assert_eq!((restarts(metrics, "local"), restarts(metrics, "shared")), (Some(0), Some(1)));
        })
        .await;
    }
}
