//! Every setting, declared once: its name, type, default, unit, bounds and documentation.
//!
//! This table generates the [`Config`], the keys of the file, the variables, the flags, their help and the example file.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use rollcall_api::{MAX_BATCH_BEATS, MAX_BATCH_BODY_BYTES, MAX_BODY_BYTES, MAX_QUERY_IDS};
use rollcall_core::{Rules, Span};
use rollcall_store::DEFAULT_SHARDS;

use super::error::ConfigError;
use super::layer::Layer;
use super::urls::{ArchiveUrl, StoreUrl};
use super::value::{Components, ExpiryDetection, LogFilter, LogFormat, Preset, Value};
use crate::http::origins::Origins;

/// The engine's pool of instances is sized for as many workers and no more.
const MAX_WORKERS: usize = 64;

/// The contract's limit on any batch. A larger setting would only move the refusal.
const CONTRACT_BATCH: usize = MAX_BATCH_BEATS;

/// A body is held in memory, once per connection at most: 64 MiB is more than any batch needs.
const BODY_CEILING_BYTES: usize = 64 << 20;

/// Groups of settings, in the order of help and example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Address, stores and threads.
    Service,
    /// The times of the rules.
    Times,
    /// Who may call.
    Access,
    /// Updates to watchers.
    Watching,
    /// Limits of requests and connections.
    Limits,
    /// Replaced components.
    Components,
    /// Logging.
    Logging,
}

impl Group {
    /// Its heading.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Times => "Times",
            Self::Access => "Access",
            Self::Watching => "Watching",
            Self::Limits => "Limits",
            Self::Components => "Components",
            Self::Logging => "Logging",
        }
    }
}

/// A setting, without its value.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its key in the file.
    pub name: &'static str,
    /// Its group.
    pub group: Group,
    /// Its documentation, by line.
    pub doc: &'static [&'static str],
    /// Its unit or kind of value.
    pub unit: &'static str,
    /// Whether its flag may be given several times.
    pub repeats: bool,
    /// Its default, given the preset's times.
    pub default: fn(&Rules) -> toml::Value,
    /// Its bounds, if it has any.
    pub bounds: fn() -> Option<(toml::Value, toml::Value)>,
    /// Its value in a configuration.
    pub value: fn(&Config) -> toml::Value,
}

impl Setting {
    /// Its variable: `ROLLCALL_IDLE_AFTER`.
    pub fn variable(&self) -> String {
        format!("ROLLCALL_{}", self.name.to_ascii_uppercase())
    }

    /// Its flag, without the dashes: `idle-after`.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Its documentation, on one line.
    pub fn prose(&self) -> String {
        self.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }

    /// Its unit and its bounds: `whole number, 1 to 16384`.
    pub fn measure(&self) -> String {
        match (self.bounds)() {
            Some((least, most)) => format!("{}, {} to {}", self.unit, bare(&least), bare(&most)),
            None => self.unit.to_owned(),
        }
    }
}

