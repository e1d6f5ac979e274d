//! The transport of platforms where nothing runs between two calls: one Redis, over any [`Connection`].
//!
//! No task samples the time or notices outages. Instead a batch carries a *time probe*: a script that returns the time
//! and the outage grace in force, and records an outage grace if the server was not reached for too long.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use rollcall_core::{Error, Moment, Span, Time};

use super::batch::{Batch, IN_ORDER, Now, RETRY_MS, Replies, Reply};
use super::error_class::ErrorClass;
use super::probed_time::{Age, ProbedTime};
use super::redis_time::RoundTrip;
use super::{CommandReply, Connection, ConnectionError, OwnedPiece, Transport};
use crate::keyspace::{BadReply, Commands, Keyspace, Publishing, Script, TimeProbe, decode_probe};

/// How often a command is sent before the call fails: once, again with the scripts, and once more in case another
/// client flushed the scripts just then.
const MAX_ROUNDS: usize = 3;

/// A silence that exceeds an outage grace by less than this needs no other. Users under an outage grace are settled
/// when it ends; the sweep that settles them comes within this time and must not cause another one.
const SLACK: Span = Span::seconds(15);

type Value = Vec<OwnedPiece>;

/// One Redis over a connection, with time probes.
#[derive(Debug)]
pub struct ProbingTransport<C> {
    connection: C,
    keys: Keyspace,
    time: ProbedTime,
    outage_grace: Span,
    /// The last problem that was logged, so that not every call repeats it.
    warned: Mutex<String>,
}

/// A batch being sent.
struct Sending<'a, 'b> {
    batch: &'b Batch<'a>,
    sent_us: u64,
}

impl<C: Connection> ProbingTransport<C> {
    /// Sends nothing before the first call. `outage_grace` is how long devices have to beat again after an outage.
    pub fn new(connection: C, keys: Keyspace, outage_grace: Span) -> Self {
        Self { connection, keys, time: ProbedTime::default(), outage_grace, warned: Mutex::default() }
    }

    /// The connection that sends the commands.
    pub fn connection(&self) -> &C {
        &self.connection
    }

    /// Adds a time probe. If it has to be sent again, the reads after it are sent again too.
    fn add_probe(&self, batch: &mut Batch<'_>) {
        let (allowed, outage_grace) = (self.outage_grace + SLACK, self.outage_grace);
        batch.reported = self.time.failure();
        let failed = batch.reported.map(|failure| failure.since);
        batch.probe = Some(batch.items.len());
        batch.add(IN_ORDER, 0, |to| self.keys.probe_time(to, TimeProbe { allowed, outage_grace, failed }));
    }

    /// Sends the remaining commands and classifies the replies. Returns what has to be sent again.
    async fn round(
        &self,
        sending: &Sending<'_, '_>,
        open: &[usize],
        (commands, loads): (&Commands, usize),
        replies: &mut Replies<Value>,
    ) -> Vec<usize> {
        let Sending { batch, sent_us } = *sending;
        let mut answers = match self.connection.send(commands).await {
            Ok(answers) => answers.into_iter(),
            Err(ConnectionError(why)) => {
                self.time.fail(sent_us);
                self.warn(&format!("Redis cannot be reached: {why}"));
                open.iter().for_each(|command| replies.fail(batch.item_of(*command), Error::Unavailable(RETRY_MS)));
                return Vec::new();
            }
        };
        // Only a probe needs the time of its reply.
        let answered_us = batch.probe.map_or(sent_us, |_| self.connection.ticks_us());
        for answer in answers.by_ref().take(loads) {
            if let CommandReply::Error(line) = answer {
                self.warn(&format!("Redis refused to load a script: {line}"));
            }
        }
        let mut failed = HashSet::new();
        for &command in open {
            match answers.next().map(|answer| self.classify(answer, sent_us)) {
                Some(Ok(value)) => self.keep(sending, answered_us, command, value, replies),
                Some(Err(Some(error))) => replies.fail(batch.item_of(command), error),
                Some(Err(None)) => drop(failed.insert(command)),
                None => replies.fail(batch.item_of(command), self.bad_reply(&BadReply("fewer replies than commands"))),
            }
        }
        batch.repeat(|command| failed.contains(&command), replies).map(|(_, command)| command).collect()
    }

