//! Several hosts on one Redis: shared last seen, permissions and passwords, metrics, and time, which is always the
//! store's.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::process::Command;
use std::time::Duration;

use rollcall_servers::Postgres;
use rollcall_servers::redis::{Options, Redis};
use rollcall_tests::history::{duplicate_events, late_offlines, now_ms};
use rollcall_tests::{Host, Recorder, eventually, root};
use serde_json::json;

const ALIVE_MS: u64 = 1500;

/// The promised bound for an interval of one second and half a second of tolerance, plus time for a busy machine.
const GONE: Duration = Duration::from_secs(5);

/// The minimal ACL of the operations manual.
fn least_rights() -> Vec<String> {
    let manual = std::fs::read_to_string(root().join("docs/OPERATIONS.md")).unwrap();
    let line = manual.lines().find(|line| line.starts_with("ACL SETUSER rollcall on ")).unwrap();
    line.split(' ').map(str::to_owned).collect()
}

fn allow(server: &Redis, rights: &[String]) {
    assert_eq!(server.ask(&rights.iter().map(String::as_str).collect::<Vec<_>>()).unwrap(), "OK");
}

/// Everything a user can do, on any two hosts of one store, and what is published about it.
fn works(hosts: [&Host; 2], recorder: &Recorder, user: &str) {
    let (one, other) = (hosts[0].client(user), hosts[1].client(user));
    assert_eq!(one.beat("web").json["state"], "online");
    assert_eq!(hosts[1].client("viewer").state(user), "online", "both hosts read one store");
    assert_eq!(other.put("/v1/status", json!({ "choice": "busy", "text": "deep work" })).json["state"], "busy");
    assert_eq!(one.send("DELETE", "/v1/status", None).json["state"], "online");
    assert_eq!(other.beat("phone").json["state"], "online");
    for device in ["web", "phone"] {
        assert_eq!(one.post("/v1/leave", json!({ "device": device, "reason": "logout" })).status, 200);
    }
    assert_eq!(other.beat("web").json["state"], "online");
    eventually("everything is published", GONE, || recorder.of(user).len() >= 6);
    let events = recorder.of(user);
    let states: Vec<&str> = events.iter().map(|event| event.state.as_str()).collect();
    assert_eq!(states, ["online", "busy", "online", "offline", "online", "offline"]);
    assert_eq!(hosts[0].client("viewer").presence(user)["last_seen"], json!(events[5].last_seen));
    let published = recorder.published();
    assert_eq!((duplicate_events(&published), late_offlines(&published, ALIVE_MS)), (Vec::new(), Vec::new()));
}

fn archived_by(host: &Host) -> bool {
    host.metric("rollcall_archived_total") > 0.0
}

/// Users beat on one host and are archived by either; then both answer their last seen, and so does a host started later.
fn last_seen_is_known_everywhere(store: &str, archive: &str, sessions_left: impl Fn() -> bool) {
    let arguments = ["--store", store, "--archive", archive, "--evict-after", "100ms"];
    let hosts = [Host::brisk(&arguments), Host::brisk(&arguments)];
    let users: Vec<String> = (0..60).map(|index| format!("u{index}")).collect();
    let mut seen = Vec::new();
    for user in &users {
        assert_eq!(hosts[0].client(user).beat("web").status, 200);
        seen.push(hosts[1].client("viewer").presence(user)["last_seen"].clone());
    }
    eventually("all users are archived", Duration::from_secs(15), || !sessions_left());
    assert!(hosts.iter().all(archived_by), "both hosts archive a share");
    let late = Host::brisk(&arguments);
    for (user, seen) in users.iter().zip(&seen) {
        for host in hosts.iter().chain([&late]) {
            let presence = host.client("viewer").presence(user);
            assert_eq!((&presence["state"], &presence["last_seen"]), (&json!("offline"), seen), "{user}");
        }
    }
}

#[test]
fn redis_last_seen_is_shared_by_hosts() {
    let server = Redis::start().unwrap();
    let left = || !server.ask(&["--scan", "--pattern", "rc:{*}:user:*"]).unwrap().is_empty();
    last_seen_is_known_everywhere(&server.url(), "with-store", left);
}

#[test]
fn postgres_last_seen_is_shared_and_survives_redis() {
    let mut server = Redis::start().unwrap();
    let database = Postgres::shared().unwrap().database().unwrap();
    let archive = Postgres::shared().unwrap().url(&database);
    let left = || !server.ask(&["--scan", "--pattern", "rc:{*}:user:*"]).unwrap().is_empty();
    last_seen_is_known_everywhere(&server.url(), &archive, left);
    server.restart().unwrap();
    let url = server.url();
    let host = Host::brisk(&["--store", &url, "--archive", &archive]);
    assert!(host.client("viewer").presence("u0")["last_seen"].is_u64(), "last seen comes from PostgreSQL");
    host.stop();
}

