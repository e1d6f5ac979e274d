//! Hosts whose Redis is killed, hangs, restarts empty, is full or closes connections. They answer 503, recover without
//! a restart, publish no user as offline who had no chance to beat, and publish nothing twice.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::process::{Command, Stdio};
use std::time::Duration;

use rollcall_servers::redis::{Options, Redis};
use rollcall_tests::history::now_ms;
use rollcall_tests::outage_scenario::{Outage, OutageScenario};
use rollcall_tests::{Host, Recorder, eventually};

/// Twice as long as a beat lasts: without outage grace every user would have expired.
const OUTAGE: Duration = Duration::from_secs(3);

/// How long Redis hangs: longer than a beat lasts plus a host waits for an answer.
const ASLEEP_MS: u64 = 4000;

fn begin(server: &Redis) -> OutageScenario {
    OutageScenario::start(&server.url(), Recorder::on(server.port()))
}

/// Waits until the store was down for [`OUTAGE`].
fn until_away_since(struck: u64) {
    eventually("the outage lasts long enough", OUTAGE + Duration::from_secs(1), || {
        now_ms() >= struck + OUTAGE.as_millis() as u64
    });
}

#[test]
fn killed_durable_redis_causes_no_presence_events() {
    let mut server = Redis::with(Options { durable: true, ..Options::default() }).unwrap();
    let scenario = begin(&server);
    scenario.last_beats();
    server.kill();
    let struck = now_ms();
    scenario.until_refused();
    until_away_since(struck);
    let mended = now_ms();
    server.restart().unwrap();
    let back = scenario.until_back();
    assert!(scenario.hosts.iter().all(|host| host.metric("rollcall_outage_grace") == 1.0), "outage grace is in force");
    scenario.silent_users_go_offline(Outage { struck, mended, back });
    for host in &scenario.hosts {
        assert!(host.metric("rollcall_redis_reconnects_total") >= 1.0);
        assert_eq!(host.metric("rollcall_redis_data_losses_total"), 0.0);
        assert_eq!(host.log().matches("Redis is down").count(), 1, "logged once: {}", host.log());
    }
    scenario.end();
}

#[test]
fn old_redis_snapshot_gives_its_users_outage_grace() {
    let mut server = Redis::start().unwrap();
    let scenario = begin(&server);
    scenario.last_beats();
    assert_eq!(server.ask(&["SAVE"]).unwrap(), "OK");
    let saved = now_ms();
    // Older than a beat lasts: every user in it looks expired, though they went on beating.
    eventually("the snapshot is old", Duration::from_secs(4), || now_ms() >= saved + 2500);
    server.kill();
    let struck = now_ms();
    scenario.until_refused();
    until_away_since(struck);
    let mended = now_ms();
    server.restart().unwrap();
    let back = scenario.until_back();
    for host in &scenario.hosts {
        assert_eq!(host.metric("rollcall_redis_data_losses_total"), 0.0, "an old RDB snapshot is no data loss");
    }
    // The silent users are alive in the snapshot, so they go offline once more.
    scenario.silent_users_go_offline(Outage { struck, mended, back });
    scenario.end();
}

#[test]
fn empty_redis_relearns_beating_users_only() {
    let mut server = Redis::start().unwrap();
    let scenario = begin(&server);
    scenario.last_beats();
    server.kill();
    let struck = now_ms();
    scenario.until_refused();
    until_away_since(struck);
    server.restart().unwrap();
    scenario.until_back();
    for host in &scenario.hosts {
        assert!(host.log().contains("lost its data"), "{}", host.log());
        assert_eq!(host.metric("rollcall_redis_data_losses_total"), 1.0);
    }
    scenario.no_events_of_silent_users(struck);
    scenario.end();
}

#[test]
fn hung_redis_times_out_and_gives_outage_grace() {
    let server = Redis::start().unwrap();
    let scenario = begin(&server);
    scenario.last_beats();
    let port = server.port().to_string();
    let (struck, seconds) = (now_ms(), (ASLEEP_MS / 1000).to_string());
    let mut sleeper = Command::new("redis-cli");
    let mut sleeper = sleeper.args(["-p", &port, "DEBUG", "SLEEP", &seconds]).stdout(Stdio::null()).spawn().unwrap();
    scenario.until_refused();
    let back = scenario.until_back();
    assert!(sleeper.wait().unwrap().success());
    scenario.silent_users_go_offline(Outage { struck, mended: struck + ASLEEP_MS, back });
    scenario.end();
}

#[test]
fn killed_redis_connections_cause_no_presence_events() {
    let server = Redis::start().unwrap();
    let scenario = begin(&server);
    let mut struck = 0;
    for cut in 1..=3 {
        if cut == 3 {
            scenario.last_beats();
        }
        struck = now_ms();
        server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        for host in &scenario.hosts {
            eventually("the connection is back", Duration::from_secs(5), || {
                host.metric("rollcall_redis_reconnects_total") >= f64::from(cut)
            });
        }
    }
    let back = scenario.until_back();
    scenario.silent_users_go_offline(Outage { struck, mended: struck, back });
    scenario.end();
}

#[test]
fn full_redis_is_an_outage_and_logged() {
    let server = Redis::start().unwrap();
    let scenario = begin(&server);
    scenario.last_beats();
    server.ask(&["CONFIG", "SET", "maxmemory", "1mb"]).unwrap();
    let struck = now_ms();
    scenario.until_refused();
    for host in &scenario.hosts {
        let line = "its memory is full: raise `maxmemory`";
        eventually("the log says why", Duration::from_secs(5), || host.log().contains(line));
    }
    until_away_since(struck);
    let mended = now_ms();
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    let back = scenario.until_back();
    scenario.silent_users_go_offline(Outage { struck, mended, back });
    scenario.end();
}

#[test]
fn first_host_back_publishes_overdue_offline_in_time() {
    let server = Redis::start().unwrap();
    let recorder = Recorder::on(server.port());
    let url = server.url();
    let arguments = ["--interval", "1s", "--tolerance", "500ms", "--store", &url];
    let hosts = [Host::start(&arguments), Host::start(&arguments)];
    let users: Vec<String> = (0..40).map(|index| format!("u{index}")).collect();
    for (user, host) in users.iter().zip(hosts.iter().cycle()) {
        assert_eq!(host.client(user).beat("web").status, 200);
    }
    hosts.into_iter().for_each(Host::kill);
    let expired = now_ms() + 1500;
    eventually("every beat has expired", Duration::from_secs(3), || now_ms() > expired);
    let host = Host::start(&arguments);
    let started = now_ms();
    for user in &users {
        let event = recorder.until(user, "offline", Duration::from_secs(5));
        assert!(event.at_ms() <= started + 1000, "{user}: {} ms after the start", event.at_ms() - started);
    }
    host.stop();
}
