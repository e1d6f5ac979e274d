//! Runs the example with the built components.

use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

/// The folder that `cargo xtask build` writes.
const COMPONENTS: &str = env!("ROLLCALL_COMPONENTS");

/// The document that shows the output, with this time in it.
const DOCUMENT: &str = include_str!("../../../docs/EMBEDDING.md");
const TIME_SHOWN: &str = "1794843707272";

fn embed(components: &[&str]) -> std::io::Result<Output> {
    let files = components.iter().map(|name| format!("{COMPONENTS}/{name}.wasm"));
    Command::new(env!("CARGO_BIN_EXE_embed")).args(files).output()
}

fn now() -> Result<u128, Box<dyn std::error::Error>> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())
}

#[test]
fn each_change_is_published_once() -> Result<(), Box<dyn std::error::Error>> {
    let began = now()?;
    let output = embed(&["heartbeat", "query"])?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let seen = text.lines().find_map(|line| line.strip_prefix("alice looks: bob is online, last seen at "));
    let seen = seen.ok_or_else(|| format!("alice never saw bob online:\n{text}"))?;
    assert!((began..=now()?).contains(&seen.parse()?), "the time is the store's: {seen}");
    let expected = [
        "published: bob is online",
        "bob beats, and should again in 30 s",
        "bob beats, and should again in 30 s",
        &format!("alice looks: bob is online, last seen at {seen}"),
        "alice looks: eve is offline, never seen",
        "published: bob is offline",
        "bob leaves, and is offline",
        &format!("alice looks: bob is offline, last seen at {seen}"),
        "alice looks: eve is offline, never seen",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    let shown = text.replace(seen, TIME_SHOWN);
    assert!(DOCUMENT.contains(&shown), "docs/EMBEDDING.md does not show this output:\n{shown}");
    Ok(())
}

#[test]
fn component_with_missing_import_is_refused() -> Result<(), Box<dyn std::error::Error>> {
    let output = embed(&["subscribe", "query"])?;
    let said = String::from_utf8(output.stderr)?;
    assert!(!output.status.success() && said.contains("rollcall:presence/topics@0.1.0"), "{said}");
    Ok(())
}

#[test]
fn missing_file_prints_usage() -> Result<(), Box<dyn std::error::Error>> {
    let output = embed(&["heartbeat"])?;
    let said = String::from_utf8(output.stderr)?;
    assert!(!output.status.success() && said.contains("usage: embed heartbeat.wasm query.wasm"), "{said}");
    Ok(())
}
