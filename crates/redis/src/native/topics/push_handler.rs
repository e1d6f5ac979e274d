//! What comes on one connection: messages for the dispatcher, and signs that the connection cannot be trusted any more.
//!
//! It is called by whoever reads the connection, before anything later is read. So it neither waits nor queues: what comes
//! faster than it is taken is conflated where it waits.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::keyspace::{BadReply, Channel, decode_payload, decode_typed};
use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::super::Native;
use rollcall_store::topics::Typed;
use rollcall_store::topics::dispatcher::Dispatcher;

/// The reader's side of one connection.
pub(super) struct PushHandler {
    inner: Arc<Native>,
    dispatcher: Arc<Dispatcher>,
    /// Channels that we asked to hear no more of. A server that takes one from us unasked no longer has its slot; and
    /// since the client library takes what it says for an answer, no later answer belongs to its question.
    given_up: Mutex<HashSet<Vec<u8>>>,
    is_broken: AtomicBool,
    broke: Notify,
}

impl PushHandler {
    pub(super) fn new(inner: Arc<Native>, dispatcher: Arc<Dispatcher>) -> Self {
        let (given_up, is_broken, broke) = (Mutex::default(), AtomicBool::new(false), Notify::new());
        Self { inner, dispatcher, given_up, is_broken, broke }
    }

    /// Notes that these are going to be given up.
    pub(super) fn give_up(&self, channels: impl Iterator<Item = String>) {
        self.given_up.lock().extend(channels.map(String::into_bytes));
    }

    /// Whether anything said that the connection cannot be trusted.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
    }

    /// Waits until it cannot be trusted.
    pub(super) async fn broken(&self) {
        while !self.is_broken() {
            self.broke.notified().await;
        }
    }

    /// Takes what came.
    pub(super) fn take(&self, push: &PushInfo) {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Message | PushKind::SMessage, [Value::BulkString(channel), Value::BulkString(payload)]) => {
                if let Err(garbled) = self.hand_over(channel, payload) {
                    self.inner.warn(&garbled.to_string());
                }
            }
            (PushKind::Unsubscribe | PushKind::SUnsubscribe, [Value::BulkString(channel), ..])
                if !self.given_up.lock().remove(channel) =>
            {
                self.break_off();
            }
            (PushKind::Disconnection, _) => self.break_off(),
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
                let (conversation, user, until) = decode_typed(payload)?;
                self.dispatcher.publish_typed(Typed { conversation, user, until });
            }
            // Of policy is heard elsewhere.
            Some(Channel::Policy) | None => {}
        }
        Ok(())
    }

    fn break_off(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.broke.notify_one();
    }
}
