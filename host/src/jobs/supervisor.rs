//! Starts every background job by name, and restarts one that panics or ends.
//!
//! A job is made by a closure, so that it can be made again. What must survive a restart, such as the receiving end of a
//! channel, belongs to the closure and is lent to each run.
//!
//! Deliberately absent: a limit on restarts. A job that fails at every start affects nothing else, and the
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
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use tokio::sync::{Mutex as AsyncMutex, mpsc};
    use tokio::task::LocalSet;

    use super::*;

    fn restarts(metrics: &Metrics, job: &str) -> Option<u64> {
        let name = format!("rollcall_job_restarts_total{{background_job=\"{job}\"}} ");
        metrics.text().lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
    }

    async fn on_local_set(test: impl AsyncFnOnce(&Arc<Metrics>, &Supervisor)) {
        let metrics = Arc::new(Metrics::default());
        let supervisor = Supervisor::new(&metrics);
        LocalSet::new().run_until(test(&metrics, &supervisor)).await;
    }

    async fn until(what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < deadline, "not within 10 s: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn panicking_job_is_restarted_and_counted() {
        on_local_set(async |metrics, supervisor| {
            let (runs, sum) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let (sender, receiver) = mpsc::unbounded_channel();
            let receiver = Rc::new(AsyncMutex::new(receiver));
            supervisor.spawn_local("test", {
                let (runs, sum) = (Rc::clone(&runs), Rc::clone(&sum));
                move || {
                    runs.set(runs.get() + 1);
                    let (receiver, sum) = (Rc::clone(&receiver), Rc::clone(&sum));
                    async move {
                        while let Some(number) = receiver.lock().await.recv().await {
                            assert_ne!(number, 2, "the job panics at two");
                            sum.set(sum.get() + number);
                        }
                        Exit::Closed
                    }
                }
            });
            assert_eq!(restarts(metrics, "test"), Some(0), "exported before the first restart");
            (1..=3).for_each(|number| assert!(sender.send(number).is_ok()));
            until("the input outlives the run", || sum.get() == 4).await;
            assert_eq!((runs.get(), restarts(metrics, "test")), (2, Some(1)));
            drop(sender);
            until("a closed job ends", || Rc::strong_count(&runs) == 1).await;
            assert_eq!((runs.get(), restarts(metrics, "test")), (2, Some(1)), "and is not restarted");
        })
        .await;
    }

    #[tokio::test]
    async fn job_that_ends_is_restarted_with_backoff() {
        on_local_set(async |metrics, supervisor| {
            let starts = Rc::new(RefCell::new(Vec::new()));
            supervisor.spawn_local("test", {
                let starts = Rc::clone(&starts);
                move || {
                    starts.borrow_mut().push(Instant::now());
                    let is_last = starts.borrow().len() == 4;
                    async move {
                        if is_last {
                            std::future::pending::<()>().await;
                        }
                        Exit::Unexpected("the stream ended")
                    }
                }
            });
            until("four runs", || starts.borrow().len() == 4).await;
            assert_eq!(restarts(metrics, "test"), Some(3));
            let starts = starts.borrow();
            let pauses: Vec<Duration> = starts.iter().zip(starts.iter().skip(1)).map(|(a, b)| *b - *a).collect();
            let backoffs = [FIRST_BACKOFF, FIRST_BACKOFF * 2, FIRST_BACKOFF * 4];
            assert!(pauses.iter().zip(backoffs).all(|(pause, backoff)| *pause >= backoff), "{pauses:?}");
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
                    assert!(runs.get() > 1, "the first run cannot start");
                    std::future::pending()
                }
            });
            until("a second run", || runs.get() == 2).await;
            assert_eq!(restarts(metrics, "test"), Some(1));
        })
        .await;
    }

    #[tokio::test]
    async fn stop_ends_jobs_without_restarts() {
        on_local_set(async |metrics, supervisor| {
            let (local, shared) = (Rc::new(()), Arc::new(()));
            supervisor.spawn_local("local", {
                let local = Rc::clone(&local);
                move || {
                    let local = Rc::clone(&local);
                    async move {
                        std::future::pending::<()>().await;
                        drop(local);
                        Exit::Closed
                    }
                }
            });
            supervisor.spawn("shared", {
                let shared = Arc::clone(&shared);
                move || {
                    let _keep = &shared;
                    async { Exit::Unexpected("always") }
                }
            });
            until("both run", || Rc::strong_count(&local) == 3 && restarts(metrics, "shared") == Some(1)).await;
            supervisor.stop();
            until("both are gone", || Rc::strong_count(&local) == 1 && Arc::strong_count(&shared) == 1).await;
            assert_eq!((restarts(metrics, "local"), restarts(metrics, "shared")), (Some(0), Some(1)));
        })
        .await;
    }
}
