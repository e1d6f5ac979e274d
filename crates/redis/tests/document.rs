//! `docs/KEYSPACE.md` matches the code: the same keys, fields, channels and scripts.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::Path;

use rollcall_core::{DeviceKind, Span};
use rollcall_functions::capabilities::DeviceEvent;
use rollcall_redis::{Commands, Deadline, FIELDS, KEYS, Keyspace, POLICY_FIELDS, Script, Stamped, Touching};

fn document() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/KEYSPACE.md")).unwrap()
}

/// The rows of the table under this heading, as cells.
fn table(document: &str, heading: &str) -> Vec<Vec<String>> {
    let section = document.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let rows = section.take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`']).to_owned()).collect()).collect()
}

fn first_cells(document: &str, heading: &str) -> BTreeSet<String> {
    table(document, heading).into_iter().filter_map(|row| row.into_iter().next()).collect()
}

#[test]
fn every_key_and_channel_is_listed() {
    let document = document();
    let listed: BTreeSet<_> =
        first_cells(&document, "## Keys").union(&first_cells(&document, "## Channels")).cloned().collect();
    assert_eq!(listed, KEYS.map(str::to_owned).into());
}

#[test]
fn every_field_is_listed() {
    assert_eq!(first_cells(&document(), "## Fields of `rc:{n}:user:"), FIELDS.map(str::to_owned).into());
    assert_eq!(first_cells(&document(), "## Fields of `rc:{g}:policy:"), POLICY_FIELDS.map(str::to_owned).into());
}

#[test]
fn every_script_is_listed_with_its_keys() {
    let rows = table(&document(), "## Scripts").into_iter();
    let listed: BTreeSet<_> = rows.map(|row| (row[0].clone(), row[1].clone())).collect();
    let keys = |script: Script| (1..=9).filter(|n| script.source().contains(&format!("KEYS[{n}]"))).count();
    let known = Script::ALL.into_iter().map(|script| (script.name().to_owned(), keys(script).to_string())).collect();
    assert_eq!(listed, known);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let files: BTreeSet<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    let named = Script::ALL.map(Script::name).into_iter().chain(Script::SHARED);
    assert_eq!(
        files,
        named.map(|name| format!("{name}.lua").into()).collect(),
        "a script file without a call, or the reverse"
    );
}

#[test]
fn documented_beat_is_the_beat_sent() {
    let keys = Keyspace::new("rc", 256).unwrap();
    let mut commands = Commands::default();
    let beat = DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: Span::seconds(45) };
    let at = Stamped { now_us: 1_700_000_000_000_000, stamp: 1 << 62 };
    keys.touch(&mut commands, Touching { user: "bob", device: "web-1", event: beat }, at, Deadline::Set);
    let quoted = |arg: &[u8]| {
        let text = String::from_utf8(arg.to_vec()).unwrap();
        if text.contains(' ') { format!("\"{text}\"") } else { text }
    };
    for command in commands.iter() {
        let line = command.args().map(quoted).collect::<Vec<_>>().join(" ");
        assert!(document().contains(&line), "the document lacks: {line}");
    }
}
