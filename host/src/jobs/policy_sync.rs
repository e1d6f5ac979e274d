//! Keeps the policy cache of every `restriction-check` instance up to date, and reports invalidations to the hubs.
//!
//! A host has one or more instances, each with its own policy cache, and each worker calls one of them. An instance's
//! sync runs on the instance's thread: it loads the policy, follows the log of changes whenever the store hints at one
//! and at least every second, and sends invalidations to the workers that call the instance. A policy change made
//! through this host is answered when every instance has applied it: from then on no worker shows otherwise.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rollcall_core::Error;
use rollcall_core::policy::Invalidation;
use rollcall_functions::restrictions::{CacheState, Freshness};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::Exit;
use crate::runtime::{Checker, Platform};

/// Changes requested in one call.
const CHANGES_PER_CALL: u32 = 1024;

/// How often the log is read without a hint. A lost hint delays a change by at most this.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// How long a change made here waits until it is in force on this host.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(4);

/// The pause after the store could not be read.
const RETRY: Duration = Duration::from_millis(250);

/// The retry hint of a change that was not in force in time.
const RETRY_MS: u32 = 1000;

/// Invalidations for one worker.
#[derive(Debug)]
pub(crate) struct Invalidated {
    pub(crate) invalidations: Arc<[Invalidation]>,
    /// Dropped when the worker has invalidated the affected entries.
    pub(crate) done: oneshot::Sender<()>,
}

/// Waits until every change made before is applied.
type SyncRequest = oneshot::Sender<Result<(), Error>>;

/// Reaches the policy sync of every instance of a host.
#[derive(Clone)]
pub(crate) struct PolicySyncHandle(Arc<[mpsc::UnboundedSender<SyncRequest>]>);

impl PolicySyncHandle {
    /// Returns when every change made before is in force on this host.
    pub(crate) async fn in_force(&self) -> Result<(), Error> {
        let answers: Vec<_> = self.0.iter().map(request).collect();
        let all = async {
            for answer in answers {
                answer.await.unwrap_or(Err(Error::Unavailable(RETRY_MS)))?;
            }
            Ok(())
        };
        timeout(IN_FORCE_TIMEOUT, all).await.unwrap_or(Err(Error::Unavailable(RETRY_MS)))
    }
}

fn request(sync: &mpsc::UnboundedSender<SyncRequest>) -> oneshot::Receiver<Result<(), Error>> {
    let (request, answer) = oneshot::channel();
    // If the worker has ended, the answer's sender is dropped, which the caller sees.
    let _ = sync.send(request);
    answer
}

/// The settings of policy sync.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicySyncOptions {
    /// How many bytes an instance may hold; 0 means that it holds nothing and reads the store.
    pub(crate) memory_bytes: u64,
    /// Loading begins after a random time up to this, so that hosts that start together do not load together.
    pub(crate) spread: Duration,
}

/// The policy sync of one instance.
pub(crate) struct PolicySync {
    checker: Checker,
    options: PolicySyncOptions,
    hints: watch::Receiver<u64>,
    requests: mpsc::UnboundedReceiver<SyncRequest>,
    /// The workers that call this instance.
    workers: Vec<mpsc::UnboundedSender<Invalidated>>,
    /// One instance of a host loads at a time: the second finds on disk what the first has loaded.
    loading: Arc<Semaphore>,
    /// The last answer of the instance.
    last: Option<Freshness>,
}

/// When an instance may load.
struct Load {
    /// Not before this.
    from: Instant,
    /// Held while it loads.
    permit: Option<OwnedSemaphorePermit>,
}

/// The policy sync of each instance, a handle to all of them, and what each worker receives. Worker `w` calls instance
/// `w % instances`.
pub(crate) fn policy_syncs(
    checkers: Vec<Checker>,
    platform: &Platform,
    options: PolicySyncOptions,
    workers: usize,
) -> (PolicySyncHandle, Vec<PolicySync>, Vec<mpsc::UnboundedReceiver<Invalidated>>) {
    let instances = checkers.len().max(1);
    let (mut senders, mut receivers) = (vec![Vec::new(); instances], Vec::with_capacity(workers));
    for worker in 0..workers {
        let (sender, receiver) = mpsc::unbounded_channel();
        senders.iter_mut().skip(worker % instances).take(1).for_each(|of| of.push(sender.clone()));
        receivers.push(receiver);
    }
    let loading = Arc::new(Semaphore::new(1));
    let (mut handles, mut syncs) = (Vec::with_capacity(instances), Vec::with_capacity(instances));
    for (checker, workers) in checkers.into_iter().zip(senders) {
        let (sender, requests) = mpsc::unbounded_channel();
        handles.push(sender);
        let (hints, loading) = (platform.policies.invalidated(), Arc::clone(&loading));
        syncs.push(PolicySync { checker, options, hints, requests, workers, loading, last: None });
    }
    (PolicySyncHandle(handles.into()), syncs, receivers)
}

pub(crate) async fn run(sync: Rc<Mutex<PolicySync>>, platform: Platform) -> Exit {
    sync.lock().await.follow(&platform).await
}