/// A value without the quotes of TOML.
pub(super) fn bare(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Refuses a value out of bounds.
fn within<T: Value + PartialOrd>(value: &T, range: &RangeInclusive<T>) -> Result<(), String> {
    if range.contains(value) {
        return Ok(());
    }
    Err(format!("is not between {} and {}", bare(&range.start().to_toml()), bare(&range.end().to_toml())))
}

macro_rules! settings {
    ($( $group:ident { $(
        $(#[doc = $doc:literal])+
        $name:ident: $kind:ty = $default:expr, $unit:literal $(, $range:expr)?;
    )+ } )+) => {
        /// Every setting, resolved and checked.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config { $($(
            $(#[doc = $doc])+
            pub $name: $kind,
        )+)+ }

        /// Every setting, in the order of help and example.
        pub static SETTINGS: &[Setting] = &[ $($( Setting {
            name: stringify!($name),
            group: Group::$group,
            doc: &[$($doc),+],
            unit: $unit,
            repeats: <$kind as Value>::REPEATS,
            default: |times| {
                let default: fn(&Rules) -> $kind = $default;
                default(times).to_toml()
            },
            bounds: || {
                let range: Option<RangeInclusive<$kind>> = [$($range)?].into_iter().next();
                range.map(|range| (range.start().to_toml(), range.end().to_toml()))
            },
            value: |config| config.$name.to_toml(),
        }, )+)+ ];

        impl Default for Config {
            fn default() -> Self {
                let times = Rules::default();
                $($( let $name: fn(&Rules) -> $kind = $default; )+)+
                Self { $($( $name: $name(&times), )+)+ }
            }
        }

        impl Config {
            /// The given settings, and the defaults for the rest, with the preset's times.
            pub(super) fn assemble(given: &Layer, times: &Rules) -> Result<Self, ConfigError> {
                Ok(Self { $($( $name: {
                    let default: fn(&Rules) -> $kind = $default;
                    match given.read::<$kind>(stringify!($name))? {
                        Some(value) => {
                            $( within(&value, &$range).map_err(|rule| given.bad_value(stringify!($name), rule))?; )?
                            value
                        }
                        None => default(times),
                    }
                }, )+)+ })
            }
        }
    };
}

