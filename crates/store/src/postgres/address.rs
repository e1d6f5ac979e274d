//! Parses the URL of a PostgreSQL database.
//!
//! `tokio-postgres` parses all of it except the TLS parameters: `sslmode` and `sslrootcert` mean what they mean to `psql`.
//! No message contains the password, or a part of it.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::open::OpenError;
use super::tls::{self, Trust};

/// How long one address may take to accept a connection, unless the URL sets it. A running server accepts in
/// milliseconds, and a name may resolve to several addresses of which the first is dead.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(2);

/// Idle time before the first TCP keepalive probe. The usual default of two hours is longer than most firewalls keep an
/// idle connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The application name in `pg_stat_activity`.
const APPLICATION: &str = "rollcall";

/// A database and how to connect to it.
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// Host and port, for messages.
    pub(super) endpoint: String,
    /// The user to connect as.
    pub(super) role: String,
    /// The name of the database.
    pub(super) database: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        let rest = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme));
        let rest = rest.ok_or_else(|| bad("it does not begin with `postgres://`"))?;
        // After an `@` in the password, the rest of it would be parsed as the host and shown in messages.
        if rest.split('?').next().unwrap_or_default().matches('@').count() > 1 {
            return Err(bad("it has a second `@`; write an `@` in the password as `%40`"));
        }
        let (url, security) = Security::take_from(url)?;
        let mut config: Config = url.parse().map_err(|error| bad(super::open::describe(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(bad("it names no host"));
        }
        let role = config.get_user().map(str::to_owned).ok_or_else(|| bad("it names no user"))?;
        let database = config.get_dbname().unwrap_or(&role).to_owned();
        config.ssl_mode(security.mode);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(SOCKET_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name(APPLICATION);
        }
        config.keepalives_idle(config.get_keepalives_idle().min(KEEPALIVE_IDLE));
        let tls = tls::connector(&security.trust).map_err(bad)?;
        Ok(Self { tls, endpoint: endpoint(&config), role, database, config })
    }
}

/// The TLS parameters.
struct Security {
    mode: SslMode,
    trust: Trust,
}

impl Security {
    /// Splits off the two parameters handled here; the rest is for the client library.
    fn take_from(url: &str) -> Result<(String, Self), OpenError> {
        let (front, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut others) = (None, None, Vec::new());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => {
                    let path = percent_decode_str(value).decode_utf8();
                    roots = Some(path.map_err(|_| bad("`sslrootcert` is not UTF-8"))?.into_owned());
                }
                _ => others.push(parameter),
            }
        }
        let roots =
            roots.map(|roots| if roots == "system" { Trust::System } else { Trust::File(PathBuf::from(roots)) });
        let (mode, trust) = match mode {
            Some("disable") => (SslMode::Disable, Trust::AnyCertificate),
            // An attacker in between can answer that there is no TLS, so checking the certificate would not help.
            None | Some("prefer") => (SslMode::Prefer, Trust::AnyCertificate),
            Some("require") => (SslMode::Require, roots.unwrap_or(Trust::AnyCertificate)),
            Some("verify-full") => (SslMode::Require, roots.unwrap_or(Trust::System)),
            Some(_) => return Err(bad("its `sslmode` is not one of `disable`, `prefer`, `require`, `verify-full`")),
        };
        let question = if others.is_empty() { "" } else { "?" };
        Ok((format!("{front}{question}{}", others.join("&")), Self { mode, trust }))
    }
}

fn bad(reason: impl ToString) -> OpenError {
    OpenError::BadUrl { reason: reason.to_string() }
}

fn endpoint(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
    let host = |(index, host): (usize, &Host)| match host {
        Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(index)),
        Host::Tcp(name) => format!("{name}:{}", port(index)),
        Host::Unix(folder) => folder.display().to_string(),
    };
    let hosts: Vec<_> = config.get_hosts().iter().enumerate().map(host).collect();
    if hosts.is_empty() {
        return config.get_hostaddrs().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    }
    hosts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        Address::parse(url).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn url_gives_endpoint_role_and_database() -> Result<(), OpenError> {
        let address = Address::parse("postgres://ann:secret@db.example:6432/people")?;
        assert_eq!((&*address.endpoint, &*address.role, &*address.database), ("db.example:6432", "ann", "people"));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Prefer);
        let address = Address::parse("postgresql://ann@[::1],other:7/?sslmode=require&connect_timeout=9")?;
        assert_eq!((&*address.endpoint, &*address.database), ("[::1]:5432, other:7", "ann"));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(9)));
        let address = Address::parse("postgres://ann@%2Frun%2Fpostgresql/people")?;
        assert_eq!(address.endpoint, "/run/postgresql");
        Ok(())
    }

    #[test]
    fn bad_url_is_refused_with_the_reason() {
        for (url, reason) in [
            ("mysql://ann@host/db", "does not begin with"),
            ("host=x user=y", "does not begin with"),
            ("postgres://ann@/db", "names no host"),
            ("postgres://host/db", "names no user"),
            ("postgres://ann@host:port/db", "port"),
            ("postgres://ann@host/db?sslmode=verify-ca", "`verify-full`"),
            ("postgres://ann@host/db?colour=red", "colour"),
            ("postgres://ann@host/db?sslmode=verify-full&sslrootcert=%2Fno%2Fsuch.pem", "/no/such.pem"),
        ] {
            assert!(refusal(url).contains(reason), "{url}: {}", refusal(url));
        }
    }

    #[test]
    fn refusal_shows_no_part_of_the_password() {
        for url in [
            "postgres://ann:s3cret@/db",
            "postgres://ann:s3cret",
            "postgres://ann:one@s3cret@host/db",
            "postgres://ann:one@s3cret/two@host/db",
            "postgres://ann:s3cret@host:port/db",
            "ann:s3cret@host/db",
            "postgres://ann:s3cret@host/db?sslmode=never",
            "postgres://ann:%ffs3cret@host:1/db?x=y",
        ] {
            let text = refusal(url);
            assert!(!text.is_empty() && !text.contains("s3cret"), "{url}: {text}");
        }
    }
}
