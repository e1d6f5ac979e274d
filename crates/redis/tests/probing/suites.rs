//! The stores' suites for sessions, last seen and policy. Of the typing suite, the claims that need no second check;
//! for the others see `typing.rs`.

use std::sync::{Arc, OnceLock};

use rollcall_core::{Published, Rules, Span, UserId};
use rollcall_redis::Keyspace;
use rollcall_redis::native::NativeRedis;
use rollcall_redis::{Options, RedisStore};
use rollcall_servers::redis as servers;
use rollcall_store::{ArchiveStore, Clock, PolicyStore, SessionStore};

use crate::connection::{TestConnection, TestTime};
use crate::probed::Probed;
use crate::remote::{self, Remote, fresh_prefix};
use crate::{archive_suite, policy_suite, suite, topics_suite};

/// One server for all tests that do not break it.
fn server() -> &'static servers::Redis {
    static SERVER: OnceLock<servers::Redis> = OnceLock::new();
    SERVER.get_or_init(|| servers::Redis::start().unwrap())
}

/// How many times as long as usual a client waits here: on a busy machine no test may fail because of that.
const PATIENCE: u64 = 10;

/// The capabilities with this prefix, on the host's clock.
fn probed(host: Arc<NativeRedis>, prefix: &str) -> Probed {
    let clock = Arc::clone(&host);
    let test_time: TestTime = Arc::new(move || clock.now());
    let connection = TestConnection::patient(&server().url(), prefix, Some(test_time), PATIENCE);
    Probed { platform: RedisStore::over(connection, Options::of(&Rules::STANDARD)), host }
}

async fn open(prefix: &str, clock: Option<Clock>) -> Arc<NativeRedis> {
    let options = rollcall_redis::native::Options { prefix: prefix.to_owned(), clock, ..Default::default() };
    Arc::new(NativeRedis::open(&server().url(), options).await.unwrap())
}

/// Sessions, with a host that receives what is published.
struct Sessions {
    remote: Remote,
    store: Arc<Probed>,
}

impl suite::Subject for Sessions {
    fn store(&self) -> Arc<dyn SessionStore> {
        Arc::clone(&self.store) as Arc<dyn SessionStore>
    }
    fn advance(&self, span: Span) {
        self.remote.advance(span);
    }
    async fn published(&self, user: &UserId, at_least: usize) -> Vec<Published> {
        self.remote.published(user, at_least).await
    }
}

fn prefix_of(keys: &Keyspace) -> String {
    keys.outage_grace().to_string().split(':').next().unwrap().to_owned()
}

async fn sessions() -> Sessions {
    let remote = Remote::new(&server().url(), remote::Topics::Plain, |_| server().url()).await;
    let store = Arc::new(probed(Arc::clone(&remote.store), &prefix_of(&remote.keys)));
    Sessions { remote, store }
}

mod on_redis {
    use super::*;
    crate::suite!(sessions().await);
}

/// Last seen under a prefix, which stays the same when it is opened again.
struct ArchiveAt(String);

impl archive_suite::Subject for ArchiveAt {
    async fn open(&self) -> Arc<dyn ArchiveStore> {
        Arc::new(probed(open(&self.0, None).await, &self.0))
    }
}

mod archive {
    use super::*;
    crate::archive_suite!(ArchiveAt(fresh_prefix()));
}

/// Two stores on the same data: the capabilities, and a host.
async fn policies() -> policy_suite::Subject {
    let prefix = fresh_prefix();
    let policies: Arc<dyn PolicyStore> = Arc::new(probed(open(&prefix, None).await, &prefix));
    policy_suite::Subject { policies, elsewhere: Some(open(&prefix, None).await) }
}

mod policy {
    use super::*;
    crate::policy_suite!(policies().await);
}

async fn topics() -> topics_suite::Subject {
    let (prefix, clock) = (fresh_prefix(), Clock::manual(topics_suite::START));
    let store = open(&prefix, Some(clock.clone())).await;
    let topics = Arc::new(probed(Arc::clone(&store), &prefix));
    let elsewhere = Arc::clone(&topics) as Arc<dyn rollcall_store::TopicStore>;
    topics_suite::Subject { store, topics, elsewhere, clock, subscribed: None }
}

mod typing {
    use super::topics;
    use crate::topics_suite::typing;

    macro_rules! claims {
        ($($claim:ident),+) => {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $claim() {
                    typing::$claim(topics().await).await;
                }
            )+
        };
    }

    claims!(
        typing_start_is_published_and_expires,
        only_effective_stops_are_published,
        conversations_and_users_are_kept_apart,
        typists_are_bounded,
        oversized_batches_are_refused
    );
}
