//! The cluster subscriber: one subscriber per master, as masters come and go.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures::future::try_join_all;
use parking_lot::Mutex;
use rollcall_core::{Error, Time};
use tokio::runtime::Handle;

use super::super::server::Server;
use super::super::{NativeTransport, Task};
use super::subscriber::Subscriber;
use crate::transport::RETRY_MS;
use rollcall_store::StoreFuture;
use rollcall_store::topics::dispatcher::Dispatcher;
use rollcall_store::topics::{Topic, TopicSource};

/// Subscribers by server name, each with its task.
type ByServer = HashMap<String, (Arc<Subscriber>, Task)>;

/// One subscriber per master.
pub(super) struct ClusterSubscriber {
    me: Weak<Self>,
    inner: Arc<NativeTransport>,
    dispatcher: Arc<Dispatcher>,
    runtime: Handle,
    /// `None` once the store is closed.
    subscribers: Mutex<Option<ByServer>>,
    /// Everything published before this, in milliseconds, was received.
    received_until_ms: AtomicU64,
}

impl ClusterSubscriber {
    pub(super) fn new(inner: Arc<NativeTransport>, runtime: Handle) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            inner,
            dispatcher: Arc::new(Dispatcher::new()),
            runtime,
            subscribers: Mutex::new(Some(ByServer::new())),
            received_until_ms: AtomicU64::new(0),
        })
    }

    pub(super) fn inner(&self) -> &Arc<NativeTransport> {
        &self.inner
    }

    pub(super) fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    /// Keeps one subscriber at every master, and none elsewhere.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut changes = self.inner.servers.changes();
        loop {
            changes.mark_unchanged();
            let topology = self.inner.servers.topology();
            topology.servers.iter().for_each(|server| drop(self.at(server)));
            if let Some(subscribers) = self.subscribers.lock().as_mut() {
                subscribers.retain(|_, (subscriber, _)| {
                    topology.servers.iter().any(|server| Arc::ptr_eq(server, subscriber.server()))
                });
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends all subscribers: the store is closed.
    pub(super) fn close(&self) {
        *self.subscribers.lock() = None;
    }

    /// The server that has this topic at present.
    pub(super) fn server_of(&self, topic: &Topic) -> Option<Arc<Server>> {
        let name = match topic {
            Topic::User(user) => user.as_str(),
            Topic::Conversation(conversation) => conversation.as_str(),
        };
        self.inner.servers.topology().server(self.inner.keys.shard_of(name)).cloned()
    }

    /// The channel of this topic.
    pub(super) fn channel_of(&self, topic: &Topic) -> String {
        match topic {
            Topic::User(user) => self.inner.keys.topic(user.as_str()).to_string(),
            Topic::Conversation(conversation) => self.inner.keys.conversation(conversation.as_str()).to_string(),
        }
    }

    /// Recomputes up to when everything was received: the minimum over all subscribers. It stays as it is while a
    /// master has no subscriber, or one that has not yet followed a change of the topology.
    pub(super) fn update_received_until(&self) {
        let version = *self.inner.servers.changes().borrow();
        let topology = self.inner.servers.topology();
        let subscribers = self.subscribers.lock();
        let Some(subscribers) = subscribers.as_ref() else { return };
        let received = |server: &Arc<Server>| subscribers.get(&server.endpoint.to_string())?.0.received_until(version);
        let all: Option<Vec<Time>> = topology.servers.iter().map(received).collect();
        if let Some(least) = all.and_then(|all| all.into_iter().min()) {
            self.received_until_ms.fetch_max(least.0, Ordering::SeqCst);
        }
    }

    /// The subscriber at this server, started if it is new.
    fn at(&self, server: &Arc<Server>) -> Option<Arc<Subscriber>> {
        let mut subscribers = self.subscribers.lock();
        let subscribers = subscribers.as_mut()?;
        let name = server.endpoint.to_string();
        let known = subscribers.get(&name).filter(|(subscriber, _)| Arc::ptr_eq(subscriber.server(), server));
        if let Some((subscriber, _)) = known {
            return Some(Arc::clone(subscriber));
        }
        let subscriber = Arc::new(Subscriber::new(Arc::clone(server)));
        let running = Arc::clone(&subscriber).run(Weak::clone(&self.me));
        subscribers.insert(name, (Arc::clone(&subscriber), Task(self.runtime.spawn(running))));
        Some(subscriber)
    }

    /// The topics by server; `None` if no server has one of them.
    fn grouped(&self, topics: Vec<Topic>) -> Option<Vec<(Arc<Server>, Vec<Topic>)>> {
        let mut groups: Vec<(Arc<Server>, Vec<Topic>)> = Vec::new();
        for topic in topics {
            let server = self.server_of(&topic)?;
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &server)) {
                Some((_, group)) => group.push(topic),
                None => groups.push((server, vec![topic])),
            }
        }
        Some(groups)
    }
}

impl TopicSource for ClusterSubscriber {
    fn subscribe(&self, topics: Vec<Topic>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let unavailable = || Error::Unavailable(RETRY_MS);
            let mut answers = Vec::new();
            for (server, topics) in self.grouped(topics).ok_or_else(unavailable)? {
                answers.push(self.at(&server).ok_or_else(unavailable)?.ask(topics)?);
            }
            let confirmed =
                |answer: tokio::sync::oneshot::Receiver<_>| async { answer.await.map_err(|_| unavailable()) };
            try_join_all(answers.into_iter().map(confirmed)).await.map(drop)
        })
    }

    fn release(&self, topics: Vec<Topic>) {
        // A topic that no server has is not subscribed to.
        for topic in topics {
            if let Some(subscriber) = self.server_of(&topic).and_then(|server| self.at(&server)) {
                subscriber.release(topic);
            }
        }
    }

    fn received_until(&self) -> Time {
        Time(self.received_until_ms.load(Ordering::SeqCst))
    }
}
