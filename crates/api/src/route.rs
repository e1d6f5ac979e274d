//! Which request is this? One table says what exists; routing, the OpenAPI document and the metrics' labels follow it.
//!
//! Deliberately absent: patterns and a tree. Nineteen comparisons, of which nearly all end at the length, take less
//! time than hashing the path would.

use http::Method;

use crate::problem::{Kind, Problem};
use crate::{Limits, ROUTES};

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route<'a> {
    /// About the server itself: no caller, no body, no function.
    Page(Page),
    /// A call of a function.
    Function(Function<'a>),
}

/// What the server says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Is the process alive?
    Healthz,
    /// Would a request succeed?
    Readyz,
    /// Prometheus metrics.
    Metrics,
    /// This API, described.
    OpenApi,
}

/// What a caller can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function<'a> {
    /// One sign of life.
    Heartbeat,
    /// Many.
    Heartbeats,
    /// A device leaves.
    Leave,
    /// A person's own setting.
    PutStatus,
    /// Its end.
    DeleteStatus,
    /// One person, by the path: the id as it stands there, percent-escapes and all.
    PresenceOne(&'a str),
    /// Several people, by the query.
    PresenceQuery,
    /// Many people, by the body.
    PresencePost,
    /// Several people, answered in the compact form.
    PresenceBatch,
    /// Watch people and conversations by server-sent events.
    Subscribe,
    /// Watch, beat and type by WebSocket.
    Socket,
    /// Who types in a conversation, by the path: the id as it stands there.
    Typists(&'a str),
    /// A person types in it.
    PutTyping(&'a str),
    /// They stopped.
    DeleteTyping(&'a str),
    /// Settle who is due.
    Sweep,
}

/// One line of the table.
#[derive(Debug)]
pub struct Entry {
    /// By which method.
    pub method: Method,
    /// At which path, as OpenAPI writes it.
    pub template: &'static str,
    /// What it is; a part that comes from the path is empty.
    pub route: Route<'static>,
}

impl Entry {
    /// The route, if the path is this entry's.
    fn matches<'a>(&self, path: &'a str) -> Option<Route<'a>> {
        let prefix = match self.route {
            Route::Function(Function::PresenceOne(_)) => "/v1/presence/",
            Route::Function(Function::Typists(_) | Function::PutTyping(_) | Function::DeleteTyping(_)) => "/v1/typing/",
            route => return (self.template == path).then_some(route),
        };
        let part = path.strip_prefix(prefix).filter(|part| !part.contains('/'))?;
        Some(self.route.with_part(part))
    }

    /// Whether this method is the entry's. HEAD is where GET is, except where the answer is a connection that stays: there
    /// is nothing to say about that without opening it.
    fn takes(&self, method: &Method) -> bool {
        self.method == *method || (self.takes_head() && method == Method::HEAD)
    }

    fn takes_head(&self) -> bool {
        let stays = matches!(self.route, Route::Function(Function::Subscribe | Function::Socket));
        self.method == Method::GET && !stays
    }
}

impl<'a> Route<'a> {
    /// The same route with another part from the path, if it has one.
    fn with_part(self, part: &'a str) -> Self {
        match self {
            Route::Function(Function::PresenceOne(_)) => Route::Function(Function::PresenceOne(part)),
            Route::Function(Function::Typists(_)) => Route::Function(Function::Typists(part)),
            Route::Function(Function::PutTyping(_)) => Route::Function(Function::PutTyping(part)),
            Route::Function(Function::DeleteTyping(_)) => Route::Function(Function::DeleteTyping(part)),
            whole => whole,
        }
    }

    /// The path's template: a label with few values, for metrics and logs.
    pub fn template(&self) -> &'static str {
        let listed = self.with_part("");
        ROUTES.iter().find(|entry| entry.route == listed).map_or("", |entry| entry.template)
    }
}

impl Function<'_> {
    /// The most bytes of its body; 0: it takes none, and a body need not be read.
    pub fn body_limit(&self, limits: &Limits) -> usize {
        match self {
            Function::Heartbeat | Function::Leave | Function::PutStatus | Function::PutTyping(_) | Function::Sweep => {
                limits.body_bytes
            }
            Function::Heartbeats | Function::PresencePost => limits.batch_body_bytes,
            Function::DeleteStatus
            | Function::PresenceOne(_)
            | Function::PresenceQuery
            | Function::PresenceBatch
            | Function::Subscribe
            | Function::Socket
            | Function::Typists(_)
            | Function::DeleteTyping(_) => 0,
        }
    }

    /// The query keys that it understands, beside those that name the caller; at most `MAX_KEYS`.
    pub(crate) fn query_keys(&self) -> &'static [&'static str] {
        match self {
            Function::PresenceQuery => &["users"],
            Function::PresenceBatch => &["user_ids"],
            Function::DeleteStatus | Function::DeleteTyping(_) => &["user"],
            Function::Subscribe => &["users", "conversations", "device", "kind", "active", "watch_only", "since"],
            Function::Socket => &["device", "kind", "active", "watch_only"],
            Function::Heartbeat
            | Function::Heartbeats
            | Function::Leave
            | Function::PutStatus
            | Function::PresenceOne(_)
            | Function::PresencePost
            | Function::Typists(_)
            | Function::PutTyping(_)
            | Function::Sweep => &[],
        }
    }
}

