//! Watchers while hosts are killed, Redis closes connections or restarts, messages are lost, and clients do not read. Every
//! watcher ends up with the newest state, on the same connection, and a slow client delays no other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rollcall_servers::redis::Redis;
use rollcall_tests::history::now_ms;
use rollcall_tests::service::BRISK;
use rollcall_tests::watcher::{EventQueue, Protocol, WatchEvent, Watcher};
use rollcall_tests::watcher_pool::{Piece, Reader, masked, opening};
use rollcall_tests::{Client, Host, LossyProxy, Service, eventually};
use serde_json::json;

/// From the last beat to the offline event: the guaranteed time, and as much again for a busy machine.
const GONE: Duration = Duration::from_millis(2500 + 2500);

/// A host retries a lost store every 150 ms, then reads again everyone it watches.
const REPAIRED: Duration = Duration::from_secs(10);

fn choose(client: &Client, text: &str) -> bool {
    let body = json!({ "choice": "busy", "text": text }).to_string();
    let answer = client.try_send("PUT", "/v1/status", Some(body.as_bytes()));
    answer.is_ok_and(|answer| answer.status == 200)
}

/// The newest version and note a watcher received for each user, from the snapshot and the events since.
#[derive(Default)]
struct Received(BTreeMap<String, (u64, String)>);

impl Received {
    fn take(&mut self, presence: &serde_json::Value) {
        let user = presence["user"].as_str().unwrap().to_owned();
        let version = presence["version"].as_u64().unwrap();
        let before = self.0.get(&user).map_or(0, |(version, _)| *version);
        assert!(version >= before, "{user}: {version} after {before}");
        self.0.insert(user, (version, presence["note"]["text"].as_str().unwrap_or_default().to_owned()));
    }

    /// Reads events until every user has this note. Fails if a version goes back.
    fn until(&mut self, events: &mut EventQueue, users: &[String], text: &str, within: Duration) {
        let end = Instant::now() + within;
        while !users.iter().all(|user| self.0.get(user).is_some_and(|(_, note)| note == text)) {
            let event = events.try_next(end.saturating_duration_since(Instant::now()));
            let Some(event) = event else {
                panic!("not all users have the note {text} within {within:?}: {:?}", self.0)
            };
            match event.event.as_str() {
                "snapshot" => event.data["presences"].as_array().unwrap().iter().for_each(|one| self.take(one)),
                "presence" => self.take(&event.data),
                _ => {}
            }
        }
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("p{index}")).collect()
}

/// Users who are online through the last host, and their clients.
fn online_users(service: &Service, count: usize) -> (Vec<String>, Vec<Client>) {
    let users = names(count);
    let clients: Vec<Client> = users.iter().map(|user| service.last().client(user)).collect();
    clients.iter().for_each(|client| assert_eq!(client.beat("web").status, 200));
    (users, clients)
}

/// Watchers of these users, over both protocols.
fn watchers(host: &Host, users: &[String]) -> Vec<(Watcher, Received)> {
    let watch = |protocol: Protocol| (protocol.watch(host, "alice", &users.join(",")), Received::default());
    Protocol::BOTH.into_iter().map(watch).collect()
}

fn until_all_received(watchers: &mut [(Watcher, Received)], users: &[String], text: &str, within: Duration) {
    for (watcher, received) in watchers {
        received.until(watcher, users, text, within);
        assert!(watcher.is_open());
    }
}

#[test]
fn killed_host_users_go_offline_elsewhere() {
    let mut service = Service::redis(&BRISK);
    let bobs = Protocol::BOTH.map(|protocol| {
        let bob = format!("bob-{protocol:?}");
        let mut watcher = protocol.watch_as(service.last(), &bob, "device=tab", &[("users", "alice")]);
        watcher.snapshot();
        (bob, watcher)
    });
    let names: Vec<&str> = bobs.iter().map(|(bob, _)| bob.as_str()).collect();
    service.last().client("carol").beat("web");
    let mut alices = Protocol::BOTH.map(|t| t.watch(service.first(), "alice", &format!("{},carol", names.join(","))));
    for alice in &mut alices {
        let states = alice.snapshot()["presences"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["state"].clone())
            .collect::<Vec<_>>();
        assert_eq!(states, ["online", "online", "online"]);
    }
    let killed = now_ms();
    service.hosts.pop().unwrap().kill();
    for alice in &mut alices {
        let mut left = names.clone();
        left.push("carol");
        let end = Instant::now() + GONE;
        while !left.is_empty() {
            let event = alice.try_next(end.saturating_duration_since(Instant::now()));
            let event = event.unwrap_or_else(|| panic!("no offline event for {left:?}"));
            assert_eq!(event.state(), "offline", "{event:?}");
            left.retain(|name| !event.is_of(name));
        }
    }
    println!("offline {} ms after their host was killed", now_ms() - killed);
    for (_, mut bob) in bobs {
        bob.ending(Duration::from_secs(5));
    }
    service.stop();
}

