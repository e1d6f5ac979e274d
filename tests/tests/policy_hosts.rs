//! Policy on several hosts that share a Redis: a change on one host holds on all, whether a host has the policy in memory, in
//! a copy on disk or only in Redis, and whatever happens to Redis.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use rollcall_servers::redis::{Cluster, Redis};
use rollcall_tests::visibility_matrix::{Relation, VIEWER};
use rollcall_tests::watcher::{FENCE, Protocol};
use rollcall_tests::{Host, LossyProxy, Service, binary, eventually};
use serde_json::{Value, json};

/// How long a change may take to hold on the other hosts. It takes a round trip, or a second if the hint is lost.
const EVERYWHERE: Duration = Duration::from_secs(5);

/// How long a host may take to load the policy. It starts within five seconds; a busy machine needs more.
const LOADED: Duration = Duration::from_secs(30);

fn has_loaded(host: &Host) -> bool {
    let count = |state: &str| host.metric(&format!("rollcall_policy_instances{{cache_state=\"{state}\"}}"));
    count("warm") > 0.0 && count("cold") + count("loading") == 0.0
}

fn until_loaded(host: &Host) {
    eventually("the policy is loaded", LOADED, || has_loaded(host));
}

/// How many times a command was called.
fn calls(redis: &Redis, command: &str) -> u64 {
    let stats = redis.ask(&["INFO", "commandstats"]).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Hides this many users from the viewer: restricted, private or blocking, in batches.
fn hide(host: &Host, count: usize) {
    let changes: Vec<Value> = (0..count)
        .map(|index| match index % 4 {
            0 => json!({ "op": "restrict", "user": format!("name{index}") }),
            1 => json!({ "op": "restrict", "user": index.to_string() }),
            2 => {
                json!({ "op": "privacy", "user": format!("name{index}"), "presence": "nobody", "last_seen": "nobody" })
            }
            _ => json!({ "op": "block", "user": format!("name{index}"), "other": VIEWER }),
        })
        .collect();
    changes.chunks(1000).for_each(|changes| host.client("backend").change(changes));
}

/// Whether a host gives the verdicts that [`hide`] set.
fn is_enforced(host: &Host, count: usize) -> bool {
    let name = |index: usize| if index % 4 == 1 { index.to_string() } else { format!("name{index}") };
    let names: Vec<String> = (0..count).map(name).chain(["stranger".to_owned(), "2".to_owned()]).collect();
    let body = json!({ "viewer": VIEWER, "subjects": names });
    let answer = host.client("backend").post("/v1/restrictions/check", body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let expected = (0..count).map(|index| ["restricted", "restricted", "private", "blocked"][index % 4]);
    let expected: Vec<&str> = expected.chain(["allowed", "allowed"]).collect();
    answer.json["verdicts"] == json!(expected)
}

#[test]
fn change_holds_on_other_host_warm_or_cold() {
    let service = Service::redis(&["--workers", "2"]);
    let alice = service.first().client(VIEWER);
    for loaded in [false, true] {
        if loaded {
            service.hosts.iter().for_each(until_loaded);
        }
        for relation in Relation::hiding() {
            let bob = format!("bob-{relation:?}-{loaded}");
            assert_eq!(service.last().client(&bob).beat("web").status, 200);
            assert_eq!(alice.state(&bob), "online");
            relation.apply(service.last(), &bob);
            eventually(&format!("{bob} is hidden"), EVERYWHERE, || alice.state(&bob) == "null");
            let late = Host::start(&["--store", &service.redis.as_ref().unwrap().url(), "--workers", "1"]);
            assert_eq!(late.client(VIEWER).state(&bob), "null", "a host that starts later enforces it from the start");
            relation.revoke(service.last(), &bob);
            eventually(&format!("{bob} is shown"), EVERYWHERE, || alice.state(&bob) == "online");
            eventually(&format!("{bob} is shown"), EVERYWHERE, || late.client(VIEWER).state(&bob) == "online");
        }
    }
    service.stop();
}

#[test]
fn returning_host_reads_only_missed_changes() {
    let redis = Redis::start().unwrap();
    let url = redis.url();
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--store", &url, "--workers", "2"];
    let other = Host::start(&["--store", &url, "--workers", "1", "--policy-memory", "0"]);
    hide(&other, 3000);
    let before = calls(&redis, "hgetall");
    let host = Host::start_in(folder.path(), &arguments);
    until_loaded(&host);
    assert!(calls(&redis, "hgetall") > before + 100, "the first start reads everything");
    assert!(is_enforced(&host, 3000));
    let mut hosts = vec![host];
    for (round, end) in [Host::stop, Host::kill, Host::stop].into_iter().enumerate() {
        other.client("name-before").block(&format!("{VIEWER}{round}"));
        let host = hosts.pop().unwrap();
        eventually("the last change arrives", EVERYWHERE, || {
            host.client("x").ruling(&format!("{VIEWER}{round}"), "name-before") == "blocked"
        });
        end(host);
        let missed = format!("missed{round}");
        other.client(&missed).block(VIEWER);
        let before = calls(&redis, "hgetall");
        let host = Host::start_in(folder.path(), &arguments);
        assert_eq!(host.client("x").ruling(VIEWER, &missed), "blocked", "before the policy is loaded");
        until_loaded(&host);
        assert_eq!(calls(&redis, "hgetall") - before, 0, "round {round}: it loads its own copy");
        assert!(is_enforced(&host, 3000), "round {round}");
        assert_eq!(host.client("x").ruling(VIEWER, &missed), "blocked", "a change missed while it was down");
        assert_eq!(host.client("x").ruling(&format!("{VIEWER}{round}"), "name-before"), "blocked");
        hosts.push(host);
    }
}

#[test]
fn damaged_or_foreign_copy_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Redis::start().unwrap(), Redis::start().unwrap());
    let start = |redis: &Redis| {
        let host = Host::start_in(folder.path(), &["--store", &redis.url(), "--workers", "1"]);
        until_loaded(&host);
        host
    };
    let host = start(&one);
    hide(&host, 1000);
    assert!(is_enforced(&host, 1000));
    host.stop();
    let copy = folder.path().join("policy.copy");
    let whole = std::fs::read(&copy).unwrap();
    assert!(whole.len() > 1000, "there is a copy of {} bytes", whole.len());
    let middle = whole.len() / 2;
    let flipped = [&whole[..middle], &[whole[middle] ^ 1], &whole[middle + 1..]].concat();
    for damaged in [&whole[..middle], &flipped, b"", b"nonsense"] {
        std::fs::write(&copy, damaged).unwrap();
        let host = start(&one);
        assert!(is_enforced(&host, 1000));
        host.stop();
    }
    std::fs::write(&copy, &whole).unwrap();
    let host = start(&other);
    assert_eq!(["name0", "1", "name2", "name3"].map(|name| host.client("x").ruling(VIEWER, name)), ["allowed"; 4]);
    host.stop();
}

