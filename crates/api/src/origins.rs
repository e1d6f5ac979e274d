//! Pages of other origins: which of them a browser may let call this service, and what to tell the browser so.
//!
//! With a key, a page needs a token, so allowing an origin gives nobody a right; the list keeps strangers' pages from using
//! their visitors' network. Without one, whoever reaches the loopback is believed, so only pages of this machine are let in,
//! and those whose origin was written out: `*` names nobody, and any page of the web could be anybody.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderName, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::caller::Access;
use crate::problem::{Kind, Problem, Reply};

/// The origins whose pages are let in, beside our own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origins(Vec<String>);

/// Stands for every origin.
const ANY: &str = "*";

/// The origin of pages that have none: those opened from a file, and sandboxed frames of any site.
const NULL: &str = "null";

impl Origins {
    /// The word for an empty list.
    pub const NONE: &str = "none";

    /// Reads a list with commas between; `none` is the empty list. The error is a clause about what was set.
    pub fn from_text(text: &str) -> Result<Self, String> {
        if text == Self::NONE { Ok(Self::default()) } else { Self::from_list(text.split(',').map(str::trim)) }
    }

    /// Takes origins one by one. The error is a clause about what was set.
    pub fn from_list<'a>(origins: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let check = |origin: &str| match origin.split_once("://") {
            _ if origin == ANY || origin == NULL => Ok(origin.to_owned()),
            Some(("http" | "https", host)) if !host.is_empty() && !host.contains(['/', '?', '#', ' ']) => {
                Ok(origin.to_ascii_lowercase())
            }
            _ => {
                Err(format!("has `{origin}`, which is no origin such as https://app.example.com, nor `null`, nor `*`"))
            }
        };
        origins.into_iter().map(check).collect::<Result<_, _>>().map(Self)
    }

    /// The origins, one by one.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The origin of a request, if it came from a page that is let in.
    pub fn allowed<'h>(&self, access: &Access, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let text = origin.to_str().ok()?;
        let lets_in = match access {
            Access::Open => self.names(text) || is_local_page(text),
            Access::Keyed { .. } => self.names(text) || self.names(ANY),
        };
        lets_in.then_some(origin)
    }

    /// Without a key, whoever reaches the loopback is believed. A browser on this machine reaches it on behalf of any page
    /// it shows, so a request that another site's page made is refused unless its origin is listed, and one that came by a
    /// name made to point here is refused in any case.
    pub fn from_here(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let is_let_in = |origin: &str| self.names(origin) || is_local_page(origin);
        if text(HOST).is_none_or(is_local) && text(ORIGIN).is_none_or(is_let_in) {
            return Ok(());
        }
        let detail = "no key is configured, so only programs and pages of this machine are served, and pages whose origin \
                      `origins` names";
        Err(Problem::new(Kind::Forbidden, detail))
    }

    fn names(&self, origin: &str) -> bool {
        self.0.iter().any(|listed| listed == origin)
    }
}

/// Whether a browser asks beforehand what a page may do.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// What a page that is let in may do: everything that anybody may.
pub fn preflight(origin: &HeaderValue) -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::NO_CONTENT;
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, DELETE"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, last-event-id, rollcall-user"),
        // An hour: browsers ask again after two at the latest.
        (ACCESS_CONTROL_MAX_AGE, "3600"),
    ] {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    stamp(reply.headers_mut(), origin);
    reply
}

/// Lets the page of this origin read an answer.
pub fn stamp(headers: &mut HeaderMap, origin: &HeaderValue) {
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
            assert_eq!(listed.from_here(&asked("localhost:8080", origin)).is_ok(), lets, "{origin}");
        }
        assert_eq!(listed.from_here(&HeaderMap::new()), Ok(()), "a program has no origin");
    }

    #[test]
    fn open_access_ignores_the_wildcard() {
        let all = Origins::from_text("*").unwrap();
        for origin in ["https://evil.example", "null"] {
            assert!(all.allowed(&Access::Open, &from(origin)).is_none(), "{origin}");
        }
        assert!(all.from_here(&asked("localhost:8080", "https://evil.example")).is_err());
        assert!(all.from_here(&asked("localhost:8080", "null")).is_err());
        assert!(all.from_here(&asked("localhost:8080", "http://localhost:8080")).is_ok());
    }

    #[test]
    fn dns_rebinding_is_refused() {
        let listed = Origins::from_text("null,http://rebound.example:8080").unwrap();
        for origin in ["null", "http://rebound.example:8080", "http://localhost:8080"] {
            assert!(listed.from_here(&asked("rebound.example:8080", origin)).is_err(), "{origin}");
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
