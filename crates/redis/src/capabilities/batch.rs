//! Batches: everything that a call needs in one go, and each item fails alone.
//!
//! Items about the same person keep their order, also when one of them has to be said again because the server had
//! forgotten a script: then everything later about that person is said again after it. Traces may be left twice, and a
//! commit that is said again finds whether it was applied.
//!
//! A batch may carry a *look*: the command that says the time and the outage grace in force.

use std::collections::HashSet;
use std::ops::Range;

use crate::keyspace::{Commands, Garbled, Piece, Reaching, Script, decode_reached};
use rollcall_core::{Error, Moment, OutageGrace, Span, Time};

use super::Platform;
use super::time::{Age, Asked, Failure};
use super::trouble::ErrorClass;
use super::wire::{Away, OwnedPiece, Reply, Wire};

/// How often something is said before its caller is told to come back: once, again with the scripts, and once more in
/// case somebody else made the server forget them just then.
const MAX_ROUNDS: usize = 3;

/// When a caller may try again: a reconnection takes a few tenths of a second.
pub const RETRY_MS: u32 = 500;

/// By how much an outage grace is outlasted by the silence that needs none. Whoever is pardoned is to be settled when the outage grace
/// ends; whoever does that comes within this, and finds that there is no reason for another.
const SLACK: Span = Span::seconds(15);

/// Said again, these are said again all together and in order.
pub(crate) const IN_ORDER: &str = "in order";

/// What one command was answered.
pub(crate) type Value = Vec<OwnedPiece>;

/// Commands, and whom they are about.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    commands: Commands,
    items: Vec<Item<'a>>,
    look: Option<Look>,
    /// When it was begun, on the platform's clock; none: nobody looked at it then.
    begun_us: Option<u64>,
}

#[derive(Debug)]
struct Item<'a> {
    /// The person; empty: it is about nobody in particular.
    who: &'a str,
    commands: Range<usize>,
}

/// The look that a batch carries.
#[derive(Debug, Clone, Copy)]
struct Look {
    item: usize,
    /// What it reports.
    failure: Option<Failure>,
}

/// An instant. Where every reading of the clock is a call of the host, one has to do for all that is decided in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// On Redis's clock.
    pub(crate) us: u64,
    /// On the platform's clock.
    ticks_us: u64,
}

impl Now {
    pub(crate) fn time(self) -> Time {
        Time(self.us / 1000)
    }
}

/// What a look found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Looked {
    /// Redis's time, and not before any that was told.
    pub(crate) now_us: u64,
    outage_grace: Option<OutageGrace>,
}

impl Looked {
    /// The instant, and the outage grace in force at it.
    pub(crate) fn moment(self) -> Moment {
        let now = Time(self.now_us / 1000);
        Moment { now, outage_grace: self.outage_grace.filter(|outage_grace| now < outage_grace.until) }
    }
}

/// What became of a batch.
#[derive(Debug)]
pub(crate) struct Replies {
    values: Vec<Value>,
    items: Vec<Result<Range<usize>, Error>>,
    /// Which of the items is the look, and what it found.
    look: Option<(usize, Option<Looked>)>,
}

impl<'a> Batch<'a> {
    pub(crate) fn with_capacity(items: usize, commands: usize) -> Self {
        // One more of each for a look.
        let (commands, items) = (Commands::with_capacity(commands + 1), Vec::with_capacity(items + 1));
        Self { commands, items, ..Self::default() }
    }

    /// Adds an item: the commands that `add` adds.
    pub(crate) fn add<T>(&mut self, who: &'a str, add: impl FnOnce(&mut Commands) -> T) -> T {
        let start = self.commands.len();
        let added = add(&mut self.commands);
        self.items.push(Item { who, commands: start..self.commands.len() });
        added
    }

    /// The item that a command belongs to.
    fn item_of(&self, command: usize) -> usize {
        self.items.partition_point(|item| item.commands.end <= command)
    }

