//! Batches: one pipeline per server, all servers at once, and each item fails alone.
//!
//! Items about the same person keep their order, also when one of them has to be said again, because the server had
//! forgotten a script or its slot had moved: then everything later about that person is said again after it. Traces may
//! be left twice, and a commit that is said again finds whether it was applied.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::keyspace::{Commands, Piece};
use futures::future::join_all;
use redis::{Pipeline, Value, cmd};
use rollcall_core::Error;

use super::Inner;
use super::address::Kind;
use super::link::{Away, Link, packed};
use super::trouble::ErrorClass;

/// How often something is said again before its caller is told to come back: a script that was not there, a slot that
/// moved, and both once more for a failover in between.
const MAX_ROUNDS: usize = 6;

/// Between two rounds, for a slot that is just moving.
const PAUSE: Duration = Duration::from_millis(20);

/// When a caller may try again: a reconnection takes a few tenths of a second, if the server is there at all.
pub(super) const RETRY_MS: u32 = 500;

/// Commands, and whom they are about.
#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    pub(super) commands: Commands,
    items: Vec<Item<'a>>,
}

#[derive(Debug)]
struct Item<'a> {
    /// The person; empty: it is about nobody in particular.
    who: &'a str,
    shard: u32,
    commands: Range<usize>,
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Replies {
    values: Vec<Value>,
    items: Vec<Result<Range<usize>, Error>>,
}

/// One command to be sent.
struct Unit {
    command: usize,
    item: usize,
    /// The server to ask although it is not the owner, while a slot moves.
    ask: Option<Arc<Link>>,
}

/// What must happen before the next round.
#[derive(Default)]
struct Again {
    /// Commands to be said again; with the server, if it is to be asked there.
    commands: Vec<(usize, Option<Arc<Link>>)>,
    /// Items that these belong to.
    items: Vec<usize>,
    forgot_scripts: Vec<Arc<Link>>,
    moved: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn with_capacity(items: usize, commands: usize) -> Self {
        Self { commands: Commands::with_capacity(commands), items: Vec::with_capacity(items) }
    }

    /// Adds an item: the commands that `add` adds.
    pub(super) fn add<T>(&mut self, who: &'a str, shard: u32, add: impl FnOnce(&mut Commands) -> T) -> T {
        let start = self.commands.len();
        let added = add(&mut self.commands);
        self.items.push(Item { who, shard, commands: start..self.commands.len() });
        added
    }
}

impl Replies {
    /// The replies of each item, in order.
    pub(super) fn items(&self) -> impl Iterator<Item = Result<&[Value], Error>> {
        self.items.iter().map(|item| match item {
            Ok(range) => Ok(self.values.get(range.clone()).unwrap_or_default()),
            Err(error) => Err(error.clone()),
        })
    }
}

impl Inner {
    /// Sends a batch and waits for what becomes of it.
    pub(super) async fn run(&self, batch: &Batch<'_>) -> Replies {
        let values = vec![Value::Nil; batch.commands.len()];
        let mut replies = Replies { values, items: batch.items.iter().map(|item| Ok(item.commands.clone())).collect() };
        let all = batch.items.iter().enumerate();
        let mut units: Vec<Unit> = all
            .flat_map(|(item, of)| of.commands.clone().map(move |command| Unit { command, item, ask: None }))
            .collect();
        for _ in 0..MAX_ROUNDS {
            if units.is_empty() {
                return replies;
            }
            let again = self.round(batch, units, &mut replies).await;
            units = again.units(batch, &replies);
            if !units.is_empty() {
                self.prepare(again).await;
            }
        }
        for unit in units {
            replies.fail(unit.item, Error::Unavailable(RETRY_MS));
        }
        replies
    }

    /// Sends these, and sorts the answers.
    async fn round(&self, batch: &Batch<'_>, units: Vec<Unit>, replies: &mut Replies) -> Again {
        let mut groups = self.grouped(batch, units, replies);
        let calls = groups.iter().map(|(link, units)| link.call(together(batch, units)));
        // Of one server there is nothing to wait for side by side.
        let answers = match groups.len() {
            0 => Vec::new(),
            _ => join_all(calls).await,
        };
        let mut again = Again::default();
        for ((link, units), answer) in groups.drain(..).zip(answers) {
            match answer {
                Ok(values) => self.sort(&link, units, values, replies, &mut again),
                Err(Away) => units.iter().for_each(|unit| replies.fail(unit.item, Error::Unavailable(RETRY_MS))),
            }
        }
        again
    }

