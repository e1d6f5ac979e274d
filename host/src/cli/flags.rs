//! The flags of settings, made from the table of settings.
//!
//! clap only splits the command line. A value stays text until its setting parses it, so that a bad one gets the same error
//! from every source.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::{Arg, ValueParser};
use clap::{ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use rollcall_core::Rules;

use crate::config::{Flags, Group, Layer, SETTINGS, Setting};

/// The id of the flag that names the file.
const CONFIG: &str = "config";

/// The spelling of a setting's flag and value in the help.
struct Spelling {
    setting: &'static str,
    flag: String,
    value: String,
}

/// clap requires names that live as long as the program.
static SPELLINGS: LazyLock<Vec<Spelling>> = LazyLock::new(|| {
    let spelling =
        |setting: &Setting| Spelling { setting: setting.name, flag: setting.flag(), value: value_name(setting) };
    SETTINGS.iter().map(spelling).collect()
});

/// A flag for every setting, and `--config`.
#[derive(Debug, Clone, Default)]
pub struct SettingFlags(pub Flags);

/// Only the flags about tokens, and `--config`.
#[derive(Debug, Clone, Default)]
pub struct AccessFlags(pub Flags);

fn every_setting() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter()
}

fn access_settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| setting.group == Group::Access)
}

fn augment(command: Command, settings: impl Iterator<Item = &'static Setting>) -> Command {
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .value_parser(ValueParser::path_buf())
        .help("Read settings from this file [env: ROLLCALL_CONFIG]");
    settings.fold(command.arg(config), |command, setting| command.arg(argument(setting)))
}

fn argument(setting: &'static Setting) -> Arg {
    let default = (setting.default)(&Rules::default());
    let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
    // The default of a list is an empty list.
    let default = if setting.repeats { "none".to_owned() } else { default };
    let prose = setting.prose();
    let first = prose.split_once(". ").map_or(prose.trim_end_matches('.'), |(first, _)| first);
    let facts = format!("[default: {default}] [env: {}] [{}]", setting.variable(), setting.measure());
    let argument = Arg::new(setting.name)
        .action(if setting.repeats { ArgAction::Append } else { ArgAction::Set })
        .help_heading(setting.group.name())
        .help(format!("{first} [default: {default}]"))
        .long_help(format!("{prose}\n{facts}"));
    match SPELLINGS.iter().find(|spelling| spelling.setting == setting.name) {
        Some(spelling) => argument.long(spelling.flag.as_str()).value_name(spelling.value.as_str()),
        None => argument,
    }
}

/// A single word for the value: `NAME=FILE`, `DURATION`, `DIRECTORY`.
fn value_name(setting: &Setting) -> String {
    let word = setting.unit.split([' ', ',']).next().unwrap_or_default();
    let choice = setting.unit.contains(" or ") && !setting.unit.ends_with(" or none");
    if choice { setting.unit.replace(", ", "|").replace(" or ", "|") } else { word.to_ascii_uppercase() }
}

fn flags(matches: &ArgMatches, settings: impl Iterator<Item = &'static Setting>) -> Flags {
    let given = settings.filter_map(|setting| {
        let texts = matches.get_many::<String>(setting.name)?;
        Some((setting, texts.cloned().collect()))
    });
    Flags { file: matches.get_one::<PathBuf>(CONFIG).cloned(), given: Layer::from_flags(given) }
}

/// Both sets of flags differ only in their settings.
macro_rules! clap_flags {
    ($kind:ident, $settings:ident) => {
        impl FromArgMatches for $kind {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                Ok(Self(flags(matches, $settings())))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl Args for $kind {
            fn augment_args(command: Command) -> Command {
                augment(command, $settings())
            }

            fn augment_args_for_update(command: Command) -> Command {
                augment(command, $settings())
            }
        }
    };
}

clap_flags!(SettingFlags, every_setting);
clap_flags!(AccessFlags, access_settings);