    /// What has to be said again: these commands, and everything after them that is about the same people. What failed
    /// in the meantime is not.
    fn again(&self, noted: &HashSet<usize>, replies: &Replies) -> Vec<usize> {
        let (mut people, mut again) = (HashSet::new(), Vec::new());
        for (item, outcome) in self.items.iter().zip(&replies.items) {
            let mut commands = item.commands.clone();
            let first = match people.contains(item.who) {
                true => commands.next(),
                false => commands.find(|command| noted.contains(command)),
            };
            if let (Some(first), Ok(_)) = (first, outcome) {
                again.extend(first..item.commands.end);
                if !item.who.is_empty() {
                    people.insert(item.who);
                }
            }
        }
        again
    }
}

impl Replies {
    fn to(batch: &Batch<'_>) -> Self {
        Self {
            values: vec![Value::new(); batch.commands.len()],
            items: batch.items.iter().map(|item| Ok(item.commands.clone())).collect(),
            look: batch.look.map(|look| (look.item, None)),
        }
    }

    /// The answers of each item, in order, without the look.
    pub(crate) fn items(&self) -> impl Iterator<Item = Result<&[Value], Error>> {
        let look = self.look.map(|(item, _)| item);
        let items = self.items.iter().enumerate().filter(move |(index, _)| Some(*index) != look);
        items.map(|(_, item)| match item {
            Ok(range) => Ok(self.values.get(range.clone()).unwrap_or_default()),
            Err(error) => Err(error.clone()),
        })
    }

    /// What the look found.
    pub(crate) fn looked(&self) -> Result<Looked, Error> {
        match self.look.map(|(item, looked)| (self.items.get(item), looked)) {
            Some((_, Some(looked))) => Ok(looked),
            Some((Some(Err(error)), None)) => Err(error.clone()),
            _ => Err(Error::Unavailable(RETRY_MS)),
        }
    }

    fn fail(&mut self, item: usize, error: Error) {
        if let Some(place) = self.items.get_mut(item) {
            *place = Err(error);
        }
    }
}

impl<W: Wire> Platform<W> {
    /// This instant. If Redis's time is not known there is a look first.
    pub(crate) async fn now(&self) -> Result<Now, Error> {
        let ticks_us = self.wire.ticks_us();
        if self.time.age(ticks_us) != Age::Unknown {
            return Ok(Now { us: self.time.now_us(ticks_us), ticks_us });
        }
        let mut batch = Batch::default();
        self.look(&mut batch);
        let us = self.run(&batch).await.looked()?.now_us;
        Ok(Now { us, ticks_us: self.wire.ticks_us() })
    }

    /// Adds a look. Said again, it is said again with whatever is in order after it.
    pub(crate) fn look(&self, batch: &mut Batch<'_>) {
        let failure = self.time.failure();
        let (allowed, outage_grace) = (self.outage_grace + SLACK, self.outage_grace);
        batch.look = Some(Look { item: batch.items.len(), failure });
        let failed = failure.map(|failure| failure.since);
        batch.add(IN_ORDER, |to| self.keys.reach(to, Reaching { allowed, outage_grace, failed }));
    }

    /// Adds a look if the last one is old. What is decided about this batch was decided now.
    pub(crate) fn look_on_the_way(&self, batch: &mut Batch<'_>, now: Now) {
        batch.begun_us = Some(now.ticks_us);
        if self.time.age(now.ticks_us) != Age::Fresh {
            self.look(batch);
        }
    }

    /// Sends a batch and waits for what becomes of it.
    pub(crate) async fn run(&self, batch: &Batch<'_>) -> Replies {
        let mut replies = Replies::to(batch);
        let mut open: Vec<usize> = (0..batch.commands.len()).collect();
        for round in 0..MAX_ROUNDS {
            if open.is_empty() {
                return replies;
            }
            let begun_us = batch.begun_us.filter(|_| round == 0);
            let sent_us = begun_us.unwrap_or_else(|| self.wire.ticks_us());
            open = match round {
                0 => self.round(batch, &open, (&batch.commands, 0), sent_us, &mut replies).await,
                _ => {
                    let commands = with_scripts(batch, &open);
                    self.round(batch, &open, (&commands, Script::ALL.len()), sent_us, &mut replies).await
                }
            };
        }
        for command in open {
            replies.fail(batch.item_of(command), Error::Unavailable(RETRY_MS));
        }
        replies
    }