#[test]
fn killed_redis_connections_cause_no_watcher_events() {
    let service = Service::redis(&[]);
    let (users, clients) = online_users(&service, 12);
    let mut watchers = watchers(service.first(), &users);
    let redis = service.redis.as_ref().unwrap();
    for kind in ["pubsub", "normal"] {
        let (mut turn, mut all_accepted) = (0, 0);
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            turn += 1;
            // A change that fails now is repeated below.
            let accepted = clients.iter().filter(|client| choose(client, &format!("{kind} {turn}"))).count();
            all_accepted += usize::from(accepted == clients.len());
            if turn % 3 == 0 {
                redis.ask(&["CLIENT", "KILL", "TYPE", kind]).unwrap();
            }
        }
        redis.ask(&["CLIENT", "KILL", "TYPE", kind]).unwrap();
        assert!(all_accepted > 0, "no round of changes was accepted between two kills");
        let last = format!("after {kind}");
        for client in &clients {
            eventually("a change is accepted", REPAIRED, || choose(client, &last));
        }
        until_all_received(&mut watchers, &users, &last, REPAIRED);
    }
    assert!(service.first().metric("rollcall_topics_missed_total") >= 1.0, "the lost subscription was noticed");
    service.stop();
}

#[test]
fn restarted_redis_causes_no_watcher_events() {
    let mut service = Service::durable_redis(&[]);
    let (users, clients) = online_users(&service, 12);
    let mut watchers = watchers(service.first(), &users);
    clients.iter().for_each(|client| assert!(choose(client, "before")));
    until_all_received(&mut watchers, &users, "before", REPAIRED);
    for turn in 0..2 {
        service.server().kill();
        eventually("the outage is noticed", REPAIRED, || !choose(&clients[0], "away"));
        service.server().restart().unwrap();
        // As soon as one host accepts changes, whether the other has subscribed again or not.
        let last = format!("restarted {turn}");
        for client in &clients {
            eventually("a change is accepted", REPAIRED, || choose(client, &last));
        }
        until_all_received(&mut watchers, &users, &last, REPAIRED);
    }
    service.stop();
}

#[test]
fn hung_redis_causes_no_watcher_events() {
    let mut service = Service::redis(&[]);
    let (users, clients) = online_users(&service, 12);
    let mut watchers = watchers(service.first(), &users);
    service.server().pause().unwrap();
    eventually("the outage is noticed", REPAIRED, || !choose(&clients[0], "away"));
    service.server().resume().unwrap();
    for client in &clients {
        eventually("a change is accepted", REPAIRED, || choose(client, "resumed"));
    }
    until_all_received(&mut watchers, &users, "resumed", REPAIRED);
    service.stop();
}

#[test]
fn empty_redis_relearns_connected_users() {
    let mut service = Service::redis(&BRISK);
    let bobs = Protocol::BOTH.map(|protocol| {
        let bob = format!("bob-{protocol:?}");
        let mut watcher = protocol.watch_as(service.last(), &bob, "device=tab", &[("users", "alice")]);
        watcher.snapshot();
        (bob, watcher)
    });
    let names: Vec<String> = bobs.iter().map(|(bob, _)| bob.clone()).collect();
    let mut alices = Protocol::BOTH.map(|protocol| protocol.watch(service.first(), "alice", &names.join(",")));
    for alice in &mut alices {
        alice.snapshot();
    }
    let client = service.last().client("carol");
    service.server().kill();
    eventually("the outage is noticed", REPAIRED, || client.beat("web").status == 503);
    service.server().restart().unwrap();
    eventually("a beat is accepted", REPAIRED, || client.beat("web").status == 200);
    let viewer = service.first().client("viewer");
    // Away if the device was not used since: its earlier activity is lost.
    let is_present = |state: &str| ["online", "away"].contains(&state);
    let state = |bob: &String| viewer.get(&format!("/v1/presence/{bob}")).json["state"].clone();
    eventually("every connected user is online or away", REPAIRED, || {
        names.iter().all(|bob| state(bob).as_str().is_some_and(is_present))
    });
    for alice in &mut alices {
        let mut left: Vec<&String> = names.iter().collect();
        let end = Instant::now() + REPAIRED;
        while !left.is_empty() {
            let event = alice.try_next(end.saturating_duration_since(Instant::now()));
            let event = event.unwrap_or_else(|| panic!("no event that they are back: {left:?}"));
            left.retain(|bob| !event.is_of(bob) || !is_present(event.state()));
        }
    }
    service.stop();
}

