//! All masters, listened to: one ear each, as they come and go.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures::future::try_join_all;
use parking_lot::Mutex;
use rollcall_core::{Error, Time};
use tokio::runtime::Handle;

use super::super::link::Link;
use super::super::{Native, Task};
use super::ear::Ear;
use crate::transport::RETRY_MS;
use rollcall_store::Answer;
use rollcall_store::topics::exchange::Exchange;
use rollcall_store::topics::{Topic, Wire};

/// Ears by the name of their server, each with the task that listens.
type ByServer = HashMap<String, (Arc<Ear>, Task)>;

/// All masters, listened to.
pub(super) struct Ears {
    me: Weak<Self>,
    inner: Arc<Native>,
    exchange: Arc<Exchange>,
    runtime: Handle,
    /// None once the store is closed.
    ears: Mutex<Option<ByServer>>,
    /// Everything published before this, in milliseconds, has arrived.
    heard_until_ms: AtomicU64,
}

impl Ears {
    pub(super) fn new(inner: Arc<Native>, runtime: Handle) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            inner,
            exchange: Arc::new(Exchange::new()),
            runtime,
            ears: Mutex::new(Some(ByServer::new())),
            heard_until_ms: AtomicU64::new(0),
        })
    }

    pub(super) fn inner(&self) -> &Arc<Native> {
        &self.inner
    }

    pub(super) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Keeps an ear at every master, and none anywhere else.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut changes = self.inner.fleet.changes();
        loop {
            changes.mark_unchanged();
            let topology = self.inner.fleet.topology();
            topology.links.iter().for_each(|link| drop(self.at(link)));
            if let Some(ears) = self.ears.lock().as_mut() {
                ears.retain(|_, (ear, _)| topology.links.iter().any(|link| Arc::ptr_eq(link, ear.link())));
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends all listening: the store is gone.
    pub(super) fn close(&self) {
        *self.ears.lock() = None;
    }

    /// The server of this topic at present.
    pub(super) fn server_of(&self, topic: &Topic) -> Option<Arc<Link>> {
        let name = match topic {
            Topic::Person(user) => user.as_str(),
            Topic::Conversation(conversation) => conversation.as_str(),
        };
        self.inner.fleet.topology().server(self.inner.keys.shard_of(name)).cloned()
    }

    /// The channel of this topic.
    pub(super) fn channel_of(&self, topic: &Topic) -> String {
        match topic {
            Topic::Person(user) => self.inner.keys.topic(user.as_str()).to_string(),
            Topic::Conversation(conversation) => self.inner.keys.conversation(conversation.as_str()).to_string(),
        }
    }

    /// Works out anew up to when everything has arrived: as far as the ear that is furthest behind. While there is a
    /// master without an ear, or one whose ear has not yet taken note of how the servers changed, nobody knows.
    pub(super) fn heard(&self) {
        let version = *self.inner.fleet.changes().borrow();
        let topology = self.inner.fleet.topology();
        let ears = self.ears.lock();
        let Some(ears) = ears.as_ref() else { return };
        let heard = |link: &Arc<Link>| ears.get(&link.endpoint.to_string())?.0.heard_until(version);
        let all: Option<Vec<Time>> = topology.links.iter().map(heard).collect();
        if let Some(least) = all.and_then(|all| all.into_iter().min()) {
            self.heard_until_ms.fetch_max(least.0, Ordering::SeqCst);
        }
    }

    /// The ear at this server, which begins to listen if it is new.
    fn at(&self, link: &Arc<Link>) -> Option<Arc<Ear>> {
        let mut ears = self.ears.lock();
        let ears = ears.as_mut()?;
        let name = link.endpoint.to_string();
        let known = ears.get(&name).filter(|(ear, _)| Arc::ptr_eq(ear.link(), link));
        if let Some((ear, _)) = known {
            return Some(Arc::clone(ear));
        }
        let ear = Arc::new(Ear::new(Arc::clone(link)));
        let listening = Arc::clone(&ear).listen(Weak::clone(&self.me));
        ears.insert(name, (Arc::clone(&ear), Task(self.runtime.spawn(listening))));
        Some(ear)
    }

    /// The topics at each server that has any of them; none if nobody has one of them.
    fn grouped(&self, topics: Vec<Topic>) -> Option<Vec<(Arc<Link>, Vec<Topic>)>> {
        let mut groups: Vec<(Arc<Link>, Vec<Topic>)> = Vec::new();
        for topic in topics {
            let link = self.server_of(&topic)?;
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &link)) {
                Some((_, group)) => group.push(topic),
                None => groups.push((link, vec![topic])),
            }
        }
        Some(groups)
    }
}

impl Wire for Ears {
    fn listen(&self, topics: Vec<Topic>) -> Answer<'_, ()> {
        Box::pin(async move {
            let away = || Error::Unavailable(RETRY_MS);
            let mut answers = Vec::new();
            for (link, topics) in self.grouped(topics).ok_or_else(away)? {
                answers.push(self.at(&link).ok_or_else(away)?.ask(topics)?);
            }
            let confirmed = |answer: tokio::sync::oneshot::Receiver<_>| async { answer.await.map_err(|_| away()) };
            try_join_all(answers.into_iter().map(confirmed)).await.map(drop)
        })
    }

    fn neglect(&self, topics: Vec<Topic>) {
        // Whom nobody serves is not subscribed to.
        for topic in topics {
            if let Some(ear) = self.server_of(&topic).and_then(|link| self.at(&link)) {
                ear.neglect(topic);
            }
        }
    }

    fn heard_until(&self) -> Time {
        Time(self.heard_until_ms.load(Ordering::SeqCst))
    }
}
