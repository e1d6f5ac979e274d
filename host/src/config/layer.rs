//! The sources of settings. Each is read into a layer; a later layer overrides an earlier one.
//!
//! A layer holds raw values and their sources. A value is parsed once, when it is known which layer won. An unknown name is
//! refused here, because a misspelt setting that is ignored is the most expensive mistake.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use toml::Spanned;

use super::error::{ConfigError, Origin, shown};
use super::settings::{SETTINGS, Setting, bare};
use super::suggestion::nearest;
use super::value::Value;

/// The prefix of all variables.
const PREFIX: &str = "ROLLCALL_";

/// The variable that names the config file.
pub(super) const CONFIG_VARIABLE: &str = "ROLLCALL_CONFIG";

/// Variables with the prefix that are not settings: the file, the token of `watch` and `top`, and some for building and
/// testing.
const OTHER_VARIABLES: [&str; 6] =
    [CONFIG_VARIABLE, "ROLLCALL_TOKEN", "ROLLCALL_COMPONENTS", "ROLLCALL_CONSOLE", "ROLLCALL_BIN", "ROLLCALL_SIM_SEED"];

/// A value before parsing.
#[derive(Debug, Clone, PartialEq)]
enum Raw {
    Variable(String),
    Flag(Vec<String>),
    File(toml::Value),
}

/// The given values, by setting.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer(BTreeMap<&'static str, (Raw, Origin)>);

impl Layer {
    /// The layer of a file. `path` is for messages.
    pub(super) fn from_file(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let origin = |at: usize| {
            let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            Origin::File { path: path.to_owned(), line }
        };
        // The library's own message quotes the line, which may contain a password.
        let keys: BTreeMap<Spanned<String>, toml::Value> =
            toml::from_str(text).map_err(|error| ConfigError::Syntax {
                origin: origin(error.span().map_or(0, |span| span.start)),
                message: error.message().to_owned(),
            })?;
        let mut layer = Self::default();
        for (key, value) in keys {
            let origin = origin(key.span().start);
            let name = key.into_inner();
            let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
                let meant = nearest(&name, SETTINGS.iter().map(|setting| setting.name)).map(str::to_owned);
                return Err(ConfigError::UnknownKey { name, origin, meant });
            };
            layer.0.insert(setting.name, (Raw::File(value), origin));
        }
        Ok(layer)
    }

    /// The layer of the environment.
    pub(super) fn from_environment(variables: &[(OsString, OsString)]) -> Result<Self, ConfigError> {
        let mut layer = Self::default();
        for (name, value) in variables {
            let name = name.to_string_lossy();
            if !name.starts_with(PREFIX) || OTHER_VARIABLES.contains(&&*name) || is_service_link(&name, value) {
                continue;
            }
            let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == *name) else {
                let known: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
                let meant = nearest_variable(&name, &known);
                return Err(ConfigError::UnknownVariable { name: name.into_owned(), meant });
            };
            let origin = Origin::Variable(name.into_owned());
            let Some(text) = value.to_str() else {
                let (value, rule) = (value.to_string_lossy().into_owned(), "is not UTF-8".to_owned());
                return Err(ConfigError::BadValue { name: setting.name, value, origin, rule });
            };
            layer.0.insert(setting.name, (Raw::Variable(text.to_owned()), origin));
        }
        Ok(layer)
    }

    /// The layer of the command line: the texts of each flag that was given.
    pub fn from_flags(given: impl IntoIterator<Item = (&'static Setting, Vec<String>)>) -> Self {
        let flag = |(setting, texts): (&'static Setting, Vec<String>)| {
            (setting.name, (Raw::Flag(texts), Origin::Flag(format!("--{}", setting.flag()))))
        };
        Self(given.into_iter().map(flag).collect())
    }

    /// This layer, overridden by another.
    pub(super) fn under(mut self, over: Self) -> Self {
        self.0.extend(over.0);
        self
    }

    /// Parses a setting, if it was given.
    pub(super) fn read<T: Value>(&self, name: &'static str) -> Result<Option<T>, ConfigError> {
        let Some((raw, _)) = self.0.get(name) else { return Ok(None) };
        let read = match raw {
            Raw::Variable(text) => T::parse(text),
            Raw::Flag(texts) => T::parse_all(texts),
            Raw::File(value) => T::from_toml(value),
        };
        read.map(Some).map_err(|rule| self.bad_value(name, rule))
    }

    /// The error for a setting that breaks a rule, with the given value.
    pub(super) fn bad_value(&self, name: &'static str, rule: String) -> ConfigError {
        let value = match self.0.get(name).map(|(raw, _)| raw) {
            None => String::new(),
            Some(Raw::Variable(text)) => text.clone(),
            Some(Raw::Flag(texts)) => texts.join(" "),
            Some(Raw::File(value)) => bare(value),
        };
        let origin = self.origin(name).cloned().unwrap_or(Origin::Default);
        ConfigError::BadValue { name, value: shown(&value), origin, rule }
    }

    /// The source of a setting, if it was given.
    pub(super) fn origin(&self, name: &str) -> Option<&Origin> {
        self.0.get(name).map(|(_, origin)| origin)
    }
}

/// The variable that was probably meant. The prefix, which all share, does not count.
fn nearest_variable(name: &str, known: &[String]) -> Option<String> {
    let stem = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let stems: Vec<String> = known.iter().map(|name| stem(name)).collect();
    nearest(&stem(name), stems.iter().map(String::as_str)).map(|found| format!("{PREFIX}{found}"))
}

/// Kubernetes sets variables for every service of the namespace, and a service called `rollcall` or `rollcall-redis` gets our
/// prefix: `ROLLCALL_SERVICE_HOST`, `ROLLCALL_PORT=tcp://…`, `ROLLCALL_REDIS_PORT_6379_TCP_ADDR`.
fn is_service_link(name: &str, value: &OsStr) -> bool {
    let port = |(_, rest): (&str, &str)| rest.starts_with(|c: char| c.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT") && value.to_string_lossy().contains("://")
        || name.split_once("_PORT_").is_some_and(port)
}
