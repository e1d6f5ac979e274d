//! What operators can see: stats, everything about one user, and the console.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::time::Duration;

use rollcall_servers::Postgres;
use rollcall_servers::redis::Redis;
use rollcall_tests::{Answer, Client, Host, Socket, Stream, TokenIssuer, eventually};
use serde_json::{Value, json};

/// Stats are current at once; a busy machine needs more.
const SOON: Duration = Duration::from_secs(10);

const STRICT: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn stats(host: &Host) -> Value {
    let answer = host.client("ops").get("/v1/stats");
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json
}

fn person(host: &Host, user: &str) -> Value {
    let answer = host.client("ops").get(&format!("/v1/people/{user}"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json
}

/// Waits until a statistic is as wanted.
#[track_caller]
fn becomes(host: &Host, pointer: &str, wanted: impl Fn(&Value) -> bool) {
    let mut last = Value::Null;
    let what = format!("{pointer} becomes as wanted");
    eventually(&what, SOON, || {
        last = stats(host).pointer(pointer).cloned().unwrap_or_default();
        wanted(&last)
    });
}

fn at_least(least: u64) -> impl Fn(&Value) -> bool {
    move |value| value.as_u64().is_some_and(|value| value >= least)
}

fn is(wanted: Value) -> impl Fn(&Value) -> bool {
    move |value| *value == wanted
}

/// Every statistic follows activity on the first of these hosts; `users.online` is counted on all of them.
fn assert_stats_follow(hosts: &[&Host]) {
    let host = hosts[0];
    let before = stats(host);
    assert_eq!(before["totals"]["transitions"], json!({ "online": 0, "away": 0, "busy": 0, "offline": 0 }));
    assert_eq!((&before["users"]["online"], &before["store"]["answers"]), (&json!(0), &json!(true)));
    let mut watchers: Vec<Socket> =
        (0..3).map(|index| Socket::open(host, &format!("watcher-{index}"), "watch_only=true")).collect();
    watchers.iter_mut().for_each(|watcher| drop(watcher.ask(&json!({ "op": "watch", "users": ["bob"] }))));
    let _stream = Stream::subscribe(host, "reader", "users=eve&conversations=c1&watch_only=true");
    becomes(host, "/connections/watchers", is(json!(4)));
    becomes(
        host,
        "/connections/most_watched",
        is(json!([{ "user": "bob", "watchers": 3 }, { "user": "eve", "watchers": 1 }])),
    );
    let bob = host.client("bob");
    assert_eq!(bob.beat("web").status, 200);
    assert_eq!(bob.put("/v1/status", json!({ "choice": "busy" })).status, 200);
    watchers.iter_mut().for_each(|watcher| drop(watcher.presence("bob", "busy")));
    let now = stats(host);
    assert_eq!(now["totals"]["transitions"], json!({ "online": 1, "away": 0, "busy": 1, "offline": 0 }));
    assert_eq!((&now["totals"]["heartbeats"], &now["connections"]["watched_conversations"]), (&json!(1), &json!(1)));
    assert_eq!((&now["connections"]["sockets"], &now["connections"]["streams"]), (&json!(3), &json!(1)));
    assert!(at_least(3)(&now["totals"]["updates_sent"]) && at_least(4)(&now["totals"]["requests"]), "{now}");
    for histogram in
        [&now["times"]["request"], &now["times"]["functions"]["heartbeat"], &now["times"]["store"]["touch"]]
    {
        assert!(at_least(1)(&histogram["count"]) && histogram["sum_ms"].as_f64().unwrap() > 0.0, "{histogram}");
        let last = histogram["buckets"].as_array().unwrap().last().unwrap();
        assert_eq!(last, &json!([null, histogram["count"]]), "the last bucket has no bound and holds all");
    }
    assert!(at_least(1)(&now["times"]["topic_lag"]["count"]), "{now}");
    hosts.iter().for_each(|host| becomes(host, "/users/online", is(json!(1))));
    // Bob stops beating.
    becomes(host, "/users/online", is(json!(0)));
    let settled =
        || hosts.iter().map(|host| stats(host)["times"]["settle_lag"]["count"].as_u64().unwrap()).sum::<u64>();
    eventually("bob was settled", SOON, || settled() >= 1);
    drop(watchers);
    becomes(host, "/connections/watchers", is(json!(1)));
    becomes(host, "/connections/most_watched", is(json!([{ "user": "eve", "watchers": 1 }])));
}

#[test]
fn stats_follow_activity() {
    let host = Host::brisk(&[]);
    let about = &stats(&host)["host"];
    assert_eq!(
        (&about["store"], &about["archive"], &about["open"]),
        (&json!("memory"), &json!("sqlite"), &json!(true))
    );
    assert_eq!(stats(&host)["rules"]["interval_ms"], 1000);
    assert_stats_follow(&[&host]);
}

#[test]
fn redis_stats_move_and_count_whole_store() {
    let mut server = Redis::start().unwrap();
    let url = server.url();
    let hosts = [Host::brisk(&["--store", &url]), Host::brisk(&["--store", &url])];
    assert_stats_follow(&[&hosts[0], &hosts[1]]);
    assert_eq!(stats(&hosts[1])["host"]["store"], "redis");
    assert_eq!(stats(&hosts[1])["totals"]["heartbeats"], 0, "each host counts its own calls");
    assert_eq!(hosts[0].client("eve").beat("web").status, 200);
    becomes(&hosts[1], "/users/online", is(json!(1)));
    assert!(hosts[1].metric("rollcall_users_online") >= 1.0);
    server.kill();
    becomes(&hosts[0], "/store/answers", is(json!(false)));
    becomes(&hosts[0], "/users/online", is(Value::Null));
    becomes(&hosts[0], "/totals/store_errors", at_least(1));
    // A gauge whose value is unknown is left out.
    eventually("the online gauge is left out", SOON, || {
        let metrics = hosts[1].client("prometheus").get("/metrics").text;
        metrics.contains("rollcall_heartbeats_total") && !metrics.contains("rollcall_users_online")
    });
}

#[test]
fn long_lived_connections_count_heartbeats() {
    let host = Host::brisk(&[]);
    let _socket = Socket::open(&host, "bob", "device=tab");
    let _stream = Stream::subscribe(&host, "eve", "users=bob&device=tab");
    becomes(&host, "/totals/heartbeats", at_least(6));
    becomes(&host, "/users/online", is(json!(2)));
}

#[test]
fn administrator_sees_everything_about_a_user() {
    for store in [None, Some(Redis::start().unwrap())] {
        let url = store.as_ref().map_or_else(|| "memory".to_owned(), Redis::url);
        let host = Host::start(&["--store", &url]);
        let bob = host.client("bob");
        bob.post("/v1/heartbeat", json!({ "device": "web-1", "kind": "web" }));
        bob.post("/v1/heartbeat", json!({ "device": "phone", "kind": "mobile", "active": false }));
        bob.beat("left");
        bob.post("/v1/leave", json!({ "device": "left", "reason": "logout" }));
        let status = json!({ "choice": "busy", "text": "in a meeting", "emoji": "📅", "for_s": 3600 });
        assert_eq!(bob.put("/v1/status", status).status, 200);
        bob.put("/v1/privacy", json!({ "presence": "contacts", "last_seen": "nobody" }));
        bob.send("PUT", "/v1/contacts/alice", None);
        bob.send("PUT", "/v1/blocks/eve", None);
        let mut watcher = Socket::open(&host, "alice", "watch_only=true");
        watcher.ask(&json!({ "op": "watch", "users": ["bob"] }));
        let known = person(&host, "bob");
        assert_eq!(
            (&known["user"], &known["state"], &known["record"]["state"]),
            (&json!("bob"), &json!("busy"), &json!("busy"))
        );
        assert_eq!(known["record"]["note"]["text"], "in a meeting");
        assert_eq!((&known["choice"]["choice"], known["choice"]["until"].is_u64()), (&json!("busy"), true));
        let mut devices = known["devices"].as_array().unwrap().clone();
        devices.sort_by_key(|device| device["device"].to_string());
        let names: Vec<_> = devices.iter().map(|device| (&device["device"], &device["kind"])).collect();
        assert_eq!(names, [(&json!("phone"), &json!("mobile")), (&json!("web-1"), &json!("web"))]);
        assert!(devices[0]["active_at"].is_null() && devices[1]["active_at"].is_u64());
        assert_eq!(devices[1]["expires_at"].as_u64().unwrap() - devices[1]["beat_at"].as_u64().unwrap(), 45_000);
        assert!(known["deadline"].as_u64().unwrap() > known["now"].as_u64().unwrap());
        assert_eq!(known["privacy"], json!({ "presence": "contacts", "last_seen": "nobody" }));
        assert_eq!((&known["contacts"], &known["blocks"], &known["restricted"]), (&json!(1), &json!(1), &json!(false)));
        assert_eq!(known["watchers"], json!({ "this_host": 1, "all_hosts": null }));
        assert_eq!(bob.put("/v1/status", json!({ "choice": "invisible" })).status, 200);
        host.client("ops").send("PUT", "/v1/restrictions/bob", None);
        let hidden = person(&host, "bob");
        assert_eq!((&hidden["state"], &hidden["choice"]["choice"]), (&json!("offline"), &json!("invisible")));
        assert_eq!((hidden["devices"].as_array().unwrap().len(), &hidden["restricted"]), (2, &json!(true)));
        let nobody = person(&host, "no%20body");
        assert_eq!(
            (&nobody["user"], &nobody["state"], &nobody["record"]),
            (&json!("no body"), &json!("offline"), &Value::Null)
        );
    }
}

#[test]
fn archive_keeps_last_seen_of_offline_users() {
    let host = Host::brisk(&[]);
    assert_eq!(host.client("bob").beat("web").status, 200);
    let seen = person(&host, "bob")["record"]["last_seen"].clone();
    eventually("bob is archived", SOON, || person(&host, "bob")["archived_last_seen"] == seen);
    assert_eq!(person(&host, "bob")["record"], Value::Null, "and evicted from the hot store");
}

#[test]
fn archive_outage_nulls_only_its_field() {
    let mut server = Postgres::start().unwrap();
    let archive = server.url(&server.database().unwrap());
    let host = Host::brisk(&["--archive", &archive]);
    assert_eq!(host.client("bob").beat("web").status, 200);
    eventually("bob is archived", SOON, || {
        let bob = person(&host, "bob");
        bob["archived_last_seen"].is_u64() && bob["record"].is_null()
    });
    server.kill();
    let bob = person(&host, "bob");
    assert_eq!((&bob["state"], &bob["archived_last_seen"]), (&json!("offline"), &Value::Null));
    assert_eq!(
        bob["privacy"],
        json!({ "presence": "everyone", "last_seen": "everyone" }),
        "the other fields are there"
    );
    assert_eq!(host.client("eve").beat("web").status, 200);
    assert_eq!(person(&host, "eve")["state"], "online");
}

#[test]
fn crowd_counts_watchers_of_all_hosts() {
    let server = Redis::start().unwrap();
    let url = server.url();
    let hosts = [0, 1].map(|_| Host::start(&["--store", &url, "--crowd", "1", "--workers", "1"]));
    let mut watchers = Vec::new();
    for host in &hosts {
        let mut watcher = Socket::open(host, "alice", "watch_only=true");
        watcher.ask(&json!({ "op": "watch", "users": ["bob"] }));
        watchers.push(watcher);
    }
    let counted = || person(&hosts[0], "bob")["watchers"] == json!({ "this_host": 1, "all_hosts": 2 });
    eventually("both hosts have counted", Duration::from_secs(40), counted);
}

#[test]
fn only_administrators_see_stats_and_people() {
    let issuer = TokenIssuer::default();
    let host = Host::start(&["--token-key", &issuer.key()]);
    for path in ["/v1/stats", "/v1/people/bob"] {
        let ask = |scopes: &[&str]| Client::with_token(host.base(), &issuer.token("ops", scopes)).get(path);
        assert_eq!(ask(&["admin"]).status, 200, "{path}");
        for scopes in [&[][..], &["service"]] {
            let refused = ask(scopes);
            assert_eq!(refused.status, 403, "{path}");
            assert!(refused.json["detail"].as_str().unwrap().contains("`admin`"), "{}", refused.text);
        }
        assert_eq!(host.client("ops").get(path).status, 401, "a user name is not a token");
    }
    let open = Client::with_token(host.base(), &issuer.token("ops", &["admin"])).get("/v1/stats");
    assert_eq!(open.json["host"]["open"], false);
}

#[track_caller]
fn bound(answer: &Answer, kept: &str) {
    assert_eq!(answer.status, 200, "the console is not built: run `cargo xtask test`\n{}", answer.text);
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(answer.header("cache-control"), Some(kept));
    assert!(answer.header("etag").is_some_and(|tag| tag.starts_with('"')));
    assert!(answer.header("set-cookie").is_none());
}

#[test]
fn console_is_served_with_strict_csp() {
    let host = Host::start(&[]);
    let client = host.client("browser");
    let page = client.get("/");
    bound(&page, "no-cache");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("content-security-policy"), Some(STRICT));
    let assets: Vec<&str> = page.text.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(!assets.is_empty(), "{}", page.text);
    for asset in assets {
        let answer = client.get(asset);
        bound(&answer, "public, max-age=31536000, immutable");
        assert_eq!(answer.header("content-security-policy"), Some(STRICT));
        assert!(answer.header("access-control-allow-origin").is_none());
    }
    let script = client.get("/client.js");
    bound(&script, "no-cache");
    assert_eq!(script.header("access-control-allow-origin"), Some("*"));
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    let example = client.get("/example.html");
    bound(&example, "no-cache");
    assert!(example.header("content-security-policy").unwrap().contains("script-src 'self' 'sha256-"));
    assert!(host.metric("rollcall_http_requests_total{route=\"/assets/{file}\",status=\"200\"}") >= 1.0);
}

#[test]
fn console_files_are_revalidated_by_etag() {
    let host = Host::start(&[]);
    let tag = host.client("browser").get("/").header("etag").expect("a tag").to_owned();
    let known = Client::with_header(host.base(), "If-None-Match", &tag).get("/");
    assert_eq!((known.status, known.text.as_str(), known.header("etag")), (304, "", Some(tag.as_str())));
    let other = Client::with_header(host.base(), "If-None-Match", "\"another\"").get("/");
    assert_eq!(other.status, 200);
    let head = host.client("browser").send("HEAD", "/client.js", None);
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    assert!(head.header("etag").is_some() && head.header("content-security-policy").is_some());
    assert_eq!(host.client("browser").get("/assets/nothing.js").status, 404);
    let posted = host.client("browser").post("/", json!({}));
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn open_host_admits_only_listed_origins() {
    let asked = |host: &Host, origin: &str| {
        let answer = Client::with_header(host.base(), "Origin", origin).get("/v1/presence/bob?as=alice");
        (answer.status, answer.header("access-control-allow-origin").map(str::to_owned))
    };
    let host = Host::start(&["--origins", "null", "--origins", "https://app.example.com"]);
    for origin in ["null", "https://app.example.com", "http://localhost:5173"] {
        assert_eq!(asked(&host, origin), (200, Some(origin.to_owned())), "{origin}");
    }
    assert_eq!(asked(&host, "https://evil.example"), (403, None));
    let wide = Host::start(&["--origins", "*"]);
    assert_eq!(asked(&wide, "https://evil.example"), (403, None), "`*` admits no origin on an open host");
    assert_eq!(asked(&wide, "null"), (403, None));
    // DNS rebinding: a foreign name that resolves to this host.
    let headers = [("Host", "rebound.example"), ("Origin", "null"), ("Rollcall-User", "eve")];
    let refused = Socket::get(host.address(), "/v1/socket?watch_only=true", &headers);
    assert!(refused.is_err_and(|answer| answer.status == 403), "the listed origin must not help");
}
