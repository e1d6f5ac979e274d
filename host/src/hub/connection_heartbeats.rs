//! An open connection is a heartbeat: the host sends the beats of its connections in batches, and their departures.
//!
//! A beat waits only for the batch before it: the first beat of a connection is sent at once, and those of thousands that
//! come together become a few calls. A failed beat is retried for as long as the connection is open.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rollcall_api::call::{Beat, Departure, DepartureReason};
use rollcall_core::heartbeat::BeatDetails;
use rollcall_core::{DeviceId, DeviceKind, Error, UserId};
use rollcall_functions::capabilities::MAX_BATCH;
use tokio::sync::Notify;

use crate::runtime::Functions;

/// The pause before a failed batch is retried.
const RETRY: Duration = Duration::from_millis(500);

/// A device with an open connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ConnectedDevice {
    pub(crate) user: UserId,
    pub(crate) device: DeviceId,
}

/// How many connections each device has to this process. A page that reloads connects again before its old connection is
/// known to be broken; closing the old one must not count as a departure.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectedDevices(Arc<Mutex<HashMap<ConnectedDevice, u32>>>);

impl ConnectedDevices {
    fn add(&self, device: &ConnectedDevice) {
        *self.lock().entry(device.clone()).or_default() += 1;
    }

    /// Removes one connection. True if it was the device's last.
    fn remove(&self, device: &ConnectedDevice) -> bool {
        let mut connections = self.lock();
        match connections.get_mut(device) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            Some(_) => connections.remove(device).is_some(),
            None => false,
        }
    }

    fn contains(&self, device: &ConnectedDevice) -> bool {
        self.lock().contains_key(device)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ConnectedDevice, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beats and departures of one worker's connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionHeartbeats {
    connected: ConnectedDevices,
    queue: RefCell<Queue>,
    /// Something was queued.
    queued: Notify,
    /// Everything queued is in the store.
    sent: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// At most one beat per device.
    beats: HashMap<ConnectedDevice, BeatDetails>,
    departures: Vec<Departure>,
    /// How many are being sent.
    in_flight: usize,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.beats.is_empty() && self.departures.is_empty() && self.in_flight == 0
    }
}

impl ConnectionHeartbeats {
    pub(super) fn new(connected: ConnectedDevices) -> Self {
        Self { connected, ..Self::default() }
    }

    /// Adds a connection of a device and queues its first beat; `active` if the user opened it.
    pub(super) fn connect(
        self: &Rc<Self>,
        device: ConnectedDevice,
        kind: DeviceKind,
        active: bool,
    ) -> DeviceConnection {
        self.connected.add(&device);
        let heartbeats = Rc::clone(self);
        let connection = DeviceConnection { heartbeats, device, kind, departs_as: Some(DepartureReason::Dropped) };
        connection.beat(active);
        connection
    }

    /// Forgets the batch of a run that panicked. Its beats are sent again with the next interval.
    pub(crate) fn reset(&self) {
        self.queue.borrow_mut().in_flight = 0;
    }

    /// Returns when something was queued since the last call.
    pub(crate) async fn queued(&self) {
        self.queued.notified().await;
    }

    /// Sends everything queued.
    pub(crate) async fn send_queued(&self, functions: &Functions) {
        while self.send_batch(functions).await {}
        if self.queue.borrow().is_empty() {
            self.sent.notify_waiters();
        }
    }

    /// Returns when everything queued is in the store.
    pub(super) async fn settled(&self) {
        loop {
            let sent = self.sent.notified();
            if self.queue.borrow().is_empty() {
                return;
            }
            sent.await;
        }
    }

