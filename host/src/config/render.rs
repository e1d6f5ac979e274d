//! The two texts that are made from the settings: the example file, and the configuration in force. Both are TOML that
//! reads back to what they were made from.

use rollcall_core::Rules;

use super::Loaded;
use super::settings::{Group, SETTINGS, Setting};

/// Comments are broken before this column.
const WIDTH: usize = 100;

const EXAMPLE_HEAD: &str = "\
# Rollcall: every setting, with its default. Take out the `#` before a line to change it.
#
# A setting can also be a variable (ROLLCALL_IDLE_AFTER=5m) or a flag (--idle-after 5m).
# A flag covers a variable, a variable covers this file, and this file covers the defaults.
# Durations are whole numbers with a unit: 1500ms, 30s, 5m, 1h. Paths are relative to where
# the program runs.
#
# Written by `rollcall config --example`.
";

/// The example file: every setting commented out, with its meaning, unit and default.
pub fn example() -> String {
    let mut text = EXAMPLE_HEAD.to_owned();
    by_group(&mut text, |text, setting| {
        text.push('\n');
        for line in wrapped(&setting.prose(), WIDTH - 2) {
            text.push_str(&format!("# {line}\n"));
        }
        let default = (setting.default)(&Rules::default());
        text.push_str(&format!("# Value: {}.\n# {} = {default}\n", setting.measure(), setting.name));
    });
    text
}

/// The configuration in force, and beside each value who gave it.
pub(super) fn effective(loaded: &Loaded) -> String {
    let mut text = "# The configuration in force, and where each value came from.\n".to_owned();
    by_group(&mut text, |text, setting| {
        let value = (setting.value)(&loaded.config);
        text.push_str(&format!("{} = {value}  # {}\n", setting.name, loaded.origin(setting)));
    });
    text
}

/// Writes every setting, under the headings of their groups.
fn by_group(text: &mut String, write: impl Fn(&mut String, &Setting)) {
    let mut heading: Option<Group> = None;
    for setting in SETTINGS {
        if heading != Some(setting.group) {
            heading = Some(setting.group);
            text.push_str(&format!("\n## {}\n", setting.group.name()));
        }
        write(text, setting);
    }
}

/// Breaks prose between words.
fn wrapped(prose: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in prose.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
