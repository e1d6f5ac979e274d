//! Which request is this? One table says what exists; routing, the OpenAPI document and the metrics' labels follow it.
//!
//! Deliberately absent: patterns and a tree. Some thirty comparisons, of which nearly all end at the length, take less
//! time than hashing the path would. A path that is written out and one with a part may overlap: the method then
//! decides, so that an account named `check` has its restriction like any other.

use http::Method;

use crate::Limits;
use crate::call::List;
use crate::problem::{Kind, Problem};

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
    /// What a person lets others see.
    Privacy,
    /// They set it.
    PutPrivacy,
    /// Whom a person listed.
    Listed(List),
    /// A person lists somebody, by the path: the id as it stands there.
    PutListed(List, &'a str),
    /// They take that back.
    DeleteListed(List, &'a str),
    /// Whether an account is restricted, by the path: the id as it stands there.
    Restriction(&'a str),
    /// An administrator restricts it.
    PutRestriction(&'a str),
    /// They lift that.
    DeleteRestriction(&'a str),
    /// What somebody may see of many people, and why not.
    Check,
    /// Many changes of who may see whom.
    Changes,
    /// Settle who is due.
    Sweep,
    /// What the host counted.
    Stats,
    /// Everything that is known about one person, by the path: the id as it stands there.
    Person(&'a str),
}

/// All routes, the busiest first.
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
            Route::Function(function) => function.prefix(),
            Route::Page(_) => None,
        };
        let Some(prefix) = prefix else { return (self.template == path).then_some(self.route) };
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

    /// The path's template: a label with few values, for metrics and logs.
    pub fn template(&self) -> &'static str {
        let listed = self.with_part("");
        ROUTES.iter().find(|entry| entry.route == listed).map_or("", |entry| entry.template)
    }
}

impl Function<'_> {
    /// What stands in the path before the part that is the request's own, if it has one.
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

    /// The most bytes of its body; 0: it takes none, and a body need not be read.
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

    /// The query keys that it understands, beside those that name the caller; at most `MAX_KEYS`.
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
