//! Keeps every instance of `restriction-check` in step with the store, and has watchers looked at anew when what they may
//! see has changed.
//!
//! A host has some instances, each of which holds everything in its own memory, and each worker asks one of them. An
//! instance has a follower on its thread: it loads, follows the log of changes when the store hints that there are some and
//! every so often in any case, and tells the workers that ask this instance whose relations changed. A change made through
//! this host is answered when all of its followers have been there: from then on nobody on this host sees otherwise.

use std::sync::Arc;
use std::time::Duration;

use rollcall_core::Error;
use rollcall_core::policy::Invalidation;
use rollcall_functions::restrictions::{Freshness, Standing};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use crate::runtime::{Checker, Platform};

/// Changes asked for at once.
const STRIDE: u32 = 1024;

/// How often the log is looked at although nothing hinted at a change: for so long a lost hint delays a change.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a change made here waits until it is in force everywhere on this host.
const PATIENCE: Duration = Duration::from_secs(4);

/// After the store could not be asked.
const RETRY: Duration = Duration::from_millis(250);

/// When to come back if a change could not be seen through.
const RETRY_MS: u32 = 1000;

/// Whose relations changed, for one worker.
#[derive(Debug)]
pub(crate) struct Invalidated {
    pub(crate) invalidations: Arc<[Invalidation]>,
    /// To be dropped when it is in force there: when nothing more is told that rests on what was before.
    pub(crate) done: oneshot::Sender<()>,
}

/// A change that waits until it is in force.
type Ask = oneshot::Sender<Result<(), Error>>;

/// All followers of a host.
#[derive(Clone)]
pub(crate) struct PolicySyncHandle(Arc<[mpsc::UnboundedSender<Ask>]>);

impl PolicySyncHandle {
    /// Returns when everything that was changed before is in force on this host.
    pub(crate) async fn in_force(&self) -> Result<(), Error> {
        let asked: Vec<_> = self.0.iter().map(ask).collect();
        let all = async {
            for answer in asked {
                answer.await.unwrap_or(Err(Error::Unavailable(RETRY_MS)))?;
            }
            Ok(())
        };
        timeout(PATIENCE, all).await.unwrap_or(Err(Error::Unavailable(RETRY_MS)))
    }
}

fn ask(follower: &mpsc::UnboundedSender<Ask>) -> oneshot::Receiver<Result<(), Error>> {
    let (ask, answer) = oneshot::channel();
    // A follower that is gone took its worker along: then the answer's end says so.
    let _ = follower.send(ask);
    answer
}

/// How followers behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicySyncOptions {
    /// How many bytes an instance may hold; 0: it holds nothing and asks the store.
    pub(crate) memory_bytes: u64,
    /// Loading begins within this, at random: many hosts that start together do not ask the store all at once.
    pub(crate) spread: Duration,
}

/// Keeps one instance in step.
pub(crate) struct PolicySync {
    checker: Checker,
    options: PolicySyncOptions,
    hints: watch::Receiver<u64>,
    asks: mpsc::UnboundedReceiver<Ask>,
    /// The workers that ask this instance.
    workers: Vec<mpsc::UnboundedSender<Invalidated>>,
    /// Instances of one host load one after the other: the second finds on disk what the first has loaded.
    loading: Arc<Semaphore>,
}

/// When an instance may load.
struct Load {
    /// Not before this.
    from: Instant,
    /// While it loads, no other instance of the host does.
    turn: Option<OwnedSemaphorePermit>,
}

/// PolicySyncHandle for these instances. Worker `w` asks instance `w % instances`; what it is to look at anew comes to it.
pub(crate) fn followers(
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
    let (mut asked, mut all) = (Vec::with_capacity(instances), Vec::with_capacity(instances));
    for (checker, workers) in checkers.into_iter().zip(senders) {
        let (sender, asks) = mpsc::unbounded_channel();
        asked.push(sender);
        let (hints, loading) = (platform.policies.invalidated(), Arc::clone(&loading));
        all.push(PolicySync { checker, options, hints, asks, workers, loading });
    }
    (PolicySyncHandle(asked.into()), all, receivers)
}

