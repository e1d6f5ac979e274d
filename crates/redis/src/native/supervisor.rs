//! The supervisor: a background task that samples the time, reads the outage grace, refreshes the topology and brings
//! lost servers back, in a safe order.
//!
//! A server is used only after its time was sampled, its scripts were loaded and an outage grace was recorded that
//! covers the time it was down. A call that reads from it therefore sees the outage grace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::keyspace::{Commands, Piece, RecordGrace, Script, decode_member_scores, decode_outage_grace};
use futures::future::join_all;
use redis::{Pipeline, Value, cmd};
use rollcall_core::{OutageGrace, Span, Time};

use super::address::Kind;
use super::down_reason::DownReason;
use super::server::{Down, NewConnection, Server, pipeline};
use super::{NativeTransport, OpenError};
use crate::transport::{Reply, RoundTrip};

/// How often time and outage grace are read while every server is up.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// How often a lost server is retried.
const RETRY_EVERY: Duration = Duration::from_millis(150);

/// How often the topology is refreshed although nothing seems to have changed.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// Data older than this by the hosts' entries are an old RDB snapshot: hosts write every second, and a busy machine is
/// late.
const MAX_DATA_AGE: Span = Span::seconds(2);

/// The supervisor's state. Its lock prevents two tasks from bringing back the same server.
#[derive(Debug, Default)]
pub(super) struct SupervisorState {
    refreshed: Option<Instant>,
    /// The value of the `epoch` key; empty before it was read.
    epoch: Vec<u8>,
}

impl NativeTransport {
    /// Connects to all servers for the first time.
    pub(super) async fn begin(&self) -> Result<(), OpenError> {
        let mut supervised = self.supervised.lock().await;
        if !self.servers.refresh().await {
            let reason = "none of the given servers answers as a Cluster node".to_owned();
            return Err(OpenError::Unusable { server: "any address".to_owned(), reason });
        }
        supervised.refreshed = Some(Instant::now());
        self.bring_back(&mut supervised).await;
        let topology = self.servers.topology();
        let unusable = topology.servers.iter().find_map(|server| Some((server, server.down()?)));
        unusable.map_or(Ok(()), |(server, down)| {
            Err(OpenError::Unusable { server: server.endpoint.to_string(), reason: down.reason.to_string() })
        })
    }

    /// Supervises the connections for ever.
    pub(super) async fn supervise(self: Arc<Self>) {
        loop {
            let is_calm = self.servers.topology().servers.iter().all(|server| server.down().is_none());
            let pause = tokio::time::sleep(if is_calm { SAMPLE_EVERY } else { RETRY_EVERY });
            if is_calm {
                tokio::select! { () = pause => {}, () = self.shared.wake.notified() => {} }
            } else {
                pause.await;
            }
            self.supervise_once().await;
        }
    }

    /// Refreshes which master has which slot, after a server redirected a command.
    pub(super) async fn refresh_topology(&self) {
        let asked = Instant::now();
        let mut supervised = self.supervised.lock().await;
        // If many calls were redirected at once, one refreshes and the others find it done.
        if supervised.refreshed.is_none_or(|refreshed| refreshed < asked) && self.servers.refresh().await {
            supervised.refreshed = Some(Instant::now());
        }
        self.bring_back(&mut supervised).await;
    }

    async fn supervise_once(&self) {
        let mut supervised = self.supervised.lock().await;
        let topology = self.servers.topology();
        let is_missing = topology.servers.iter().any(|server| server.down().is_some());
        let is_due = supervised.refreshed.is_none_or(|refreshed| refreshed.elapsed() >= REFRESH_EVERY);
        if self.servers.kind() == Kind::Cluster && (is_missing || is_due) && self.servers.refresh().await {
            supervised.refreshed = Some(Instant::now());
        }
        self.bring_back(&mut supervised).await;
        drop(supervised);
        let topology = self.servers.topology();
        join_all(topology.servers.iter().filter(|server| server.down().is_none()).map(|server| self.sample(server)))
            .await;
    }

