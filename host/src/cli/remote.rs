//! A client of a host, for `watch` and `top`: address, identity, requests.
//!
//! Deliberately absent: a connection pool (one request per second needs none), proxies, and redirects.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rollcall_api::ROLLCALL_USER;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Error as Refusal;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::terminal::escape_controls;

/// How long connecting may take, and then the response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The variable with a token. On a command line, other users of the machine would see it.
const TOKEN_VARIABLE: &str = "ROLLCALL_TOKEN";

/// The user of requests without token and name. Watching sends no heartbeat.
const DEFAULT_USER: &str = "operator";

/// The host, and the caller's identity.
#[derive(Debug, Clone, Args)]
pub struct RemoteArgs {
    /// The host's URL: http://… or https://…
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = Address::parse)]
    pub url: Address,
    /// The calling user, if the host requires no token
    #[arg(long = "as", value_name = "NAME", conflicts_with = "token")]
    pub as_user: Option<String>,
    /// The token; better in ROLLCALL_TOKEN, where other users of this machine do not see it
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
}

/// The address of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The URL without a trailing slash.
    text: String,
    name: String,
    port: u16,
    is_secure: bool,
}

impl Address {
    /// Parses a URL. The error is a clause that follows it.
    fn parse(text: &str) -> Result<Self, String> {
        let no_host = || "is not a URL of a host, such as http://127.0.0.1:8080".to_owned();
        let uri: Uri = text.parse().map_err(|_| no_host())?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(no_host()),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("has a path or a query, which a host's URL must not have".to_owned());
        }
        let name = uri.host().filter(|name| !name.is_empty()).ok_or_else(no_host)?;
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { text: text.trim_end_matches('/').to_owned(), name, port, is_secure })
    }

    /// The URL.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Host and port, for the header `Host`.
    fn authority(&self) -> &str {
        self.text.split_once("://").map_or(self.text.as_str(), |(_, authority)| authority)
    }
}

/// Why a request failed. Displayed without control characters, because part of the text comes from the host.
#[derive(Debug, Error)]
pub(super) enum RemoteError {
    /// The host refuses; a retry would not help.
    #[error("{}", escape_controls(.0))]
    Refused(String),
    /// The host is unreachable or unavailable.
    #[error("{}", escape_controls(.0))]
    Unavailable(String),
}

impl RemoteError {
    /// The error for a response that is no success, with the problem's text if it has one.
    pub(super) fn answered(status: StatusCode, body: &[u8]) -> Self {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let words = ["title", "detail"].map(|member| problem.get(member).and_then(Value::as_str));
        let words: Vec<&str> = words.into_iter().flatten().collect();
        let said = if words.is_empty() { format!("the host answered {status}") } else { words.join(": ") };
        let is_final = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
        if is_final { Self::Refused(said) } else { Self::Unavailable(said) }
    }
}

/// What carries a connection: plain TCP, or TLS on it.
pub(super) trait Carrier: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Carrier for T {}

/// A socket to a host.
pub(super) type Socket = WebSocketStream<Box<dyn Carrier>>;

/// A host, and who looks at it.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) address: Address,
    /// The header that says who is looking.
    identity: (HeaderName, HeaderValue),
    tls: Option<Arc<ClientConfig>>,
}

impl Remote {
    pub(super) fn new(args: &RemoteArgs) -> Result<Self, RemoteError> {
        let token = args.token.clone().or_else(|| std::env::var(TOKEN_VARIABLE).ok());
        let (name, value) = match (&args.as_user, token) {
            (None, Some(token)) => (AUTHORIZATION, format!("Bearer {}", token.trim())),
            (user, _) => (ROLLCALL_USER, user.clone().unwrap_or_else(|| DEFAULT_USER.to_owned())),
        };
        let unfit = |_| {
            RemoteError::Refused("the user name or token contains a character that is invalid in a header".to_owned())
        };
        let identity = (name, HeaderValue::try_from(value).map_err(unfit)?);
        let address = args.url.clone();
        let tls = if address.is_secure { Some(Arc::new(tls()?)) } else { None };
        Ok(Self { address, identity, tls })
    }