#[test]
fn password_and_minimal_acl_suffice() {
    let server = Redis::start().unwrap();
    allow(&server, &least_rights());
    let url = server.url().replace("redis://", "redis://rollcall:password@");
    let recorder = Recorder::on(server.port());
    let arguments = ["--store", &url, "--log", "warn"];
    let hosts = [Host::brisk(&arguments), Host::brisk(&arguments)];
    works([&hosts[0], &hosts[1]], &recorder, "bob");
    eventually("bob is archived", GONE, || hosts.iter().any(archived_by));
    assert!(hosts.iter().any(|host| host.metric("rollcall_notifications_total") > 0.0), "CONFIG is among the rights");
    for host in hosts {
        assert_eq!(host.log(), "", "no warnings");
        host.stop();
    }
}

#[test]
fn sweep_suffices_without_config_permission() {
    let server = Redis::start().unwrap();
    allow(&server, &least_rights());
    allow(&server, &["ACL", "SETUSER", "rollcall", "-config|get", "-config|set"].map(str::to_owned));
    let url = server.url().replace("redis://", "redis://rollcall:password@");
    let recorder = Recorder::on(server.port());
    let arguments = ["--store", &url, "--log", "warn"];
    let hosts = [Host::brisk(&arguments), Host::brisk(&arguments)];
    works([&hosts[0], &hosts[1]], &recorder, "bob");
    for host in hosts {
        assert_eq!(host.metric("rollcall_notifications_total"), 0.0);
        assert_eq!(host.log().matches("only the sweep").count(), 1, "logged once: {}", host.log());
        host.stop();
    }
}

#[test]
fn wrong_password_fails_start_without_leaking() {
    let server = Redis::with(Options { password: Some("right-s3cret".to_owned()), ..Options::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = server.url();
    let host = Host::start_in(folder.path(), &["--store", &url]);
    assert_eq!(host.client("bob").beat("web").status, 200, "the right password works");
    host.stop();
    for bad in [url.replace("right", "wrong"), url.replace(":right-s3cret@", "")] {
        let Err(said) = Host::try_start_in(folder.path(), &["--store", &bad]) else { panic!("must not start") };
        assert!(!said.contains("s3cret"), "{said}");
        assert!(said.contains("Redis") && said.lines().count() <= 6, "{said}");
    }
    let wrong = url.replace("right", "wrong");
    let Err(said) = Host::try_start_in(folder.path(), &["--store", &wrong]) else { panic!("must not start") };
    assert!(said.contains("permission refused") && said.contains("OPERATIONS.md"), "{said}");
}

#[test]
fn metrics_show_notice_source_and_lag() {
    let server = Redis::start().unwrap();
    let url = server.url();
    let recorder = Recorder::on(server.port());
    let host = Host::brisk(&["--store", &url]);
    works([&host, &host], &recorder, "bob");
    let text = host.client("ops").get("/metrics").text;
    let causes =
        ["notification", "sweep"].map(|cause| format!("rollcall_settle_lag_seconds_count{{cause=\"{cause}\"}}"));
    let noticed: f64 = causes.iter().map(|metric| host.metric(metric)).sum();
    assert_eq!(noticed, 1.0, "one offline transition, counted once: {text}");
    assert!(host.metric("rollcall_notifications_total") >= 1.0, "{text}");
    assert!(host.metric("rollcall_redis_round_trips_total") > 10.0, "{text}");
    assert_eq!(host.metric("rollcall_redis_reconnects_total"), 0.0);
    assert_eq!((host.metric("rollcall_store_up"), host.metric("rollcall_outage_grace")), (1.0, 0.0));
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    eventually("the reconnect is counted", GONE, || host.metric("rollcall_redis_reconnects_total") == 1.0);
    assert_eq!(host.metric("rollcall_outage_grace"), 1.0, "an outage grace is in force");
    eventually("the outage grace ends", GONE, || host.metric("rollcall_outage_grace") == 0.0);
    host.stop();
}

/// Compiles the library that shifts the wall clock of a process.
fn clock_shim(folder: &std::path::Path) -> String {
    let library = folder.join("clock.so");
    let source = root().join("tests/clock/shift.c");
    let status =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    assert!(status.unwrap().success(), "cc failed; the build needs a C compiler too");
    library.to_str().unwrap().to_owned()
}

#[test]
fn host_clock_an_hour_off_is_harmless() {
    let server = Redis::start().unwrap();
    let url = server.url();
    let recorder = Recorder::on(server.port());
    let folder = tempfile::tempdir().unwrap();
    let shim = clock_shim(folder.path());
    let arguments = ["--interval", "1s", "--tolerance", "500ms", "--store", &url];
    for hours in ["3600", "-3600"] {
        let sane = Host::start(&arguments);
        let variables = [("LD_PRELOAD", shim.as_str()), ("CLOCK_SHIFT_S", hours)];
        let odd = Host::try_start_with(folder.path(), &arguments, &variables).unwrap();
        let dates =
            [&sane, &odd].map(|host| host.client("x").get("/healthz").header("date").unwrap()[17..22].to_owned());
        assert_ne!(dates[0], dates[1], "the clock is not shifted");
        for (name, hosts) in [("bob", [&odd, &sane]), ("eve", [&sane, &odd])] {
            let user = format!("{name}{hours}");
            let before = now_ms();
            works(hosts, &recorder, &user);
            for event in recorder.of(&user) {
                let at = event.at_ms();
                assert!((before - 100..now_ms() + 100).contains(&at), "stamped by the store's clock: {event:?}");
            }
        }
        odd.stop();
        sane.stop();
    }
}