    /// The reply, or its error; `None` as the error: its script is missing.
    fn classify(&self, answer: CommandReply, sent_us: u64) -> Result<Value, Option<Error>> {
        let line = match answer {
            CommandReply::Pieces(value) => return Ok(value),
            CommandReply::Error(line) => line,
        };
        match ErrorClass::of(&line) {
            ErrorClass::LoadScripts => Err(None),
            ErrorClass::Full | ErrorClass::NotReady | ErrorClass::TryAgain => {
                self.time.fail(sent_us);
                self.warn(&format!("Redis takes no commands; failing calls: {line}"));
                Err(Some(Error::Unavailable(RETRY_MS)))
            }
            ErrorClass::Moved | ErrorClass::Ask | ErrorClass::Refused | ErrorClass::Denied | ErrorClass::Other => {
                self.warn(&format!("Redis replied with an error: {line}"));
                Err(Some(Error::Other(line)))
            }
        }
    }

    /// Stores a reply; the probe's also sets the time.
    fn keep(
        &self,
        sending: &Sending<'_, '_>,
        answered_us: u64,
        command: usize,
        value: Value,
        replies: &mut Replies<Value>,
    ) {
        if let Some(probe) = sending.batch.probe.filter(|probe| sending.batch.item_of(command) == *probe) {
            match decode_probe(value.pieces()) {
                Ok(reached) => {
                    let round_trip = RoundTrip { sent_us: sending.sent_us, answered_us };
                    let now = Time(self.time.take(reached, round_trip, sending.batch.reported) / 1000);
                    if sending.batch.reported.is_some() {
                        // Redis is reached again: log the next problem even if it is the same.
                        self.warned.lock().unwrap_or_else(PoisonError::into_inner).clear();
                    }
                    let outage_grace = reached.outage_grace.filter(|outage_grace| now < outage_grace.until);
                    replies.moment = Some(Moment { now, outage_grace });
                }
                Err(garbled) => replies.fail(probe, self.bad_reply(&garbled)),
            }
        }
        replies.keep(command, value);
    }

    fn bad_reply(&self, garbled: &BadReply) -> Error {
        self.warn(&garbled.to_string());
        Error::Other(garbled.to_string())
    }
}

impl<C: Connection> Transport for ProbingTransport<C> {
    type Reply = Value;

    fn keys(&self) -> &Keyspace {
        &self.keys
    }

    fn publishing(&self) -> Publishing {
        Publishing::Plain
    }

    async fn now(&self) -> Result<Now, Error> {
        let ticks_us = self.connection.ticks_us();
        if self.time.age(ticks_us) != Age::Unknown {
            return Ok(Now { us: self.time.now_us(ticks_us), ticks_us });
        }
        let mut batch = Batch::default();
        self.add_probe(&mut batch);
        self.run(batch).await.moment()?;
        let ticks_us = self.connection.ticks_us();
        Ok(Now { us: self.time.now_us(ticks_us), ticks_us })
    }

    /// The probe comes first: a time from after the reads would judge a session without the beats that came in between.
    fn begin_read(&self, batch: &mut Batch<'_>) {
        self.add_probe(batch);
    }

    async fn run(&self, mut batch: Batch<'_>) -> Replies<Value> {
        if batch.decided_at.is_some_and(|now| self.time.age(now.ticks_us) != Age::Fresh) {
            self.add_probe(&mut batch);
        }
        let mut replies = Replies::to(&batch);
        let mut open: Vec<usize> = (0..batch.commands.len()).collect();
        for round in 0..MAX_ROUNDS {
            if open.is_empty() {
                return replies;
            }
            let decided_us = batch.decided_at.filter(|_| round == 0).map(|now| now.ticks_us);
            let sent_us = decided_us.unwrap_or_else(|| self.connection.ticks_us());
            let sending = Sending { batch: &batch, sent_us };
            open = match round {
                0 => self.round(&sending, &open, (&batch.commands, 0), &mut replies).await,
                _ => {
                    let commands = with_scripts(&batch, &open);
                    self.round(&sending, &open, (&commands, Script::ALL.len()), &mut replies).await
                }
            };
        }
        for command in open {
            replies.fail(batch.item_of(command), Error::Unavailable(RETRY_MS));
        }
        replies
    }

    fn moment_at(&self, now: Time) -> Moment {
        self.time.moment_at(now)
    }

    fn random(&self) -> u64 {
        self.connection.random()
    }

    async fn sleep(&self, ms: u64) {
        self.connection.sleep(ms).await;
    }

    fn warn(&self, problem: &str) {
        let mut last = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != problem {
            problem.clone_into(&mut last);
            drop(last);
            self.connection.warn(problem);
        }
    }
}