/// Finds the route. HEAD finds what GET finds, except a connection that stays: whoever sends the answer leaves its body
/// out.
pub fn route<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, Problem> {
    let mut known = false;
    for entry in &ROUTES {
        if let Some(route) = entry.matches(path) {
            if entry.takes(method) {
                return Ok(route);
            }
            known = true;
        }
    }
    Err(if known { wrong_method(path) } else { Problem::new(Kind::NotFound, "there is no such path") })
}

fn wrong_method(path: &str) -> Problem {
    let mut allowed: Vec<&str> = Vec::new();
    for entry in ROUTES.iter().filter(|entry| entry.matches(path).is_some()) {
        allowed.push(entry.method.as_str());
        if entry.takes_head() {
            allowed.push("HEAD");
        }
    }
    let allow = allowed.join(", ");
    Problem { allow: Some(allow.clone()), ..Problem::new(Kind::WrongMethod, format!("this path takes {allow}")) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use http::header::ALLOW;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_route_of_the_table_is_found() {
        for entry in &ROUTES {
            let path = entry.template.replace("{user}", "bob%2F1").replace("{conversation}", "bob%2F1");
            let found = route(&entry.method, &path).unwrap();
            assert_eq!(found.template(), entry.template);
            match found {
                Route::Function(
                    Function::PresenceOne(part)
                    | Function::Typists(part)
                    | Function::PutTyping(part)
                    | Function::DeleteTyping(part),
                ) => assert_eq!(part, "bob%2F1"),
                found => assert_eq!(found, entry.route),
            }
        }
    }

    #[test]
    fn an_unknown_path_is_not_found() {
        for path in [
            "",
            "/",
            "/v1",
            "/v1/heartbeat/",
            "/V1/heartbeat",
            "/v1/presence/a/b",
            "/v2/heartbeat",
            "/v1/typing",
            "/v1/typing/a/b",
            "/v1/socket/",
        ] {
            assert_eq!(route(&Method::POST, path).unwrap_err().status(), 404, "{path}");
        }
    }

    #[test]
    fn a_known_path_by_another_method_says_which_would_do() {
        for (method, path, allow) in [
            (Method::GET, "/v1/heartbeat", "POST"),
            (Method::POST, "/v1/status", "PUT, DELETE"),
            (Method::DELETE, "/v1/presence", "GET, HEAD, POST"),
            (Method::PUT, "/v1/presence/bob", "GET, HEAD"),
            (Method::POST, "/v1/typing/c1", "PUT, DELETE, GET, HEAD"),
            (Method::POST, "/v1/subscribe", "GET"),
            (Method::HEAD, "/v1/socket", "GET"),
            (Method::OPTIONS, "/healthz", "GET, HEAD"),
        ] {
            let reply = route(&method, path).unwrap_err().into_reply();
            assert_eq!(reply.status(), 405);
            assert_eq!(reply.headers()[ALLOW], allow);
        }
    }

    #[test]
    fn head_finds_what_get_finds() {
        assert_eq!(route(&Method::HEAD, "/healthz"), Ok(Route::Page(Page::Healthz)));
        assert!(route(&Method::HEAD, "/v1/typing/c1").is_ok());
        assert_eq!(route(&Method::HEAD, "/v1/heartbeat").unwrap_err().status(), 405);
    }

    #[test]
    fn head_opens_no_connection_that_stays() {
        for path in ["/v1/subscribe", "/v1/socket"] {
            assert!(route(&Method::GET, path).is_ok());
            assert_eq!(route(&Method::HEAD, path).unwrap_err().status(), 405);
        }
    }

    #[test]
    fn only_what_takes_a_body_has_room_for_one() {
        let limits = Limits::default();
        for entry in &ROUTES {
            if let Route::Function(function) = entry.route {
                let takes = matches!(entry.method, Method::POST | Method::PUT);
                assert_eq!(function.body_limit(&limits) > 0, takes, "{}", entry.template);
            }
        }
    }

    proptest! {
        #[test]
        fn routing_never_panics(method in "[A-Z]{1,8}", path in any::<String>(), tail in any::<String>()) {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            for path in [path, format!("/v1/presence/{tail}"), format!("/v1/typing/{tail}")] {
                if let Ok(found) = route(&method, &path) {
                    prop_assert!(!found.template().is_empty());
                }
            }
        }
    }
}