#[test]
fn change_with_lost_hint_is_enforced_shortly() {
    let redis = Redis::start().unwrap();
    let proxy = LossyProxy::to(redis.port());
    let (url, lossy) = (redis.url(), proxy.url());
    let [there, here] = [&url, &lossy].map(|url| Host::start(&["--store", url, "--workers", "2"]));
    for loaded in [false, true] {
        if loaded {
            until_loaded(&here);
        }
        let bob = format!("bob-{loaded}");
        assert_eq!(there.client(&bob).beat("web").status, 200);
        let mut watchers = Protocol::BOTH.map(|protocol| {
            let mut watcher = protocol.watch(&here, VIEWER, &bob);
            assert_eq!(watcher.snapshot()["presences"][0]["state"], "online");
            watcher
        });
        proxy.set_dropping(true);
        there.client(&bob).block(VIEWER);
        eventually("the change holds", EVERYWHERE, || here.client(VIEWER).state(&bob) == "null");
        for watcher in &mut watchers {
            let event = watcher.until("the hidden event arrives", EVERYWHERE, |event| event.is_of(&bob)).pop().unwrap();
            assert_eq!(event.data["state"], Value::Null);
        }
        proxy.set_dropping(false);
    }
    assert!(proxy.dropped() > 0, "no hint was lost");
}