    /// Sends what is open, after so many commands that are in front of it, and sorts the answers. What is still open
    /// then has to be said again.
    async fn round(
        &self,
        batch: &Batch<'_>,
        open: &[usize],
        (commands, in_front): (&Commands, usize),
        sent_us: u64,
        replies: &mut Replies,
    ) -> Vec<usize> {
        let mut answers = match self.wire.send(commands).await {
            Ok(answers) => answers.into_iter(),
            Err(Away(why)) => {
                self.time.fail(sent_us);
                self.complain(&format!("Redis cannot be reached: {why}"));
                open.iter().for_each(|command| replies.fail(batch.item_of(*command), Error::Unavailable(RETRY_MS)));
                return Vec::new();
            }
        };
        // Only what a look found depends on when it was answered.
        let answered_us = batch.look.map_or(sent_us, |_| self.wire.ticks_us());
        let asked = Asked { sent_us, answered_us };
        for answer in answers.by_ref().take(in_front) {
            if let Reply::Error(line) = answer {
                self.complain(&format!("Redis does not take a script: {line}"));
            }
        }
        let mut noted = HashSet::new();
        for &command in open {
            match answers.next().map(|answer| self.sorted(answer, sent_us)) {
                Some(Ok(value)) => self.keep(batch, command, value, asked, replies),
                Some(Err(Some(error))) => replies.fail(batch.item_of(command), error),
                Some(Err(None)) => drop(noted.insert(command)),
                None => replies.fail(batch.item_of(command), self.garbled(&Garbled("fewer replies than commands"))),
            }
        }
        batch.again(&noted, replies)
    }

    /// An answer, or what is wrong with it; no error: its script is missing.
    fn sorted(&self, answer: Reply, sent_us: u64) -> Result<Value, Option<Error>> {
        let line = match answer {
            Reply::Pieces(value) => return Ok(value),
            Reply::Error(line) => line,
        };
        match ErrorClass::of(&line) {
            ErrorClass::LoadScripts => Err(None),
            ErrorClass::Later => {
                self.time.fail(sent_us);
                self.complain(&format!("Redis takes no commands: {line}"));
                Err(Some(Error::Unavailable(RETRY_MS)))
            }
            ErrorClass::Never => {
                self.complain(&format!("Redis answers with an error: {line}"));
                Err(Some(Error::Other(line)))
            }
        }
    }

    /// Keeps an answer, and if it is that of the look, what it found.
    fn keep(&self, batch: &Batch<'_>, command: usize, value: Value, asked: Asked, replies: &mut Replies) {
        if let Some(look) = batch.look.filter(|look| batch.item_of(command) == look.item) {
            match decode_reached(pieces(&value)) {
                Ok(reached) => {
                    let now_us = self.time.take(reached, asked, look.failure);
                    if look.failure.is_some() {
                        self.forget_complaint();
                    }
                    replies.look = Some((look.item, Some(Looked { now_us, outage_grace: reached.outage_grace })));
                }
                Err(garbled) => replies.fail(look.item, self.garbled(&garbled)),
            }
        }
        if let Some(place) = replies.values.get_mut(command) {
            *place = value;
        }
    }
}

/// Every script to be loaded, and then the commands at these places.
fn with_scripts(batch: &Batch<'_>, places: &[usize]) -> Commands {
    let mut commands = Commands::with_capacity(Script::ALL.len() + places.len());
    for script in Script::ALL {
        commands.begin("SCRIPT").text("LOAD").text(script.source());
    }
    places.iter().filter_map(|place| batch.commands.get(*place)).for_each(|command| commands.push(command));
    commands
}

/// An answer as the keyspace reads it.
pub(crate) fn pieces(value: &Value) -> impl Iterator<Item = Piece<'_>> + Clone {
    value.iter().map(OwnedPiece::as_piece)
}

