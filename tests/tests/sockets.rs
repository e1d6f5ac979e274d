//! WebSocket connections: limits whose violation changes nothing, close codes, tokens that expire and are renewed,
//! conversations that require membership, and a client written in Python.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::result_large_err,
    reason = "tests stop at the first surprise"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rollcall_api::MAX_MESSAGE_BYTES;
use rollcall_tests::watcher::{Ending, FENCE, Protocol, states};
use rollcall_tests::watcher_pool::{Piece, Reader, opening};
use rollcall_tests::{Client, Host, Service, Socket, Stream, binary, root};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// How long a host may take to close a connection.
const CLOSED: Duration = Duration::from_secs(5);

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("u{index}")).collect()
}

#[test]
fn exceeding_a_limit_changes_nothing() {
    Service::on_each_store(&[], |service| {
        let too_many = "urn:rollcall:problem:too-many";
        let users = names(21);
        let answer =
            Stream::try_subscribe(service.first(), "alice", &format!("users={}", users.join(","))).unwrap_err();
        assert_eq!((answer.status, &answer.json["type"]), (400, &json!(too_many)), "{}", answer.text);
        assert!(answer.text.contains("20"), "the error names the limit: {}", answer.text);

        let mut alice = Socket::open(service.first(), "alice", "watch_only=true");
        let watch = |users: &[String]| json!({ "op": "watch", "users": users });
        assert_eq!(alice.refused(&watch(&users))["type"], too_many);
        assert_eq!(service.first().metric("rollcall_watched_users"), 0.0, "none of the 21 is watched");
        let first: Vec<String> = users[..19].iter().cloned().chain([FENCE.to_owned()]).collect();
        assert_eq!(alice.ask(&watch(&first)).data["presences"].as_array().unwrap().len(), 20);
        assert_eq!(alice.refused(&watch(&users[19..]))["type"], too_many);
        assert_eq!(service.first().metric("rollcall_watched_users"), 20.0, "neither of the two was added");
        assert_eq!(
            alice.ask(&watch(&users[..1])).event,
            "snapshot",
            "a user who is already watched does not count again"
        );

        service.last().client("u20").beat("web");
        service.last().client("u18").beat("web");
        let events = alice.events_so_far(service.last());
        assert_eq!((states(&events, "u18"), states(&events, "u20")), (vec!["online"], vec![]));
        alice.done(&json!({ "op": "unwatch", "users": ["u18"] }));
        assert_eq!(alice.ask(&watch(&users[20..])).data["presences"][0]["state"], "online");
        service.last().client("u18").post("/v1/leave", json!({ "device": "web", "reason": "logout" }));
        service.last().client("u20").post("/v1/leave", json!({ "device": "web", "reason": "logout" }));
        let events = alice.events_so_far(service.last());
        assert_eq!((states(&events, "u18"), states(&events, "u20")), (vec![], vec!["offline"]));

        let rooms = names(21);
        assert_eq!(alice.refused(&json!({ "op": "watch", "conversations": rooms }))["type"], too_many);
    });
}

#[test]
fn unwatched_users_release_their_topics() {
    Service::on_each_store(&[], |service| {
        let mut alice = Socket::open(service.first(), "alice", "watch_only=true");
        let other = Stream::subscribe(service.first(), "other", "users=bob&conversations=c1&watch_only=true");
        alice.ask(&json!({ "op": "watch", "users": ["bob", "carol"], "conversations": ["c1", "c2"] }));
        let watched = || {
            let metric = |name: &str| service.first().metric(name);
            (metric("rollcall_watchers"), metric("rollcall_watched_users"), metric("rollcall_watched_conversations"))
        };
        assert_eq!(watched().0, 2.0);
        alice.done(&json!({ "op": "unwatch", "users": ["bob", "carol"], "conversations": ["c1", "c2"] }));
        assert_eq!(watched(), (2.0, 1.0, 1.0), "the other watcher's topics stay");
        drop(other);
        drop(alice);
        rollcall_tests::eventually("no watcher and no topic is left", CLOSED, || watched() == (0.0, 0.0, 0.0));
    });
}