#[test]
fn host_behind_the_trimmed_log_reloads() {
    let service = Service::redis(&["--workers", "1", "--log", "info"]);
    service.hosts.iter().for_each(until_loaded);
    assert_eq!(service.last().client("bob").beat("web").status, 200);
    let mut alice = Protocol::Events.watch(service.first(), VIEWER, "bob");
    assert_eq!(alice.snapshot()["presences"][0]["state"], "online");
    let signal = |name: &str| {
        let pid = service.first().pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    service.last().client("bob").block(VIEWER);
    // Each log keeps 50,000 changes, and all changes of one user are in one log.
    let changes: Vec<Value> = (0..1000)
        .map(|n| json!({ "op": if n % 2 == 0 { "block" } else { "unblock" }, "user": "bob", "other": "dave" }))
        .collect();
    for _ in 0..52 {
        service.last().client("backend").change(&changes);
    }
    signal("-CONT");
    let event = alice.until("the hidden event arrives", LOADED, |event| event.is_of("bob")).pop().unwrap();
    assert_eq!(event.data["state"], Value::Null);
    until_loaded(service.first());
    // The first load, of an empty policy, is not logged.
    assert_eq!(service.first().log().matches("Policy loaded into memory").count(), 1, "{}", service.first().log());
    assert_eq!(service.first().client("x").ruling(VIEWER, "bob"), "blocked");
    assert_eq!(service.first().client("x").ruling("dave", "bob"), "allowed");
    service.stop();
}

#[test]
fn hosts_agree_after_concurrent_policy_changes() {
    let service = Service::redis(&["--workers", "2"]);
    let url = service.redis.as_ref().unwrap().url();
    let cold = Host::start(&["--store", &url, "--workers", "1", "--policy-memory", "0"]);
    let hosts: Vec<&Host> = service.hosts.iter().chain([&cold]).collect();
    let users: Vec<String> = (0..8).map(|index| format!("p{index}")).collect();
    for user in &users {
        assert_eq!(cold.client(user).beat("web").status, 200);
    }
    let mut watchers: Vec<_> = hosts
        .iter()
        .flat_map(|host| Protocol::BOTH.map(|protocol| protocol.watch(host, VIEWER, &users.join(","))))
        .collect();
    let mut seen = vec![vec![Value::Null; users.len()]; watchers.len()];
    // Users block and unblock on every host concurrently while the hosts start to load.
    std::thread::scope(|scope| {
        for (turn, host) in hosts.iter().enumerate() {
            for user in &users[turn..] {
                scope.spawn(move || {
                    let client = host.client(user);
                    for round in 0..30 {
                        if (round + turn) % 2 == 0 { client.block(VIEWER) } else { client.unblock(VIEWER) }
                    }
                });
            }
        }
    });
    let truth: Vec<bool> = users.iter().map(|user| cold.client("x").ruling(VIEWER, user) == "blocked").collect();
    for host in &hosts {
        for (user, is_blocked) in users.iter().zip(&truth) {
            let ruling = if *is_blocked { "blocked" } else { "allowed" };
            eventually("every host agrees", EVERYWHERE, || host.client("x").ruling(VIEWER, user) == ruling);
        }
    }
    for (watcher, seen) in watchers.iter_mut().zip(&mut seen) {
        eventually("every watcher agrees", LOADED, || {
            while let Some(event) = watcher.try_next(Duration::from_millis(50)) {
                let presences = event.data["presences"].as_array().cloned().unwrap_or_else(|| vec![event.data.clone()]);
                for presence in presences {
                    let place = users.iter().position(|user| presence["user"] == **user).unwrap();
                    seen[place] = presence["state"].clone();
                }
            }
            seen.iter().map(Value::is_null).eq(truth.iter().copied())
        });
    }
    drop(watchers);
    service.stop();
}

#[test]
fn emptied_redis_hides_no_user() {
    let service = Service::redis(&["--workers", "2"]);
    service.hosts.iter().for_each(until_loaded);
    hide(service.last(), 400);
    service.last().client("bob").block(VIEWER);
    for host in &service.hosts {
        eventually("the change holds", EVERYWHERE, || is_enforced(host, 400));
        eventually("the block holds", EVERYWHERE, || host.client("x").ruling(VIEWER, "bob") == "blocked");
    }
    let mut alice = Protocol::Events.watch(service.first(), VIEWER, &format!("bob,{FENCE}"));
    assert_eq!(alice.snapshot()["presences"][0]["state"], Value::Null);
    for round in 0..4 {
        assert_eq!(service.redis.as_ref().unwrap().ask(&["FLUSHALL"]).unwrap(), "OK");
        for host in &service.hosts {
            eventually("no user is hidden", LOADED, || {
                let body = json!({ "viewer": VIEWER, "subjects": ["bob", "name0", "1", "name2", "name3"] });
                let answer = host.client("x").post("/v1/restrictions/check", body);
                answer.json["verdicts"] == json!(["allowed", "allowed", "allowed", "allowed", "allowed"])
            });
        }
        let event = alice.until("the watcher gets an event", LOADED, |event| event.is_of("bob")).pop().unwrap();
        assert_ne!(event.data["state"], Value::Null, "round {round}: {event:?}");
        // At once: a change made while a host recovers still reaches watchers.
        service.hosts[round % 2].client("bob").block(VIEWER);
        alice.until("the new block reaches the watcher", LOADED, |event| {
            event.is_of("bob") && event.data["state"].is_null()
        });
    }
    service.stop();
}

#[test]
fn killed_durable_redis_keeps_policy() {
    let mut service = Service::durable_redis(&["--workers", "2"]);
    service.hosts.iter().for_each(until_loaded);
    hide(service.last(), 400);
    for host in &service.hosts {
        eventually("the change holds", EVERYWHERE, || is_enforced(host, 400));
    }
    service.server().kill();
    for host in &service.hosts {
        let alice = host.client(VIEWER);
        let path = "/v1/presence/name3";
        eventually("the outage is noticed", LOADED, || alice.get(path).status == 503);
        assert!(alice.get(path).header("retry-after").is_some());
        assert_eq!(alice.send("PUT", "/v1/blocks/carol", None).status, 503);
        assert_eq!(alice.get("/v1/blocks").status, 503);
        assert!(is_enforced(host, 400), "a policy in memory needs no store");
        assert_eq!(alice.get("/healthz").status, 200);
    }
    service.server().restart().unwrap();
    for host in &service.hosts {
        let alice = host.client(VIEWER);
        eventually("Redis is back", LOADED, || alice.get("/v1/presence/name3").status == 200);
        assert_eq!(alice.state("name3"), "null");
        assert!(is_enforced(host, 400));
    }
    service.last().client("carol").block(VIEWER);
    eventually("changes arrive again", EVERYWHERE, || service.first().client(VIEWER).state("carol") == "null");
    service.stop();
}

/// Waits until every replica has caught up with its master.
fn until_replicated(cluster: &Cluster) {
    for node in cluster.nodes() {
        eventually("the replica has caught up", Duration::from_secs(10), || {
            let info = node.ask(&["INFO", "replication"]).unwrap();
            let field = |name: &str| info.lines().find_map(|line| line.trim().strip_prefix(name));
            if field("role:") != Some("master") {
                return true;
            }
            let end = field("master_repl_offset:").unwrap();
            field("slave0:").is_some_and(|slave| slave.contains(&format!("offset={end},")))
        });
    }
}

#[test]
fn failover_keeps_policy() {
    let cluster = Cluster::start().unwrap();
    let url = cluster.url();
    let arguments = ["--store", &url, "--workers", "1"];
    let mut hosts = vec![Host::start(&arguments), Host::start(&arguments)];
    hosts.iter().for_each(until_loaded);
    hide(&hosts[0], 600);
    for host in &hosts {
        eventually("the change holds", EVERYWHERE, || is_enforced(host, 600));
    }
    until_replicated(&cluster);
    let mut cluster = cluster;
    cluster.kill(0).unwrap();
    for host in &hosts {
        assert!(is_enforced(host, 600), "a policy in memory does not change");
    }
    eventually("the replica takes over", LOADED, || cluster.owner_of(0).is_ok_and(|owner| owner != 0));
    let cold = [&arguments[..], &["--policy-memory", "0"]].concat();
    eventually("a host starts again", LOADED, || {
        let folder = tempfile::tempdir().unwrap().keep();
        Host::try_start_in(&folder, &cold).map(|host| hosts.push(host)).is_ok()
    });
    for host in &hosts {
        let changes = host.client(&format!("late{}", host.pid()));
        eventually("changes are accepted again", LOADED, || {
            changes.send("PUT", "/v1/blocks/alice", None).status == 200
        });
    }
    for host in &hosts {
        assert!(is_enforced(host, 600), "the promoted replica has the whole policy");
        for other in &hosts {
            let late = format!("late{}", other.pid());
            eventually("later changes arrive", LOADED, || host.client("x").ruling(VIEWER, &late) == "blocked");
        }
    }
}

#[test]
fn host_without_policy_memory_still_enforces() {
    let redis = Redis::start().unwrap();
    let url = redis.url();
    let start = |memory: &str| Host::start(&["--store", &url, "--workers", "2", "--policy-memory", memory]);
    let [plenty, none] = [start("100000000"), start("0")];
    hide(&plenty, 5000);
    let little = start("100000");
    until_loaded(&plenty);
    let count =
        |host: &Host, state: &str| host.metric(&format!("rollcall_policy_instances{{cache_state=\"{state}\"}}"));
    eventually("the policy does not fit", LOADED, || count(&little, "too-large") == 2.0);
    assert_eq!(count(&none, "cold"), 2.0);
    let hosts = [&plenty, &little, &none];
    for host in hosts {
        assert!(is_enforced(host, 5000));
    }
    for (round, host) in hosts.into_iter().enumerate() {
        let bob = format!("bob{round}");
        assert_eq!(host.client(&bob).beat("web").status, 200);
        let mut watchers = hosts.map(|host| {
            let mut watcher = Protocol::Socket.watch(host, VIEWER, &bob);
            assert_eq!(watcher.snapshot()["presences"][0]["state"], "online");
            watcher
        });
        host.client(&bob).block(VIEWER);
        assert_eq!(host.client(VIEWER).state(&bob), "null", "at once on the host that made the change");
        for (watcher, host) in watchers.iter_mut().zip(hosts) {
            let event = watcher.until("the hidden event arrives", EVERYWHERE, |event| event.is_of(&bob)).pop().unwrap();
            assert_eq!(event.data["state"], Value::Null);
            assert_eq!(host.client(VIEWER).state(&bob), "null");
        }
        host.client(&bob).unblock(VIEWER);
        for watcher in &mut watchers {
            let event = watcher.until("the shown event arrives", EVERYWHERE, |event| event.is_of(&bob)).pop().unwrap();
            assert_eq!(event.data["state"], "online");
        }
    }
}

#[test]
fn hosts_starting_together_read_once_and_enforce() {
    let redis = Redis::start().unwrap();
    let url = redis.url();
    let arguments = ["--store", &url, "--workers", "2"];
    let first = Host::start(&[&arguments[..], &["--policy-memory", "0"]].concat());
    hide(&first, 4000);
    first.stop();
    let reads = || calls(&redis, "hgetall") + calls(&redis, "hlen");
    let before = reads();
    let one = Host::start(&arguments);
    until_loaded(&one);
    let load = reads() - before;
    assert!(load > 100, "a load takes only {load} reads");
    one.stop();
    let before = reads();
    let hosts: Vec<Host> = std::thread::scope(|scope| {
        let start = || {
            let host = Host::start(&arguments);
            assert!(is_enforced(&host, 4000), "the first answer");
            host
        };
        let starting: Vec<_> = (0..6).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|starting| starting.join().unwrap()).collect()
    });
    hosts.iter().for_each(until_loaded);
    let all = reads() - before;
    assert!(all <= 6 * load, "six hosts read {all} times, one {load}: instances of a host share a load");
    assert!(hosts.iter().all(|host| is_enforced(host, 4000)));
}

