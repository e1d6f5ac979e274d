//! The address of Redis: parses and checks a URL, and keeps passwords out of logs.

use std::fmt;

use crate::keyspace::Commands;
use percent_encoding::percent_decode_str;

/// The default address.
const DEFAULT_URL: &str = "redis://127.0.0.1:6379";

/// The default port.
const DEFAULT_PORT: u16 = 6379;

/// One server, and the credentials and database to use.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
    database: u32,
}

impl Address {
    /// Parses a URL; `None` is the default. The error does not repeat the URL: it may contain a password.
    pub fn parse(url: Option<&str>) -> Result<Self, String> {
        let refuse =
            |why: &str| Err(format!("`redis_url` is not `redis://[user:password@]host:port[/database]`: {why}"));
        let Some((scheme, rest)) = url.unwrap_or(DEFAULT_URL).split_once("://") else {
            return refuse("it has no `://`");
        };
        match scheme {
            "redis" => {}
            "rediss" => return refuse("TLS is not supported here; put a TLS proxy in front of Redis"),
            _ => return refuse("its scheme is not `redis`"),
        }
        let (credentials, place) = rest.rsplit_once('@').map_or((None, rest), |(before, place)| (Some(before), place));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let Ok(database) = (if path.is_empty() { Ok(0) } else { path.parse() }) else {
            return refuse("the path is not a database number");
        };
        let Some((host, port)) = host_and_port(authority) else {
            return refuse("it has no host, or the port is invalid");
        };
        let Some((user, password)) = user_and_password(credentials.unwrap_or_default()) else {
            return refuse("its user or its password is not UTF-8");
        };
        Ok(Self { host, port, user, password, database })
    }

    /// The host name or IP address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The first commands of a connection: authentication and database.
    pub(crate) fn greeting(&self) -> Commands {
        let mut commands = Commands::default();
        if let Some(password) = &self.password {
            commands.begin("AUTH");
            if let Some(user) = &self.user {
                commands.text(user);
            }
            commands.text(password);
        }
        if self.database != 0 {
            commands.begin("SELECT").number(u64::from(self.database));
        }
        commands
    }
}

/// Without credentials.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({}:{}/{})", self.host, self.port, self.database)
    }
}

/// An IPv6 address is in brackets, as in every URL.
fn host_and_port(authority: &str) -> Option<(String, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(DEFAULT_PORT), str::parse).ok()?;
    (!host.is_empty() && port != 0).then(|| (host.to_owned(), port))
}

/// `user:password`, `:password`, or empty.
fn user_and_password(text: &str) -> Option<(Option<String>, Option<String>)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().ok().map(String::from);
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    Some((some(decoded(user)?), some(decoded(password)?)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Address {
        Address::parse(Some(url)).unwrap()
    }

    fn said(url: &str) -> Vec<String> {
        let text = |args: Vec<Vec<u8>>| String::from_utf8(args.join(&b' ')).unwrap();
        parsed(url).greeting().iter().map(|command| text(command.to_owned())).collect()
    }

    #[test]
    fn url_names_a_server() {
        for (url, host, port) in [
            ("redis://127.0.0.1", "127.0.0.1", 6379),
            ("redis://cache.example:7000/2", "cache.example", 7000),
            ("redis://:secret@[::1]:6380", "::1", 6380),
            ("redis://[fe80::1]", "fe80::1", 6379),
        ] {
            assert_eq!((parsed(url).host(), parsed(url).port()), (host, port), "{url}");
        }
        assert_eq!(Address::parse(None), Ok(parsed("redis://127.0.0.1:6379")));
    }

    #[test]
    fn connection_starts_with_credentials_and_database() {
        assert_eq!(said("redis://x"), Vec::<String>::new());
        assert_eq!(said("redis://bob:p%40ss@x/3"), ["AUTH bob p@ss", "SELECT 3"]);
        assert_eq!(said("redis://:p%40ss@x/0"), ["AUTH p@ss"]);
    }

    #[test]
    fn invalid_address_error_hides_the_password() {
        for bad in [
            "",
            "localhost:6379",
            "http://secret@x",
            "rediss://:secret@x",
            "redis+cluster://:secret@a,b",
            "redis://:secret@",
            "redis://:secret@x/one",
            "redis://:secret@x:port",
            "redis://:secret@x:0",
            "redis://:secret@[::1",
            "redis://:secret%ff@x",
        ] {
            let error = Address::parse(Some(bad)).unwrap_err();
            assert!(error.contains("`redis_url`") && !error.contains("secret"), "{error}");
        }
        assert!(Address::parse(Some("rediss://x")).unwrap_err().contains("TLS"));
        assert!(!format!("{:?}", parsed("redis://bob:secret@x")).contains("secret"));
    }
}
