//! The capabilities when Redis fails: callers get a precise error, and no user goes offline because of it.

use std::time::{Duration, Instant};

use rollcall_core::{Error, Rules, Span};
use rollcall_functions::capabilities::{Archive, LastSeenEntry, Policy, Sessions};
use rollcall_functions::sweep::sweep;
use rollcall_servers::redis as servers;

use crate::connection::platform;
use crate::suite::user;
use crate::time_probe::{BEAT, EVERYWHERE, ago, beat_once, load, outage_grace, recorded, start, touches};

const UNAVAILABLE: Error = Error::Unavailable(500);

#[tokio::test]
async fn failed_caller_records_an_outage_grace() {
    let mut server = servers::Redis::with(servers::Options { durable: true, ..Default::default() }).unwrap();
    let (one, other) = (platform(&server.url()), platform(&server.url()));
    beat_once(&one, &Rules::STANDARD).await;
    let before = ago(&server, Span(0));
    server.kill();
    for _ in 0..3 {
        assert_eq!(one.touch_many(touches(&[BEAT])).await.unwrap().prior, [Err(UNAVAILABLE)]);
        assert_eq!(one.load_many(vec![user("bob")]).await, Err(UNAVAILABLE));
        assert_eq!(one.due(EVERYWHERE, 10).await, Err(UNAVAILABLE));
        assert_eq!(one.settings_of(user("bob")).await, Err(UNAVAILABLE));
        let last_seen_entry = LastSeenEntry { user: user("bob"), last_seen: before };
        assert_eq!(one.put_many(vec![last_seen_entry]).await, Err(UNAVAILABLE));
    }
    let problems = one.connection().problems.lock().clone();
    assert!(problems.len() <= 2, "one for the lost connection, one for the failed reconnect: {problems:?}");
    server.restart().unwrap();
    assert_eq!(outage_grace(&other).await, None, "an instance that did not notice records none");
    assert!(one.touch_many(touches(&[BEAT])).await.unwrap().prior.iter().all(Result::is_ok));
    let recorded_grace = recorded(&server).expect("the first batch reports the outage");
    assert!(
        recorded_grace.since <= before + Span(50) && recorded_grace.until > before + Span(44_000),
        "{recorded_grace:?} after {before:?}"
    );
    assert_eq!(outage_grace(&other).await, Some(recorded_grace), "the other instance reads it");
    assert_eq!(outage_grace(&one).await, Some(recorded_grace), "it is reported once");
    assert_eq!(sweep(&one, &Rules::STANDARD, EVERYWHERE, 10).await.unwrap().published, 0);
}

#[tokio::test]
async fn emptied_server_works_again() {
    let mut server = start();
    let platform = platform(&server.url());
    beat_once(&platform, &Rules::STANDARD).await;
    server.restart().unwrap();
    assert_eq!(
        platform.touch_many(touches(&[BEAT])).await.unwrap().prior,
        [Err(UNAVAILABLE)],
        "the connection was lost"
    );
    assert!(load(&platform).await.sessions[0].as_ref().unwrap().is_empty());
    beat_once(&platform, &Rules::STANDARD).await;
    assert_eq!(load(&platform).await.sessions[0].as_ref().unwrap().devices.len(), 1);
}

#[tokio::test]
async fn hung_server_counts_as_away() {
    let server = start();
    let platform = platform(&server.url());
    load(&platform).await;
    server.pause().unwrap();
    let started = Instant::now();
    assert_eq!(platform.load_many(Vec::new()).await, Err(UNAVAILABLE));
    assert!(started.elapsed() < Duration::from_secs(3));
    server.resume().unwrap();
    assert!(outage_grace(&platform).await.is_some());
}

#[tokio::test]
async fn server_without_writes_counts_as_away() {
    let server = start();
    let platform = platform(&server.url());
    load(&platform).await;
    let unwilling: [(&[&str], &[&str]); 2] = [
        (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
        (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]),
    ];
    for (begin, end) in unwilling {
        server.ask(begin).unwrap();
        assert_eq!(platform.touch_many(touches(&[BEAT])).await.unwrap().prior, [Err(UNAVAILABLE)], "{begin:?}");
        assert_eq!(platform.load_many(Vec::new()).await, Err(UNAVAILABLE), "{begin:?}");
        server.ask(end).unwrap();
        assert!(outage_grace(&platform).await.is_some(), "beats were lost: {begin:?}");
        assert!(platform.touch_many(touches(&[BEAT])).await.unwrap().prior.iter().all(Result::is_ok));
        server.ask(&["DEL", "rc:{0}:outage_grace"]).unwrap();
    }
}

#[tokio::test]
async fn forbidden_or_invalid_data_is_reported() {
    let server = start();
    let platform = platform(&server.url());
    load(&platform).await;
    let error = async || match platform.touch_many(touches(&[BEAT])).await.unwrap().prior.remove(0) {
        Err(Error::Other(why)) => why,
        other => panic!("{other:?}"),
    };
    server.ask(&["ACL", "SETUSER", "default", "-zadd"]).unwrap();
    assert!(error().await.starts_with("NOPERM"));
    server.ask(&["ACL", "SETUSER", "default", "+zadd"]).unwrap();
    let key = platform.keys().user("bob").to_string();
    server.ask(&["SET", &key, "a foreign value"]).unwrap();
    assert!(error().await.starts_with("WRONGTYPE"));
    server.ask(&["DEL", &key]).unwrap();
    server.ask(&["HSET", &key, "f", "what is this"]).unwrap();
    assert!(error().await.contains("unexpected data"));
    assert_eq!(outage_grace(&platform).await, None, "none of that is an outage");
}
