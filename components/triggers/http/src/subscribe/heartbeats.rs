//! An open stream is a heartbeat: it keeps its device alive and sends the departure at its end.

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use rollcall_api::call::{Beat, Departure};
use rollcall_core::{DeviceId, DeviceKind, Error, UserId};
use rollcall_wasi::{random, sleep};

use super::Ending;
use crate::heartbeat::{beat_many, leave_many};
use crate::jitter::any_of;
use crate::{log, only};

/// When to retry a beat that the store could not take.
const RETRY: Duration = Duration::from_millis(500);

/// The time between two beats, in percent of the interval: less than 100, so that a beat is never late, and random, so that
/// clients that connected together do not beat together.
const PERCENT: std::ops::RangeInclusive<u64> = 75..=90;

/// A connected device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Device {
    user: UserId,
    device: DeviceId,
}

/// The device of a stream.
#[derive(Debug)]
pub(super) struct ConnectedDevice {
    device: Device,
    kind: DeviceKind,
    /// Whether the user opened the stream, rather than a program that reconnected.
    active: bool,
    /// The interval to use until the function names one.
    interval: Duration,
}

impl ConnectedDevice {
    /// A device of this user; without an id it gets a random one.
    pub(super) fn new(
        user: UserId,
        device: Option<DeviceId>,
        kind: DeviceKind,
        active: bool,
        interval: Duration,
    ) -> Option<Self> {
        let device = device.or_else(|| DeviceId::parse(format!("connection-{:016x}", random())).ok())?;
        Some(Self { device: Device { user, device }, kind, active, interval })
    }

    /// Sends a beat. Returns the time until the next.
    async fn beat(&mut self) -> Duration {
        let Device { user, device } = self.device.clone();
        let beat = Beat { user, device, kind: self.kind, active: self.active };
        match beat_many([beat]).await.and_then(only) {
            Ok(standing) => {
                self.active = false;
                part(Duration::from_millis(standing.next_beat_ms.into()), any_of(PERCENT))
            }
            Err(Error::Unavailable(_)) => RETRY,
            Err(error) => {
                log(format_args!("heartbeat of a connection failed; trying again after the interval: {error}"));
                part(self.interval, any_of(PERCENT))
            }
        }
    }
}

/// Keeps a device alive until its stream ends, then sends its departure.
pub(super) async fn keep_alive(mut connected: ConnectedDevice, mut ending: Ending) {
    STREAMS.with_borrow_mut(|streams| streams.enter(&connected.device));
    let departure = loop {
        let pause = connected.beat().await;
        if let Either::Left((departure, _)) = select(&mut ending, pin!(sleep(pause))).await {
            break departure;
        }
    };
    let was_last = STREAMS.with_borrow_mut(|streams| streams.leave(&connected.device));
    if let (true, Ok(Some(reason))) = (was_last, departure) {
        let Device { user, device } = connected.device;
        let left = leave_many(vec![Departure { user, device, reason }]).await.and_then(only);
        match left {
            // Without a departure the device expires.
            Ok(_) | Err(Error::Unavailable(_)) => {}
            Err(error) => log(format_args!("departure of a connection failed; its device expires: {error}")),
        }
    }
}

thread_local! {
    static STREAMS: RefCell<Streams> = RefCell::default();
}

/// How many streams of this instance each device has. A page that reloads opens a new stream before the old one is known to
/// be broken; only the last one may send the departure.
#[derive(Debug, Default)]
struct Streams(HashMap<Device, u32>);

impl Streams {
    fn enter(&mut self, device: &Device) {
        let count = self.0.entry(device.clone()).or_default();
        *count = count.saturating_add(1);
    }

    /// True if that was the last stream of this device.
    fn leave(&mut self, device: &Device) -> bool {
        match self.0.get_mut(device) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            Some(_) => self.0.remove(device).is_some(),
            None => false,
        }
    }
}

fn part(whole: Duration, percent: u64) -> Duration {
    let ms = u64::try_from(whole.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(ms.saturating_mul(percent) / 100)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn device_leaves_with_its_last_stream() {
        let device = |name: &str| {
            let (user, device) = (UserId::parse("bob").unwrap(), DeviceId::parse(name).unwrap());
            Device { user, device }
        };
        let (web, phone) = (device("web"), device("phone"));
        let mut streams = Streams::default();
        [&web, &web, &phone].into_iter().for_each(|device| streams.enter(device));
        assert!(streams.leave(&phone));
        assert!(!streams.leave(&web), "the reloaded page has a second stream");
        assert!(streams.leave(&web));
        assert!(!streams.leave(&web), "it left already");
    }

    #[test]
    fn beat_comes_before_the_interval_ends() {
        let interval = Duration::from_secs(30);
        assert_eq!(part(interval, *PERCENT.start()), Duration::from_millis(22_500));
        assert_eq!(part(interval, *PERCENT.end()), Duration::from_secs(27));
    }
}