fn restrictions(arguments: &[&str]) -> Output {
    Command::new(binary()).arg("restrictions").args(arguments).output().unwrap()
}

fn done(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn exported(store: &str, folder: &Path) -> BTreeSet<String> {
    let file = folder.join("out.txt").display().to_string();
    done(&restrictions(&["export", &file, "--store", store]));
    let text = std::fs::read_to_string(&file).unwrap();
    let ids: Vec<String> = text.lines().map(str::to_owned).collect();
    let set: BTreeSet<String> = ids.iter().cloned().collect();
    assert_eq!(ids.len(), set.len(), "an id is exported twice");
    set
}

#[test]
fn running_hosts_enforce_import_and_export_returns_it() {
    let service = Service::redis(&["--workers", "2"]);
    service.hosts.iter().for_each(until_loaded);
    let store = service.redis.as_ref().unwrap().url();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        folder.path().join(name).display().to_string()
    };
    assert_eq!(service.last().client("7").beat("web").status, 200);
    let mut alice = Protocol::Events.watch(service.first(), VIEWER, "7");
    assert_eq!(alice.snapshot()["presences"][0]["state"], "online");

    let ids = write("ids.txt", b"# banned\n7\nmallory\n\n  4294967295  \n4294967296\n70000\n\xc3\xbcber\n007\n");
    done(&restrictions(&["import", &ids, "--store", &store]));
    let event = alice.until("the watcher gets an event", EVERYWHERE, |event| event.is_of("7")).pop().unwrap();
    assert_eq!(event.data["state"], Value::Null);
    let mut all: BTreeSet<String> =
        ["7", "mallory", "4294967295", "4294967296", "70000", "über", "007"].map(str::to_owned).into();
    let agree = |all: &BTreeSet<String>, others: &[&str]| {
        for host in &service.hosts {
            let asked: Vec<&str> = all.iter().map(String::as_str).chain(others.iter().copied()).collect();
            let expected: Vec<&str> =
                asked.iter().map(|id| if all.contains(*id) { "restricted" } else { "allowed" }).collect();
            eventually("every host agrees", EVERYWHERE, || {
                let answer = host.client("x").post("/v1/restrictions/check", json!({ "subjects": asked }));
                answer.json["verdicts"] == json!(expected)
            });
        }
    };
    agree(&all, &["8", "6", "70001", "eve"]);
    assert_eq!(exported(&store, folder.path()), all);

    // The accounts 0, 9 and 65536 * 2 + 7.
    let mut bits = vec![0; 65_536 / 8 * 2 + 1];
    (bits[0], bits[1], bits[65_536 / 8 * 2]) = (0b1000_0000, 0b0100_0000, 0b0000_0001);
    let bitmap = write("bits", &bits);
    done(&restrictions(&["import", "--bitmap", &bitmap, "--store", &store]));
    all.extend(["0", "9", "131079"].map(str::to_owned));
    agree(&all, &["1", "8", "10", "131078"]);
    assert_eq!(exported(&store, folder.path()), all);
    let out = folder.path().join("out.bits").display().to_string();
    done(&restrictions(&["export", "--bitmap", &out, "--store", &store]));
    let bits = std::fs::read(&out).unwrap();
    let bit = |id: u64| bits.get(id as usize / 8).is_some_and(|byte| byte & (0x80 >> (id % 8)) != 0);
    let numbers = [0, 7, 9, 70_000, 131_079, 4_294_967_295];
    assert!(numbers.into_iter().all(bit) && ![1, 6, 8, 10, 131_078].into_iter().any(bit));
    assert_eq!(bits.iter().map(|byte| byte.count_ones()).sum::<u32>(), 6);

    let lifted = write("lifted.txt", b"7\nmallory\n12345\n");
    done(&restrictions(&["import", "--lift", &lifted, "--store", &store]));
    let event = alice.until("the watcher gets an event", EVERYWHERE, |event| event.is_of("7")).pop().unwrap();
    assert_ne!(event.data["state"], Value::Null);
    assert!(all.remove("7") && all.remove("mallory"));
    agree(&all, &["7", "mallory", "12345"]);
    service.stop();
}