#[test]
fn cluster_failover_causes_no_watcher_events() {
    let mut service = Service::cluster(&[]);
    let (users, clients) = online_users(&service, 16);
    let mut watchers = watchers(service.first(), &users);
    clients.iter().for_each(|client| assert!(choose(client, "before")));
    until_all_received(&mut watchers, &users, "before", REPAIRED);
    service.cluster.as_mut().unwrap().kill(0).unwrap();
    for client in &clients {
        eventually("a change is accepted", 2 * REPAIRED, || choose(client, "after"));
    }
    until_all_received(&mut watchers, &users, "after", REPAIRED);
    clients.iter().for_each(|client| assert!(choose(client, "long after")));
    until_all_received(&mut watchers, &users, "long after", REPAIRED);
    service.stop();
}

#[test]
fn subscribing_during_outage_says_retry() {
    let mut service = Service::durable_redis(&[]);
    let mut socket = rollcall_tests::Socket::open(service.first(), "alice", "watch_only=true");
    service.server().kill();
    let client = service.first().client("bob");
    eventually("the outage is noticed", REPAIRED, || client.beat("web").status == 503);
    let answer = rollcall_tests::Stream::try_subscribe(service.first(), "alice", "users=bob").unwrap_err();
    assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true), "{}", answer.text);
    let watch = json!({ "op": "watch", "users": ["bob"] });
    assert_eq!(socket.refused(&watch)["status"], 503);
    service.server().restart().unwrap();
    eventually("bob can be watched again", REPAIRED, || socket.ask(&watch).event == "snapshot");
    eventually("a beat is accepted", REPAIRED, || client.beat("web").status == 200);
    socket.presence("bob", "online");
    service.stop();
}

#[test]
fn recheck_finds_silently_lost_messages() {
    let redis = Redis::start().unwrap();
    let proxy = LossyProxy::to(redis.port());
    let (lossy, direct) = (proxy.url(), redis.url());
    let here = Host::start(&["--store", &lossy, "--recheck", "500ms"]);
    let there = Host::start(&["--store", &direct]);
    let users = names(5);
    let clients: Vec<Client> = users.iter().map(|user| there.client(user)).collect();
    clients.iter().for_each(|client| assert_eq!(client.beat("web").status, 200));
    let mut watchers = watchers(&here, &users);
    clients.iter().for_each(|client| assert!(choose(client, "received")));
    until_all_received(&mut watchers, &users, "received", REPAIRED);
    assert_eq!(here.metric("rollcall_recheck_changes_total"), 0.0);

    proxy.set_dropping(true);
    clients.iter().for_each(|client| assert!(choose(client, "lost")));
    until_all_received(&mut watchers, &users, "lost", REPAIRED);
    assert!(proxy.dropped() >= users.len(), "only {} messages were dropped", proxy.dropped());
    assert!(
        here.metric("rollcall_recheck_changes_total") >= users.len() as f64,
        "the re-check found them without a message"
    );
    proxy.set_dropping(false);
    clients.iter().for_each(|client| assert!(choose(client, "received again")));
    until_all_received(&mut watchers, &users, "received again", REPAIRED);
    [here, there].into_iter().for_each(Host::stop);
}

/// A client that reads only on request, over a connection like a phone's: small segments, a small window.
struct Slow {
    stream: TcpStream,
    reader: Reader,
    /// How many events it has read.
    read: usize,
}

impl Slow {
    fn open(host: &Host, protocol: Protocol, users: &[String]) -> Self {
        let stream = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        stream.set_recv_buffer_size(4096).unwrap();
        stream.set_tcp_mss(1400).unwrap();
        let address: std::net::SocketAddr = host.address().parse().unwrap();
        stream.connect(&address.into()).unwrap();
        let mut stream = TcpStream::from(stream);
        let path = match protocol {
            Protocol::Events => format!("/v1/subscribe?watch_only=true&as=slow&users={}", users.join(",")),
            Protocol::Socket => "/v1/socket?watch_only=true&as=slow".to_owned(),
        };
        stream.write_all(opening(protocol, host.address(), &path).as_bytes()).unwrap();
        if protocol == Protocol::Socket {
            let message = json!({ "op": "watch", "users": users }).to_string();
            stream.write_all(&masked(1, message.as_bytes())).unwrap();
        }
        Self { stream, reader: Reader::new(protocol), read: 0 }
    }

    /// Reads until it has every user's newest version. False if the connection ends before.
    fn catches_up(&mut self, newest: &BTreeMap<String, u64>, within: Duration) -> bool {
        self.stream.set_read_timeout(Some(within)).unwrap();
        let (mut versions, mut buffer) = (BTreeMap::new(), [0; 65536]);
        while newest.iter().any(|(user, version)| versions.get(user) != Some(version)) {
            match self.stream.read(&mut buffer) {
                Ok(count) if count > 0 => self.reader.take(&buffer[..count], |piece| {
                    let Piece::Event(text) = piece else { return };
                    self.read += 1;
                    let data = text.split_once("data: ").map_or(text, |(_, data)| data);
                    let data: serde_json::Value = serde_json::from_str(data).unwrap();
                    if let (Some(user), Some(version)) = (data["user"].as_str(), data["version"].as_u64()) {
                        versions.insert(user.to_owned(), version);
                    }
                }),
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing came within {within:?}"),
                _ => return false,
            }
        }
        true
    }
}