#[test]
fn repeated_invalid_messages_close_the_socket() {
    let host = Host::start(&[]);
    let mut alice = Socket::open(&host, "alice", "");
    for (message, field) in [
        (json!({ "op": "dance" }), "op"),
        (json!({}), "op"),
        (json!({ "op": "watch" }), "users"),
        (json!({ "op": "watch", "users": ["bob", ""] }), "users[1]"),
        (json!({ "op": "watch", "users": ["bob"], "since": "once" }), "since"),
        (json!({ "op": "beat", "active": 1 }), "active"),
        (json!({ "op": "beat", "users": [] }), "users"),
        (json!({ "op": "typing", "typing": true }), "conversation"),
        (json!({ "op": "typing", "conversation": "c1" }), "typing"),
        (json!({ "op": "leave", "mood": "sad" }), "mood"),
        (json!({ "op": "token" }), "token"),
    ] {
        let refusal = alice.refused(&message);
        assert_eq!((&refusal["status"], refusal["field"].as_str()), (&json!(400), Some(field)), "{message}: {refusal}");
    }
    for text in ["", "{", "[]", "7", "null", "{\"op\":\"beat\",\"ref\":-1}", "{\"op\":\"beat\",\"ref\":\"one\"}"] {
        alice.say(Message::text(text));
        let answer = alice.next_event();
        assert_eq!((answer.event.as_str(), &answer.data["status"]), ("error", &json!(400)), "{text}: {answer:?}");
        assert_eq!(answer.reference, None);
    }
    alice.done(&json!({ "op": "beat" }));
    for _ in 0..3 {
        alice.say(Message::text("nonsense"));
    }
    assert_eq!(alice.ending(CLOSED).code(), 1008);
    host.stop();
}

#[test]
fn protocol_violations_close_with_a_reason() {
    let host = Host::start(&[]);
    let code = |message: Message| {
        let mut socket = Socket::open(&host, "alice", "");
        socket.say(message);
        socket.ending(CLOSED).code()
    };
    let long = |length: usize| Message::text(format!("{{\"op\":\"beat\"{}}}", " ".repeat(length - 13)));
    assert_eq!(code(long(MAX_MESSAGE_BYTES + 1)), 1009);
    assert_eq!(code(Message::text("x".repeat(10_000_000))), 1009, "without reading all of it");
    assert_eq!(code(Message::binary(vec![0; 10])), 1003);
    let mut socket = Socket::open(&host, "alice", "");
    socket.say(long(MAX_MESSAGE_BYTES));
    socket.done(&json!({ "op": "beat" }));
    socket.say(Message::Close(None));
    socket.ending(CLOSED);
    assert_eq!(raw(&host, &[0x81, 0x82, 0, 0, 0, 0, 0xff, 0xfe]), Some(1007), "invalid UTF-8");
    assert_eq!(raw(&host, &[0x81, 0x02, b'{', b'}']), Some(1002), "a client must mask its frames");
    assert_eq!(raw(&host, &[0xf1, 0x82, 0, 0, 0, 0, b'{', b'}']), Some(1002), "reserved bits");
    host.stop();
}

