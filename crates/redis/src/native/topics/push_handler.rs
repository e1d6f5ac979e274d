//! Handles the pushes of one connection: messages for the dispatcher, and signs that the connection is out of sync.
//!
//! The task that reads the connection calls it before it reads on. So it neither waits nor queues: the mailboxes
//! conflate what comes faster than it is taken.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::keyspace::{BadReply, Channel, decode_payload, decode_typing};
use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::super::NativeTransport;
use rollcall_store::topics::PublishedTyping;
use rollcall_store::topics::dispatcher::Dispatcher;

/// The handler of one connection.
pub(super) struct PushHandler {
    inner: Arc<NativeTransport>,
    dispatcher: Arc<Dispatcher>,
    /// Channels whose unsubscription we requested. If a server unsubscribes us from any other channel, it no longer has
    /// its slot; and since the client library takes that push for a reply, no later reply matches its command.
    unsubscribing: Mutex<HashSet<Vec<u8>>>,
    is_broken: AtomicBool,
    broke: Notify,
}

impl PushHandler {
    pub(super) fn new(inner: Arc<NativeTransport>, dispatcher: Arc<Dispatcher>) -> Self {
        let (unsubscribing, is_broken, broke) = (Mutex::default(), AtomicBool::new(false), Notify::new());
        Self { inner, dispatcher, unsubscribing, is_broken, broke }
    }

    /// Registers that these channels are about to be unsubscribed.
    pub(super) fn expect_unsubscribe(&self, channels: impl Iterator<Item = String>) {
        self.unsubscribing.lock().extend(channels.map(String::into_bytes));
    }

    /// Whether the connection is broken or out of sync.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
    }

    /// Waits until the connection is broken or out of sync.
    pub(super) async fn broken(&self) {
        while !self.is_broken() {
            self.broke.notified().await;
        }
    }

    /// Handles one push.
    pub(super) fn take(&self, push: &PushInfo) {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Message | PushKind::SMessage, [Value::BulkString(channel), Value::BulkString(payload)]) => {
                if let Err(garbled) = self.hand_over(channel, payload) {
                    self.inner.warn(&garbled.to_string());
                }
            }
            (PushKind::Unsubscribe | PushKind::SUnsubscribe, [Value::BulkString(channel), ..])
                if !self.unsubscribing.lock().remove(channel) =>
            {
                self.mark_broken();
            }
            (PushKind::Disconnection, _) => self.mark_broken(),
            _ => {}
        }
    }

    fn hand_over(&self, channel: &[u8], payload: &[u8]) -> Result<(), BadReply> {
        match std::str::from_utf8(channel).ok().and_then(|name| self.inner.keys.channel(name)) {
            Some(Channel::Person) => {
                let (user, published) = decode_payload(payload)?;
                self.dispatcher.publish(&user, &published);
            }
            Some(Channel::Conversation) => {
                let (conversation, user, until) = decode_typing(payload)?;
                self.dispatcher.publish_typing(PublishedTyping { conversation, user, until });
            }
            // `policy_hints.rs` receives these.
            Some(Channel::Policy) | None => {}
        }
        Ok(())
    }

    fn mark_broken(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.broke.notify_one();
    }
}
