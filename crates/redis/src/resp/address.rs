//! Where Redis is: a URL, checked, and taken apart so that a password is never shown.

use std::fmt;

use crate::keyspace::Commands;
use percent_encoding::percent_decode_str;

/// Where Redis is if nobody says otherwise.
const USUAL: &str = "redis://127.0.0.1:6379";

/// The port of Redis if the URL names none.
const USUAL_PORT: u16 = 6379;

/// One server, and what to say to it first.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
    database: u32,
}

impl Address {
    /// Reads a URL; none: the server of this machine. The error does not repeat the URL: it may carry a password.
    pub fn parse(url: Option<&str>) -> Result<Self, String> {
        let refuse =
            |why: &str| Err(format!("`redis_url` is not `redis://[user:password@]host:port[/database]`: {why}"));
        let Some((scheme, rest)) = url.unwrap_or(USUAL).split_once("://") else { return refuse("it has no `://`") };
        match scheme {
            "redis" => {}
            "rediss" => return refuse("TLS is not spoken here; put a proxy that does in front of Redis"),
            _ => return refuse("it has another scheme"),
        }
        let (credentials, place) = rest.rsplit_once('@').map_or((None, rest), |(before, place)| (Some(before), place));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let Ok(database) = (if path.is_empty() { Ok(0) } else { path.parse() }) else {
            return refuse("what follows the host is not the number of a database");
        };
        let Some((host, port)) = host_and_port(authority) else { return refuse("it names no host, or no port of one") };
        let Some((user, password)) = user_and_password(credentials.unwrap_or_default()) else {
            return refuse("its user or its password is not UTF-8");
        };
        Ok(Self { host, port, user, password, database })
    }

    /// The name or the number of the host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What a connection begins with: who we are, and which database we mean.
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
    let port = port.map_or(Ok(USUAL_PORT), str::parse).ok()?;
    (!host.is_empty() && port != 0).then(|| (host.to_owned(), port))
}

/// `user:password`, `:password`, or nothing.
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
    fn a_url_names_a_server() {
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
    fn a_connection_begins_with_what_the_url_says() {
        assert_eq!(said("redis://x"), Vec::<String>::new());
        assert_eq!(said("redis://bob:p%40ss@x/3"), ["AUTH bob p@ss", "SELECT 3"]);
        assert_eq!(said("redis://:p%40ss@x/0"), ["AUTH p@ss"]);
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
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
