//! Reports how many watchers possible crowds have on this worker, and learns how many they have on all hosts.

use std::rc::Rc;
use std::time::Duration;

use super::Exit;
use crate::hub::{Hub, PAGE};

/// How often watchers are counted. A count is valid for three of these.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// The number of workers on which a crowd is certain to be noticed. A crowd spread over more may have fewer watchers on
/// each than are reported.
const WORKERS: u64 = 100;

pub(super) async fn run(hub: Rc<Hub>) -> Exit {
    let worker = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
    let reported_from = (hub.options.crowd / WORKERS).clamp(1, 100) as usize;
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        hub.registry.borrow_mut().clear_totals(reported_from);
        let users = hub.registry.borrow().users_with_watchers(reported_from);
        for counts in users.chunks(PAGE) {
            // Without an answer the last count stays. A crowd on this worker alone is noticed without one.
            let Ok(totals) = hub.topics.count_watchers(&worker, counts.to_vec()).await else { continue };
            let mut registry = hub.registry.borrow_mut();
            counts.iter().zip(totals).for_each(|((user, _), total)| registry.set_total(user, total));
        }
    }
}
