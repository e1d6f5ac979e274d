//! A component that traps, loops, allocates too much or hangs fails its own calls and is replaced. Other calls are not
//! affected.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests stop at the first surprise")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rollcall_tests::{Host, component};
use serde_json::json;

fn hostile() -> String {
    format!("heartbeat={}", component("guests/hostile").display())
}

fn replacements(host: &Host) -> String {
    let text = host.client("ops").get("/metrics").text;
    let line =
        text.lines().find(|line| line.starts_with("rollcall_function_replacements_total{function=\"heartbeat\"}"));
    line.unwrap_or_default().rsplit(' ').next().unwrap_or_default().to_owned()
}

fn assert_fails_alone(how: &str) {
    let host = Host::start(&["--component", &hostile(), "--workers", "1"]);
    let bob = host.client("bob");
    assert_eq!(bob.beat("web").status, 200);
    let refused = bob.beat(how);
    assert_eq!(refused.status, 503, "{how}: {}", refused.text);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.header("retry-after").is_some(), "{how}: no Retry-After");
    assert_eq!(bob.beat("web").status, 200, "{how}: the replacement serves the next call");
    assert_eq!(bob.state("nobody"), "offline", "{how}: other functions still work");
    assert_eq!(replacements(&host), "1", "{how}: one instance was lost");
    host.stop();
}

#[test]
fn trap_fails_only_its_call() {
    assert_fails_alone("trap");
}

#[test]
fn endless_loop_fails_only_its_call() {
    assert_fails_alone("loop");
}

#[test]
fn over_allocation_fails_only_its_call() {
    assert_fails_alone("hoard");
}

#[test]
fn endless_call_fails_alone() {
    assert_fails_alone("hang");
}

#[test]
fn other_calls_continue_while_component_traps() {
    let host = Host::start(&["--component", &hostile(), "--workers", "1"]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let eve = host.client("eve");
            for _ in 0..200 {
                assert_eq!(eve.beat("trap").status, 503);
            }
            done.store(true, Ordering::Release);
        });
        let (alice, bob) = (host.client("alice"), host.client("bob"));
        let mut succeeded = 0;
        while !done.load(Ordering::Acquire) {
            let answer = alice.post("/v1/presence", json!({ "users": ["bob", "carol"] }));
            assert_eq!(answer.status, 200, "another function on the same worker: {}", answer.text);
            // The same function: a beat in the lost instance fails with it, any other succeeds.
            succeeded += usize::from(bob.beat("web").status == 200);
        }
        assert!(succeeded > 0, "no beat succeeded between two traps");
    });
    assert_eq!(host.client("bob").beat("web").status, 200);
    assert_eq!(replacements(&host), "200", "exactly one replacement per trap");
    host.stop();
}

fn refusal(name: &str, file: &str) -> String {
    let data = tempfile::tempdir().unwrap();
    let component = format!("{name}={file}");
    match Host::try_start_in(data.path(), &["--component", &component]) {
        Ok(_) => panic!("{component} must not start"),
        Err(said) => said,
    }
}

#[test]
fn component_with_wrong_world_is_rejected_by_name() {
    let (heartbeat, query) = (component("heartbeat").display().to_string(), component("query").display().to_string());
    let said = refusal("query", &heartbeat);
    assert!(said.contains("rollcall:presence/query"), "names the missing export: {said}");
    let said = refusal("heartbeat", &query);
    assert!(said.contains("rollcall:presence/archive"), "a function gets only the imports of its world: {said}");

    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign.wasm");
    let text =
        r#"(component (import "elsewhere:planet/weather" (instance (export "forecast" (func (result string))))))"#;
    std::fs::write(&foreign, wat::parse_str(text).unwrap()).unwrap();
    let said = refusal("query", &foreign.display().to_string());
    assert!(said.contains("elsewhere:planet/weather"), "names the missing import: {said}");

    let said = refusal("heartbeat", "/nowhere.wasm");
    assert!(said.contains("/nowhere.wasm"), "{said}");
    let said = refusal("juggle", &query);
    assert!(said.contains("juggle"), "{said}");
}

#[test]
fn file_that_is_no_component_is_rejected() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("not.wasm");
    std::fs::write(&file, "this is a text").unwrap();
    let said = refusal("query", &file.display().to_string());
    assert!(said.contains("not.wasm") && said.contains("component"), "{said}");
}

#[test]
fn replaced_component_serves_calls() {
    let file = component("query").display().to_string();
    let host = Host::start(&["--component", &format!("query={file}")]);
    let bob = host.client("bob");
    bob.beat("web");
    assert_eq!(bob.state("bob"), "online");
    rollcall_tests::eventually("ready", Duration::from_secs(5), || bob.get("/readyz").status == 200);
    host.stop();
}
