//! Topics: the whole suite on Redis and on a Cluster.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../../store/tests/topics_suite/mod.rs"]
mod topics_suite;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rollcall_redis::native::{NativeRedis, Options};
use rollcall_redis::{DEFAULT_SHARDS, Keyspace, slot_of};
use rollcall_servers::redis as servers;
use rollcall_store::{Clock, Topic, TopicStore};

use topics_suite::{START, Subject, Subscribed};

/// Two hosts on one Redis, with their own keys.
async fn remote(url: &str, subscribed: impl FnOnce(Keyspace) -> Subscribed) -> Subject {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
    let clock = Clock::manual(START);
    let options = Options { prefix: prefix.clone(), clock: Some(clock.clone()), ..Options::default() };
    let store = Arc::new(NativeRedis::open(url, options.clone()).await.unwrap());
    let elsewhere = Arc::new(NativeRedis::open(url, options).await.unwrap());
    let subscribed = Some(subscribed(Keyspace::new(&prefix, DEFAULT_SHARDS).unwrap()));
    Subject { store: elsewhere.clone(), topics: store as Arc<dyn TopicStore>, elsewhere, clock, subscribed }
}

fn channel(keys: &Keyspace, topic: &Topic) -> String {
    match topic {
        Topic::User(user) => keys.topic(user.as_str()).to_string(),
        Topic::Conversation(conversation) => keys.conversation(conversation.as_str()).to_string(),
    }
}

fn count(server: &servers::Redis, command: &str, channel: &str) -> usize {
    let answer = server.ask(&["PUBSUB", command, channel]).unwrap();
    answer.lines().nth(1).unwrap().parse().unwrap()
}

mod on_redis {
    use super::*;

    async fn subject() -> Subject {
        static SERVER: OnceLock<servers::Redis> = OnceLock::new();
        let server = SERVER.get_or_init(|| servers::Redis::start().unwrap());
        remote(&server.url(), |keys| Box::new(move |topic| count(server, "NUMSUB", &channel(&keys, topic)))).await
    }

    topics_suite!(subject().await);
}

mod on_a_cluster {
    use super::*;

    async fn subject() -> Subject {
        static CLUSTER: OnceLock<servers::Cluster> = OnceLock::new();
        let cluster = CLUSTER.get_or_init(|| servers::Cluster::start().unwrap());
        let subscribed = |keys: Keyspace| -> Subscribed {
            Box::new(move |topic| {
                let channel = channel(&keys, topic);
                let owner = cluster.owner_of(slot_of(channel.as_bytes())).unwrap();
                count(&cluster.nodes()[owner], "SHARDNUMSUB", &channel)
            })
        };
        remote(&cluster.url(), subscribed).await
    }

    topics_suite!(subject().await);
}
