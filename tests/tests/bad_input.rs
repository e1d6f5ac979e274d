//! Bad input gets a clear answer and changes nothing; callers are who their token says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::Command;

use rollcall_tests::{Answer, Client, Host};
use serde_json::json;

fn assert_problem(answer: &Answer, status: u16, field: Option<&str>) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{}", answer.text);
    assert_eq!(answer.json["status"], status);
    assert!(answer.json["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    assert_eq!(answer.json["field"].as_str(), field, "{}", answer.text);
    assert_eq!(answer.json["rule"].is_string(), field.is_some(), "{}", answer.text);
}

#[test]
fn bad_bodies_name_field_and_change_nothing() {
    let host = Host::start(&[]);
    let bob = host.client("bob");
    let long = "x".repeat(129);
    let beat = |body: serde_json::Value| bob.post("/v1/heartbeat", body);
    assert_problem(&beat(json!({ "device": "" })), 400, Some("device"));
    assert_problem(&beat(json!({ "device": long })), 400, Some("device"));
    assert_problem(&beat(json!({ "device": "a\u{0}b" })), 400, Some("device"));
    assert_problem(&beat(json!({ "device": 7 })), 400, Some("device"));
    assert_problem(&beat(json!({})), 400, Some("device"));
    assert_problem(&beat(json!({ "device": "d", "mood": "good" })), 400, Some("mood"));
    assert_problem(&beat(json!({ "device": "d", "active": "yes" })), 400, Some("active"));
    assert_problem(&beat(json!({ "device": "d", "kind": "toaster" })), 400, Some("kind"));
    assert_problem(&bob.send("POST", "/v1/heartbeat", Some(b"{\"device\":")), 400, None);
    assert_problem(&bob.send("POST", "/v1/heartbeat", Some(b"\xff\xfe")), 400, None);
    assert_problem(&bob.send("POST", "/v1/heartbeat", None), 400, None);
    let leave = bob.post("/v1/leave", json!({ "device": "d", "reason": "bored" }));
    assert_problem(&leave, 400, Some("reason"));
    let status = |body: serde_json::Value| bob.put("/v1/status", body);
    assert_problem(&status(json!({ "choice": "dancing" })), 400, Some("choice"));
    assert_problem(&status(json!({ "choice": "busy", "text": "x".repeat(141) })), 400, Some("text"));
    assert_problem(&status(json!({ "choice": "busy", "emoji": "x".repeat(33) })), 400, Some("emoji"));
    assert_problem(&status(json!({ "choice": "busy", "for_s": 0 })), 400, Some("for_s"));
    assert_problem(&status(json!({ "choice": "busy", "for_s": 31_536_001 })), 400, Some("for_s"));
    let anonymous = Client::named(host.base(), "");
    assert_eq!(anonymous.beat("web").status, 400, "an empty name is no name");
    assert_eq!(bob.state("bob"), "offline", "nothing of all this was half applied");
    assert!(bob.get("/metrics").text.contains("rollcall_heartbeats_total 0"));
    host.stop();
}

#[test]
fn limits_and_unknown_targets_are_rejected() {
    let host = Host::start(&[]);
    let bob = host.client("bob");
    let ids: Vec<String> = (0..501).map(|n| n.to_string()).collect();
    assert_problem(&bob.post("/v1/presence", json!({ "users": ids })), 400, Some("users"));
    assert_eq!(bob.post("/v1/presence", json!({ "users": ids[..500] })).status, 200);
    assert_problem(&bob.get(&format!("/v1/presence?users={}", ids.join(","))), 400, Some("users"));
    assert_problem(&bob.get(&format!("/presence/batch?user_ids={}", ids.join(","))), 400, Some("user_ids"));
    assert_problem(&bob.get("/v1/presence?users="), 400, Some("users"));
    assert_problem(&bob.get("/v1/presence?people=a"), 400, Some("people"));
    assert_problem(&bob.get(&format!("/v1/presence/{}", "x".repeat(129))), 400, Some("user"));
    assert_problem(&bob.get("/v1/presence/a%00b"), 400, Some("user"));
    assert_problem(&bob.send("POST", "/v1/heartbeat", Some(&vec![b' '; 17 * 1024])), 413, None);
    assert_problem(&bob.get("/v1/nothing"), 404, None);
    assert_problem(&bob.get("/assets/nothing.js"), 404, None);
    let wrong = bob.get("/v1/heartbeat");
    assert_problem(&wrong, 405, None);
    assert_eq!(wrong.header("allow"), Some("POST"));
    assert_problem(&bob.send("BREW", "/v1/status", None), 405, None);
    host.stop();
}

#[test]
fn garbage_bytes_close_only_their_connection() {
    let host = Host::start(&["--workers", "1"]);
    for garbage in [&b"\x00\x01\x02\x03\r\n\r\n"[..], b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", &[0xff; 70_000]] {
        let mut stream = std::net::TcpStream::connect(host.address()).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        // The host may close before it has read all of it.
        let _ = stream.write_all(garbage);
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the connection stays open: {error}");
        }
        let text = String::from_utf8_lossy(&answer);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    // A client that goes away in the middle of its body affects no other client.
    for _ in 0..50 {
        let mut stream = std::net::TcpStream::connect(host.address()).unwrap();
        let head =
            b"POST /v1/heartbeat HTTP/1.1\r\nHost: localhost\r\nRollcall-User: eve\r\nContent-Length: 100\r\n\r\n{";
        stream.write_all(head).unwrap();
    }
    assert_eq!(host.client("bob").beat("web").status, 200);
    assert_eq!(host.client("bob").state("eve"), "offline");
    host.stop();
}

fn secret(folder: &Path, text: &str) -> String {
    let file = folder.join("key");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn token(key: &str, arguments: &[&str]) -> String {
    let output = Command::new(rollcall_tests::binary()).args(["token", "--key", key]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn token_decides_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let key = secret(folder.path(), "a secret that is surely long enough to sign with");
    let host = Host::start(&["--token-key", &key]);
    let bob = Client::with_token(host.base(), &token(&key, &["--user", "bob"]));
    assert_eq!(bob.beat("web").json["user"], "bob");
    let by_query = token(&key, &["--user", "carol"]);
    let nobody = host.client("mallory");
    assert_eq!(nobody.get(&format!("/v1/presence/bob?token={by_query}")).json["state"], "online");

    let refused = nobody.beat("web");
    assert_problem(&refused, 401, None);
    assert!(refused.header("www-authenticate").is_some_and(|how| how.starts_with("Bearer")));
    let other = folder.path().join("other");
    std::fs::write(&other, "another secret that is just as long as the first one").unwrap();
    let foreign = token(&other.display().to_string(), &["--user", "bob"]);
    assert_problem(&Client::with_token(host.base(), &foreign).beat("web"), 401, None);
    let unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJib2IiLCJleHAiOjk5OTk5OTk5OTl9.";
    assert_problem(&Client::with_token(host.base(), unsigned).beat("web"), 401, None);

    assert_problem(&bob.post("/v1/heartbeat", json!({ "device": "d", "user": "carol" })), 403, Some("user"));
    assert_eq!(bob.post("/v1/sweep", json!({})).status, 403, "sweeping needs the service scope");
    let service = Client::with_token(host.base(), &token(&key, &["--user", "edge", "--scope", "service"]));
    let beats = json!({ "beats": [{ "user": "dave", "device": "d" }] });
    assert_eq!(service.post("/v1/heartbeats", beats.clone()).json["outcomes"][0]["state"], "online");
    let alone = bob.post("/v1/heartbeats", beats);
    assert_eq!(alone.json["outcomes"][0]["error"]["status"], 403, "{}", alone.text);
    assert_eq!(service.post("/v1/sweep", json!({})).status, 200);
    host.stop();
}

#[test]
fn without_a_key_only_the_loopback_is_served() {
    let data = tempfile::tempdir().unwrap();
    let Err(said) = Host::try_start_in(data.path(), &["--listen", "0.0.0.0:0"]) else { panic!("must not start") };
    assert!(said.contains("loopback") && said.contains("token-key"), "{said}");

    let host = Host::start(&[]);
    let ask = |headers: &str| {
        let mut stream = std::net::TcpStream::connect(host.address()).unwrap();
        let head = format!("GET /v1/presence/bob?as=eve HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(ask(&format!("Host: {}", host.address())), "200");
    assert_eq!(ask("Host: localhost:8080"), "200");
    assert_eq!(ask("Host: evil.example"), "403", "a name that was made to point here");
    assert_eq!(ask("Host: localhost\r\nOrigin: https://evil.example"), "403", "another site's page");
    assert_eq!(ask("Host: localhost\r\nOrigin: http://127.0.0.1:3000"), "200");
    host.stop();
}