/// Opens a socket, sends these bytes and nothing more. Returns the close code.
fn raw(host: &Host, bytes: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(host.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let path = "/v1/socket?device=tab&as=mute";
    stream.write_all(opening(Protocol::Socket, host.address(), path).as_bytes()).unwrap();
    stream.write_all(bytes).unwrap();
    let (mut reader, mut code, mut buffer) = (Reader::new(Protocol::Socket), None, [0; 4096]);
    let end = Instant::now() + Duration::from_secs(10);
    while code.is_none() && Instant::now() < end {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => reader.take(&buffer[..count], |piece| {
                if let Piece::Close(closed) = piece {
                    code = Some(closed);
                }
            }),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
    }
    code
}

#[test]
fn message_flood_closes_only_that_socket() {
    let host = Host::start(&[]);
    let (mut flood, mut other) = (Socket::open(&host, "alice", ""), Socket::open(&host, "bob", ""));
    for _ in 0..400 {
        flood.send(&json!({ "op": "beat" }));
    }
    other.done(&json!({ "op": "beat" }));
    assert_eq!(flood.ending(CLOSED).code(), 4429);
    other.done(&json!({ "op": "beat" }));
    host.stop();
}

#[test]
fn unanswered_pings_end_the_heartbeat() {
    Service::on_each_store(&["--interval", "1s", "--tolerance", "500ms", "--grace", "200ms"], |service| {
        let mut alice = Protocol::Events.watch(service.first(), "alice", "mute");
        let code = raw(service.last(), &[]);
        assert_eq!(code, Some(4408));
        alice.presence("mute", "online");
        alice.presence("mute", "offline");
    });
}

#[test]
fn foreign_origin_cannot_open_a_socket() {
    let host = Host::start(&[]);
    let open = |headers: &[(&str, &str)]| Socket::get(host.address(), "/v1/socket?as=alice", headers);
    assert_eq!(open(&[("Origin", "http://elsewhere.example")]).unwrap_err().status, 403);
    assert!(open(&[("Origin", "http://localhost:3000")]).is_ok());
    let plain = host.client("alice").get("/v1/socket");
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")), "{}", plain.text);
    host.stop();
}

/// Writes a signing secret to a file. Returns its path.
fn secret(folder: &Path) -> String {
    let file = folder.join("key");
    std::fs::write(&file, "a secret that is surely long enough to sign with").unwrap();
    file.display().to_string()
}

fn token(key: &str, user: &str, extra: &[&str]) -> String {
    let mut command = Command::new(binary());
    let output = command.args(["token", "--key", key, "--user", user]).args(extra).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn open(host: &Host, token: &str) -> Socket {
    Socket::get(host.address(), "/v1/socket", &[("Authorization", &format!("Bearer {token}"))]).unwrap()
}

#[test]
fn connection_ends_with_token_unless_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let key = secret(folder.path());
    let host = Host::brisk(&["--token-key", &key]);
    let brief = || token(&key, "alice", &["--ttl", "1s"]);
    let mut stream = Stream::get(host.address(), &format!("/v1/subscribe?users=bob&token={}", brief()), &[]).unwrap();
    let (mut ending, mut renewed) = (open(&host, &brief()), open(&host, &brief()));
    let bobs = renewed.refused(&json!({ "op": "token", "token": token(&key, "bob", &[]) }));
    assert!([401, 403].map(Value::from).contains(&bobs["status"]), "another user's token: {bobs}");
    let nonsense = renewed.refused(&json!({ "op": "token", "token": "nonsense" }));
    assert_eq!(nonsense["status"], 401, "{nonsense}");
    renewed.done(&json!({ "op": "token", "token": token(&key, "alice", &[]) }));
    // The token lasts a second; add five for clock skew, and the time until the host checks.
    assert_eq!(ending.ending(Duration::from_secs(15)).code(), 4401);
    let last = stream
        .until("the stream is closed with a reason", Duration::from_secs(5), |event| event.event == "close")
        .pop()
        .unwrap();
    assert_eq!(last.data["code"], 4401, "{last:?}");
    assert_eq!(stream.ending(CLOSED), Ending::Broken);
    renewed.done(&json!({ "op": "beat" }));
    let refused = Socket::get(host.address(), &format!("/v1/socket?token={}", "nonsense"), &[]).unwrap_err();
    assert_eq!(refused.status, 401);
    host.stop();
}

#[test]
fn conversation_requires_membership_in_token() {
    let folder = tempfile::tempdir().unwrap();
    let key = secret(folder.path());
    let host = Host::start(&["--token-key", &key]);
    let outsider = token(&key, "mallory", &["--conversation", "c2"]);
    let mut socket = open(&host, &outsider);
    let refused = |refusal: &Value, field: &str| {
        assert_eq!((&refusal["status"], refusal["field"].as_str()), (&json!(403), Some(field)), "{refusal}");
    };
    refused(&socket.refused(&json!({ "op": "typing", "conversation": "c1", "typing": true })), "conversation");
    refused(&socket.refused(&json!({ "op": "watch", "conversations": ["c2", "c1"] })), "conversations[1]");
    assert_eq!(host.metric("rollcall_watched_conversations"), 0.0);
    for _ in 0..25 {
        refused(&socket.refused(&json!({ "op": "watch", "conversations": ["c1"] })), "conversations[0]");
    }
    socket.done(&json!({ "op": "beat" }));
    let path = |conversation: &str| format!("/v1/subscribe?conversations={conversation}&token={outsider}");
    let answer = Stream::get(host.address(), &path("c1"), &[]).unwrap_err();
    refused(&answer.json, "conversations[0]");
    assert!(Stream::get(host.address(), &path("c2"), &[]).is_ok());
    let client = Client::with_token(host.base(), &outsider);
    for method in ["GET", "PUT", "DELETE"] {
        refused(&client.send(method, "/v1/typing/c1", None).json, "conversation");
        assert_eq!(client.send(method, "/v1/typing/c2", None).status, 200, "{method}");
    }
    let anywhere = Client::with_token(host.base(), &token(&key, "bob", &["--conversation", "*"]));
    assert_eq!(anywhere.send("PUT", "/v1/typing/c1", None).status, 200);
    socket.done(&json!({ "op": "token", "token": token(&key, "mallory", &["--conversation", "c1"]) }));
    let snapshot = socket.ask(&json!({ "op": "watch", "conversations": ["c1"] }));
    assert_eq!(snapshot.data["typing"][0]["user"], "bob", "{snapshot:?}");
    host.stop();
}

#[test]
fn python_client_uses_the_whole_socket_api() {
    Service::on_each_store(&["--typing-ttl", "1s"], |service| {
        let script = root().join("tests/python/watcher.py");
        let mut python = Command::new("/usr/bin/python3");
        let run = python.arg(script).args([service.first().address(), service.last().address()]).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(
            run.status.success(),
            "is Debian's python3-websockets installed? `cargo xtask test` installs it.\n{said}"
        );
    });
}
