//! Sends the beats and departures of a worker's connections, many at a time: see `hub/connection_heartbeats.rs`.

use std::rc::Rc;

use super::Exit;
use crate::hub::Hub;

pub(super) async fn run(hub: Rc<Hub>) -> Exit {
    hub.heartbeats.reset();
    loop {
        hub.heartbeats.send_queued(&hub.functions).await;
        hub.heartbeats.queued().await;
    }
}