/// The first piece of what a single command was answered.
pub(crate) fn piece(values: &[Value]) -> Piece<'_> {
    values.first().and_then(|value| value.first()).map_or(Piece::Nil, OwnedPiece::as_piece)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use rollcall_core::Rules;

    use crate::Options;

    type Answers = Result<Vec<Reply>, Away>;

    /// A wire that answers as it was told, and notes the last argument of what it was sent.
    #[derive(Default)]
    struct Told {
        answers: Mutex<VecDeque<Answers>>,
        sent: Mutex<Vec<Vec<String>>>,
    }

    impl Wire for Told {
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
        fn complain(&self, _: &str) {}
    }

    fn platform(answers: impl IntoIterator<Item = Answers>) -> Platform<Told> {
        let answers = Mutex::new(answers.into_iter().collect());
        Platform::new(Told { answers, ..Told::default() }, Options::of(&Rules::STANDARD))
    }

    fn ok() -> Reply {
        Reply::Pieces(vec![OwnedPiece::Int(1)])
    }

    fn no_script() -> Reply {
        Reply::Error("NOSCRIPT No matching script.".to_owned())
    }

    /// What is sent again, after the scripts and these replies to them.
    fn with_loads(replies: &[Reply]) -> Answers {
        Ok(std::iter::repeat_n(ok(), Script::ALL.len()).chain(replies.iter().cloned()).collect())
    }

    fn batch<'a>(items: &[(&'a str, &str)]) -> Batch<'a> {
        let mut batch = Batch::default();
        for (who, what) in items {
            batch.add(who, |to| {
                to.begin("X").text(what);
            });
        }
        batch
    }

    #[tokio::test]
    async fn what_lacked_its_script_is_said_again_and_so_is_whatever_came_after_it_about_the_same_person() {
        let items = [("bob", "1"), ("eve", "2"), ("bob", "3"), ("", "4"), ("bob", "5"), ("", "6")];
        let first = Ok(vec![ok(), ok(), no_script(), no_script(), ok(), ok()]);
        let platform = platform([first, with_loads(&[ok(), ok(), ok()])]);
        let replies = platform.run(&batch(&items)).await;
        assert!(replies.items().all(|item| item.is_ok()));
        let sent = platform.wire.sent.lock().unwrap();
        assert_eq!((sent.len(), &sent[1][Script::ALL.len()..]), (2, &["3", "4", "5"].map(str::to_owned)[..]));
    }

    #[tokio::test]
    async fn a_script_that_is_never_there_is_given_up() {
        let platform = platform([Ok(vec![no_script(), ok()]), with_loads(&[no_script()]), with_loads(&[no_script()])]);
        let replies = platform.run(&batch(&[("bob", "1"), ("eve", "2")])).await;
        let outcomes: Vec<_> = replies.items().map(|item| item.map(drop)).collect();
        assert_eq!(outcomes, [Err(Error::Unavailable(RETRY_MS)), Ok(())]);
    }

    #[tokio::test]
    async fn each_item_fails_alone_and_an_outage_is_remembered() {
        let refused = Reply::Error("NOPERM no".to_owned());
        let loading = Reply::Error("LOADING soon".to_owned());
        let platform =
            platform([Ok(vec![refused.clone(), ok(), ok()]), Ok(vec![ok(), loading]), Err(Away(String::new()))]);
        let items = [("bob", "1"), ("bob", "2"), ("eve", "3")];
        let outcomes = async |items: &[(&'static str, &str)]| {
            let replies = platform.run(&batch(items)).await;
            replies.items().map(|item| item.map(drop)).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(&items).await, [Err(Error::Other("NOPERM no".to_owned())), Ok(()), Ok(())]);
        assert_eq!(platform.time.failure(), None);
        let away = Error::Unavailable(RETRY_MS);
        let last = outcomes(&items).await;
        assert_eq!(last[..2], [Ok(()), Err(away.clone())]);
        assert!(matches!(&last[2], Err(Error::Other(_))), "no reply at all: {last:?}");
        let failure = platform.time.failure();
        assert!(failure.is_some());
        assert_eq!(outcomes(&items[..1]).await, [Err(away)]);
        assert_ne!(platform.time.failure(), failure);
    }

    #[tokio::test]
    async fn nothing_is_sent_for_nothing() {
        let platform = platform([]);
        assert_eq!(platform.run(&Batch::default()).await.items().count(), 0);
    }
}