    /// Sends what is queued now, in as many calls as it takes. False if nothing was queued.
    async fn send_batch(&self, functions: &Functions) -> bool {
        let (beats, departures) = {
            let mut queue = self.queue.borrow_mut();
            let beats = std::mem::take(&mut queue.beats);
            let departures = std::mem::take(&mut queue.departures);
            queue.in_flight = beats.len() + departures.len();
            (beats, departures)
        };
        if beats.is_empty() && departures.is_empty() {
            return false;
        }
        let beat =
            |(ConnectedDevice { user, device }, BeatDetails { kind, active })| Beat { user, device, kind, active };
        let beats: Vec<Beat> = beats.into_iter().map(beat).collect();
        let mut failed = false;
        // Departures first: a device that left and came back is online. Beats from before a departure are not queued.
        for departures in departures.chunks(MAX_BATCH) {
            let unsent = unsent(departures, functions.leave_many(departures.to_vec()).await);
            failed |= !unsent.is_empty();
            // A drop need not be retried: the device expires anyway. A logout must be.
            let logouts = unsent.into_iter().filter(|departure| departure.reason == DepartureReason::Logout);
            self.queue.borrow_mut().departures.extend(logouts);
        }
        for beats in beats.chunks(MAX_BATCH) {
            let unsent = unsent(beats, functions.beat_many(beats.to_vec()).await);
            failed |= !unsent.is_empty();
            functions.platform.metrics.heartbeats_recorded(beats.len() - unsent.len());
            unsent.into_iter().for_each(|beat| self.queue_beat(beat));
        }
        self.queue.borrow_mut().in_flight = 0;
        if failed {
            tokio::time::sleep(RETRY).await;
        }
        true
    }

    /// Queues a beat if its device is still connected.
    fn queue_beat(&self, beat: Beat) {
        let Beat { user, device, kind, active } = beat;
        let device = ConnectedDevice { user, device };
        if self.connected.contains(&device) {
            let mut queue = self.queue.borrow_mut();
            queue.beats.entry(device).or_insert(BeatDetails { kind, active }).active |= active;
        }
    }
}

/// The items that failed because the store was unavailable.
fn unsent<T: Clone, A>(items: &[T], answer: Result<Vec<Result<A, Error>>, Error>) -> Vec<T> {
    let is_unavailable = |error: &Error| matches!(error, Error::Unavailable(_));
    match answer {
        Ok(answers) => {
            let failed = items.iter().zip(answers).filter(|(_, answer)| answer.as_ref().is_err_and(is_unavailable));
            failed.map(|(item, _)| item.clone()).collect()
        }
        Err(error) if is_unavailable(&error) => items.to_vec(),
        Err(error) => {
            tracing::error!(%error, items = items.len(), "Connection heartbeats were refused; dropping them");
            Vec::new()
        }
    }
}

/// One connection of a device. Dropping it queues the departure.
#[derive(Debug)]
pub(super) struct DeviceConnection {
    heartbeats: Rc<ConnectionHeartbeats>,
    device: ConnectedDevice,
    kind: DeviceKind,
    /// The departure to send, or `None` for none, because the host itself closes the connection.
    departs_as: Option<DepartureReason>,
}

impl DeviceConnection {
    /// Queues a beat; `active` if the user used the device.
    pub(super) fn beat(&self, active: bool) {
        let ConnectedDevice { user, device } = self.device.clone();
        self.heartbeats.queue_beat(Beat { user, device, kind: self.kind, active });
        self.heartbeats.queued.notify_one();
    }

    /// Sets the departure to send when this is dropped.
    pub(super) fn depart_as(&mut self, reason: Option<DepartureReason>) {
        self.departs_as = reason;
    }
}

impl Drop for DeviceConnection {
    fn drop(&mut self) {
        let was_last = self.heartbeats.connected.remove(&self.device);
        let Some(reason) = self.departs_as else { return };
        // A logout ends the device; a dropped connection only if it was the device's last.
        if was_last || reason == DepartureReason::Logout {
            let ConnectedDevice { user, device } = self.device.clone();
            let mut queue = self.heartbeats.queue.borrow_mut();
            // A queued beat would bring the device back after its departure.
            queue.beats.remove(&self.device);
            queue.departures.push(Departure { user, device, reason });
            self.heartbeats.queued.notify_one();
        }
    }
}
