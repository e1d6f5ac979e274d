//! Expiry notifications: the fast hint that a user's deadline has passed.
//!
//! Redis publishes the expiry of an `alive` key when it notices it, which with many keys can be minutes late, and only
//! to clients subscribed at that moment. So any notification may be lost, and nothing here waits: the sweep is the
//! guarantee.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use redis::aio::PubSub;
use redis::{Msg, Pipeline, Value, cmd};
use rollcall_core::UserId;
use tokio::sync::mpsc;

use super::down_reason::DownReason;
use super::server::Server;
use super::{NativeTransport, Task};
use crate::keyspace::Piece;
use crate::transport::Reply;

/// The most users in one batch: they are settled in one round trip.
const MAX_BATCH: usize = 256;

/// How many batches may wait to be taken. Further ones are dropped.
const QUEUE: usize = 64;

/// The pause before a lost subscription is retried.
const PAUSE: Duration = Duration::from_millis(200);

/// How often a silent subscription is pinged.
const PING: Duration = Duration::from_secs(5);

/// The keyspace notification flags that are needed: keyevent messages, for expiries.
const NEEDED: [char; 2] = ['E', 'x'];

/// Users whose deadline passed, as Redis notifies. Dropping this ends the subscription.
#[derive(Debug)]
pub struct Expiries {
    batches: mpsc::Receiver<Vec<UserId>>,
    forbidden: Arc<AtomicBool>,
    _task: Task,
}

/// Whether expiry notifications are turned on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationState {
    /// They are.
    On,
    /// Turning them on failed: unless the server's administrator turned them on, only the sweep finds expiries.
    Unconfirmed,
}

impl Expiries {
    pub(super) fn begin(inner: Arc<NativeTransport>) -> Self {
        let (sender, batches) = mpsc::channel(QUEUE);
        let forbidden = Arc::new(AtomicBool::new(false));
        let subscriber = ExpirySubscriber { inner, sender, forbidden: Arc::clone(&forbidden) };
        Self { batches, forbidden, _task: Task(tokio::spawn(subscriber.follow())) }
    }

    /// The next users whose deadline passed; `None` only when the store's runtime has ended.
    pub async fn next(&mut self) -> Option<Vec<UserId>> {
        self.batches.recv().await
    }

    /// Whether notifications are known to be turned on.
    pub fn notification_state(&self) -> NotificationState {
        if self.forbidden.load(Ordering::Relaxed) { NotificationState::Unconfirmed } else { NotificationState::On }
    }
}

#[derive(Clone)]
struct ExpirySubscriber {
    inner: Arc<NativeTransport>,
    sender: mpsc::Sender<Vec<UserId>>,
    forbidden: Arc<AtomicBool>,
}