/// A host's resident memory.
fn resident_kb(host: &Host) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Every user changes this many times, each time to a new note of about the maximal length.
fn flap(clients: &[Client], turns: usize) {
    let long = "x".repeat(110);
    for turn in 0..turns {
        clients.iter().for_each(|client| assert!(choose(client, &format!("{long} {turn} {}", now_ms()))));
    }
}

fn newest(host: &Host, users: &[String]) -> BTreeMap<String, u64> {
    let client = host.client("viewer");
    users.iter().map(|user| (user.clone(), client.presence(user)["version"].as_u64().unwrap())).collect()
}

#[test]
fn slow_reader_is_bounded_and_gets_newest() {
    let host = Host::start(&["--workers", "1"]);
    let users = names(10);
    let clients: Vec<Client> = users.iter().map(|user| host.client(user)).collect();
    clients.iter().for_each(|client| assert_eq!(client.beat("web").status, 200));
    let mut slow: Vec<Slow> = (0..20).map(|index| Slow::open(&host, Protocol::BOTH[index % 2], &users)).collect();
    let mut quick = Protocol::Socket.watch(&host, "quick", &users.join(","));
    quick.snapshot();
    flap(&clients, 5);
    let before = resident_kb(&host);
    // A reader receives 10 users × 80 turns × 0.3 KB, more than twice what the kernel buffers for one that does not read.
    let mut latest = 0;
    let began = now_ms();
    for _ in 0..8 {
        flap(&clients, 10);
        let newest = newest(&host, &users);
        let is_newest = |event: &WatchEvent| event.is_of("p9") && event.version() == newest["p9"];
        let event =
            quick.until("the quick reader gets the newest version", Duration::from_secs(5), is_newest).pop().unwrap();
        latest = latest.max(event.at_ms.saturating_sub(event.version() / 1000));
    }
    assert!(now_ms() - began < 18_000, "slow readers are closed after 20 s: the test took too long to prove anything");
    let grown = resident_kb(&host).saturating_sub(before);
    println!(
        "{grown} KB more for {} clients that do not read; the quick one had each event after {latest} ms at most",
        slow.len()
    );
    assert!(grown < 20 * 200, "{grown} KB more: events for a slow reader must not be queued");
    let newest = newest(&host, &users);
    for one in &mut slow {
        assert!(one.catches_up(&newest, Duration::from_secs(5)), "the host closed it");
        assert!(
            one.read < 600,
            "{} events of 850 changes: the kernel buffered them all, which proves nothing",
            one.read
        );
    }
    host.stop();
}

#[test]
fn reader_that_never_reads_is_closed() {
    // With frequent beats the kernel gives up after ten seconds; otherwise the host does after twenty.
    let hosts = [Host::start(&["--interval", "1s", "--tolerance", "1s"]), Host::start(&[])];
    let users = names(10);
    let mut slow = Vec::new();
    for host in &hosts {
        slow.extend(Protocol::BOTH.map(|protocol| Slow::open(host, protocol, &users)));
        eventually("both are connected", Duration::from_secs(5), || host.metric("rollcall_watchers") == 2.0);
    }
    let clients: Vec<Client> = hosts.iter().flat_map(|host| users.iter().map(|user| host.client(user))).collect();
    let began = Instant::now();
    for host in &hosts {
        eventually("both are closed", Duration::from_secs(40), || {
            flap(&clients, 1);
            host.metric("rollcall_watchers") == 0.0
        });
        println!("closed after {:?}", began.elapsed());
    }
    let unreachable = BTreeMap::from([("nobody".to_owned(), 1)]);
    for one in &mut slow {
        assert!(
            !one.catches_up(&unreachable, Duration::from_secs(5)),
            "the connection must end after the buffered events"
        );
    }
    hosts.into_iter().for_each(Host::stop);
}

#[test]
fn stalled_reader_cannot_block_shutdown() {
    let host = Host::start(&["--drain", "1s"]);
    let users = names(10);
    let clients: Vec<Client> = users.iter().map(|user| host.client(user)).collect();
    let _slow = Protocol::BOTH.map(|protocol| Slow::open(&host, protocol, &users));
    eventually("both are connected", Duration::from_secs(5), || host.metric("rollcall_watched_users") >= 10.0);
    flap(&clients, 40);
    let began = Instant::now();
    host.stop();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
