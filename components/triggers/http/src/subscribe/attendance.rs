//! A live stream is a heartbeat: here its device is kept alive, and seen off.

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use rollcall_api::call::{Beat, Departure};
use rollcall_core::{DeviceId, DeviceKind, Error, UserId};

use super::Ending;
use crate::clock::{any_of, unique, wait};
use crate::heartbeat::{beat_many, leave_many};
use crate::{log, only};

/// Before what the store could not take is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// How much of an interval passes between two beats, in percent: always less than all of it, so that a beat is never late,
/// whatever else is going on; and each time another part, so that those who came together do not beat together for ever.
const PERCENT: std::ops::RangeInclusive<u64> = 75..=90;

/// A device that somebody is connected with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Attendee {
    user: UserId,
    device: DeviceId,
}

/// A device to be kept alive.
#[derive(Debug)]
pub(super) struct Attending {
    attendee: Attendee,
    kind: DeviceKind,
    /// Whether the person opened the stream, rather than a program that connects again by itself.
    active: bool,
    /// How often a device beats, as long as the function does not say so itself.
    interval: Duration,
}

impl Attending {
    /// A device of this person; one without a name gets one that no other has.
    pub(super) fn new(
        user: UserId,
        device: Option<DeviceId>,
        kind: DeviceKind,
        active: bool,
        interval: Duration,
    ) -> Option<Self> {
        let device = device.or_else(|| DeviceId::parse(format!("connection-{:016x}", unique())).ok())?;
        Some(Self { attendee: Attendee { user, device }, kind, active, interval })
    }

    /// Beats, and answers after how long to beat again.
    async fn beat(&mut self) -> Duration {
        let Attendee { user, device } = self.attendee.clone();
        let beat = Beat { user, device, kind: self.kind, active: self.active };
        match beat_many([beat]).await.and_then(only) {
            Ok(standing) => {
                self.active = false;
                part(Duration::from_millis(standing.next_beat_ms.into()), any_of(PERCENT))
            }
            Err(Error::Unavailable(_)) => RETRY,
            Err(error) => {
                log(format_args!("a device could not be kept alive: {error}"));
                part(self.interval, any_of(PERCENT))
            }
        }
    }
}

/// Keeps a device alive until its stream ends, and then says goodbye for it.
pub(super) async fn attend(mut attending: Attending, mut ending: Ending) {
    PRESENT.with_borrow_mut(|present| present.enter(&attending.attendee));
    let farewell = loop {
        let pause = attending.beat().await;
        if let Either::Left((farewell, _)) = select(&mut ending, pin!(wait(pause))).await {
            break farewell;
        }
    };
    let was_last = PRESENT.with_borrow_mut(|present| present.leave(&attending.attendee));
    if let (true, Ok(Some(reason))) = (was_last, farewell) {
        let Attendee { user, device } = attending.attendee;
        let told = leave_many(vec![Departure { user, device, reason }]).await.and_then(only);
        match told {
            // A device that was dropped ends by itself.
            Ok(_) | Err(Error::Unavailable(_)) => {}
            Err(error) => log(format_args!("a device could not be seen off: {error}")),
        }
    }
}

thread_local! {
    static PRESENT: RefCell<Present> = RefCell::default();
}

/// Which devices are connected to this instance, and by how many streams: a page that reloads connects anew before the old
/// stream is known to be broken, and that must not count against it.
#[derive(Debug, Default)]
struct Present(HashMap<Attendee, u32>);

impl Present {
    fn enter(&mut self, attendee: &Attendee) {
        let count = self.0.entry(attendee.clone()).or_default();
        *count = count.saturating_add(1);
    }

    /// True: that was the last stream of this device.
    fn leave(&mut self, attendee: &Attendee) -> bool {
        match self.0.get_mut(attendee) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            Some(_) => self.0.remove(attendee).is_some(),
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
    fn a_device_leaves_with_its_last_stream() {
        let device = |name: &str| {
            let (user, device) = (UserId::parse("bob").unwrap(), DeviceId::parse(name).unwrap());
            Attendee { user, device }
        };
        let (web, phone) = (device("web"), device("phone"));
        let mut present = Present::default();
        [&web, &web, &phone].into_iter().for_each(|attendee| present.enter(attendee));
        assert!(present.leave(&phone));
        assert!(!present.leave(&web), "the page that was reloaded is here again");
        assert!(present.leave(&web));
        assert!(!present.leave(&web), "who is gone does not leave");
    }

    #[test]
    fn a_beat_comes_before_its_time() {
        let interval = Duration::from_secs(30);
        assert_eq!(part(interval, *PERCENT.start()), Duration::from_millis(22_500));
        assert_eq!(part(interval, *PERCENT.end()), Duration::from_secs(27));
    }
}
