//! The table of routes. Routing, the OpenAPI document and the labels of metrics follow it.
//!
//! Deliberately absent: patterns and a tree. About thirty comparisons, nearly all of which end at the length, take less
//! time than hashing the path. A fixed path and one with a parameter may overlap: the method then decides, so that an
//! account named `check` has its restriction like any other.

use http::Method;

use crate::Limits;
use crate::call::List;
use crate::problem::{Kind, Problem};

/// The target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route<'a> {
    /// A page about the server itself: no caller, no body, no function.
    Page(Page),
    /// A call of a function.
    Function(Function<'a>),
}

/// A page about the server itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Whether the process is alive.
    Healthz,
    /// Whether a request would succeed.
    Readyz,
    /// Prometheus metrics.
    Metrics,
    /// The OpenAPI document.
    OpenApi,
}

/// An operation of the API. Ids from the path are still percent-encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function<'a> {
    /// One heartbeat.
    Heartbeat,
    /// Many heartbeats.
    Heartbeats,
    /// A device leaves.
    Leave,
    /// Set the status.
    PutStatus,
    /// Remove the status.
    DeleteStatus,
    /// One user, named in the path.
    PresenceOne(&'a str),
    /// Several users, listed in the query.
    PresenceQuery,
    /// Many users, listed in the body.
    PresencePost,
    /// Several users, in the compact form.
    PresenceBatch,
    /// Watch users and conversations by server-sent events.
    Subscribe,
    /// Watch, beat and type by WebSocket.
    Socket,
    /// List who is typing in a conversation.
    Typists(&'a str),
    /// Start or continue typing.
    PutTyping(&'a str),
    /// Stop typing.
    DeleteTyping(&'a str),
    /// Read the privacy settings.
    Privacy,
    /// Set the privacy settings.
    PutPrivacy,
    /// Read contacts or blocks.
    Listed(List),
    /// Add the user named in the path.
    PutListed(List, &'a str),
    /// Remove the user named in the path.
    DeleteListed(List, &'a str),
    /// Read whether the account named in the path is restricted.
    Restriction(&'a str),
    /// Restrict it.
    PutRestriction(&'a str),
    /// Lift the restriction.
    DeleteRestriction(&'a str),
    /// Check visibility, with the reason.
    Check,
    /// Many policy changes.
    Changes,
    /// Settle users who are due.
    Sweep,
    /// Counters of the host.
    Stats,
    /// Everything about the user named in the path.
    Person(&'a str),
}

/// All routes, the busiest first. Add a route here first; the tests then require the rest.
pub static ROUTES: [Entry; 34] = [
    function(Method::POST, "/v1/heartbeat", Function::Heartbeat),
    function(Method::POST, "/v1/heartbeats", Function::Heartbeats),
    function(Method::GET, "/v1/presence/{user}", Function::PresenceOne("")),
    function(Method::GET, "/v1/presence", Function::PresenceQuery),
    function(Method::POST, "/v1/presence", Function::PresencePost),
    function(Method::GET, "/presence/batch", Function::PresenceBatch),
    function(Method::POST, "/v1/leave", Function::Leave),
    function(Method::PUT, "/v1/status", Function::PutStatus),
    function(Method::DELETE, "/v1/status", Function::DeleteStatus),
    function(Method::PUT, "/v1/typing/{conversation}", Function::PutTyping("")),
    function(Method::DELETE, "/v1/typing/{conversation}", Function::DeleteTyping("")),
    function(Method::GET, "/v1/typing/{conversation}", Function::Typists("")),
    function(Method::GET, "/v1/subscribe", Function::Subscribe),
    function(Method::GET, "/v1/socket", Function::Socket),
    function(Method::POST, "/v1/restrictions/check", Function::Check),
    function(Method::GET, "/v1/privacy", Function::Privacy),
    function(Method::PUT, "/v1/privacy", Function::PutPrivacy),
    function(Method::GET, "/v1/contacts", Function::Listed(List::Contacts)),
    function(Method::PUT, "/v1/contacts/{other}", Function::PutListed(List::Contacts, "")),
    function(Method::DELETE, "/v1/contacts/{other}", Function::DeleteListed(List::Contacts, "")),
    function(Method::GET, "/v1/blocks", Function::Listed(List::Blocks)),
    function(Method::PUT, "/v1/blocks/{other}", Function::PutListed(List::Blocks, "")),
    function(Method::DELETE, "/v1/blocks/{other}", Function::DeleteListed(List::Blocks, "")),
    function(Method::POST, "/v1/policy", Function::Changes),
    function(Method::GET, "/v1/restrictions/{user}", Function::Restriction("")),
    function(Method::PUT, "/v1/restrictions/{user}", Function::PutRestriction("")),
    function(Method::DELETE, "/v1/restrictions/{user}", Function::DeleteRestriction("")),
    function(Method::POST, "/v1/sweep", Function::Sweep),
    function(Method::GET, "/v1/stats", Function::Stats),
    function(Method::GET, "/v1/people/{user}", Function::Person("")),
    page("/healthz", Page::Healthz),
    page("/readyz", Page::Readyz),
    page("/metrics", Page::Metrics),
    page("/openapi.json", Page::OpenApi),
];

const fn function(method: Method, template: &'static str, function: Function<'static>) -> Entry {
    Entry { method, template, route: Route::Function(function) }
}

const fn page(template: &'static str, page: Page) -> Entry {
    Entry { method: Method::GET, template, route: Route::Page(page) }
}

/// One row of the table.
#[derive(Debug)]
pub struct Entry {
    /// The method.
    pub method: Method,
    /// The path template of OpenAPI.
    pub template: &'static str,
    /// The route; a parameter from the path is empty.
    pub route: Route<'static>,
}

impl Entry {
    /// The route, if the path matches.
    fn matches<'a>(&self, path: &'a str) -> Option<Route<'a>> {
        let prefix = match self.route {
            Route::Function(function) => function.prefix(),
            Route::Page(_) => None,
        };
        let Some(prefix) = prefix else { return (self.template == path).then_some(self.route) };
        let part = path.strip_prefix(prefix).filter(|part| !part.contains('/'))?;
        Some(self.route.with_part(part))
    }

    /// Whether the method matches. HEAD matches GET, except for streams and sockets, which have no head without being
    /// opened.
    fn takes(&self, method: &Method) -> bool {
        self.method == *method || (self.takes_head() && method == Method::HEAD)
    }

    fn takes_head(&self) -> bool {
        let stays_open = matches!(self.route, Route::Function(Function::Subscribe | Function::Socket));
        self.method == Method::GET && !stays_open
    }
}

impl<'a> Route<'a> {
    /// The same route with this parameter from the path, if it has one.
    pub(crate) fn with_part(self, part: &'a str) -> Self {
        let Route::Function(function) = self else { return self };
        Route::Function(match function {
            Function::PresenceOne(_) => Function::PresenceOne(part),
            Function::Typists(_) => Function::Typists(part),
            Function::PutTyping(_) => Function::PutTyping(part),
            Function::DeleteTyping(_) => Function::DeleteTyping(part),
            Function::PutListed(list, _) => Function::PutListed(list, part),
            Function::DeleteListed(list, _) => Function::DeleteListed(list, part),
            Function::Restriction(_) => Function::Restriction(part),
            Function::PutRestriction(_) => Function::PutRestriction(part),
            Function::DeleteRestriction(_) => Function::DeleteRestriction(part),
            Function::Person(_) => Function::Person(part),
            whole => whole,
        })
    }

    /// The path template: a label of low cardinality for metrics and logs.
    pub fn template(&self) -> &'static str {
        let listed = self.with_part("");
        ROUTES.iter().find(|entry| entry.route == listed).map_or("", |entry| entry.template)
    }
}

impl Function<'_> {
    /// The path before the parameter, if there is one.
    fn prefix(&self) -> Option<&'static str> {
        match self {
            Function::PresenceOne(_) => Some("/v1/presence/"),
            Function::Typists(_) | Function::PutTyping(_) | Function::DeleteTyping(_) => Some("/v1/typing/"),
            Function::PutListed(List::Contacts, _) | Function::DeleteListed(List::Contacts, _) => Some("/v1/contacts/"),
            Function::PutListed(List::Blocks, _) | Function::DeleteListed(List::Blocks, _) => Some("/v1/blocks/"),
            Function::Restriction(_) | Function::PutRestriction(_) | Function::DeleteRestriction(_) => {
                Some("/v1/restrictions/")
            }
            Function::Person(_) => Some("/v1/people/"),
            Function::Heartbeat
            | Function::Heartbeats
            | Function::Leave
            | Function::PutStatus
            | Function::DeleteStatus
            | Function::PresenceQuery
            | Function::PresencePost
            | Function::PresenceBatch
            | Function::Subscribe
            | Function::Socket
            | Function::Privacy
            | Function::PutPrivacy
            | Function::Listed(_)
            | Function::Check
            | Function::Changes
            | Function::Sweep
            | Function::Stats => None,
        }
    }

    /// The most bytes of a body; 0: it takes none, and a body need not be read.
    pub fn body_limit(&self, limits: &Limits) -> usize {
        match self {
            Function::Heartbeat
            | Function::Leave
            | Function::PutStatus
            | Function::PutTyping(_)
            | Function::PutPrivacy
            | Function::PutListed(..)
            | Function::PutRestriction(_)
            | Function::Sweep => limits.body_bytes,
            Function::Heartbeats | Function::PresencePost | Function::Check | Function::Changes => {
                limits.batch_body_bytes
            }
            Function::DeleteStatus
            | Function::PresenceOne(_)
            | Function::PresenceQuery
            | Function::PresenceBatch
            | Function::Subscribe
            | Function::Socket
            | Function::Typists(_)
            | Function::DeleteTyping(_)
            | Function::Privacy
            | Function::Listed(_)
            | Function::DeleteListed(..)
            | Function::Restriction(_)
            | Function::DeleteRestriction(_)
            | Function::Stats
            | Function::Person(_) => 0,
        }
    }

    /// The query keys, besides those that identify the caller; at most `MAX_KEYS`.
    pub(crate) fn query_keys(&self) -> &'static [&'static str] {
        match self {
            Function::PresenceQuery => &["users"],
            Function::PresenceBatch => &["user_ids"],
            Function::DeleteStatus
            | Function::DeleteTyping(_)
            | Function::Privacy
            | Function::Listed(_)
            | Function::DeleteListed(..) => &["user"],
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
            | Function::PutPrivacy
            | Function::PutListed(..)
            | Function::Restriction(_)
            | Function::PutRestriction(_)
            | Function::DeleteRestriction(_)
            | Function::Check
            | Function::Changes
            | Function::Sweep
            | Function::Stats
            | Function::Person(_) => &[],
        }
    }
}

/// Finds the route. HEAD matches GET except for streams and sockets; the transport then leaves out the body.
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
    Err(if known { wrong_method(path) } else { Problem::new(Kind::NotFound, "no such path") })
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
    fn every_route_is_found() {
        for entry in &ROUTES {
            let path = ["{user}", "{other}", "{conversation}"]
                .iter()
                .fold(entry.template.to_owned(), |path, part| path.replace(part, "bob%2F1"));
            let found = route(&entry.method, &path).unwrap();
            assert_eq!(found.template(), entry.template);
            match found {
                Route::Function(
                    Function::PresenceOne(part)
                    | Function::Typists(part)
                    | Function::PutTyping(part)
                    | Function::DeleteTyping(part)
                    | Function::PutListed(_, part)
                    | Function::DeleteListed(_, part)
                    | Function::Restriction(part)
                    | Function::PutRestriction(part)
                    | Function::DeleteRestriction(part)
                    | Function::Person(part),
                ) => assert_eq!(part, "bob%2F1"),
                found => assert_eq!(found, entry.route),
            }
        }
    }

    #[test]
    fn unknown_path_is_not_found() {
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
            "/v1/privacy/",
            "/v1/contacts/a/b",
            "/v1/blocks/a/",
            "/v1/restrictions",
            "/v1/restrictions/check/",
            "/v1/policy/bob",
            "/v1/stats/",
            "/v1/people",
            "/v1/people/a/b",
        ] {
            assert_eq!(route(&Method::POST, path).unwrap_err().status(), 404, "{path}");
        }
    }

    #[test]
    fn wrong_method_lists_allowed_methods() {
        for (method, path, allow) in [
            (Method::GET, "/v1/heartbeat", "POST"),
            (Method::POST, "/v1/status", "PUT, DELETE"),
            (Method::DELETE, "/v1/presence", "GET, HEAD, POST"),
            (Method::PUT, "/v1/presence/bob", "GET, HEAD"),
            (Method::POST, "/v1/typing/c1", "PUT, DELETE, GET, HEAD"),
            (Method::DELETE, "/v1/privacy", "GET, HEAD, PUT"),
            (Method::PUT, "/v1/contacts", "GET, HEAD"),
            (Method::GET, "/v1/blocks/alice", "PUT, DELETE"),
            (Method::POST, "/v1/restrictions/bob", "GET, HEAD, PUT, DELETE"),
            (Method::PATCH, "/v1/restrictions/check", "POST, GET, HEAD, PUT, DELETE"),
            (Method::GET, "/v1/policy", "POST"),
            (Method::POST, "/v1/stats", "GET, HEAD"),
            (Method::DELETE, "/v1/people/bob", "GET, HEAD"),
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
    fn account_named_check_has_a_restriction_path() {
        let found = |method| route(&method, "/v1/restrictions/check").unwrap();
        assert_eq!(found(Method::POST), Route::Function(Function::Check));
        assert_eq!(found(Method::GET), Route::Function(Function::Restriction("check")));
        assert_eq!(found(Method::PUT), Route::Function(Function::PutRestriction("check")));
        assert_eq!(found(Method::DELETE), Route::Function(Function::DeleteRestriction("check")));
        assert_eq!(found(Method::GET).template(), "/v1/restrictions/{user}");
        assert_eq!(found(Method::POST).template(), "/v1/restrictions/check");
    }

    #[test]
    fn contacts_and_blocks_have_separate_routes() {
        for (path, list) in [("/v1/contacts", List::Contacts), ("/v1/blocks", List::Blocks)] {
            assert_eq!(route(&Method::GET, path), Ok(Route::Function(Function::Listed(list))));
            let one = format!("{path}/alice");
            assert_eq!(route(&Method::PUT, &one), Ok(Route::Function(Function::PutListed(list, "alice"))));
            assert_eq!(route(&Method::DELETE, &one), Ok(Route::Function(Function::DeleteListed(list, "alice"))));
        }
    }

    #[test]
    fn head_matches_get_routes() {
        assert_eq!(route(&Method::HEAD, "/healthz"), Ok(Route::Page(Page::Healthz)));
        assert!(route(&Method::HEAD, "/v1/typing/c1").is_ok());
        assert_eq!(route(&Method::HEAD, "/v1/heartbeat").unwrap_err().status(), 405);
    }

    #[test]
    fn head_never_opens_a_stream() {
        for path in ["/v1/subscribe", "/v1/socket"] {
            assert!(route(&Method::GET, path).is_ok());
            assert_eq!(route(&Method::HEAD, path).unwrap_err().status(), 405);
        }
    }

    #[test]
    fn only_post_and_put_take_bodies() {
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
            let prefixes = ["presence", "typing", "contacts", "blocks", "restrictions", "people"];
            let paths = prefixes.map(|prefix| format!("/v1/{prefix}/{tail}"));
            for path in paths.iter().chain([&path]) {
                if let Ok(found) = route(&method, path) {
                    prop_assert!(!found.template().is_empty());
                }
            }
        }
    }
}
