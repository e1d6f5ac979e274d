//! Sends a batch: one pipeline per server, all servers at once. Commands are sent again if a server lost its scripts or
//! a slot moved.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use redis::{Pipeline, Value, cmd};
use rollcall_core::Error;

use super::NativeTransport;
use super::address::Kind;
use super::down_reason::{DownReason, error_line};
use super::server::{Server, ServerDown, packed};
use crate::keyspace::Piece;
use crate::transport::{Batch, ErrorClass, RETRY_MS, Replies, Reply};

/// How often a command is sent before the call fails: for a missing script, for a slot that moved, and for both once
/// more after a failover in between.
const MAX_ROUNDS: usize = 6;

/// The pause between two rounds while a slot is moving.
const PAUSE: Duration = Duration::from_millis(20);

/// One command to be sent.
struct PendingCommand {
    command: usize,
    item: usize,
    /// The server to send it to with `ASKING`, although it is not the owner, while a slot moves.
    ask: Option<Arc<Server>>,
}

/// What must happen before the next round.
#[derive(Default)]
struct NextRound {
    /// Commands to send again, and the server if it is for `ASKING`.
    commands: HashMap<usize, Option<Arc<Server>>>,
    forgot_scripts: Vec<Arc<Server>>,
    moved: bool,
}

impl NativeTransport {
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
        let mut pending: Vec<PendingCommand> = all
            .flat_map(|(item, of)| of.commands.clone().map(move |command| PendingCommand { command, item, ask: None }))
            .collect();
        for _ in 0..MAX_ROUNDS {
            if pending.is_empty() {
                return;
            }
            let next_round = self.round(batch, pending, replies).await;
            pending = next_round.pending(batch, replies);
            if !pending.is_empty() {
                self.prepare(next_round).await;
            }
        }
        for entry in pending {
            replies.fail(entry.item, Error::Unavailable(RETRY_MS));
        }
    }

    /// Sends these commands and sorts the answers.
    async fn round(&self, batch: &Batch<'_>, pending: Vec<PendingCommand>, replies: &mut Replies<Value>) -> NextRound {
        let mut groups = self.grouped(batch, pending, replies);
        let calls = groups.iter().map(|(server, pending)| server.call(pipeline_of(batch, pending)));
        // With one server there is nothing to join.
        let answers = match groups.len() {
            0 => Vec::new(),
            _ => join_all(calls).await,
        };
        let mut next_round = NextRound::default();
        for ((server, pending), answer) in groups.drain(..).zip(answers) {
            match answer {
                Ok(values) => self.collect_replies(&server, pending, values, replies, &mut next_round),
                Err(ServerDown) => {
                    pending.iter().for_each(|entry| replies.fail(entry.item, Error::Unavailable(RETRY_MS)))
                }
            }
        }
        next_round
    }

    /// The commands by server. A command whose shard no server has fails.
    fn grouped(
        &self,
        batch: &Batch<'_>,
        pending: Vec<PendingCommand>,
        replies: &mut Replies<Value>,
    ) -> Vec<(Arc<Server>, Vec<PendingCommand>)> {
        let topology = self.servers.topology();
        // A single server, the most common case, needs no sorting.
        if let ([server], Kind::Single) = (topology.servers.as_slice(), self.servers.kind()) {
            return vec![(Arc::clone(server), pending)];
        }
        let mut groups: Vec<(Arc<Server>, Vec<PendingCommand>)> = Vec::with_capacity(topology.servers.len());
        for entry in pending {
            let owner = || topology.server(batch.items.get(entry.item)?.shard).cloned();
            let Some(server) = entry.ask.clone().or_else(owner) else {
                replies.fail(entry.item, Error::Unavailable(RETRY_MS));
                continue;
            };
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &server)) {
                Some((_, pending)) => pending.push(entry),
                None => groups.push((server, vec![entry])),
            }
        }
        groups
    }

    /// Stores one server's answers, and notes which commands have to be sent again.
    fn collect_replies(
        &self,
        server: &Arc<Server>,
        pending: Vec<PendingCommand>,
        values: Vec<Value>,
        replies: &mut Replies<Value>,
        next_round: &mut NextRound,
    ) {
        let mut values = values.into_iter();
        for entry in pending {
            if entry.ask.is_some() {
                // The reply to ASKING itself.
                values.next();
            }
            let value = values.next().unwrap_or(Value::Nil);
            let Value::ServerError(error) = &value else {
                replies.keep(entry.command, value);
                continue;
            };
            let resend = |next_round: &mut NextRound, ask| {
                next_round.commands.insert(entry.command, ask);
            };
            let line = error_line(error);
            match ErrorClass::of(&line) {
                ErrorClass::LoadScripts => {
                    resend(next_round, entry.ask.clone());
                    if !next_round.forgot_scripts.iter().any(|known| Arc::ptr_eq(known, server)) {
                        next_round.forgot_scripts.push(Arc::clone(server));
                    }
                }
                ErrorClass::Moved => {
                    next_round.moved = true;
                    resend(next_round, None);
                }
                ErrorClass::Ask => {
                    self.shared.stats.redirections.add(1);
                    // `ASK slot address`
                    let there = self.servers.named(line.split(' ').nth(2).unwrap_or_default());
                    next_round.moved |= there.is_none();
                    resend(next_round, there);
                }
                ErrorClass::TryAgain => resend(next_round, None),
                class @ (ErrorClass::Full | ErrorClass::NotReady | ErrorClass::Refused) => {
                    server.fail(DownReason::of_class(class, line));
                    replies.fail(entry.item, Error::Unavailable(RETRY_MS));
                }
                ErrorClass::Denied => {
                    self.warn(&format!("Redis does not allow a command that Rollcall needs: {line}"));
                    replies.fail(entry.item, Error::Unavailable(RETRY_MS));
                }
                ErrorClass::Other => {
                    self.warn(&format!("Redis replied with an error: {line}"));
                    replies.fail(entry.item, Error::Other(line));
                }
            }
        }
    }

    /// Does what the next round needs.
    async fn prepare(&self, next_round: NextRound) {
        for server in &next_round.forgot_scripts {
            self.shared.stats.scripts_reloaded.add(1);
            // If the server is down by now, the next round notices.
            let _ = server.call(self.scripts()).await;
        }
        if next_round.moved {
            self.shared.stats.redirections.add(1);
            // Another task may hold the lock while a server hangs; then that task refreshes the topology.
            let _ = tokio::time::timeout(self.shared.connect_timeout, self.refresh_topology()).await;
        }
        if next_round.forgot_scripts.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl NextRound {
    /// The commands of the next round.
    fn pending(&self, batch: &Batch<'_>, replies: &Replies<Value>) -> Vec<PendingCommand> {
        if self.commands.is_empty() {
            return Vec::new();
        }
        let repeated = batch.repeat(|command| self.commands.contains_key(&command), replies);
        let ask = |command| self.commands.get(&command).cloned().flatten();
        repeated.map(|(item, command)| PendingCommand { command, item, ask: ask(command) }).collect()
    }
}

/// These commands as one pipeline.
fn pipeline_of(batch: &Batch<'_>, pending: &[PendingCommand]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(pending.len());
    for entry in pending {
        if entry.ask.is_some() {
            pipeline.add_command(cmd("ASKING"));
        }
        if let Some(command) = batch.commands.get(entry.command) {
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