    /// What goes to which server. What nobody serves fails.
    fn grouped(&self, batch: &Batch<'_>, units: Vec<Unit>, replies: &mut Replies) -> Vec<(Arc<Link>, Vec<Unit>)> {
        let topology = self.fleet.topology();
        // On a single server, which is most of them, there is nothing to be sorted.
        if let ([link], Kind::Single) = (topology.links.as_slice(), self.fleet.kind()) {
            return vec![(Arc::clone(link), units)];
        }
        let mut groups: Vec<(Arc<Link>, Vec<Unit>)> = Vec::with_capacity(topology.links.len());
        for unit in units {
            let owner = || topology.server(batch.items.get(unit.item)?.shard).cloned();
            let Some(link) = unit.ask.clone().or_else(owner) else {
                replies.fail(unit.item, Error::Unavailable(RETRY_MS));
                continue;
            };
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &link)) {
                Some((_, units)) => units.push(unit),
                None => groups.push((link, vec![unit])),
            }
        }
        groups
    }

    /// Keeps what one server answered, and notes what has to be said again.
    fn sort(&self, link: &Arc<Link>, units: Vec<Unit>, values: Vec<Value>, replies: &mut Replies, again: &mut Again) {
        let mut values = values.into_iter();
        for unit in units {
            if unit.ask.is_some() {
                // The answer to ASKING itself.
                values.next();
            }
            let value = values.next().unwrap_or(Value::Nil);
            let Value::ServerError(error) = &value else {
                if let Some(place) = replies.values.get_mut(unit.command) {
                    *place = value;
                }
                continue;
            };
            let say_again = |again: &mut Again, ask| {
                again.commands.push((unit.command, ask));
                again.items.push(unit.item);
            };
            match ErrorClass::of(error) {
                ErrorClass::LoadScripts => {
                    say_again(again, unit.ask.clone());
                    if !again.forgot_scripts.iter().any(|known| Arc::ptr_eq(known, link)) {
                        again.forgot_scripts.push(Arc::clone(link));
                    }
                }
                ErrorClass::Moved => {
                    again.moved = true;
                    say_again(again, None);
                }
                ErrorClass::Ask(name) => {
                    self.around.stats.redirections.add(1);
                    let there = self.fleet.named(&name);
                    again.moved |= there.is_none();
                    say_again(again, there);
                }
                ErrorClass::TryAgain => say_again(again, None),
                ErrorClass::Server(trouble) => {
                    link.fail(trouble);
                    replies.fail(unit.item, Error::Unavailable(RETRY_MS));
                }
                ErrorClass::Denied(why) => {
                    self.complain(&format!("Redis does not allow a command that is needed: {why}"));
                    replies.fail(unit.item, Error::Unavailable(RETRY_MS));
                }
                ErrorClass::Other(why) => {
                    self.complain(&format!("Redis answers with an error: {why}"));
                    replies.fail(unit.item, Error::Other(why));
                }
            }
        }
    }

    /// Does what must be done before the next round.
    async fn prepare(&self, again: Again) {
        for link in &again.forgot_scripts {
            self.around.stats.scripts_reloaded.add(1);
            // A server that is away by now is found out by the next round.
            let _ = link.call(self.scripts()).await;
        }
        if again.moved {
            self.around.stats.redirections.add(1);
            // Somebody may be busy with a server that hangs; then the map is learned without us.
            let _ = tokio::time::timeout(self.around.connect_timeout, self.learn_anew()).await;
        }
        if again.forgot_scripts.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Replies {
    fn fail(&mut self, item: usize, error: Error) {
        if let Some(place) = self.items.get_mut(item) {
            *place = Err(error);
        }
    }
}

impl Again {
    /// The commands of the next round: those noted, and everything later about the same people.
    fn units(&self, batch: &Batch<'_>, replies: &Replies) -> Vec<Unit> {
        if self.commands.is_empty() {
            return Vec::new();
        }
        let is_open = |item: usize| replies.items.get(item).is_some_and(Result::is_ok);
        let mut units = Vec::new();
        for (index, item) in batch.items.iter().enumerate().filter(|(index, _)| is_open(*index)) {
            let follows = !item.who.is_empty()
                && self.items.iter().any(|&earlier| {
                    earlier < index
                        && batch.items.get(earlier).is_some_and(|one| one.shard == item.shard && one.who == item.who)
                });
            for command in item.commands.clone() {
                let noted = self.commands.iter().find(|(noted, _)| *noted == command);
                if noted.is_some() || follows {
                    units.push(Unit { command, item: index, ask: noted.and_then(|(_, ask)| ask.clone()) });
                }
            }
        }
        units
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

/// A reply as the keyspace reads it, an array flattened.
pub(super) fn pieces(value: &Value) -> impl Iterator<Item = Piece<'_>> {
    let one = std::slice::from_ref(value);
    let flat = match value {
        Value::Array(values) => values.as_slice(),
        _ => one,
    };
    flat.iter().map(piece)
}

/// A reply that is one piece.
pub(super) fn piece(value: &Value) -> Piece<'_> {
    match value {
        Value::Int(number) => Piece::Int(*number),
        Value::BulkString(bytes) => Piece::Bytes(bytes),
        Value::SimpleString(text) => Piece::Bytes(text.as_bytes()),
        Value::Okay => Piece::Bytes(b"OK"),
        _ => Piece::Nil,
    }
}
