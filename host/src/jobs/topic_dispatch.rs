//! Takes topic messages to the hub, writes large fan-outs in chunks, and does what is due at a certain time: releasing a
//! crowd's held update and ending typing signals.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Exit;
use crate::hub::Hub;

pub(super) async fn run(hub: Rc<Hub>) -> Exit {
    loop {
        let fanning_out = hub.registry.borrow().is_fanning_out();
        tokio::select! {
            biased;
            update = hub.topic_subscription.next() => {
                let (now, time) = (Instant::now(), hub.topics.now());
                let metrics = &hub.functions.platform.metrics.hub;
                for change in &update.changes {
                    metrics.received_after(time.0.saturating_sub(change.published.version / 1000));
                }
                {
                    let mut registry = hub.registry.borrow_mut();
                    update.changes.iter().for_each(|change| registry.receive(change, now));
                    update.typing.iter().for_each(|typing| registry.receive_typing(typing));
                }
                metrics.received(update.changes.len() + update.typing.len());
                if update.missed {
                    metrics.missed();
                    hub.missed.notify_one();
                }
            }
            // One chunk, then every other task that is ready, then the next chunk.
            () = tokio::task::yield_now(), if fanning_out => hub.registry.borrow_mut().fan_out_chunk(),
            () = next_due(&hub) => {}
            () = hub.changed.notified() => {}
        }
    }
}

/// Waits for the next release or end of a typing signal, and carries it out.
async fn next_due(hub: &Hub) {
    let typing = hub.registry.borrow().typing_ends().map(|until| {
        // One millisecond more: a signal lasts until its end, inclusive.
        Instant::now() + Duration::from_millis((until.0 + 1).saturating_sub(hub.topics.now().0))
    });
    let release = hub.registry.borrow().next_release();
    let Some(first) = [typing, release].into_iter().flatten().min() else {
        return std::future::pending().await;
    };
    tokio::time::sleep_until(first.into()).await;
    let mut registry = hub.registry.borrow_mut();
    registry.expire_typing(hub.topics.now());
    registry.release(Instant::now());
}
