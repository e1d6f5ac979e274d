//! One master, listened to over a connection of its own.
//!
//! Whoever wants to hear something, or no more, leaves word; one task compares what is wanted with what is subscribed to
//! and sends the difference, all of it in one go, one go at a time. So an interest that comes and goes in between costs
//! nothing. Each command names one channel: then it has one answer, which is what the client library counts, and on a
//! Cluster one slot.
//!
//! Once a second the server is asked whether it is there. Its answer comes after everything that it sent before, so when
//! it comes everything has that was published before the question.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, ProtocolVersion, PushInfo, Value, cmd};
use rollcall_core::{Error, Time};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::MissedTickBehavior;

use super::super::address::Kind;
use super::super::link::Link;
use super::super::trouble::{ErrorClass, Trouble};
use super::ears::Ears;
use super::hearing::Hearing;
use crate::transport::RETRY_MS;
use rollcall_store::topics::{Topic, exchange};

/// How often the server is asked whether it is there.
const PING: Duration = Duration::from_secs(1);

/// Before a lost connection is tried again.
const PAUSE: Duration = Duration::from_millis(150);

/// The most commands in one go: a server answers so many in a few milliseconds, and nobody waits for more than that.
const MAX_COMMANDS: usize = 1024;

/// One master, listened to.
pub(super) struct Ear {
    link: Arc<Link>,
    desk: Mutex<Desk>,
    word: Notify,
    /// Everything that the server published before this, in milliseconds, has arrived.
    heard_until_ms: AtomicU64,
    /// The state of the fleet, as its changes are counted, that this ear has taken note of; 0: none.
    noted: AtomicU64,
}

/// Where word is left.
struct Desk {
    is_open: Open,
    asked: Vec<Asked>,
    neglected: HashSet<Topic>,
}

/// What word is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// None: the server is away, and nothing is subscribed to.
    Closed,
    /// That somebody lost interest, while everything that is watched is subscribed to anew.
    ForNeglect,
    /// All.
    ForAll,
}

impl Desk {
    fn new(is_open: Open) -> Self {
        Self { is_open, asked: Vec::new(), neglected: HashSet::new() }
    }
}

/// Somebody waits until these are heard.
struct Asked {
    topics: Vec<Topic>,
    confirm: oneshot::Sender<()>,
}

/// One connection, for as long as it lasts.
struct Session {
    ears: Arc<Ears>,
    ear: Arc<Ear>,
    connection: MultiplexedConnection,
    hearing: Arc<Hearing>,
    subscribed: HashSet<Topic>,
}

