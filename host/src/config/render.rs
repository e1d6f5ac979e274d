//! The example file and the configuration in force, both as TOML that parses to what it was made from.

use rollcall_core::Rules;

use super::Loaded;
use super::settings::{Group, SETTINGS, Setting};

/// The width of comments.
const WIDTH: usize = 100;

const EXAMPLE_HEAD: &str = "\
# Rollcall: every setting, with its default. Remove the `#` before a line to change it.
#
# A setting can also be a variable (ROLLCALL_IDLE_AFTER=5m) or a flag (--idle-after 5m).
# A flag overrides a variable, a variable overrides this file, and this file the defaults.
# Durations are whole numbers with a unit: 1500ms, 30s, 5m, 1h. Paths are relative to the
# working directory of the program.
#
# Written by `rollcall config --example`.
";

/// The example file: every setting commented out, with its documentation, unit and default.
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

/// The configuration in force, with the source of each value.
pub(super) fn effective(loaded: &Loaded) -> String {
    let mut text = "# The configuration in force, with the source of each value.\n".to_owned();
    by_group(&mut text, |text, setting| {
        let value = (setting.value)(&loaded.config);
        text.push_str(&format!("{} = {value}  # {}\n", setting.name, loaded.origin(setting)));
    });
    text
}

/// Writes every setting under the heading of its group.
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

/// Wraps text between words.
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
