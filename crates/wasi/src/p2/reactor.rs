//! Runs futures on `wasi:io/poll`.
//!
//! A future that has to wait registers what it waits for. When nothing can continue, one `poll` waits for all of it, up to the
//! earliest timer. A future that is dropped takes its registration with it.
//!
//! The registrations are the instance's, not a call's: a connection outlives the call that opened it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use wasip2::clocks::monotonic_clock::{self, subscribe_instant};
use wasip2::io::poll::{Pollable, poll};

/// How long [`idle`] may block if no timer is set.
const MAX_IDLE: Duration = Duration::from_secs(3);

thread_local! {
    static REACTOR: RefCell<Reactor> = RefCell::default();
}

/// Everything that futures of this instance wait for.
#[derive(Default)]
struct Reactor {
    waiting: BTreeMap<u64, (Event, Waker)>,
    last_key: u64,
}

/// What a future waits for.
enum Event {
    Ready(Rc<Pollable>),
    /// An instant of the monotonic clock.
    Time(u64),
    /// Nothing else can continue.
    Idle,
}

/// Runs a future until it is done.
#[allow(clippy::panic, reason = "a bug; the host sees a trap with this message, otherwise the call would never end")]
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !woken.0.swap(false, Ordering::Relaxed) {
            let wakers = REACTOR.with_borrow_mut(Reactor::wait);
            if wakers.is_empty() {
                panic!("a call waits for something that cannot happen");
            }
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// Whether the future that is run can continue.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until this is ready.
pub async fn ready(pollable: &Rc<Pollable>) {
    wait_for(Event::Ready(Rc::clone(pollable))).await;
}

/// Waits until this instant of the monotonic clock.
pub(super) async fn sleep_until(instant: u64) {
    wait_for(Event::Time(instant)).await;
}

/// Waits until nothing but timers can continue. Returns the time until the earliest: for so long the caller may block.
pub async fn idle() -> Duration {
    wait_for(Event::Idle).await;
    let earliest = REACTOR.with_borrow(Reactor::earliest);
    earliest.map_or(MAX_IDLE, |instant| Duration::from_nanos(instant.saturating_sub(monotonic_clock::now())))
}

fn wait_for(event: Event) -> Waiting {
    Waiting { event: Some(event), key: None }
}

impl Reactor {
    /// Waits for the next events, removes them and returns their wakers; none if nothing is waited for.
    fn wait(&mut self) -> Vec<Waker> {
        let pollables = self.waiting.iter().filter_map(|(key, (event, _))| match event {
            Event::Ready(pollable) => Some((*key, Rc::clone(pollable))),
            Event::Time(_) | Event::Idle => None,
        });
        let (keys, pollables): (Vec<u64>, Vec<Rc<Pollable>>) = pollables.unzip();
        let earliest = self.earliest();
        let is_idle = |(event, _): &(Event, Waker)| matches!(event, Event::Idle);
        if pollables.is_empty() && self.waiting.values().any(is_idle) {
            let now = monotonic_clock::now();
            let is_due = earliest.is_some_and(|instant| instant <= now);
            return self.remove(|_, event| match event {
                Event::Time(instant) => *instant <= now,
                Event::Idle => !is_due,
                Event::Ready(_) => false,
            });
        }
        let timer = earliest.map(subscribe_instant);
        let all: Vec<&Pollable> = pollables.iter().map(Rc::as_ref).chain(&timer).collect();
        if all.is_empty() {
            return Vec::new();
        }
        let ready = poll(&all);
        let ready: Vec<u64> =
            ready.iter().filter_map(|index| keys.get(usize::try_from(*index).ok()?).copied()).collect();
        let now = monotonic_clock::now();
        self.remove(|key, event| match event {
            Event::Ready(_) => ready.contains(&key),
            Event::Time(instant) => *instant <= now,
            Event::Idle => false,
        })
    }

    fn remove(&mut self, happened: impl Fn(u64, &Event) -> bool) -> Vec<Waker> {
        let removed = self.waiting.extract_if(.., |key, (event, _)| happened(*key, event));
        removed.map(|(_, (_, waker))| waker).collect()
    }

    fn earliest(&self) -> Option<u64> {
        let instant = |(event, _): &(Event, Waker)| match event {
            Event::Time(instant) => Some(*instant),
            Event::Ready(_) | Event::Idle => None,
        };
        self.waiting.values().filter_map(instant).min()
    }
}

/// Waits for one event: registered by the first poll, done when the reactor has removed it.
struct Waiting {
    event: Option<Event>,
    key: Option<u64>,
}

impl Future for Waiting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        REACTOR.with_borrow_mut(|reactor| {
            if let Some(event) = self.event.take() {
                reactor.last_key += 1;
                self.key = Some(reactor.last_key);
                reactor.waiting.insert(reactor.last_key, (event, context.waker().clone()));
                return Poll::Pending;
            }
            match self.key.and_then(|key| reactor.waiting.get_mut(&key)) {
                Some((_, waker)) => {
                    waker.clone_from(context.waker());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            }
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            REACTOR.with_borrow_mut(|reactor| reactor.waiting.remove(&key));
        }
    }
}