impl Ear {
    pub(super) fn new(link: Arc<Link>) -> Self {
        // The first connection is waited for; later ones are not.
        let (desk, word) = (Mutex::new(Desk::new(Open::ForAll)), Notify::new());
        Self { link, desk, word, heard_until_ms: AtomicU64::new(0), noted: AtomicU64::new(0) }
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Up to when everything arrived, if this ear has taken note of how the servers are at present.
    pub(super) fn heard_until(&self, version: u64) -> Option<Time> {
        (self.noted.load(Ordering::SeqCst) == version + 1).then(|| Time(self.heard_until_ms.load(Ordering::SeqCst)))
    }

    /// Asks for these to be heard. The answer comes when they are; if it never comes, they are not.
    pub(super) fn ask(&self, topics: Vec<Topic>) -> Result<oneshot::Receiver<()>, Error> {
        let mut desk = self.desk.lock();
        if desk.is_open != Open::ForAll || self.link.down().is_some() {
            return Err(Error::Unavailable(RETRY_MS));
        }
        let (confirm, confirmed) = oneshot::channel();
        desk.asked.push(Asked { topics, confirm });
        drop(desk);
        self.word.notify_one();
        Ok(confirmed)
    }

    /// Somebody lost interest in this.
    pub(super) fn neglect(&self, topic: Topic) {
        let mut desk = self.desk.lock();
        if desk.is_open != Open::Closed {
            desk.neglected.insert(topic);
            drop(desk);
            self.word.notify_one();
        }
    }

    /// Listens for ever, through any number of connections.
    pub(super) async fn listen(self: Arc<Self>, ears: Weak<Ears>) {
        let mut complaint = None;
        loop {
            let Some(ears) = ears.upgrade() else { return };
            let Err(trouble) = Arc::clone(&self).listen_once(ears, &mut complaint).await else { return };
            self.noted.store(0, Ordering::SeqCst);
            *self.desk.lock() = Desk::new(Open::Closed);
            if complaint.as_ref() != Some(&trouble) {
                tracing::warn!(server = %self.link.endpoint, "nothing is heard from Redis: {trouble}");
                complaint = Some(trouble);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Listens until the connection is lost, and says why. Ends without an error when the store is closed.
    async fn listen_once(self: Arc<Self>, ears: Arc<Ears>, complaint: &mut Option<Trouble>) -> Result<(), Trouble> {
        let mut changes = ears.inner().fleet.changes();
        let mut session = Session::open(ears, self).await?;
        session.begin(&mut changes).await?;
        if complaint.take().is_some() {
            tracing::info!(server = %session.ear.link.endpoint, "Redis is heard again");
        }
        session.go_on(changes).await
    }
}

impl Session {
    async fn open(ears: Arc<Ears>, ear: Arc<Ear>) -> Result<Self, Trouble> {
        let hearing = Arc::new(Hearing::new(Arc::clone(ears.inner()), Arc::clone(ears.exchange())));
        let take = {
            let hearing = Arc::clone(&hearing);
            move |push: PushInfo| {
                hearing.take(&push);
                Ok::<(), redis::aio::SendError>(())
            }
        };
        let limit = ears.inner().around.connect_timeout;
        let client = ear.link.endpoint.client_speaking(ProtocolVersion::RESP3).map_err(|error| Trouble::of(&error))?;
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(None);
        let config = config.set_push_sender(take);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let connection = tokio::time::timeout(limit, connecting).await.map_err(|_| Trouble::Silent)?;
        let connection = connection.map_err(|error| Trouble::of(&error))?;
        Ok(Self { ears, ear, connection, hearing, subscribed: HashSet::new() })
    }

    /// Subscribes to everything that is watched.
    async fn begin(&mut self, changes: &mut watch::Receiver<u64>) -> Result<(), Trouble> {
        let asked = {
            let mut desk = self.ear.desk.lock();
            desk.neglected.clear();
            if desk.is_open == Open::Closed {
                desk.is_open = Open::ForNeglect;
            }
            std::mem::take(&mut desk.asked)
        };
        self.take_note(changes).await?;
        self.ear.desk.lock().is_open = Open::ForAll;
        self.confirm(asked);
        Ok(())
    }

    /// Does what is asked until the connection is lost.
    async fn go_on(&mut self, mut changes: watch::Receiver<u64>) -> Result<(), Trouble> {
        let mut ping = tokio::time::interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ear = Arc::clone(&self.ear);
        let hearing = Arc::clone(&self.hearing);
        loop {
            tokio::select! {
                () = hearing.broken() => return Err(Trouble::Unreachable("the connection broke".to_owned())),
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    self.take_note(&mut changes).await?;
                }
                () = ear.word.notified() => self.do_as_told().await?,
                _ = ping.tick() => self.send(ping_command()).await?,
            }
        }
    }

    /// Does what was asked since the last time.
    async fn do_as_told(&mut self) -> Result<(), Trouble> {
        let (asked, neglected) = {
            let mut desk = self.ear.desk.lock();
            (std::mem::take(&mut desk.asked), std::mem::take(&mut desk.neglected))
        };
        let concerned: HashSet<&Topic> = asked.iter().flat_map(|asked| &asked.topics).chain(&neglected).collect();
        let concerned: Vec<Topic> = concerned.into_iter().cloned().collect();
        self.adjust(concerned).await?;
        self.confirm(asked);
        Ok(())
    }

    /// Takes note of how the servers are at present: subscribes to everything watched that is here now, and gives up what
    /// is not.
    async fn take_note(&mut self, changes: &mut watch::Receiver<u64>) -> Result<(), Trouble> {
        let version = *changes.borrow_and_update();
        let watched = self.ears.exchange().topics().filter(|topic| self.is_here(topic));
        let concerned: HashSet<Topic> = watched.chain(self.subscribed.iter().cloned()).collect();
        self.adjust(concerned.into_iter().collect()).await?;
        self.ear.noted.store(version + 1, Ordering::SeqCst);
        Ok(())
    }

    /// Makes what is subscribed to of these what is wanted. Whoever heard one before that is new here is told.
    async fn adjust(&mut self, mut concerned: Vec<Topic>) -> Result<(), Trouble> {
        while !concerned.is_empty() {
            let part = concerned.split_off(concerned.len().saturating_sub(MAX_COMMANDS));
            let is_wanted = |topic: &Topic| self.ears.exchange().is_watched(topic) && self.is_here(topic);
            let (wanted, unwanted): (Vec<Topic>, Vec<Topic>) = part.into_iter().partition(is_wanted);
            let (stay, come): (Vec<Topic>, Vec<Topic>) =
                wanted.into_iter().partition(|topic| self.subscribed.contains(topic));
            let go: Vec<Topic> = unwanted.into_iter().filter(|topic| self.subscribed.contains(topic)).collect();
            if !(come.is_empty() && go.is_empty()) {
                self.hearing.give_up(go.iter().map(|topic| self.ears.channel_of(topic)));
                self.send(self.commands(&come, &go)).await?;
            }
            for topic in &go {
                self.subscribed.remove(topic);
            }
            let exchange = self.ears.exchange();
            stay.iter().for_each(|topic| exchange.hear(topic, exchange::Hearing::Still));
            come.iter().for_each(|topic| exchange.hear(topic, exchange::Hearing::Anew));
            self.subscribed.extend(come);
        }
        Ok(())
    }

    /// Answers those whose topics are all heard. The others asked for one that moved meanwhile: they ask again.
    fn confirm(&self, asked: Vec<Asked>) {
        let is_heard = |topic: &Topic| self.subscribed.contains(topic) || !self.ears.exchange().is_watched(topic);
        for Asked { topics, confirm } in asked {
            if topics.iter().all(is_heard) {
                // Whoever no longer waits has taken back what they asked for.
                let _ = confirm.send(());
            }
        }
    }

    fn commands(&self, come: &[Topic], go: &[Topic]) -> Pipeline {
        let (subscribe, unsubscribe) = match self.ears.inner().fleet.kind() {
            Kind::Single => ("SUBSCRIBE", "UNSUBSCRIBE"),
            Kind::Cluster => ("SSUBSCRIBE", "SUNSUBSCRIBE"),
        };
        let mut pipeline = Pipeline::with_capacity(come.len() + go.len());
        for (name, topics) in [(unsubscribe, go), (subscribe, come)] {
            for topic in topics {
                pipeline.add_command(cmd(name).arg(self.ears.channel_of(topic)).to_owned());
            }
        }
        pipeline
    }

    fn is_here(&self, topic: &Topic) -> bool {
        self.ears.server_of(topic).is_some_and(|link| Arc::ptr_eq(&link, &self.ear.link))
    }

    /// Sends commands and waits for an answer to each: then everything has arrived that came before.
    async fn send(&mut self, commands: Pipeline) -> Result<(), Trouble> {
        let around = &self.ears.inner().around;
        let sent_at = around.time.now();
        let answer = self.connection.send_packed_commands(&commands, 0, commands.len());
        let answers = tokio::time::timeout(around.response_timeout, answer).await.map_err(|_| Trouble::Silent)?;
        let answers = answers.map_err(|error| Trouble::of(&error))?;
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                return Err(self.refused(error).await);
            }
        }
        // What was said before the answers may have been that they belong to no question of ours.
        if self.hearing.is_broken() {
            return Err(Trouble::Unreachable("a slot moved".to_owned()));
        }
        self.ear.heard_until_ms.fetch_max(sent_at.0, Ordering::SeqCst);
        self.ears.heard();
        Ok(())
    }

    /// What a refusal means. A slot that moved is learned of before the next try.
    async fn refused(&self, error: &redis::ServerError) -> Trouble {
        let inner = self.ears.inner();
        match ErrorClass::of(error) {
            ErrorClass::Moved | ErrorClass::Ask(_) | ErrorClass::TryAgain => {
                let _ = tokio::time::timeout(inner.around.connect_timeout, inner.learn_anew()).await;
                Trouble::Unwilling("a slot moved".to_owned())
            }
            ErrorClass::Server(trouble) => trouble,
            ErrorClass::Denied(why) => Trouble::Refused(why),
            ErrorClass::LoadScripts => Trouble::Unwilling(error.to_string()),
            ErrorClass::Other(why) => Trouble::Unwilling(why),
        }
    }
}

fn ping_command() -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.add_command(cmd("PING"));
    pipeline
}
