//! The configuration: one table of settings, four sources, one checked result.
//!
//! A flag overrides a variable, a variable the file, and the file the defaults. A wrong name, value or combination is found
//! at start and reported with its source; nothing is ignored.
//!
//! Deliberately absent: changing a setting of a running host, and keys as settings. A key is always a file, so that it is
//! never seen in a list of processes, in a log or in the output of `rollcall config`. For the same reason a password in a
//! URL belongs into a variable or the file; wherever a URL is shown, the password is left out.

mod error;
mod layer;
mod render;
mod settings;
mod suggestion;
mod urls;
mod value;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rollcall_api::{Access, Expect, Keys, Limits};
use rollcall_core::Rules;

pub use crate::http::origins::Origins;
pub use error::{ConfigError, Origin};
pub use layer::Layer;
pub use render::example;
pub use settings::{Config, Group, SETTINGS, Setting};
pub use urls::{ArchiveUrl, StoreUrl, Url};
pub use value::{Components, ExpiryDetection, FUNCTIONS, LogFilter, LogFormat, Preset, Value};

use crate::hub::HubOptions;
use layer::CONFIG_VARIABLE;

/// The settings of the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The file that `--config` names.
    pub file: Option<PathBuf>,
    /// The settings that were given.
    pub given: Layer,
}

/// A configuration, and the source of each value.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    given: Layer,
}

impl Loaded {
    /// Reads the file, if one is named, the environment and the flags, and checks the result.
    pub fn read(flags: &Flags, variables: &[(OsString, OsString)]) -> Result<Self, ConfigError> {
        let file = match config_file(flags, variables) {
            Some((path, origin)) => {
                let read = std::fs::read_to_string(path);
                let text = read.map_err(|error| ConfigError::Unreadable { path: path.to_owned(), origin, error })?;
                Layer::from_file(path, &text)?
            }
            None => Layer::default(),
        };
        let given = file.under(Layer::from_environment(variables)?).under(flags.given.clone());
        let times = given.read::<Preset>("preset")?.map_or_else(Rules::default, Preset::rules);
        let config = Config::assemble(&given, &times)?;
        config.rules().check().map_err(|invalid| {
            let name = SETTINGS.iter().map(|setting| setting.name).find(|name| *name == invalid.field);
            given.bad_value(name.unwrap_or("preset"), invalid.rule)
        })?;
        Ok(Self { config, given })
    }

    /// The source of a setting's value.
    pub fn origin(&self, setting: &Setting) -> Origin {
        if let Some(origin) = self.given.origin(setting.name) {
            return origin.clone();
        }
        let by_preset = (setting.default)(&self.config.preset.rules()) != (setting.default)(&Rules::default());
        if by_preset { Origin::Preset } else { Origin::Default }
    }

    /// The configuration in force as TOML, with the source of each value.
    pub fn to_toml(&self) -> String {
        render::effective(self)
    }
}

/// The config file, if one is named, and what named it.
fn config_file<'a>(flags: &'a Flags, variables: &'a [(OsString, OsString)]) -> Option<(&'a Path, Origin)> {
    if let Some(path) = &flags.file {
        return Some((path, Origin::Flag("--config".to_owned())));
    }
    let variable = variables.iter().find(|(name, _)| name == OsStr::new(CONFIG_VARIABLE))?;
    Some((Path::new(&variable.1), Origin::Variable(CONFIG_VARIABLE.to_owned())))
}

impl Config {
    /// The rules of the functions.
    pub fn rules(&self) -> Rules {
        Rules {
            interval: self.interval,
            tolerance: self.tolerance,
            idle_after: self.idle_after,
            grace: self.grace,
            typing_ttl: self.typing_ttl,
            evict_after: self.evict_after,
            watch_limit: self.watch_limit,
        }
    }

    /// The limits of one request.
    pub fn limits(&self) -> Limits {
        Limits {
            query_ids: self.query_ids,
            batch_beats: self.batch_beats,
            body_bytes: self.body_bytes,
            batch_body_bytes: self.batch_body_bytes,
        }
    }

    /// The settings of a hub.
    pub(crate) fn hub_options(&self) -> HubOptions {
        HubOptions { recheck: self.recheck, crowd: self.crowd, crowd_interval: self.crowd_interval }
    }

    /// How callers are authenticated. Reads the key file; without one, only loopback may be served.
    pub fn access(&self) -> Result<Access, ConfigError> {
        let Some(path) = &self.token_key else { return self.open_access() };
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|error| ConfigError::KeyUnreadable { path: path.clone(), error })?;
        let keys = Keys::from_text(&text).map_err(|error| ConfigError::Key { path: path.clone(), error })?;
        Ok(Access::Keyed { keys, expect: self.expect() })
    }

    /// The claims that tokens must have beside the user.
    pub fn expect(&self) -> Expect {
        Expect { issuer: self.token_issuer.clone(), audience: self.token_audience.clone() }
    }

    fn open_access(&self) -> Result<Access, ConfigError> {
        if self.token_issuer.is_some() {
            return Err(ConfigError::Unchecked { name: "token_issuer" });
        }
        if self.token_audience.is_some() {
            return Err(ConfigError::Unchecked { name: "token_audience" });
        }
        // `::ffff:127.0.0.1` is loopback too.
        if !self.listen.ip().to_canonical().is_loopback() {
            return Err(ConfigError::Exposed { listen: self.listen });
        }
        Ok(Access::Open)
    }
}