    /// Requests a path. Returns the body of a successful response.
    pub(super) async fn get(&self, path: &str) -> Result<Bytes, RemoteError> {
        let (name, value) = &self.identity;
        let request = Request::get(path).header(HOST, self.address.authority()).header(name, value);
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| self.unreachable(error))?;
        let stream = TokioIo::new(self.connect().await?);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| self.unreachable(error))?;
        let connection = tokio::spawn(connection);
        let ask = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        let answer = timeout(TIMEOUT, ask).await;
        connection.abort();
        let (status, body) = answer.map_err(|_| self.timed_out())?.map_err(|error| self.unreachable(error))?;
        if status.is_success() { Ok(body) } else { Err(RemoteError::answered(status, &body)) }
    }

    /// Opens a WebSocket.
    pub(super) async fn socket(&self, path: &str) -> Result<Socket, RemoteError> {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        let request = format!("{scheme}://{}{path}", self.address.authority()).into_client_request();
        let mut request = request.map_err(|error| self.unreachable(error))?;
        let (name, value) = self.identity.clone();
        request.headers_mut().insert(name, value);
        let opening = client_async(request, self.connect().await?);
        match timeout(TIMEOUT, opening).await {
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(Refusal::Http(answer))) => {
                Err(RemoteError::answered(answer.status(), answer.body().as_deref().unwrap_or_default()))
            }
            Ok(Err(error)) => Err(self.unreachable(error)),
            Err(_) => Err(self.timed_out()),
        }
    }

    async fn connect(&self) -> Result<Box<dyn Carrier>, RemoteError> {
        let Address { name, port, .. } = &self.address;
        let connecting = TcpStream::connect((name.as_str(), *port));
        let stream = timeout(TIMEOUT, connecting).await.map_err(|_| self.timed_out())?;
        let stream = stream.map_err(|error| self.unreachable(error))?;
        // Small requests must not wait for more data.
        let _ = stream.set_nodelay(true);
        let Some(config) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(name.clone()).map_err(|error| RemoteError::Refused(error.to_string()))?;
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        let stream = timeout(TIMEOUT, handshake).await.map_err(|_| self.timed_out())?;
        Ok(Box::new(stream.map_err(|error| self.unreachable(error))?))
    }

    fn unreachable(&self, reason: impl std::fmt::Display) -> RemoteError {
        RemoteError::Unavailable(format!("{} cannot be reached: {reason}", self.address.as_str()))
    }

    fn timed_out(&self) -> RemoteError {
        RemoteError::Unavailable(format!("{} does not answer", self.address.as_str()))
    }
}

/// TLS with the certificate authorities of this system.
fn tls() -> Result<ClientConfig, RemoteError> {
    let refused = |reason: String| RemoteError::Refused(format!("cannot use TLS: {reason}"));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(refused("this system has no certificate authorities; install `ca-certificates`".to_owned()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| refused(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn address_has_scheme_host_and_port() {
        for (text, name, port, is_secure) in [
            ("http://127.0.0.1:8080", "127.0.0.1", 8080, false),
            ("http://localhost/", "localhost", 80, false),
            ("https://presence.example.com", "presence.example.com", 443, true),
            ("http://[::1]:8080", "::1", 8080, false),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.name.as_str(), address.port, address.is_secure), (name, port, is_secure));
            assert_eq!(address.as_str(), text.trim_end_matches('/'));
        }
        for bad in
            ["", "localhost:8080", "ws://localhost", "http://", "http://localhost/v1", "http://a?b=c", "http://a b"]
        {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refusal_shows_the_problems_text() {
        let body = br#"{"type":"urn:x","title":"Not allowed","status":403,"detail":"this needs the scope `admin`"}"#;
        let trouble = RemoteError::answered(StatusCode::FORBIDDEN, body);
        assert!(matches!(&trouble, RemoteError::Refused(said) if said == "Not allowed: this needs the scope `admin`"));
        let trouble = RemoteError::answered(StatusCode::BAD_GATEWAY, b"<html>");
        assert!(matches!(&trouble, RemoteError::Unavailable(said) if said == "the host answered 502 Bad Gateway"));
        assert!(
            matches!(RemoteError::answered(StatusCode::TOO_MANY_REQUESTS, b""), RemoteError::Unavailable(_)),
            "a retry may help"
        );
        let trouble = RemoteError::answered(StatusCode::FORBIDDEN, br#"{"title":"No\u001b[2J"}"#);
        assert_eq!(trouble.to_string(), "No\u{fffd}[2J", "without control characters");
    }
}
