//! The types of settings: how each is parsed from text and TOML, and written back.
//!
//! An error is a clause that follows the value, such as "is not a whole number", so that every source reports it in the same
//! words. A written value always parses to the same value.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rollcall_core::{Rules, Span};
use tracing_subscriber::EnvFilter;

use super::suggestion::nearest;

/// The word for having no value, or an empty one.
const NONE: &str = "none";

/// The functions that a component can be given for.
pub const FUNCTIONS: [&str; 6] = ["heartbeat", "offline-sweep", "query", "restriction-check", "subscribe", "typing"];

/// The type of a setting.
pub trait Value: Sized {
    /// Whether its flag may be given several times.
    const REPEATS: bool = false;

    /// Parses a variable.
    fn parse(text: &str) -> Result<Self, String>;

    /// Parses a flag, given once, or as often as it [repeats](Self::REPEATS).
    fn parse_all(texts: &[String]) -> Result<Self, String> {
        Self::parse(texts.last().map_or("", String::as_str))
    }

    /// Parses a value of the file; most are strings.
    fn from_toml(value: &toml::Value) -> Result<Self, String> {
        value.as_str().ok_or_else(|| "is not a string".to_owned()).and_then(Self::parse)
    }

    /// The value as TOML.
    fn to_toml(&self) -> toml::Value;
}

impl Value for String {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("is empty".to_owned()) } else { Ok(text.to_owned()) }
    }

    fn to_toml(&self) -> toml::Value {
        self.as_str().into()
    }
}

impl Value for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        String::parse(text).map(PathBuf::from)
    }

    fn to_toml(&self) -> toml::Value {
        // Every path was parsed from text, so nothing is lost.
        self.to_string_lossy().into_owned().into()
    }
}

/// `none` means absent. An empty text is refused: a variable that a script left empty must not silently disable a key.
impl<T: Value> Value for Option<T> {
    fn parse(text: &str) -> Result<Self, String> {
        if text == NONE { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn to_toml(&self) -> toml::Value {
        self.as_ref().map_or_else(|| NONE.into(), T::to_toml)
    }
}

impl Value for SocketAddr {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| "is not an IP address with a port, such as `127.0.0.1:8080` or `[::1]:8080`".to_owned())
    }

    fn to_toml(&self) -> toml::Value {
        self.to_string().into()
    }
}

/// Whole numbers: digits, optionally with underscores as in TOML.
macro_rules! whole_number {
    ($($kind:ty),+) => { $(
        impl Value for $kind {
            fn parse(text: &str) -> Result<Self, String> {
                text.replace('_', "").parse().map_err(|_| "is not a whole number".to_owned())
            }

            fn from_toml(value: &toml::Value) -> Result<Self, String> {
                let number = value.as_integer().ok_or_else(|| "is not a whole number".to_owned())?;
                Self::parse(&number.to_string())
            }

            fn to_toml(&self) -> toml::Value {
                i64::try_from(*self).unwrap_or(i64::MAX).into()
            }
        }
    )+ };
}

whole_number!(u32, u64, usize);

/// The units of durations in milliseconds, the largest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Value for Span {
    fn parse(text: &str) -> Result<Self, String> {
        let rule = || "is not a whole number with a unit, such as `1500ms`, `30s`, `5m` or `1h`".to_owned();
        let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(rule)?;
        let (number, unit) = text.split_at(unit_at);
        let number: u64 = number.parse().map_err(|_| rule())?;
        let (_, in_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(rule)?;
        number.checked_mul(*in_ms).map(Span).ok_or_else(|| "is too long".to_owned())
    }

    fn from_toml(value: &toml::Value) -> Result<Self, String> {
        // A bare number is the likeliest mistake: it gets the error that shows how to write it.
        value.as_str().map_or_else(|| Self::parse(""), Self::parse)
    }

    fn to_toml(&self) -> toml::Value {
        if self.0 == 0 {
            return "0s".into();
        }
        let fits = UNITS.iter().find(|(_, in_ms)| self.0.is_multiple_of(*in_ms));
        fits.map_or_else(|| "0s".into(), |(unit, in_ms)| format!("{}{unit}", self.0 / in_ms).into())
    }
}

impl Value for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        Span::parse(text).map(|span| Self::from_millis(span.0))
    }

    fn from_toml(value: &toml::Value) -> Result<Self, String> {
        Span::from_toml(value).map(|span| Self::from_millis(span.0))
    }

    fn to_toml(&self) -> toml::Value {
        Span(u64::try_from(self.as_millis()).unwrap_or(u64::MAX)).to_toml()
    }
}