impl PolicySync {
    /// Follows for ever, counting on the platform's metrics.
    pub(crate) async fn follow(mut self, platform: &Platform) {
        let mut load = Load { from: self.within_spread(), turn: None };
        let mut before: Option<Freshness> = None;
        let mut waiting = Vec::new();
        let mut failing = false;
        loop {
            while let Ok(ask) = self.asks.try_recv() {
                waiting.push(ask);
            }
            self.hints.mark_unchanged();
            let standing = before.as_ref().map(|before| before.standing);
            let memory = self.allowed(&mut load, standing);
            match self.checker.refresh(STRIDE, memory).await {
                Ok(freshness) => {
                    failing = false;
                    self.tell(&freshness.invalidated).await;
                    platform.metrics.policy.refreshed(&freshness, before.as_ref());
                    report(&freshness, standing, self.options.memory_bytes);
                    if !is_unloaded(Some(freshness.standing)) {
                        load.turn = None;
                    }
                    if standing == Some(Standing::Warm) && freshness.standing == Standing::Cold {
                        // It lost track, and so perhaps did everybody else at this moment.
                        load.from = self.within_spread();
                    }
                    // Changes may follow at any rate, and nobody waits for those that came after theirs.
                    if freshness.caught_up {
                        waiting.drain(..).for_each(|ask| drop(ask.send(Ok(()))));
                    }
                    let more = freshness.more;
                    before = Some(freshness);
                    if more {
                        // Other calls on this thread get their turn between two pages.
                        tokio::task::yield_now().await;
                        continue;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!("cannot catch up with who may see whom, and goes on trying: {error}");
                    }
                    waiting.drain(..).for_each(|ask| drop(ask.send(Err(error.clone()))));
                    platform.metrics.policy.missed();
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
            self.pause(&mut load, before.as_ref().map(|before| before.standing), &mut waiting).await;
        }
    }

    /// Waits for a hint, for somebody who asks, for its turn to load, or until it is time to look.
    async fn pause(&mut self, load: &mut Load, standing: Option<Standing>, waiting: &mut Vec<Ask>) {
        let now = Instant::now();
        let next = if load.from > now { load.from.min(now + LOOK_EVERY) } else { now + LOOK_EVERY };
        let is_to_load = load.from <= now && self.options.memory_bytes > 0 && is_unloaded(standing);
        tokio::select! {
            Ok(turn) = Arc::clone(&self.loading).acquire_owned(), if is_to_load && load.turn.is_none() => {
                load.turn = Some(turn);
            }
            // Where nobody hints any more there is only the clock.
            Ok(()) = self.hints.changed() => {}
            Some(ask) = self.asks.recv() => waiting.push(ask),
            () = tokio::time::sleep_until(next) => {}
        }
    }

    /// How much memory the instance may use at this moment; none: it shall only listen. What it cannot answer from memory is
    /// asked of the store, so there is no hurry to load.
    fn allowed(&self, load: &mut Load, standing: Option<Standing>) -> u64 {
        if !is_unloaded(standing) {
            return self.options.memory_bytes;
        }
        if load.from > Instant::now() || self.options.memory_bytes == 0 {
            return 0;
        }
        if load.turn.is_none() {
            load.turn = Arc::clone(&self.loading).try_acquire_owned().ok();
        }
        if load.turn.is_some() { self.options.memory_bytes } else { 0 }
    }

    fn within_spread(&self) -> Instant {
        Instant::now() + self.options.spread.mul_f64(fastrand::f64())
    }

    /// Tells the workers whose relations changed, and waits until they have heard.
    async fn tell(&self, invalidations: &[Invalidation]) {
        if invalidations.is_empty() {
            return;
        }
        let invalidations: Arc<[Invalidation]> = invalidations.into();
        let told = self.workers.iter().filter_map(|worker| {
            let (done, heard) = oneshot::channel();
            worker.send(Invalidated { invalidations: Arc::clone(&invalidations), done }).is_ok().then_some(heard)
        });
        for heard in told.collect::<Vec<_>>() {
            // However a worker ends, it has heard: one that is gone shows nothing to anybody.
            let _ = timeout(PATIENCE, heard).await;
        }
    }
}

/// Whether an instance has not yet loaded what it could.
fn is_unloaded(standing: Option<Standing>) -> bool {
    !matches!(standing, Some(Standing::Warm | Standing::TooLarge))
}

/// Says once what becomes of the memory.
fn report(freshness: &Freshness, was: Option<Standing>, memory_bytes: u64) {
    if was == Some(freshness.standing) {
        return;
    }
    let Freshness { restricted, blocks, bytes, .. } = *freshness;
    match freshness.standing {
        // Where nobody set anything there is nothing to be said.
        Standing::Warm if restricted + blocks == 0 => {}
        Standing::Warm => tracing::info!(restricted, blocks, bytes, "holds in memory who may see whom"),
        Standing::TooLarge => tracing::warn!(
            memory_bytes,
            "who may see whom does not fit into policy_memory: every check asks the store until it is raised"
        ),
        Standing::Cold | Standing::Loading => {}
    }
}
