//! Sends a batch: one pipeline per server, all servers at once. Commands are sent again if a server lost its scripts or
//! a slot moved.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use redis::{Pipeline, Value, cmd};
use rollcall_core::Error;

use super::Native;
use super::address::Kind;
use super::down_reason::ErrorClass;
use super::server::{Server, ServerDown, packed};
use crate::keyspace::Piece;
use crate::transport::{Batch, RETRY_MS, Replies, Reply};

/// How often a command is sent before the call fails: for a missing script, for a slot that moved, and for both once
/// more after a failover in between.
const MAX_ROUNDS: usize = 6;

/// The pause between two rounds while a slot is moving.
const PAUSE: Duration = Duration::from_millis(20);

/// One command to be sent.
struct Unit {
    command: usize,
    item: usize,
    /// The server to send it to with `ASKING`, although it is not the owner, while a slot moves.
    ask: Option<Arc<Server>>,
}

/// What must happen before the next round.
#[derive(Default)]
struct Again {
    /// Commands to send again, and the server if it is for `ASKING`.
    commands: HashMap<usize, Option<Arc<Server>>>,
    forgot_scripts: Vec<Arc<Server>>,
    moved: bool,
}

impl Native {
    /// Sends a batch and waits for the replies.
    pub(super) async fn send(&self, batch: Batch<'_>) -> Replies<Value> {
        // The time is taken before anything is read: a later time would judge a session without the beats that came
        // after the read. The outage grace is taken after the time, because a server that came back in between recorded
        // it first.
        let now = batch.wants_moment.then(|| self.shared.time.now());
        // The replicas of the masters that received the writes must acknowledge them, not those of a master that took
        // over since.
        let topology = batch.wants_replica.then(|| self.servers.topology());
        let mut replies = Replies::to(&batch);
        self.send_rounds(&batch, &mut replies).await;
        replies.moment = now.map(|now| self.moment_at(now));
        if let Some(topology) = topology {
            let written = batch.items.iter().zip(&replies.items).filter(|(_, outcome)| outcome.is_ok());
            self.await_replicas(&topology, &written.map(|(item, _)| item.shard).collect()).await;
        }
        replies
    }

    async fn send_rounds(&self, batch: &Batch<'_>, replies: &mut Replies<Value>) {
        let all = batch.items.iter().enumerate();
        let mut units: Vec<Unit> = all
            .flat_map(|(item, of)| of.commands.clone().map(move |command| Unit { command, item, ask: None }))
            .collect();
        for _ in 0..MAX_ROUNDS {
            if units.is_empty() {
                return;
            }
            let again = self.round(batch, units, replies).await;
            units = again.units(batch, replies);
            if !units.is_empty() {
                self.prepare(again).await;
            }
        }
        for unit in units {
            replies.fail(unit.item, Error::Unavailable(RETRY_MS));
        }
    }

    /// Sends these commands and sorts the answers.
    async fn round(&self, batch: &Batch<'_>, units: Vec<Unit>, replies: &mut Replies<Value>) -> Again {
        let mut groups = self.grouped(batch, units, replies);
        let calls = groups.iter().map(|(server, units)| server.call(together(batch, units)));
        // With one server there is nothing to join.
        let answers = match groups.len() {
            0 => Vec::new(),
            _ => join_all(calls).await,
        };
        let mut again = Again::default();
        for ((server, units), answer) in groups.drain(..).zip(answers) {
            match answer {
                Ok(values) => self.sort(&server, units, values, replies, &mut again),
                Err(ServerDown) => units.iter().for_each(|unit| replies.fail(unit.item, Error::Unavailable(RETRY_MS))),
            }
        }
        again
    }

