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
    /// A page about the server itself: no caller, no body, no function call.
    Page(StatusPage),
    /// An operation of the API.
    Operation(Operation<'a>),
}

/// A page about the server itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusPage {
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
pub enum Operation<'a> {
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
    operation(Method::POST, "/v1/heartbeat", Operation::Heartbeat),
    operation(Method::POST, "/v1/heartbeats", Operation::Heartbeats),
    operation(Method::GET, "/v1/presence/{user}", Operation::PresenceOne("")),
    operation(Method::GET, "/v1/presence", Operation::PresenceQuery),
    operation(Method::POST, "/v1/presence", Operation::PresencePost),
    operation(Method::GET, "/presence/batch", Operation::PresenceBatch),
    operation(Method::POST, "/v1/leave", Operation::Leave),
    operation(Method::PUT, "/v1/status", Operation::PutStatus),
    operation(Method::DELETE, "/v1/status", Operation::DeleteStatus),
    operation(Method::PUT, "/v1/typing/{conversation}", Operation::PutTyping("")),
    operation(Method::DELETE, "/v1/typing/{conversation}", Operation::DeleteTyping("")),
    operation(Method::GET, "/v1/typing/{conversation}", Operation::Typists("")),
    operation(Method::GET, "/v1/subscribe", Operation::Subscribe),
    operation(Method::GET, "/v1/socket", Operation::Socket),
    operation(Method::POST, "/v1/restrictions/check", Operation::Check),
    operation(Method::GET, "/v1/privacy", Operation::Privacy),
    operation(Method::PUT, "/v1/privacy", Operation::PutPrivacy),
    operation(Method::GET, "/v1/contacts", Operation::Listed(List::Contacts)),
    operation(Method::PUT, "/v1/contacts/{other}", Operation::PutListed(List::Contacts, "")),
    operation(Method::DELETE, "/v1/contacts/{other}", Operation::DeleteListed(List::Contacts, "")),
    operation(Method::GET, "/v1/blocks", Operation::Listed(List::Blocks)),
    operation(Method::PUT, "/v1/blocks/{other}", Operation::PutListed(List::Blocks, "")),
    operation(Method::DELETE, "/v1/blocks/{other}", Operation::DeleteListed(List::Blocks, "")),
    operation(Method::POST, "/v1/policy", Operation::Changes),
    operation(Method::GET, "/v1/restrictions/{user}", Operation::Restriction("")),
    operation(Method::PUT, "/v1/restrictions/{user}", Operation::PutRestriction("")),
    operation(Method::DELETE, "/v1/restrictions/{user}", Operation::DeleteRestriction("")),
    operation(Method::POST, "/v1/sweep", Operation::Sweep),
    operation(Method::GET, "/v1/stats", Operation::Stats),
    operation(Method::GET, "/v1/people/{user}", Operation::Person("")),
    page("/healthz", StatusPage::Healthz),
    page("/readyz", StatusPage::Readyz),
    page("/metrics", StatusPage::Metrics),
    page("/openapi.json", StatusPage::OpenApi),
];

const fn operation(method: Method, template: &'static str, operation: Operation<'static>) -> Entry {
    Entry { method, template, route: Route::Operation(operation) }
}

const fn page(template: &'static str, page: StatusPage) -> Entry {
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
            Route::Operation(operation) => operation.prefix(),
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
        let stays_open = matches!(self.route, Route::Operation(Operation::Subscribe | Operation::Socket));
        self.method == Method::GET && !stays_open
    }
}

impl<'a> Route<'a> {
    /// The same route with this parameter from the path, if it has one.
    pub(crate) fn with_part(self, part: &'a str) -> Self {
        let Route::Operation(operation) = self else { return self };
        Route::Operation(match operation {
            Operation::PresenceOne(_) => Operation::PresenceOne(part),
            Operation::Typists(_) => Operation::Typists(part),
            Operation::PutTyping(_) => Operation::PutTyping(part),
            Operation::DeleteTyping(_) => Operation::DeleteTyping(part),
            Operation::PutListed(list, _) => Operation::PutListed(list, part),
            Operation::DeleteListed(list, _) => Operation::DeleteListed(list, part),
            Operation::Restriction(_) => Operation::Restriction(part),
            Operation::PutRestriction(_) => Operation::PutRestriction(part),
            Operation::DeleteRestriction(_) => Operation::DeleteRestriction(part),
            Operation::Person(_) => Operation::Person(part),
            whole => whole,
        })
    }

    /// The path template: a label of low cardinality for metrics and logs.
    pub fn template(&self) -> &'static str {
        let listed = self.with_part("");
        ROUTES.iter().find(|entry| entry.route == listed).map_or("", |entry| entry.template)
    }
}

