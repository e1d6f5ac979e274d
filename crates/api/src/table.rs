//! Everything that exists, and nothing else. A route is added here first; the tests then ask for the rest.

use http::Method;

use crate::call::List;
use crate::route::{Entry, Function, Page, Route};

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
