//! The servers that other tests use: they start, answer and stop.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::time::{Duration, Instant};

use rollcall_servers::redis::{Cluster, Options, Redis};
use rollcall_servers::wait_until;

fn is_running(id: u32) -> bool {
    // A zombie has an entry too, but no command line.
    std::fs::read(Path::new("/proc").join(id.to_string()).join("cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn server_answers_and_stops_on_drop() {
    let server = Redis::start().unwrap();
    assert_eq!(server.ask(&["SET", "a", "1"]).unwrap(), "OK");
    let (id, folder) = (server.process_id().unwrap(), server.folder().to_owned());
    assert!(is_running(id) && folder.exists());
    drop(server);
    assert!(!is_running(id) && !folder.exists());
}

#[test]
fn killed_redis_restarts_with_or_without_data() {
    for durable in [true, false] {
        let mut server =
            Redis::with(Options { durable, password: Some("secret".to_owned()), ..Options::default() }).unwrap();
        let port = server.port();
        server.ask(&["SET", "a", "1"]).unwrap();
        server.kill();
        assert!(server.ask(&["PING"]).is_err());
        server.restart().unwrap();
        assert_eq!(server.port(), port);
        assert_eq!(server.ask(&["GET", "a"]).unwrap(), if durable { "1" } else { "" });
        assert!(server.url().starts_with("redis://:secret@127.0.0.1:"));
    }
}

#[test]
fn failed_start_returns_the_log() {
    let error = Redis::with(Options { args: vec!["--no-such-setting".to_owned()], ..Options::default() }).unwrap_err();
    assert!(format!("{error:#}").contains("no-such-setting"), "{error:#}");
}

#[test]
fn cluster_forms_and_fails_over() {
    let started = Instant::now();
    let mut cluster = Cluster::start().unwrap();
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(cluster.owner_of(0).unwrap(), 0);
    assert_eq!(cluster.owner_of(16_383).unwrap(), 2);
    cluster.kill(0).unwrap();
    wait_until("the replica to take over", Duration::from_secs(30), || {
        Ok(cluster.owner_of(0).is_ok_and(|node| node == 3))
    })
    .unwrap();
    cluster.restart(0).unwrap();
}
