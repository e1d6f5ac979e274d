//! A store in Redis for the suite: its own keys on a shared server, a clock that the test moves, and a subscription
//! that receives everything published.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Value, cmd};
use rollcall_core::{Published, Span, Time, UserId};
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_redis::{DEFAULT_SHARDS, Keyspace, decode_payload};
use rollcall_store::{Clock, SessionStore};

use crate::suite::Subject;

const START: Time = Time(1_700_000_000_000);

/// Nothing that these tests wait for takes longer, unless it failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The users of the suite. A Cluster's channels cannot be subscribed by pattern, so they are listed here.
const USERS: [&str; 5] = ["ann", "bob", "cid", "dan", "eve"];

/// Published as a barrier: when it arrives, everything published before has arrived.
const BARRIER: &str = "barrier ";

/// A unique prefix.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst))
}

/// Which commands publish and subscribe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each test file has one kind of server")]
pub(crate) enum Topics {
    Plain,
    Sharded,
}

impl Topics {
    fn subscribe(self) -> &'static str {
        if self == Self::Plain { "SUBSCRIBE" } else { "SSUBSCRIBE" }
    }
    fn publish(self) -> &'static str {
        if self == Self::Plain { "PUBLISH" } else { "SPUBLISH" }
    }
}

/// Everything published, by channel.
type Received = Arc<Mutex<HashMap<String, Vec<Vec<u8>>>>>;

/// A subscription to one user's topic, at its server.
struct Topic {
    channel: String,
    connection: MultiplexedConnection,
}

/// A store with its own keys on a shared server.
pub(crate) struct Remote {
    pub(crate) store: Arc<NativeRedis>,
    #[allow(dead_code, reason = "not every test file looks at single keys")]
    pub(crate) keys: Keyspace,
    clock: Clock,
    topics: HashMap<String, Topic>,
    style: Topics,
    received: Received,
    barriers: AtomicU32,
}

impl Remote {
    /// A new store at `url`. `server_of` returns the server of a channel.
    pub(crate) async fn new(url: &str, style: Topics, server_of: impl Fn(&str) -> String) -> Self {
        let prefix = fresh_prefix();
        let clock = Clock::manual(START);
        let options = Options { prefix: prefix.clone(), clock: Some(clock.clone()), ..Options::default() };
        let store = Arc::new(NativeRedis::open(url, options).await.unwrap());
        let keys = Keyspace::new(&prefix, DEFAULT_SHARDS).unwrap();
        let received = Received::default();
        let mut connections: HashMap<String, MultiplexedConnection> = HashMap::new();
        let mut topics = HashMap::new();
        for person in USERS {
            let channel = keys.topic(person).to_string();
            let server = server_of(&channel);
            if !connections.contains_key(&server) {
                connections.insert(server.clone(), listen(&server, Arc::clone(&received)).await);
            }
            let mut connection = connections[&server].clone();
            cmd(style.subscribe()).arg(&channel).exec_async(&mut connection).await.unwrap();
            topics.insert(person.to_owned(), Topic { channel, connection });
        }
        Self { store, keys, clock, topics, style, received, barriers: AtomicU32::new(0) }
    }
}

/// A connection that records published messages by channel.
async fn listen(server: &str, received: Received) -> MultiplexedConnection {
    let client = Client::open(format!("{server}/?protocol=resp3")).unwrap();
    let note = move |push: PushInfo| {
        if let (PushKind::Message | PushKind::SMessage, [Value::BulkString(channel), Value::BulkString(payload)]) =
            (push.kind, push.data.as_slice())
        {
            let channel = String::from_utf8(channel.clone()).unwrap();
            received.lock().entry(channel).or_default().push(payload.clone());
        }
        Ok::<(), redis::aio::SendError>(())
    };
    let config = AsyncConnectionConfig::new().set_push_sender(note).set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

impl Subject for Remote {
    fn store(&self) -> Arc<dyn SessionStore> {
        Arc::clone(&self.store) as Arc<dyn SessionStore>
    }

    fn advance(&self, span: Span) {
        self.clock.advance(span);
    }

    /// A channel delivers in order, so when the barrier has arrived, everything before it has.
    async fn published(&self, user: &UserId, _at_least: usize) -> Vec<Published> {
        let topic = self.topics.get(user.as_str()).expect("list this user in USERS");
        let barrier = format!("{BARRIER}{}", self.barriers.fetch_add(1, Ordering::SeqCst)).into_bytes();
        let mut connection = topic.connection.clone();
        cmd(self.style.publish()).arg(&topic.channel).arg(&barrier).exec_async(&mut connection).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let received = self.received.lock().get(&topic.channel).cloned().unwrap_or_default();
            if let Some(end) = received.iter().position(|payload| *payload == barrier) {
                let said = received[..end].iter().filter(|payload| !payload.starts_with(BARRIER.as_bytes()));
                return said
                    .map(|payload| {
                        let (who, published) = decode_payload(payload).unwrap();
                        assert_eq!(who, *user, "a payload names its user");
                        published
                    })
                    .collect();
            }
            assert!(Instant::now() < deadline, "the barrier did not arrive");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