    /// Brings back every server that is down: first the one with the outage grace, because the others need it.
    async fn bring_back(&self, supervised: &mut SupervisorState) {
        let topology = self.servers.topology();
        let first = topology.shared_keys_server();
        if let Some(first) = first {
            self.bring_back_one(first, Some(supervised)).await;
        }
        let others = topology.servers.iter().filter(|server| first.is_none_or(|first| !Arc::ptr_eq(first, server)));
        join_all(others.map(|server| self.bring_back_one(server, None))).await;
    }

    /// `shared_keys` is given for the server with the keys shared by all shards.
    async fn bring_back_one(&self, server: &Arc<Server>, shared_keys: Option<&mut SupervisorState>) {
        let Some(down) = server.down() else { return };
        match self.make_ready(server, &down, shared_keys).await {
            Ok(connection) => {
                server.mark_up(connection);
                self.warned.lock().clear();
                if let Some(since) = down.since {
                    self.shared.stats.reconnects.add(1);
                    let down_ms = (self.shared.time.now() - since).0;
                    tracing::info!(server = %server.endpoint, down_ms, "Redis is up again");
                }
            }
            Err(reason) => {
                if server.update_down_reason(reason.clone()) {
                    tracing::warn!(server = %server.endpoint, %reason, "Redis is still down; retrying");
                }
            }
        }
    }

    /// Opens a connection and does everything that must be done before it is used.
    async fn make_ready(
        &self,
        server: &Server,
        down: &Down,
        shared_keys: Option<&mut SupervisorState>,
    ) -> Result<NewConnection, DownReason> {
        let connection = server.connect().await?;
        let sent_us = self.shared.time.ticks_us();
        let replies = server.send_on(&connection, time_command()).await?;
        let is_clock = shared_keys.is_some();
        checked(&replies)?;
        if is_clock {
            self.take_time(replies.first(), sent_us);
        }
        checked(&server.send_on(&connection, self.scripts()).await?)?;
        let outage_grace = |since: Time| {
            let now = self.shared.time.now();
            RecordGrace { outage_grace: OutageGrace { since: since.min(now), until: now + self.grace_span }, now }
        };
        let missed = down.since.map(outage_grace);
        match shared_keys {
            Some(supervised) => {
                self.check_epoch(server, &connection, supervised).await?;
                let restored = match down.since {
                    Some(since) => self.restored(server, &connection, since).await?.map(outage_grace),
                    None => None,
                };
                let replies =
                    server.send_on(&connection, pipeline(&self.outage_grace_commands(restored.or(missed)))).await?;
                checked(&replies)?;
                self.take_outage_grace(replies.last());
            }
            None if missed.is_some() => self.record_grace_on_other_server(missed).await?,
            None => {}
        }
        Ok(connection)
    }

    /// Records the outage grace on the server with the shared keys, which is another one.
    async fn record_grace_on_other_server(&self, outage_grace: Option<RecordGrace>) -> Result<(), DownReason> {
        let grace_server_down = || DownReason::NotReady("the master that stores the outage grace is down".to_owned());
        let topology = self.servers.topology();
        let grace_server = topology.shared_keys_server().ok_or_else(grace_server_down)?;
        let replies = grace_server
            .call(pipeline(&self.outage_grace_commands(outage_grace)))
            .await
            .map_err(|_| grace_server_down())?;
        checked(&replies)?;
        self.take_outage_grace(replies.last());
        Ok(())
    }

    /// Records the given outage grace, if any, and reads the one in force.
    fn outage_grace_commands(&self, outage_grace: Option<RecordGrace>) -> Commands {
        let mut commands = Commands::default();
        if let Some(outage_grace) = outage_grace {
            self.keys.record_outage_grace(&mut commands, outage_grace);
        }
        self.keys.read_outage_grace(&mut commands);
        commands
    }

    /// Checks whether the server still has its data.
    async fn check_epoch(
        &self,
        server: &Server,
        connection: &NewConnection,
        supervised: &mut SupervisorState,
    ) -> Result<(), DownReason> {
        let key = self.keys.epoch().to_string();
        let mut request = Pipeline::with_capacity(2);
        let new_epoch = format!("{:016x}", super::random());
        request.add_command(cmd("SET").arg(&key).arg(new_epoch).arg("NX").to_owned());
        request.add_command(cmd("GET").arg(&key).to_owned());
        let replies = server.send_on(connection, request).await?;
        checked(&replies)?;
        let Some(Value::BulkString(epoch)) = replies.into_iter().last() else { return Ok(()) };
        if !supervised.epoch.is_empty() && supervised.epoch != epoch {
            self.shared.stats.data_losses.add(1);
            tracing::error!(server = %server.endpoint, "Redis lost its data; online users return with their next beat");
        }
        supervised.epoch = epoch;
        Ok(())
    }