impl Operation<'_> {
    /// The path before the parameter, if there is one.
    fn prefix(&self) -> Option<&'static str> {
        match self {
            Operation::PresenceOne(_) => Some("/v1/presence/"),
            Operation::Typists(_) | Operation::PutTyping(_) | Operation::DeleteTyping(_) => Some("/v1/typing/"),
            Operation::PutListed(List::Contacts, _) | Operation::DeleteListed(List::Contacts, _) => {
                Some("/v1/contacts/")
            }
            Operation::PutListed(List::Blocks, _) | Operation::DeleteListed(List::Blocks, _) => Some("/v1/blocks/"),
            Operation::Restriction(_) | Operation::PutRestriction(_) | Operation::DeleteRestriction(_) => {
                Some("/v1/restrictions/")
            }
            Operation::Person(_) => Some("/v1/people/"),
            Operation::Heartbeat
            | Operation::Heartbeats
            | Operation::Leave
            | Operation::PutStatus
            | Operation::DeleteStatus
            | Operation::PresenceQuery
            | Operation::PresencePost
            | Operation::PresenceBatch
            | Operation::Subscribe
            | Operation::Socket
            | Operation::Privacy
            | Operation::PutPrivacy
            | Operation::Listed(_)
            | Operation::Check
            | Operation::Changes
            | Operation::Sweep
            | Operation::Stats => None,
        }
    }

    /// The most bytes of a body; 0 if it has none, and a body need not be read.
    pub fn body_limit(&self, limits: &Limits) -> usize {
        match self {
            Operation::Heartbeat
            | Operation::Leave
            | Operation::PutStatus
            | Operation::PutTyping(_)
            | Operation::PutPrivacy
            | Operation::PutListed(..)
            | Operation::PutRestriction(_)
            | Operation::Sweep => limits.body_bytes,
            Operation::Heartbeats | Operation::PresencePost | Operation::Check | Operation::Changes => {
                limits.batch_body_bytes
            }
            Operation::DeleteStatus
            | Operation::PresenceOne(_)
            | Operation::PresenceQuery
            | Operation::PresenceBatch
            | Operation::Subscribe
            | Operation::Socket
            | Operation::Typists(_)
            | Operation::DeleteTyping(_)
            | Operation::Privacy
            | Operation::Listed(_)
            | Operation::DeleteListed(..)
            | Operation::Restriction(_)
            | Operation::DeleteRestriction(_)
            | Operation::Stats
            | Operation::Person(_) => 0,
        }
    }

    /// The query keys, besides those that identify the caller; at most `MAX_KEYS`.
    pub(crate) fn query_keys(&self) -> &'static [&'static str] {
        match self {
            Operation::PresenceQuery => &["users"],
            Operation::PresenceBatch => &["user_ids"],
            Operation::DeleteStatus
            | Operation::DeleteTyping(_)
            | Operation::Privacy
            | Operation::Listed(_)
            | Operation::DeleteListed(..) => &["user"],
            Operation::Subscribe => &["users", "conversations", "device", "kind", "active", "watch_only", "since"],
            Operation::Socket => &["device", "kind", "active", "watch_only"],
            Operation::Heartbeat
            | Operation::Heartbeats
            | Operation::Leave
            | Operation::PutStatus
            | Operation::PresenceOne(_)
            | Operation::PresencePost
            | Operation::Typists(_)
            | Operation::PutTyping(_)
            | Operation::PutPrivacy
            | Operation::PutListed(..)
            | Operation::Restriction(_)
            | Operation::PutRestriction(_)
            | Operation::DeleteRestriction(_)
            | Operation::Check
            | Operation::Changes
            | Operation::Sweep
            | Operation::Stats
            | Operation::Person(_) => &[],
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
                Route::Operation(
                    Operation::PresenceOne(part)
                    | Operation::Typists(part)
                    | Operation::PutTyping(part)
                    | Operation::DeleteTyping(part)
                    | Operation::PutListed(_, part)
                    | Operation::DeleteListed(_, part)
                    | Operation::Restriction(part)
                    | Operation::PutRestriction(part)
                    | Operation::DeleteRestriction(part)
                    | Operation::Person(part),
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
        assert_eq!(found(Method::POST), Route::Operation(Operation::Check));
        assert_eq!(found(Method::GET), Route::Operation(Operation::Restriction("check")));
        assert_eq!(found(Method::PUT), Route::Operation(Operation::PutRestriction("check")));
        assert_eq!(found(Method::DELETE), Route::Operation(Operation::DeleteRestriction("check")));
        assert_eq!(found(Method::GET).template(), "/v1/restrictions/{user}");
        assert_eq!(found(Method::POST).template(), "/v1/restrictions/check");
    }

    #[test]
    fn contacts_and_blocks_have_separate_routes() {
        for (path, list) in [("/v1/contacts", List::Contacts), ("/v1/blocks", List::Blocks)] {
            assert_eq!(route(&Method::GET, path), Ok(Route::Operation(Operation::Listed(list))));
            let one = format!("{path}/alice");
            assert_eq!(route(&Method::PUT, &one), Ok(Route::Operation(Operation::PutListed(list, "alice"))));
            assert_eq!(route(&Method::DELETE, &one), Ok(Route::Operation(Operation::DeleteListed(list, "alice"))));
        }
    }

    #[test]
    fn head_matches_get_routes() {
        assert_eq!(route(&Method::HEAD, "/healthz"), Ok(Route::Page(StatusPage::Healthz)));
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
            if let Route::Operation(operation) = entry.route {
                let takes = matches!(entry.method, Method::POST | Method::PUT);
                assert_eq!(operation.body_limit(&limits) > 0, takes, "{}", entry.template);
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