    /// The commands by server. A command whose shard no server has fails.
    fn grouped(
        &self,
        batch: &Batch<'_>,
        units: Vec<Unit>,
        replies: &mut Replies<Value>,
    ) -> Vec<(Arc<Server>, Vec<Unit>)> {
        let topology = self.servers.topology();
        // A single server, the most common case, needs no sorting.
        if let ([server], Kind::Single) = (topology.servers.as_slice(), self.servers.kind()) {
            return vec![(Arc::clone(server), units)];
        }
        let mut groups: Vec<(Arc<Server>, Vec<Unit>)> = Vec::with_capacity(topology.servers.len());
        for unit in units {
            let owner = || topology.server(batch.items.get(unit.item)?.shard).cloned();
            let Some(server) = unit.ask.clone().or_else(owner) else {
                replies.fail(unit.item, Error::Unavailable(RETRY_MS));
                continue;
            };
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &server)) {
                Some((_, units)) => units.push(unit),
                None => groups.push((server, vec![unit])),
            }
        }
        groups
    }

    /// Stores one server's answers, and notes which commands have to be sent again.
    fn sort(
        &self,
        server: &Arc<Server>,
        units: Vec<Unit>,
        values: Vec<Value>,
        replies: &mut Replies<Value>,
        again: &mut Again,
    ) {
        let mut values = values.into_iter();
        for unit in units {
            if unit.ask.is_some() {
                // The reply to ASKING itself.
                values.next();
            }
            let value = values.next().unwrap_or(Value::Nil);
            let Value::ServerError(error) = &value else {
                replies.keep(unit.command, value);
                continue;
            };
            let say_again = |again: &mut Again, ask| {
                again.commands.insert(unit.command, ask);
            };
            match ErrorClass::of(error) {
                ErrorClass::LoadScripts => {
                    say_again(again, unit.ask.clone());
                    if !again.forgot_scripts.iter().any(|known| Arc::ptr_eq(known, server)) {
                        again.forgot_scripts.push(Arc::clone(server));
                    }
                }
                ErrorClass::Moved => {
                    again.moved = true;
                    say_again(again, None);
                }
                ErrorClass::Ask(name) => {
                    self.shared.stats.redirections.add(1);
                    let there = self.servers.named(&name);
                    again.moved |= there.is_none();
                    say_again(again, there);
                }
                ErrorClass::TryAgain => say_again(again, None),
                ErrorClass::Server(reason) => {
                    server.fail(reason);
                    replies.fail(unit.item, Error::Unavailable(RETRY_MS));
                }
                ErrorClass::Denied(why) => {
                    self.warn(&format!("Redis does not allow a command that Rollcall needs: {why}"));
                    replies.fail(unit.item, Error::Unavailable(RETRY_MS));
                }
                ErrorClass::Other(why) => {
                    self.warn(&format!("Redis replied with an error: {why}"));
                    replies.fail(unit.item, Error::Other(why));
                }
            }
        }
    }

    /// Does what the next round needs.
    async fn prepare(&self, again: Again) {
        for server in &again.forgot_scripts {
            self.shared.stats.scripts_reloaded.add(1);
            // If the server is away by now, the next round notices.
            let _ = server.call(self.scripts()).await;
        }
        if again.moved {
            self.shared.stats.redirections.add(1);
            // Another task may hold the lock while a server hangs; then that task refreshes the topology.
            let _ = tokio::time::timeout(self.shared.connect_timeout, self.refresh_topology()).await;
        }
        if again.forgot_scripts.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Again {
    /// The commands of the next round.
    fn units(&self, batch: &Batch<'_>, replies: &Replies<Value>) -> Vec<Unit> {
        if self.commands.is_empty() {
            return Vec::new();
        }
        let repeated = batch.repeat(|command| self.commands.contains_key(&command), replies);
        let ask = |command| self.commands.get(&command).cloned().flatten();
        repeated.map(|(item, command)| Unit { command, item, ask: ask(command) }).collect()
    }
}

/// These commands as one pipeline.
fn together(batch: &Batch<'_>, units: &[Unit]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(units.len());
    for unit in units {
        if unit.ask.is_some() {
            pipeline.add_command(cmd("ASKING"));
        }
        if let Some(command) = batch.commands.get(unit.command) {
            pipeline.add_command(packed(command));
        }
    }
    pipeline
}

impl Reply for Value {
    fn nil() -> Self {
        Self::Nil
    }

    /// An array flattened by one level: our replies are not nested deeper.
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let flat = match self {
            Self::Array(values) => values.as_slice(),
            _ => std::slice::from_ref(self),
        };
        flat.iter().map(Reply::piece)
    }

    fn piece(&self) -> Piece<'_> {
        match self {
            Self::Int(number) => Piece::Int(*number),
            Self::BulkString(bytes) => Piece::Bytes(bytes),
            Self::SimpleString(text) => Piece::Bytes(text.as_bytes()),
            Self::Okay => Piece::Bytes(b"OK"),
            _ => Piece::Nil,
        }
    }
}
