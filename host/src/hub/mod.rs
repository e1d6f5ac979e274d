//! The gateway: connections that stay. Whoever watches is told within milliseconds, and a live connection is a heartbeat.
//!
//! Each worker has its own. What is published arrives at the worker's tap, `listening` takes it to the [`Roster`], and
//! that marks who has to be told; a connection takes what is newest when it can. Of a person whom thousands watch on one
//! worker there is one subscription on this host, one copy of the text, and one mark per watcher.
//!
//! Deliberately absent: a queue per connection, a replay log (the newest state is all there is to replay), and any
//! decision about who may see whom: that comes from the functions, with every admission and whenever it changes.

mod asking;
mod attendance;
mod connection;
mod handshake;
mod known;
mod listening;
mod reconsidering;
mod roster;
mod socket;
mod sse;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollcall_api::{Access, EventId, Limits, events};
use rollcall_core::visibility::{SURELY_PUBLISHED, may_be_since};
use rollcall_core::{ConversationId, Error, Published, Span, Time, UserId};
use rollcall_functions::subscribe::Place;
use rollcall_store::{Tap, Topic, Topics};
use tokio::sync::{Notify, mpsc};

use crate::jobs::policy_sync::Invalidated;
use crate::runtime::FunctionHandles;
use attendance::Attendance;
use connection::RETRY_MS;
use roster::{Added, Crowds, Roster};

pub(crate) use asking::{Question, Rosters};
pub(crate) use attendance::Presences;
pub(crate) use connection::{Visitor, retry_ms};
pub(crate) use handshake::handshake;
pub(crate) use roster::Sizes;

/// How often what a newcomer is shown is read again because it changed what the viewer may see of them.
const MAX_READINGS: usize = 16;

/// How the gateway behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    /// How often everybody who is watched is read again, in case something was lost that nobody noticed.
    pub(crate) recheck: Duration,
    /// How many watchers, on all hosts, are a crowd.
    pub(crate) crowd: u64,
    /// How often a crowd is told of one person.
    pub(crate) crowd_interval: Duration,
}

/// One worker's gateway.
pub(crate) struct Gateway {
    pub(crate) function_handles: FunctionHandles,
    pub(crate) access: Arc<Access>,
    pub(crate) limits: Limits,
    manners: Manners,
    roster: RefCell<Roster>,
    topics: Arc<dyn Topics>,
    tap: Tap,
    attendance: Rc<Attendance>,
    /// People to be read again soon, because what was shown of them was not published yet.
    doubtful: RefCell<VecDeque<(Instant, UserId)>>,
    /// There is somebody to be read again soon.
    doubted: Notify,
    /// Something may have been lost.
    lost: Notify,
    /// Something became known in another way than by a topic.
    invalidated: Notify,
    /// Everybody who is watched has been read since then. It never goes back.
    sure_until: Cell<Time>,
    /// How many watchers, people and conversations the metrics know of.
    reported: Cell<Sizes>,
}

impl Gateway {
    pub(crate) fn new(
        function_handles: FunctionHandles,
        access: Arc<Access>,
        limits: Limits,
        manners: Manners,
        present: Presences,
    ) -> Rc<Self> {
        let topics = Arc::clone(&function_handles.platform.topics);
        let sure_until = topics.now();
        let crowds = Crowds { above: manners.crowd, every: manners.crowd_interval };
        Rc::new(Self {
            tap: topics.tap(),
            topics,
            function_handles,
            access,
            limits,
            manners,
            roster: RefCell::new(Roster::new(crowds)),
            attendance: Rc::new(Attendance::new(present)),
            doubtful: RefCell::default(),
            doubted: Notify::new(),
            lost: Notify::new(),
            invalidated: Notify::new(),
            sure_until: Cell::new(sure_until),
            reported: Cell::default(),
        })
    }

    /// Everything that goes on although no connection asks for it, for ever.
    pub(crate) async fn run(
        &self,
        invalidated: mpsc::UnboundedReceiver<Invalidated>,
        questions: mpsc::UnboundedReceiver<Question>,
    ) {
        let attend = self.attendance.keep(&self.function_handles);
        let reconsider = self.reconsider(invalidated);
        let repair = async { tokio::join!(self.repair(), self.resolve_doubts(), self.recheck()) };
        tokio::join!(self.listen(), repair, reconsider, self.count(), attend, self.answer(questions));
    }

    /// Returns when the store knows of every connection what it should.
    pub(crate) async fn settled(&self) {
        self.attendance.settled().await;
    }

    /// A new pair of eyes, which watch nobody yet.
    pub(crate) fn spectator(self: &Rc<Self>, viewer: Option<UserId>) -> Spectator {
        let key = self.roster.borrow_mut().enter(viewer.clone());
        self.report();
        Spectator { gateway: Rc::clone(self), key, viewer }
    }

