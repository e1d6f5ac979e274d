//! The address of Redis: parses and checks URLs, and keeps passwords out of logs.

use std::fmt;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, TlsCertificates};
use thiserror::Error as ThisError;

/// A server: how to reach it, and its name in logs.
#[derive(Clone)]
pub(super) struct Endpoint {
    info: ConnectionInfo,
    ca: Option<Vec<u8>>,
}

/// A parsed URL.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// The servers named; at least one. Any node of a Cluster that answers will do.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) kind: Kind,
}

/// A single server or a Cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Single,
    Cluster,
}

/// An invalid URL. The URL itself is left out: it may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error(
    "the address of Redis is not `redis://host:port`, `rediss://host:port` or `redis+cluster://host:port,host:port`: {0}"
)]
pub struct BadAddress(String);

impl Address {
    /// Parses a URL. `ca` is a certificate authority in PEM to trust instead of the system's.
    pub(super) fn parse(url: &str, ca: Option<&[u8]>) -> Result<Self, BadAddress> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| BadAddress("it has no `://`".to_owned()))?;
        let (plain, kind) = match scheme {
            "redis" => ("redis", Kind::Single),
            "rediss" => ("rediss", Kind::Single),
            "redis+cluster" => ("redis", Kind::Cluster),
            "rediss+cluster" => ("rediss", Kind::Cluster),
            other => return Err(BadAddress(format!("`{other}` is not a Redis URL scheme"))),
        };
        let urls = match kind {
            Kind::Single => vec![format!("{plain}://{rest}")],
            Kind::Cluster => cluster_urls(plain, rest),
        };
        let endpoints = urls.into_iter().map(|url| Endpoint::parse(&url, ca)).collect::<Result<Vec<_>, _>>()?;
        if kind == Kind::Cluster && endpoints.iter().any(|endpoint| endpoint.database() != 0) {
            return Err(BadAddress("a Cluster has only database 0".to_owned()));
        }
        Ok(Self { endpoints, kind })
    }
}

/// One URL for each host of `user:password@host:port,host:port`.
fn cluster_urls(scheme: &str, rest: &str) -> Vec<String> {
    let (credentials, hosts) = rest.rsplit_once('@').map_or(("", rest), |(credentials, hosts)| (credentials, hosts));
    let at = if credentials.is_empty() { "" } else { "@" };
    let hosts = hosts.trim_end_matches('/').split(',');
    hosts.map(|host| format!("{scheme}://{credentials}{at}{host}")).collect()
}

impl Endpoint {
    fn parse(url: &str, ca: Option<&[u8]>) -> Result<Self, BadAddress> {
        let info = url.into_connection_info().map_err(|error| BadAddress(error.to_string()))?;
        let redis = info.redis_settings().clone().set_skip_set_lib_name();
        let endpoint = Self { info: info.set_redis_settings(redis), ca: ca.map(<[u8]>::to_vec) };
        // An invalid certificate is found here and not at the first connection.
        endpoint.client().map_err(|error| BadAddress(error.to_string()))?;
        Ok(endpoint)
    }

    /// The same credentials and TLS settings at another host.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        Self { info: self.info.clone().set_addr(addr), ca: self.ca.clone() }
    }

    pub(super) fn client(&self) -> redis::RedisResult<Client> {
        match (self.info.addr(), &self.ca) {
            (ConnectionAddr::TcpTls { .. }, Some(ca)) => {
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) };
                Client::build_with_tls(self.info.clone(), certificates)
            }
            _ => Client::open(self.info.clone()),
        }
    }

    /// As [`Endpoint::client`], with this version of the protocol.
    pub(super) fn client_speaking(&self, protocol: ProtocolVersion) -> redis::RedisResult<Client> {
        let settings = self.info.redis_settings().clone().set_protocol(protocol);
        Self { info: self.info.clone().set_redis_settings(settings), ca: self.ca.clone() }.client()
    }

    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// The number of the server's database.
    pub(super) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }
}

/// Without credentials.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => write!(f, "{host}:{port}"),
            other => write!(f, "{other}"),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn named(url: &str) -> Vec<String> {
        Address::parse(url, None).unwrap().endpoints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn urls_name_servers() {
        assert_eq!(named("redis://127.0.0.1"), ["127.0.0.1:6379"]);
        assert_eq!(named("rediss://:secret@cache.example:7000/2"), ["cache.example:7000"]);
        assert_eq!(named("redis+cluster://a:1,b:2,c"), ["a:1", "b:2", "c:6379"]);
        assert_eq!(Address::parse("redis://x/3", None).unwrap().endpoints[0].database(), 3);
    }

    #[test]
    fn credentials_reach_every_host_and_no_log() {
        let address = Address::parse("redis+cluster://bob:p%40ss@a:1,b:2", None).unwrap();
        assert_eq!(address.kind, Kind::Cluster);
        for endpoint in &address.endpoints {
            let settings = endpoint.info.redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("bob"), Some("p@ss")));
        }
        assert!(["p@ss", "p%40ss", "bob"].iter().all(|secret| !format!("{address:?}").contains(secret)), "{address:?}");
        assert_eq!(address.endpoints[0].at("c", 9).to_string(), "c:9");
        assert_eq!(address.endpoints[0].at("c", 9).info.redis_settings().password(), Some("p@ss"));
    }

    #[test]
    fn invalid_address_error_hides_the_password() {
        for bad in ["", "localhost:6379", "http://secret@x", "redis+cluster://:secret@a/1", "redis://:secret@x/one"] {
            let error = Address::parse(bad, None).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(Address::parse("rediss://x", Some(b"-----BEGIN CERTIFICATE-----\nnone\n")).is_err());
    }
}