impl ExpirySubscriber {
    /// Subscribes to every master as they come and go: on a Cluster each publishes only its own keys' expiries.
    async fn follow(self) {
        let mut changes = self.inner.servers.changes();
        let mut tasks: HashMap<String, Task> = HashMap::new();
        loop {
            changes.mark_unchanged();
            let topology = self.inner.servers.topology();
            let servers: HashMap<String, &Arc<Server>> =
                topology.servers.iter().map(|server| (server.endpoint.to_string(), server)).collect();
            tasks.retain(|name, _| servers.contains_key(name));
            for (name, server) in servers {
                tasks.entry(name).or_insert_with(|| Task(tokio::spawn(self.clone().subscribe(Arc::clone(server)))));
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Subscribes to one server, through any number of connections.
    async fn subscribe(self, server: Arc<Server>) {
        loop {
            // The reason is not logged: the store itself logs what is wrong with the server.
            let _ = self.subscribe_once(&server).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn subscribe_once(&self, server: &Server) -> Result<(), DownReason> {
        if server.down().is_some() {
            return Ok(());
        }
        self.turn_on(server).await;
        let limit = self.inner.shared.connect_timeout;
        let connecting = async {
            let mut subscription = server.endpoint.client()?.get_async_pubsub().await?;
            subscription.subscribe(format!("__keyevent@{}__:expired", self.inner.servers.database())).await?;
            redis::RedisResult::Ok(subscription)
        };
        let subscription = tokio::time::timeout(limit, connecting).await.map_err(|_| DownReason::TimedOut)?;
        self.take(subscription.map_err(|error| DownReason::of(&error))?).await
    }

    /// Receives messages until the connection is lost.
    async fn take(&self, subscription: PubSub) -> Result<(), DownReason> {
        let (mut sink, mut messages) = subscription.split();
        let mut ping = tokio::time::interval(PING);
        loop {
            let first = tokio::select! {
                message = messages.next() => message.ok_or(DownReason::TimedOut)?,
                _ = ping.tick() => {
                    // Detects a peer that vanished without closing the connection.
                    let answer = tokio::time::timeout(self.inner.shared.response_timeout, sink.ping::<Value>()).await;
                    answer.map_err(|_| DownReason::TimedOut)?.map_err(|error| DownReason::of(&error))?;
                    continue;
                }
            };
            let mut users: Vec<UserId> = self.user_of(&first).into_iter().collect();
            while users.len() < MAX_BATCH
                && let Some(Some(message)) = messages.next().now_or_never()
            {
                users.extend(self.user_of(&message));
            }
            self.hand_over(users);
        }
    }

    fn hand_over(&self, users: Vec<UserId>) {
        let stats = &self.inner.shared.stats;
        let count = users.len();
        if count == 0 {
            return;
        }
        stats.expiries.add(count);
        if self.sender.try_send(users).is_err() {
            stats.expiries_dropped.add(count);
        }
    }

    /// The user of the expired key, if it is one of ours.
    fn user_of(&self, message: &Msg) -> Option<UserId> {
        let key = std::str::from_utf8(message.get_payload_bytes()).ok()?;
        UserId::parse(self.inner.keys.user_of_alive_key(key)?).ok()
    }

    /// Turns the notifications on, keeping the flags that are set.
    async fn turn_on(&self, server: &Server) {
        let asked = server.call(one(cmd("CONFIG").arg("GET").arg("notify-keyspace-events"))).await;
        let Ok(replies) = asked else { return };
        let said: Vec<Piece<'_>> = replies.first().into_iter().flat_map(Reply::pieces).collect();
        let [_, Piece::Bytes(flags)] = said.as_slice() else { return self.cannot_turn_on(server) };
        let flags = String::from_utf8_lossy(flags);
        let Some(wanted) = with_needed(&flags) else { return };
        let set = server.call(one(cmd("CONFIG").arg("SET").arg("notify-keyspace-events").arg(wanted))).await;
        match set.as_ref().map(|replies| replies.first()) {
            Ok(Some(Value::ServerError(_))) => self.cannot_turn_on(server),
            _ => self.forbidden.store(false, Ordering::Relaxed),
        }
    }

    fn cannot_turn_on(&self, server: &Server) {
        if !self.forbidden.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = %server.endpoint,
                "Cannot turn on expiry notifications: set `notify-keyspace-events` to `Ex` on the server, or allow \
                 CONFIG; until then only the sweep finds expired users"
            );
        }
    }
}

fn one(command: &redis::Cmd) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.add_command(command.clone());
    pipeline
}

/// These flags with those that are missing; `None` if none is missing. `A` means all kinds of events.
fn with_needed(flags: &str) -> Option<String> {
    let is_on = |needed: &char| flags.contains(*needed) || (*needed == 'x' && flags.contains('A'));
    let missing: String = NEEDED.iter().filter(|needed| !is_on(needed)).collect();
    (!missing.is_empty()).then(|| format!("{flags}{missing}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_flags_are_kept() {
        for (flags, wanted) in
            [("", Some("Ex")), ("KEA", None), ("Kg", Some("KgEx")), ("xE", None), ("AK", Some("AKE"))]
        {
            assert_eq!(with_needed(flags).as_deref(), wanted, "{flags}");
        }
    }
}