    /// Lets the metrics know how much is watched.
    fn report(&self) {
        let sizes = self.roster.borrow().sizes();
        self.function_handles.platform.metrics.gateway.watching(self.reported.replace(sizes), sizes);
    }

    /// From where to resume after all that this watcher was told.
    ///
    /// Everything published before is among it: everybody who is watched was read since, so that not even what was lost on
    /// the way is missing; less what a call takes between its decision and its publication, and what a crowd waits.
    fn resume_point(&self, watcher: usize) -> EventId {
        let crowd = Span(self.manners.crowd_interval.as_millis() as u64);
        let sure = self.sure_until.get().0.saturating_sub(SURELY_PUBLISHED.0 + crowd.0);
        EventId { version: sure * 1000, digest: Some(self.roster.borrow().digest(watcher)) }
    }

    /// Whether this may have come about after the resume point. Of whoever is hidden nobody learns.
    fn is_since(&self, published: Option<&Published>, since: &EventId) -> bool {
        let rules = &self.function_handles.platform.rules;
        published.is_none_or(|published| may_be_since(published, since.version, self.topics.now(), rules))
    }
}

/// One connection's eyes. Dropping it lets go of everything it watches.
pub(crate) struct Spectator {
    gateway: Rc<Gateway>,
    key: usize,
    viewer: Option<UserId>,
}

/// What a watcher is told.
#[derive(Debug, Default)]
struct News {
    presences: Vec<Rc<str>>,
    typing: Vec<String>,
}

impl Spectator {
    /// Begins to watch people and conversations, beside those watched already. Answers the snapshot: all of them, or what
    /// changed since. On an error nothing is watched that was not before.
    pub(crate) async fn watch(
        &self,
        users: Vec<UserId>,
        conversations: Vec<ConversationId>,
        since: Option<EventId>,
    ) -> Result<String, Error> {
        let gateway = &self.gateway;
        let limit = gateway.function_handles.platform.rules.watch_limit;
        let (watching, seated) = {
            let roster = gateway.roster.borrow();
            (roster.watching(self.key), roster.seated(self.key))
        };
        let added = gateway.roster.borrow_mut().add(self.key, users, conversations.clone());
        // The function says so too, but there is no need to listen to anybody before that.
        let most = (watching + added.targets.len()).max(seated + added.seats.len());
        let admitted = match most > limit as usize {
            true => Err(Error::TooMany(limit)),
            false => self.admit(&added, watching as u32, conversations, since).await,
        };
        if admitted.is_err() {
            self.let_go(gateway.roster.borrow_mut().undo(self.key, &added));
        }
        gateway.report();
        admitted
    }

    async fn admit(
        &self,
        added: &Added,
        watching: u32,
        conversations: Vec<ConversationId>,
        since: Option<EventId>,
    ) -> Result<String, Error> {
        let gateway = &self.gateway;
        // First listen, then read: what changes in between is heard.
        if !added.topics.is_empty() {
            gateway.tap.watch(&added.topics).await?;
            gateway.roster.borrow_mut().listened(&added.topics);
        }
        let (mut shown, typing) = self.read_while_still(added, watching, conversations).await?;
        let digest = gateway.roster.borrow().digest(self.key);
        // To whoever sees more or less of somebody than before, everything is told.
        let since = since.filter(|since| since.digest.is_none_or(|before| known::seen_alike(before, digest)));
        if let Some(since) = since {
            let unchanged = since.digest == Some(digest);
            shown.retain(|shown| !unchanged && gateway.is_since(shown.published.as_ref(), &since));
        }
        let presences = shown.iter().map(|shown| &*shown.text);
        Ok(events::snapshot(presences, typing.iter().map(String::as_str), since.is_some()))
    }

    /// Reads what there is to show. If meanwhile it changed what this viewer may see of those, it is read again.
    async fn read_while_still(
        &self,
        added: &Added,
        watching: u32,
        conversations: Vec<ConversationId>,
    ) -> Result<(Vec<roster::Shown>, Vec<String>), Error> {
        for _ in 0..MAX_READINGS {
            self.gateway.roster.borrow_mut().trust(self.key, added);
            let shown = self.read(added, watching).await?;
            let typing = self.read_typing(added, conversations.clone()).await?;
            if !self.gateway.roster.borrow().is_doubted(self.key, added) {
                return Ok((shown, typing));
            }
        }
        Err(Error::Unavailable(*RETRY_MS.start() as u32))
    }