impl PolicySync {
    async fn follow(&mut self, platform: &Platform) -> Exit {
        let mut load = Load { from: self.within_spread(), permit: None };
        let mut waiting = Vec::new();
        let mut failing = false;
        loop {
            while let Ok(request) = self.requests.try_recv() {
                waiting.push(request);
            }
            self.hints.mark_unchanged();
            let cache_state = self.last.as_ref().map(|last| last.state);
            let memory = self.allowed_memory(&mut load, cache_state);
            match self.checker.refresh(CHANGES_PER_CALL, memory).await {
                Ok(freshness) => {
                    failing = false;
                    self.invalidate(&freshness.invalidated).await;
                    platform.metrics.policy.refreshed(&freshness, self.last.as_ref());
                    log_cache_state(&freshness, cache_state, self.options.memory_bytes);
                    if !is_unloaded(Some(freshness.state)) {
                        load.permit = None;
                    }
                    if cache_state == Some(CacheState::Warm) && freshness.state == CacheState::Cold {
                        // The instance fell behind the log, and perhaps those of other hosts did at the same time.
                        load.from = self.within_spread();
                    }
                    // Requests that arrive during this pass wait for the next.
                    if freshness.caught_up {
                        waiting.drain(..).for_each(|request: SyncRequest| drop(request.send(Ok(()))));
                    }
                    let more = freshness.more;
                    self.last = Some(freshness);
                    if more {
                        // Other calls on this thread run between two pages.
                        tokio::task::yield_now().await;
                        continue;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "Policy sync failed; retrying");
                    }
                    waiting.drain(..).for_each(|request| drop(request.send(Err(error.clone()))));
                    platform.metrics.policy.missed();
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
            let cache_state = self.last.as_ref().map(|last| last.state);
            self.wait(&mut load, cache_state, &mut waiting).await;
        }
    }

    /// Waits for a hint, a request, the permit to load, or the next poll.
    async fn wait(&mut self, load: &mut Load, cache_state: Option<CacheState>, waiting: &mut Vec<SyncRequest>) {
        let now = Instant::now();
        let next = if load.from > now { load.from.min(now + POLL_EVERY) } else { now + POLL_EVERY };
        let is_to_load = load.from <= now && self.options.memory_bytes > 0 && is_unloaded(cache_state);
        tokio::select! {
            Ok(permit) = Arc::clone(&self.loading).acquire_owned(), if is_to_load && load.permit.is_none() => {
                load.permit = Some(permit);
            }
            // Without hints only the poll is left.
            Ok(()) = self.hints.changed() => {}
            Some(request) = self.requests.recv() => waiting.push(request),
            () = tokio::time::sleep_until(next) => {}
        }
    }

    /// How much memory the instance may use now; 0 means that it only follows the log. What it does not hold it reads
    /// from the store, so loading can wait.
    fn allowed_memory(&self, load: &mut Load, cache_state: Option<CacheState>) -> u64 {
        if !is_unloaded(cache_state) {
            return self.options.memory_bytes;
        }
        if load.from > Instant::now() || self.options.memory_bytes == 0 {
            return 0;
        }
        if load.permit.is_none() {
            load.permit = Arc::clone(&self.loading).try_acquire_owned().ok();
        }
        if load.permit.is_some() { self.options.memory_bytes } else { 0 }
    }

    fn within_spread(&self) -> Instant {
        Instant::now() + self.options.spread.mul_f64(fastrand::f64())
    }

    /// Sends invalidations to the workers, and waits until they are applied.
    async fn invalidate(&self, invalidations: &[Invalidation]) {
        if invalidations.is_empty() {
            return;
        }
        let invalidations: Arc<[Invalidation]> = invalidations.into();
        let sent = self.workers.iter().filter_map(|worker| {
            let (done, applied) = oneshot::channel();
            worker.send(Invalidated { invalidations: Arc::clone(&invalidations), done }).is_ok().then_some(applied)
        });
        for applied in sent.collect::<Vec<_>>() {
            // A worker that has ended pushes nothing, so it counts as done.
            let _ = timeout(IN_FORCE_TIMEOUT, applied).await;
        }
    }
}

/// Whether an instance has not loaded the policy yet.
fn is_unloaded(cache_state: Option<CacheState>) -> bool {
    !matches!(cache_state, Some(CacheState::Warm | CacheState::TooLarge))
}

/// Logs a change of the cache's state.
fn log_cache_state(freshness: &Freshness, before: Option<CacheState>, memory_bytes: u64) {
    if before == Some(freshness.state) {
        return;
    }
    let Freshness { restricted, blocks, bytes, .. } = *freshness;
    match freshness.state {
        // There is no policy: nothing to report.
        CacheState::Warm if restricted + blocks == 0 => {}
        CacheState::Warm => tracing::info!(restricted, blocks, bytes, "Policy loaded into memory"),
        CacheState::TooLarge => tracing::warn!(
            memory_bytes,
            "Policy exceeds policy_memory; checks read the store until policy_memory is raised"
        ),
        CacheState::Cold | CacheState::Loading => {}
    }
}
