//! Answers queries about this worker's watchers, which `/v1/stats` and `/v1/people/{user}` send to every worker.

use std::rc::Rc;

use tokio::sync::{Mutex, mpsc};

use super::Exit;
use crate::hub::{Hub, HubQuery};

pub(super) async fn run(hub: Rc<Hub>, queries: Rc<Mutex<mpsc::UnboundedReceiver<HubQuery>>>) -> Exit {
    let mut queries = queries.lock().await;
    while let Some(query) = queries.recv().await {
        let registry = hub.registry.borrow();
        // The caller may have given up.
        match query {
            HubQuery::MostWatched(limit, answer) => drop(answer.send(registry.most_watched(limit))),
            HubQuery::WatcherCounts(users, answer) => {
                drop(answer.send(users.iter().map(|user| registry.watcher_counts(user)).collect()));
            }
        }
    }
    Exit::Closed
}