    /// Asks what the viewer may see of those who were added.
    async fn read(&self, added: &Added, watching: u32) -> Result<Vec<roster::Shown>, Error> {
        let gateway = &self.gateway;
        let users: Vec<UserId> = added.targets.iter().map(|newcomer| newcomer.user.clone()).collect();
        if users.is_empty() {
            return Ok(Vec::new());
        }
        let places = gateway.function_handles.open(self.viewer.clone(), watching, users).await?;
        let mut shown = Vec::with_capacity(places.len());
        for (newcomer, place) in added.targets.iter().zip(places) {
            let Place { view, visibility, settled } = place?;
            if !settled {
                gateway.doubt(newcomer.user.clone());
            }
            let now = Instant::now();
            shown.extend(gateway.roster.borrow_mut().admit(self.key, newcomer, view.as_ref(), visibility, now));
        }
        gateway.invalidated.notify_one();
        Ok(shown)
    }

    /// Asks who types where it was added, as far as the viewer may see.
    async fn read_typing(&self, added: &Added, conversations: Vec<ConversationId>) -> Result<Vec<String>, Error> {
        if added.seats.is_empty() {
            return Ok(Vec::new());
        }
        let gateway = &self.gateway;
        let invalidations = gateway.roster.borrow().invalidations();
        let rooms = gateway.function_handles.typists(self.viewer.clone(), conversations.clone()).await?;
        let is_current = gateway.roster.borrow().invalidations() == invalidations;
        let mut typing = Vec::new();
        for (conversation, typists) in conversations.iter().zip(rooms) {
            let typists: Vec<(UserId, Time)> = typists?.into_iter().map(|typist| (typist.user, typist.until)).collect();
            if !is_current {
                // Who of them may be seen may have changed since it was asked: they are told of in a moment, if so.
                gateway.roster.borrow_mut().learn_typists(self.key, conversation, typists);
                continue;
            }
            typing.extend(typists.iter().map(|(user, until)| events::typing(conversation, user, Some(*until))));
            gateway.roster.borrow_mut().learn_typing(self.key, conversation, typists);
        }
        gateway.invalidated.notify_one();
        Ok(typing)
    }

    /// Watches these no longer.
    pub(crate) fn unwatch(&self, users: &[UserId], conversations: &[ConversationId]) {
        self.let_go(self.gateway.roster.borrow_mut().remove(self.key, users, conversations));
        self.gateway.report();
    }

    /// The conversations that are watched.
    fn conversations(&self) -> Vec<ConversationId> {
        self.gateway.roster.borrow().conversations(self.key)
    }

    fn let_go(&self, idle: Vec<Topic>) {
        if !idle.is_empty() {
            self.gateway.tap.unwatch(&idle);
        }
    }

    /// Whether there is something to tell.
    fn has_news(&self) -> bool {
        self.gateway.roster.borrow().has_news(self.key)
    }

    /// Returns when there is something to tell.
    async fn roused(&self) {
        poll_fn(|context| self.gateway.roster.borrow_mut().poll_news(self.key, context)).await;
    }

    /// Takes all that there is to tell.
    async fn news(&self) -> News {
        let mut news = News::default();
        let function_handles = &self.gateway.function_handles;
        // Once for what is known, and once more for whom had to be asked about.
        for _ in 0..2 {
            let collected = self.gateway.roster.borrow_mut().collect(self.key);
            news.presences.extend(collected.presences);
            news.typing.extend(collected.typing);
            if let (true, Some(viewer)) = (collected.itself, &self.viewer) {
                // One sees more of oneself than others do.
                let own = function_handles.look_up(Some(viewer.clone()), vec![viewer.clone()]).await;
                match own.ok().and_then(|answers| answers.into_iter().next()).and_then(Result::ok) {
                    Some(view) => news.presences.push(known::presence(viewer, view.as_ref())),
                    None => {
                        self.gateway.roster.borrow_mut().untold(self.key, viewer);
                        self.gateway.doubt(viewer.clone());
                    }
                }
            }
            if collected.strangers.is_empty() {
                return news;
            }
            let invalidations = self.gateway.roster.borrow().invalidations();
            let Ok(verdicts) = function_handles.verdicts(self.viewer.clone(), collected.strangers.clone()).await else {
                return news;
            };
            if self.gateway.roster.borrow().invalidations() != invalidations {
                // It may have changed since it was asked.
                self.gateway.roster.borrow_mut().ask_again(self.key);
                return news;
            }
            let judged = collected.strangers.into_iter().zip(verdicts).map(|(user, verdict)| (user, verdict.presence));
            self.gateway.roster.borrow_mut().judge(self.key, judged.collect());
        }
        news
    }

    /// From where to resume after all that was told so far, as a client keeps it.
    fn id(&self) -> String {
        self.gateway.resume_point(self.key).to_string()
    }
}

impl Drop for Spectator {
    fn drop(&mut self) {
        self.let_go(self.gateway.roster.borrow_mut().leave(self.key));
        self.gateway.report();
    }
}
