//! A live connection is a heartbeat: here the host beats for its connections, many at a time, and says when they are gone.
//!
//! Beats wait for nothing but the batch before them, so the first one of a connection is taken at once and those of
//! thousands that come together become a few calls. A beat that the store could not take is made again for as long as the
//! connection lives.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rollcall_api::call::{Beat, Departure, Reason};
use rollcall_core::heartbeat::Sign;
use rollcall_core::{DeviceId, DeviceKind, Error, UserId};
use rollcall_functions::capabilities::MAX_BATCH;
use tokio::sync::Notify;

use crate::runtime::Functions;

/// Before what the store could not take is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// A device that somebody is connected with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ConnectedDevice {
    /// Whose.
    pub(crate) user: UserId,
    /// Which.
    pub(crate) device: DeviceId,
}

/// Which devices are connected to this process, and by how many connections: a page that reloads connects anew before the
/// old connection is known to be broken, and that must not count against it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectedDevices(Arc<Mutex<HashMap<ConnectedDevice, u32>>>);

impl ConnectedDevices {
    fn enter(&self, connected: &ConnectedDevice) {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *present.entry(connected.clone()).or_default() += 1;
    }

    /// True: that was the last connection of this device.
    fn leave(&self, connected: &ConnectedDevice) -> bool {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match present.get_mut(connected) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            Some(_) => present.remove(connected).is_some(),
            None => false,
        }
    }

    fn has(&self, connected: &ConnectedDevice) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(connected)
    }
}

/// One worker's connections, as those who attend.
#[derive(Debug, Default)]
pub(super) struct ConnectionHeartbeats {
    present: ConnectedDevices,
    waiting: RefCell<Waiting>,
    /// There is something to do.
    wake: Notify,
    /// There is nothing left to do.
    done: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// One for each device, however often it had to say so.
    beats: HashMap<ConnectedDevice, Sign>,
    leaves: Vec<Departure>,
    /// Being told to the store at this moment.
    in_hand: usize,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.beats.is_empty() && self.leaves.is_empty() && self.in_hand == 0
    }
}

impl ConnectionHeartbeats {
    pub(super) fn new(present: ConnectedDevices) -> Self {
        Self { present, ..Self::default() }
    }

    /// A device comes, or comes once more; `active`: because its person opened it.
    pub(super) fn enter(
        self: &Rc<Self>,
        connected: ConnectedDevice,
        kind: DeviceKind,
        active: bool,
    ) -> DeviceConnection {
        self.present.enter(&connected);
        let device_connection =
            DeviceConnection { heartbeats: Rc::clone(self), connected, kind, leaving: Some(Reason::Dropped) };
        device_connection.beat(active);
        device_connection
    }

    /// Beats and says goodbye for whoever asks for it, for ever.
    pub(super) async fn keep(&self, functions: &Functions) {
        loop {
            self.wake.notified().await;
            while self.hand_over(functions).await {}
            if self.waiting.borrow().is_empty() {
                self.done.notify_waiters();
            }
        }
    }

    /// Returns when the store knows everything that it should.
    pub(super) async fn settled(&self) {
        loop {
            let done = self.done.notified();
            if self.waiting.borrow().is_empty() {
                return;
            }
            done.await;
        }
    }

    /// Tells the store of everybody who waits, in as many calls as it takes. False: there was nothing to tell.
    async fn hand_over(&self, functions: &Functions) -> bool {
        let (beats, leaves) = {
            let mut waiting = self.waiting.borrow_mut();
            let beats = std::mem::take(&mut waiting.beats);
            let leaves = std::mem::take(&mut waiting.leaves);
            waiting.in_hand = beats.len() + leaves.len();
            (beats, leaves)
        };
        if beats.is_empty() && leaves.is_empty() {
            return false;
        }
        let beat = |(ConnectedDevice { user, device }, Sign { kind, active })| Beat { user, device, kind, active };
        let beats: Vec<Beat> = beats.into_iter().map(beat).collect();
        let mut failed = false;
        // First who goes: one who went and came back is here. A beat from before a farewell is not among them.
        for leaves in leaves.chunks(MAX_BATCH) {
            let untold = untold(leaves, functions.leave_many(leaves.to_vec()).await);
            failed |= !untold.is_empty();
            // One who was dropped ends by itself; one who logged out wishes to be gone.
            let untold = untold.into_iter().filter(|leave| leave.reason == Reason::Logout);
            self.waiting.borrow_mut().leaves.extend(untold);
        }
        for beats in beats.chunks(MAX_BATCH) {
            let untold = untold(beats, functions.beat_many(beats.to_vec()).await);
            failed |= !untold.is_empty();
            functions.platform.metrics.beaten(beats.len() - untold.len());
            untold.into_iter().for_each(|beat| self.wait(beat));
        }
        self.waiting.borrow_mut().in_hand = 0;
        if failed {
            tokio::time::sleep(RETRY).await;
        }
        true
    }

    /// Puts a beat among those that wait, if its device is still connected.
    fn wait(&self, beat: Beat) {
        let Beat { user, device, kind, active } = beat;
        let connected = ConnectedDevice { user, device };
        if self.present.has(&connected) {
            let mut waiting = self.waiting.borrow_mut();
            waiting.beats.entry(connected).or_insert(Sign { kind, active }).active |= active;
        }
    }
}

/// Those of whom the store could not be told.
fn untold<T: Clone, A>(asked: &[T], answer: Result<Vec<Result<A, Error>>, Error>) -> Vec<T> {
    let is_away = |error: &Error| matches!(error, Error::Unavailable(_));
    match answer {
        Ok(items) => {
            let untold = asked.iter().zip(items).filter(|(_, item)| item.as_ref().is_err_and(is_away));
            untold.map(|(asked, _)| asked.clone()).collect()
        }
        Err(error) if is_away(&error) => asked.to_vec(),
        Err(error) => {
            tracing::error!("the presence of connections could not be told: {error}");
            Vec::new()
        }
    }
}

/// One connection that attends; dropping it says goodbye.
#[derive(Debug)]
pub(super) struct DeviceConnection {
    heartbeats: Rc<ConnectionHeartbeats>,
    connected: ConnectedDevice,
    kind: DeviceKind,
    /// How it will have left; none: without a word, because we send it away ourselves.
    leaving: Option<Reason>,
}

impl DeviceConnection {
    /// A sign of life; `active`: the person used the device.
    pub(super) fn beat(&self, active: bool) {
        let ConnectedDevice { user, device } = self.connected.clone();
        self.heartbeats.wait(Beat { user, device, kind: self.kind, active });
        self.heartbeats.wake.notify_one();
    }

    /// How it will have left when it is dropped; none: without a word.
    pub(super) fn will_leave(&mut self, how: Option<Reason>) {
        self.leaving = how;
    }
}

impl Drop for DeviceConnection {
    fn drop(&mut self) {
        let was_last = self.heartbeats.present.leave(&self.connected);
        let Some(reason) = self.leaving else { return };
        // Whoever logs out does so with the device; whoever is dropped may be here by another connection.
        if was_last || reason == Reason::Logout {
            let ConnectedDevice { user, device } = self.connected.clone();
            let mut waiting = self.heartbeats.waiting.borrow_mut();
            // What it still had to say is taken back: told after the farewell, it would bring the device back.
            waiting.beats.remove(&self.connected);
            waiting.leaves.push(Departure { user, device, reason });
            self.heartbeats.wake.notify_one();
        }
    }
}