/// Loads of all scripts, then the commands at these places.
fn with_scripts(batch: &Batch<'_>, places: &[usize]) -> Commands {
    let mut commands = Commands::with_capacity(Script::ALL.len() + places.len());
    for script in Script::ALL {
        commands.begin("SCRIPT").text("LOAD").text(script.source());
    }
    places.iter().filter_map(|place| batch.commands.get(*place)).for_each(|command| commands.push(command));
    commands
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::Mutex;

    type Answers = Result<Vec<CommandReply>, ConnectionError>;

    /// A connection with prepared replies, which records the last argument of each command.
    #[derive(Default)]
    struct FakeConnection {
        answers: Mutex<VecDeque<Answers>>,
        sent: Mutex<Vec<Vec<String>>>,
    }

    impl Connection for FakeConnection {
        async fn send(&self, commands: &Commands) -> Answers {
            let last = |command: crate::keyspace::Command<'_>| {
                String::from_utf8_lossy(command.args().last().unwrap_or_default()).into_owned()
            };
            self.sent.lock().unwrap().push(commands.iter().map(last).collect());
            self.answers.lock().unwrap().pop_front().unwrap()
        }
        fn ticks_us(&self) -> u64 {
            0
        }
        fn random(&self) -> u64 {
            1
        }
        fn warn(&self, _: &str) {}
    }

    fn transport(answers: impl IntoIterator<Item = Answers>) -> ProbingTransport<FakeConnection> {
        let answers = Mutex::new(answers.into_iter().collect());
        ProbingTransport::new(
            FakeConnection { answers, ..FakeConnection::default() },
            Keyspace::of_hosts(256),
            Span::seconds(45),
        )
    }

    fn ok() -> CommandReply {
        CommandReply::Pieces(vec![OwnedPiece::Int(1)])
    }

    fn no_script() -> CommandReply {
        CommandReply::Error("NOSCRIPT No matching script.".to_owned())
    }

    /// What is sent again: the loads of the scripts and then these replies.
    fn with_loads(replies: &[CommandReply]) -> Answers {
        Ok(std::iter::repeat_n(ok(), Script::ALL.len()).chain(replies.iter().cloned()).collect())
    }

    fn batch<'a>(items: &[(&'a str, &str)]) -> Batch<'a> {
        let mut batch = Batch::default();
        for (who, what) in items {
            batch.add(who, 0, |to| {
                to.begin("X").text(what);
            });
        }
        batch
    }

    #[tokio::test]
    async fn missing_script_resends_later_items_of_the_user() {
        let items = [("bob", "1"), ("eve", "2"), ("bob", "3"), ("", "4"), ("bob", "5"), ("", "6")];
        let first = Ok(vec![ok(), ok(), no_script(), no_script(), ok(), ok()]);
        let transport = transport([first, with_loads(&[ok(), ok(), ok()])]);
        let replies = transport.run(batch(&items)).await;
        assert!(replies.items().all(|item| item.is_ok()));
        let sent = transport.connection.sent.lock().unwrap();
        assert_eq!((sent.len(), &sent[1][Script::ALL.len()..]), (2, &["3", "4", "5"].map(str::to_owned)[..]));
    }

    #[tokio::test]
    async fn script_that_stays_missing_is_an_error() {
        let transport =
            transport([Ok(vec![no_script(), ok()]), with_loads(&[no_script()]), with_loads(&[no_script()])]);
        let replies = transport.run(batch(&[("bob", "1"), ("eve", "2")])).await;
        let outcomes: Vec<_> = replies.items().map(|item| item.map(drop)).collect();
        assert_eq!(outcomes, [Err(Error::Unavailable(RETRY_MS)), Ok(())]);
    }

    #[tokio::test]
    async fn items_fail_alone_and_outages_are_reported() {
        let refused = CommandReply::Error("NOPERM no".to_owned());
        let loading = CommandReply::Error("LOADING soon".to_owned());
        let transport = transport([
            Ok(vec![refused.clone(), ok(), ok()]),
            Ok(vec![ok(), loading]),
            Err(ConnectionError(String::new())),
        ]);
        let items = [("bob", "1"), ("bob", "2"), ("eve", "3")];
        let outcomes = async |items: &[(&'static str, &str)]| {
            let replies = transport.run(batch(items)).await;
            replies.items().map(|item| item.map(drop)).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(&items).await, [Err(Error::Other("NOPERM no".to_owned())), Ok(()), Ok(())]);
        assert_eq!(transport.time.failure(), None);
        let unavailable = Error::Unavailable(RETRY_MS);
        let last = outcomes(&items).await;
        assert_eq!(last[..2], [Ok(()), Err(unavailable.clone())]);
        assert!(matches!(&last[2], Err(Error::Other(_))), "a missing reply: {last:?}");
        let failure = transport.time.failure();
        assert!(failure.is_some());
        assert_eq!(outcomes(&items[..1]).await, [Err(unavailable)]);
        assert_ne!(transport.time.failure(), failure);
    }

    #[tokio::test]
    async fn empty_batch_sends_nothing() {
        let transport = transport([]);
        assert_eq!(transport.run(Batch::default()).await.items().count(), 0);
    }
}
