//! The settings `store` and `archive`: a word or a URL. A URL may contain a password, which is never shown.

use std::fmt;

use rollcall_redis::native as redis;
use rollcall_store::postgres;

use super::error::shown;
use super::value::Value;

/// A checked URL. Displayed without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(String);

impl Url {
    /// The whole URL with its password, for connecting only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

/// The hot store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// In a Redis, or a Cluster of them, that any number of hosts share.
    Redis(Url),
}

impl Value for StoreUrl {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "memory" => Ok(Self::Memory),
            _ if text.contains("://") => {
                redis::check_url(text).map_err(|error| format!("is not a store: {error}"))?;
                Ok(Self::Redis(Url(text.to_owned())))
            }
            _ => Err("is not a store; use `memory`, `redis://…`, `rediss://…` or `redis+cluster://…`".to_owned()),
        }
    }

    fn to_toml(&self) -> toml::Value {
        match self {
            Self::Memory => "memory".into(),
            Self::Redis(url) => url.to_string().into(),
        }
    }
}

/// The archive of last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveUrl {
    /// A file for the memory store, Redis for a Redis store.
    WithStore,
    /// In a file in the data directory, for this host alone.
    Sqlite,
    /// In a PostgreSQL database.
    Postgres(Url),
}

impl Value for ArchiveUrl {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "with-store" => Ok(Self::WithStore),
            "sqlite" => Ok(Self::Sqlite),
            _ if text.contains("://") => {
                postgres::check_url(text).map_err(|error| format!("is not an archive: {error}"))?;
                Ok(Self::Postgres(Url(text.to_owned())))
            }
            _ => Err("is not an archive; use `with-store`, `sqlite` or `postgres://…`".to_owned()),
        }
    }

    fn to_toml(&self) -> toml::Value {
        match self {
            Self::WithStore => "with-store".into(),
            Self::Sqlite => "sqlite".into(),
            Self::Postgres(url) => url.to_string().into(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn url_is_displayed_without_its_password() {
        for (url, as_shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis+cluster://u:a%40s3cret@a:1,b:2", "redis+cluster://…@a:1,b:2"),
            ("postgres://ann:s3cret@db/people?sslmode=require", "postgres://…@db/people?sslmode=require"),
        ] {
            let url = Url(url.to_owned());
            assert_eq!(url.to_string(), as_shown);
            assert!(!format!("{url:?}").contains("s3cret"));
        }
    }

    #[test]
    fn stores_and_archives_are_parsed_or_refused() {
        assert_eq!(StoreUrl::parse("memory"), Ok(StoreUrl::Memory));
        assert!(matches!(StoreUrl::parse("redis://127.0.0.1"), Ok(StoreUrl::Redis(_))));
        assert!(matches!(StoreUrl::parse("redis+cluster://a:1,b:2"), Ok(StoreUrl::Redis(_))));
        assert!(matches!(ArchiveUrl::parse("postgres://ann@db/people"), Ok(ArchiveUrl::Postgres(_))));
        for bad in ["", "disk", "http://x", "redis+cluster://:s3cret@a/1"] {
            let refusal = StoreUrl::parse(bad).unwrap_err();
            assert!(refusal.starts_with("is not a store") && !refusal.contains("s3cret"), "{refusal}");
        }
        for bad in ["", "redis", "mysql://x:s3cret@y/z"] {
            let refusal = ArchiveUrl::parse(bad).unwrap_err();
            assert!(refusal.starts_with("is not an archive") && !refusal.contains("s3cret"), "{refusal}");
        }
    }
}