#[test]
fn import_rejects_bad_lines_by_number_atomically() {
    let redis = Redis::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ids.txt");
    let long = "x".repeat(200);
    std::fs::write(&file, format!("good\n7\n{long}\nfine\nb\0b\n")).unwrap();
    let (path, store) = (file.display().to_string(), redis.url());
    let output = restrictions(&["import", &path, "--store", &store]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("line 3") && said.contains("line 5") && !said.contains("line 4"), "{said}");
    assert!(said.contains("ids.txt"), "the error names the file: {said}");
    assert_eq!(exported(&store, folder.path()), BTreeSet::new());
    let output = restrictions(&["import", "/nowhere/at/all", "--store", &store]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("/nowhere/at/all"));
}

#[test]
fn import_into_embedded_store_while_host_down() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let file = folder.path().join("ids.txt");
    std::fs::write(&file, "7\nmallory\n").unwrap();
    let path = file.display().to_string();
    let host = Host::start_in(Path::new(&data), &[]);
    let output = restrictions(&["import", &path, "--data", &data]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("stop the host first"), "{said}");
    host.stop();
    done(&restrictions(&["import", &path, "--data", &data]));
    let host = Host::start_in(Path::new(&data), &[]);
    assert!(["7", "mallory"].iter().all(|user| host.client("x").is_restricted(user)));
    assert!(!host.client("x").is_restricted("8"));
    host.stop();
}
