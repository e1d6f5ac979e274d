//! CORS: which origins may call this service from a browser.
//!
//! With a key, a page needs a token, so allowing an origin grants no permission; the list keeps other sites' pages from
//! using their visitors' network access. Without a key, every caller on the loopback is trusted, so only local pages and
//! listed origins are allowed. `*` then allows none, because any page on the web could act as any user.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderName, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::caller::Access;
use crate::problem::{Kind, Problem, Reply};

/// The allowed origins, besides our own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origins(Vec<String>);

/// Means every origin.
const ANY: &str = "*";

/// The origin of pages opened from a file, and of sandboxed frames of any site.
const NULL: &str = "null";

impl Origins {
    /// Means an empty list.
    pub const NONE: &str = "none";

    /// Parses a comma-separated list; `none` is the empty list. The error is a clause about the setting.
    pub fn from_text(text: &str) -> Result<Self, String> {
        if text == Self::NONE { Ok(Self::default()) } else { Self::from_list(text.split(',').map(str::trim)) }
    }

    /// Parses origins one by one. The error is a clause about the setting.
    pub fn from_list<'a>(origins: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let check = |origin: &str| match origin.split_once("://") {
            _ if origin == ANY || origin == NULL => Ok(origin.to_owned()),
            Some(("http" | "https", host)) if !host.is_empty() && !host.contains(['/', '?', '#', ' ']) => {
                Ok(origin.to_ascii_lowercase())
            }
            _ => Err(format!(
                "contains `{origin}`; each must be an origin such as https://app.example.com, or `null`, or `*`"
            )),
        };
        origins.into_iter().map(check).collect::<Result<_, _>>().map(Self)
    }

    /// The origins, one by one.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The origin of a request, if it is allowed.
    pub fn allowed<'h>(&self, access: &Access, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let text = origin.to_str().ok()?;
        let is_allowed = match access {
            Access::Open => self.names(text) || is_local_page(text),
            Access::Keyed { .. } => self.names(text) || self.names(ANY),
        };
        is_allowed.then_some(origin)
    }

    /// Without a key, every caller on the loopback is trusted. A browser on this machine sends requests for any page it
    /// shows, so a request from another site's page is refused unless its origin is listed, and one whose `Host` is not
    /// local (DNS rebinding) is refused in any case.
    pub fn check_local(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let is_allowed = |origin: &str| self.names(origin) || is_local_page(origin);
        if text(HOST).is_none_or(is_local) && text(ORIGIN).is_none_or(is_allowed) {
            return Ok(());
        }
        let detail = "no key is configured, so only programs and pages of this machine are served, and pages whose origin is \
                      listed in `origins`";
        Err(Problem::new(Kind::Forbidden, detail))
    }

    fn names(&self, origin: &str) -> bool {
        self.0.iter().any(|listed| listed == origin)
    }
}

/// Whether this is a CORS preflight request.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The response to a preflight request: an allowed page may use the whole API.
pub fn preflight(origin: &HeaderValue) -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::NO_CONTENT;
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, DELETE"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, last-event-id, rollcall-user"),
        // An hour; browsers cap it at two.
        (ACCESS_CONTROL_MAX_AGE, "3600"),
    ] {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    allow_origin(reply.headers_mut(), origin);
    reply
}

/// Lets pages of this origin read the response.
pub fn allow_origin(headers: &mut HeaderMap, origin: &HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
    headers.append(VARY, HeaderValue::from_static("origin"));
}

fn is_local_page(origin: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, authority)| is_local(authority))
}

fn is_local(authority: &str) -> bool {
    let name = authority.strip_prefix('[').and_then(|rest| rest.split(']').next());
    let name = name.or_else(|| authority.split(':').next()).unwrap_or_default();
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::{Expect, Keys};

    fn from(origin: &'static str) -> HeaderMap {
        [(ORIGIN, HeaderValue::from_static(origin))].into_iter().collect()
    }

    #[test]
    fn open_access_allows_only_local_pages() {
        let none = Origins::default();
        for (origin, lets) in [
            ("http://localhost:5173", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:80", true),
            ("https://evil.example", false),
            ("http://localhost.evil.example", false),
            ("null", false),
        ] {
            assert_eq!(none.allowed(&Access::Open, &from(origin)).is_some(), lets, "{origin}");
        }
        assert_eq!(none.allowed(&Access::Open, &HeaderMap::new()), None);
    }

    fn asked(host: &'static str, origin: &'static str) -> HeaderMap {
        let mut headers = from(origin);
        headers.insert(HOST, HeaderValue::from_static(host));
        headers
    }

    #[test]
    fn open_access_allows_a_listed_page() {
        let listed = Origins::from_text("null,https://app.example.com").unwrap();
        for (origin, lets) in [
            ("null", true),
            ("https://app.example.com", true),
            ("http://localhost:5173", true),
            ("https://evil.example", false),
            ("https://app.example.com.evil.example", false),
            ("", false),
        ] {
            assert_eq!(listed.allowed(&Access::Open, &from(origin)).is_some(), lets, "{origin}");
            assert_eq!(listed.check_local(&asked("localhost:8080", origin)).is_ok(), lets, "{origin}");
        }
        assert_eq!(listed.check_local(&HeaderMap::new()), Ok(()), "a program has no origin");
    }

    #[test]
    fn open_access_ignores_the_wildcard() {
        let all = Origins::from_text("*").unwrap();
        for origin in ["https://evil.example", "null"] {
            assert!(all.allowed(&Access::Open, &from(origin)).is_none(), "{origin}");
        }
        assert!(all.check_local(&asked("localhost:8080", "https://evil.example")).is_err());
        assert!(all.check_local(&asked("localhost:8080", "null")).is_err());
        assert!(all.check_local(&asked("localhost:8080", "http://localhost:8080")).is_ok());
    }

    #[test]
    fn dns_rebinding_is_refused() {
        let listed = Origins::from_text("null,http://rebound.example:8080").unwrap();
        for origin in ["null", "http://rebound.example:8080", "http://localhost:8080"] {
            assert!(listed.check_local(&asked("rebound.example:8080", origin)).is_err(), "{origin}");
        }
    }

    #[test]
    fn keyed_access_follows_the_list() {
        let keys = Keys::from_text("0123456789abcdef0123456789abcdef").unwrap();
        let keyed = Access::Keyed { keys, expect: Expect::default() };
        let listed = Origins::from_text("https://app.example.com,http://localhost:3000").unwrap();
        assert!(listed.allowed(&keyed, &from("https://app.example.com")).is_some());
        assert!(listed.allowed(&keyed, &from("http://localhost:3001")).is_none());
        assert!(Origins::from_text("*").unwrap().allowed(&keyed, &from("https://anything.example")).is_some());
        assert!(Origins::default().allowed(&keyed, &from("http://localhost:3000")).is_none());
        assert!(Origins::default().allowed(&keyed, &from("null")).is_none());
        assert!(Origins::from_text("null").unwrap().allowed(&keyed, &from("null")).is_some());
    }

    #[test]
    fn malformed_origin_is_refused() {
        for bad in ["", "app.example.com", "https://", "https://a.example/path", "ftp://a.example", "https://a b"] {
            assert!(Origins::from_text(bad).is_err(), "{bad}");
        }
        assert_eq!(Origins::from_text("none"), Ok(Origins::default()));
    }
}