    /// The time of the server's data if they are too old: it came back with an old RDB snapshot, in which every device that
    /// beat since seems dead. Hosts write themselves into the membership list every second, so its newest entry tells
    /// the age; and no host writes there before it has recorded its outage grace.
    async fn restored(
        &self,
        server: &Server,
        connection: &NewConnection,
        since: Time,
    ) -> Result<Option<Time>, DownReason> {
        let mut request = Pipeline::with_capacity(1);
        let hosts = self.keys.hosts().to_string();
        request.add_command(cmd("ZRANGEBYSCORE").arg(hosts).arg("-inf").arg("+inf").arg("WITHSCORES").to_owned());
        let replies = server.send_on(connection, request).await?;
        checked(&replies)?;
        let hosts = replies.first().and_then(|reply| decode_member_scores(reply.pieces()).ok()).unwrap_or_default();
        let Some((newest, _)) = hosts.last() else { return Ok(None) };
        if *newest + MAX_DATA_AGE >= since {
            return Ok(None);
        }
        let age_ms = (since - *newest).0;
        tracing::warn!(
            server = %server.endpoint,
            age_ms,
            "Redis came back with an old RDB snapshot; its online users get an outage grace"
        );
        Ok(Some(*newest))
    }

    /// Pings a server; reads the time and the outage grace from the one with the shared keys.
    async fn sample(&self, server: &Arc<Server>) {
        let topology = self.servers.topology();
        let has_shared_keys = topology.shared_keys_server().is_some_and(|other| Arc::ptr_eq(other, server));
        let mut request = time_command();
        if has_shared_keys {
            request.add_command(cmd("GET").arg(self.keys.outage_grace().to_string()).to_owned());
        }
        let sent_us = self.shared.time.ticks_us();
        // If it is down, the call itself notices.
        let Ok(replies) = server.call(request).await else { return };
        if let Err(reason) = checked(&replies) {
            server.fail(reason);
        } else if has_shared_keys {
            self.take_time(replies.first(), sent_us);
            self.take_outage_grace(replies.last());
        }
    }

    fn take_time(&self, reply: Option<&Value>, sent_us: u64) {
        let answered_us = self.shared.time.ticks_us();
        let parts: Vec<u64> = reply.into_iter().flat_map(Reply::pieces).filter_map(number).collect();
        if let [seconds, micros] = parts.as_slice() {
            self.shared.time.sample(seconds * 1_000_000 + micros, RoundTrip { sent_us, answered_us });
        }
    }

    fn take_outage_grace(&self, reply: Option<&Value>) {
        match reply.map(|reply| decode_outage_grace(reply.pieces())) {
            Some(Ok(outage_grace)) => *self.outage_grace.lock() = outage_grace,
            Some(Err(garbled)) => self.warn(&garbled.to_string()),
            None => {}
        }
    }

    /// The commands that load every script.
    pub(super) fn scripts(&self) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(Script::ALL.len());
        for script in Script::ALL {
            pipeline.add_command(cmd("SCRIPT").arg("LOAD").arg(script.source()).to_owned());
        }
        pipeline
    }
}

fn time_command() -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.add_command(cmd("TIME"));
    pipeline
}

fn number(piece: Piece<'_>) -> Option<u64> {
    match piece {
        Piece::Int(number) => u64::try_from(number).ok(),
        Piece::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        Piece::Nil => None,
    }
}

/// Fails if any of these replies is an error: then the server cannot be used.
fn checked(replies: &[Value]) -> Result<(), DownReason> {
    replies.iter().try_for_each(|reply| match reply {
        Value::ServerError(error) => Err(DownReason::of(&error.clone().into())),
        _ => Ok(()),
    })
}