/// An enum whose values are words.
macro_rules! words {
    ($(#[doc = $doc:literal])+ $kind:ident { $( $(#[doc = $about:literal])+ $variant:ident = $word:literal, )+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind { $( $(#[doc = $about])+ $variant, )+ }

        impl Value for $kind {
            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err(format!("is none of {}", [$(concat!("`", $word, "`")),+].join(", "))),
                }
            }

            fn to_toml(&self) -> toml::Value {
                match self { $( Self::$variant => $word.into(), )+ }
            }
        }
    };
}

words! {
    /// A set of times.
    Preset {
        /// Beats every 30 s, dead after 45 s.
        Standard = "standard",
        /// Beats every 30 s, dead after 90 s.
        Lenient = "lenient",
        /// Beats every 15 s, dead after 30 s.
        Brisk = "brisk",
    }
}

impl Preset {
    /// Its times.
    pub fn rules(self) -> Rules {
        match self {
            Self::Standard => Rules::STANDARD,
            Self::Lenient => Rules::LENIENT,
            Self::Brisk => Rules::BRISK,
        }
    }
}

words! {
    /// How log lines are written.
    LogFormat {
        /// For people.
        Text = "text",
        /// For programs: one JSON object a line.
        Json = "json",
    }
}

words! {
    /// How a host on Redis detects expired users.
    ExpiryDetection {
        /// Both: notifications are fast, the sweep misses none.
        Both = "both",
        /// Expiry notifications only. They can be lost, so this is for measuring.
        Notifications = "notifications",
        /// The scheduled sweep only.
        Sweep = "sweep",
    }
}

/// What is logged, in the syntax of `tracing`: a level, or levels by module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// All messages from this level on.
    pub fn level(level: tracing::Level) -> Self {
        Self(level.as_str().to_ascii_lowercase())
    }

    /// The filter as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for LogFilter {
    fn parse(text: &str) -> Result<Self, String> {
        // An empty filter would be valid and disable all logs.
        let text = String::parse(text)?;
        EnvFilter::try_new(&text).map_err(|error| format!("is not a log filter: {error}"))?;
        Ok(Self(text))
    }

    fn to_toml(&self) -> toml::Value {
        self.0.to_toml()
    }
}

/// Component files in place of those in the binary, by function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Components(pub BTreeMap<String, PathBuf>);

impl Components {
    /// The file given for a function, if one was.
    pub fn get(&self, function: &str) -> Option<&PathBuf> {
        self.0.get(function)
    }

    fn collect<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut components = BTreeMap::new();
        for (function, file) in pairs {
            if !FUNCTIONS.contains(&function) {
                let names = FUNCTIONS.join(", ");
                let hint =
                    nearest(function, FUNCTIONS).map_or(String::new(), |name| format!("; did you mean `{name}`?"));
                return Err(format!("names no function: there is no `{function}` among {names}{hint}"));
            }
            let file = PathBuf::parse(file).map_err(|rule| format!("has a file for `{function}` that {rule}"))?;
            if components.insert(function.to_owned(), file).is_some() {
                return Err(format!("names `{function}` twice"));
            }
        }
        Ok(Self(components))
    }

    fn pair(text: &str) -> Result<(&str, &str), String> {
        text.split_once('=').ok_or_else(|| "is not of the form NAME=FILE".to_owned())
    }
}

impl Value for Components {
    const REPEATS: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self::default());
        }
        Self::collect(text.split(',').map(Self::pair).collect::<Result<Vec<_>, _>>()?)
    }

    fn parse_all(texts: &[String]) -> Result<Self, String> {
        if let [only] = texts
            && only == NONE
        {
            return Ok(Self::default());
        }
        Self::collect(texts.iter().map(|text| Self::pair(text)).collect::<Result<Vec<_>, _>>()?)
    }

    fn from_toml(value: &toml::Value) -> Result<Self, String> {
        let table = value.as_table().ok_or_else(|| "is not a table of files by function".to_owned())?;
        let file = |(function, file): (&'_ String, &'_ toml::Value)| match file.as_str() {
            Some(file) => Ok((function.clone(), file.to_owned())),
            None => Err(format!("has a file for `{function}` that is not a string")),
        };
        let files = table.iter().map(file).collect::<Result<Vec<_>, _>>()?;
        Self::collect(files.iter().map(|(function, file)| (function.as_str(), file.as_str())))
    }

    fn to_toml(&self) -> toml::Value {
        toml::Value::Table(self.0.iter().map(|(function, file)| (function.clone(), file.to_toml())).collect())
    }
}