settings! {
    Service {
        /// Where to serve HTTP. Without a token_key only a loopback address is allowed.
        listen: SocketAddr = |_| SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)), "IP:PORT";

        /// The hot store: memory, which is this process, or a Redis that any number of hosts share, as redis://HOST:PORT,
        /// rediss://HOST:PORT with TLS, or redis+cluster://HOST:PORT,HOST:PORT. A user and a password may precede the host, as
        /// in redis://USER:PASSWORD@HOST; they are never shown.
        store: StoreUrl = |_| StoreUrl::Memory, "memory or URL";

        /// The archive of last seen: with-store, which is a file for the memory store and Redis for a Redis store; sqlite, a
        /// file of this host alone; or a database that all hosts share, as postgres://USER:PASSWORD@HOST/DATABASE.
        archive: ArchiveUrl = |_| ArchiveUrl::WithStore, "with-store, sqlite or URL";

        /// A PEM file with the certificate authorities to trust for rediss, instead of the system's.
        store_ca: Option<PathBuf> = |_| None, "file or none";

        /// How a host on Redis detects expired users: by Redis's expiry notifications, which are fast and may be lost, by the
        /// scheduled sweep, which misses none, or by both.
        expiry_detection: ExpiryDetection = |_| ExpiryDetection::Both, "both, notifications or sweep";

        /// The directory for data that must outlive the process, such as last seen; created if it is missing. With none,
        /// nothing is kept on disk. A host on Redis uses it for a sqlite archive, and for a copy of the policy, so that
        /// the next start reads only what changed.
        data: Option<PathBuf> = |_| Some("./rollcall-data".into()), "directory or none";

        /// How many shards users are hashed into. Never change it for a store that holds data.
        shards: u32 = |_| DEFAULT_SHARDS, "number", 1..=16_384;

        /// How many threads run functions. 0 is one per core.
        workers: usize = |_| 0, "number", 0..=MAX_WORKERS;

        /// How many bytes of policy (restrictions, blocks, contacts, privacy) one instance of restriction-check may hold. A
        /// billion restricted accounts take 125 MB. If the policy does not fit, or with 0, every check reads the store.
        policy_memory: u64 = |_| 256 << 20, "bytes", 0..=3 << 30;

        /// How many instances of restriction-check there are. 0 is one per worker, which is fastest; with fewer, workers share
        /// them, which takes less memory.
        policy_instances: u32 = |_| 0, "number", 0..=MAX_WORKERS as u32;

        /// How long a shutdown waits for open connections before it closes them.
        drain: Duration = |_| Duration::from_secs(10), "duration", Duration::ZERO..=Duration::from_hours(1);
    }

    Times {
        /// Sets all times below: standard has a beat every 30 s and a dead device after 45 s, lenient 30 and 90, brisk 15 and
        /// 30. A time that is given overrides the preset's.
        preset: Preset = |_| Preset::Standard, "standard, lenient or brisk";

        /// How often a device beats.
        interval: Span = |times| times.interval, "duration";

        /// How late a beat may be: a device is dead after interval + tolerance.
        tolerance: Span = |times| times.tolerance, "duration";

        /// How long after its last use a live device becomes idle; a user is away when all live devices are.
        idle_after: Span = |times| times.idle_after, "duration";

        /// How long a device outlives a broken connection, so that reloading a page causes no change. With less than the
        /// interval, moving to another host may still cause one.
        grace: Span = |times| times.grace, "duration";

        /// How long a typing signal lasts.
        typing_ttl: Span = |times| times.typing_ttl, "duration";

        /// How long after going offline a user is evicted from the hot store; last seen stays in the archive.
        evict_after: Span = |times| times.evict_after, "duration";
    }

    Access {
        /// The file with the key that checks tokens: a JSON Web Key Set, a public key in PEM, or a secret of at least 32
        /// bytes. With none, callers name themselves without a token, on loopback only.
        token_key: Option<PathBuf> = |_| None, "file or none";

        /// The issuer that tokens must name.
        token_issuer: Option<String> = |_| None, "text or none";

        /// The audience that tokens must name.
        token_audience: Option<String> = |_| None, "text or none";

        /// The origins whose web pages may call this service, such as https://app.example.com, or * for all. Without a
        /// token_key, pages of this machine always may, and others only if they are listed; * is then ignored. null stands for
        /// pages opened from a file, but also for sandboxed frames of any site: use it for experiments only. Separate the
        /// origins with commas in the variable; repeat the flag for each.
        origins: Origins = |_| Origins::default(), "origin";
    }

    Watching {
        /// How often every watched user is read again, in case a loss went unnoticed: no state is shown wrongly for longer
        /// than this.
        recheck: Duration = |_| Duration::from_secs(30), "duration", Duration::from_millis(50)..=Duration::from_hours(1);

        /// With more watchers than this on all hosts, a user's changes are sent at most once per crowd_interval. A crowd spread
        /// over more than a hundred workers may go unnoticed.
        crowd: u64 = |_| 10_000, "number", 1..=1_000_000_000;

        /// The shortest time between two updates to a crowd about one user. In between only the newest state is kept.
        crowd_interval: Duration = |_| Duration::from_secs(2), "duration", Duration::ZERO..=Duration::from_mins(10);
    }

    Limits {
        /// The most users one connection may watch at once, and the most conversations.
        watch_limit: u32 = |times| times.watch_limit, "number", 1..=1024;

        /// The most ids in one query, duplicates counted.
        query_ids: usize = |_| MAX_QUERY_IDS, "number", 1..=CONTRACT_BATCH;

        /// The most beats in one batch.
        batch_beats: usize = |_| MAX_BATCH_BEATS, "number", 1..=CONTRACT_BATCH;

        /// The most bytes in the body of a request for one item.
        body_bytes: usize = |_| MAX_BODY_BYTES, "bytes", 1024..=BODY_CEILING_BYTES;

        /// The most bytes in the body of a request with a list.
        batch_body_bytes: usize = |_| MAX_BATCH_BODY_BYTES, "bytes", 1024..=BODY_CEILING_BYTES;

        /// The most open connections. More wait until one is closed.
        max_connections: usize = |_| 20_000, "number", 1..=1_000_000;
    }

    Components {
        /// A component file in place of one in the binary, by the name of its function: heartbeat, offline-sweep, query,
        /// restriction-check, subscribe or typing. Separate NAME=FILE pairs with commas in the variable; repeat the flag for
        /// each. A list in a later source replaces the earlier one as a whole.
        component: Components = |_| Components::default(), "NAME=FILE";
    }

    Logging {
        /// What is logged to standard error: error, warn, info, debug or trace, or levels by module, as in
        /// info,rollcall_host=debug.
        log: LogFilter = |_| LogFilter::level(tracing::Level::INFO), "filter";

        /// The format of log lines: text for reading, json for programs.
        log_format: LogFormat = |_| LogFormat::Text, "text or json";
    }
}
