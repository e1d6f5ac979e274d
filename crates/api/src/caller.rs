//! Identifies the caller and says what they may do.
//!
//! With a key, a token names the caller. Without one the host serves only the loopback, and the caller is the user that
//! the request names, unverified and with every scope. That mode is for trying things out.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use rollcall_core::{ConversationId, Invalid, UserId};

use crate::conversations::Conversations;
use crate::keys::Keys;
use crate::problem::{Kind, Problem};
use crate::query::Query;
use crate::token::{Expect, verify};

/// The header that names the caller where no key is configured.
pub const ROLLCALL_USER: HeaderName = HeaderName::from_static("rollcall-user");

/// A permission beyond acting for oneself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A backend: acts for any user, sees every user, sweeps.
    Service,
    /// An administrator: restricts accounts, and reads everything about any user, including what the user hides: devices,
    /// choices (also `invisible`), notes and last seen.
    Admin,
}

impl Scope {
    /// The name in a token.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Service => "service",
            Scope::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        match name {
            "service" => Ok(Scope::Service),
            "admin" => Ok(Scope::Admin),
            _ => Err(Invalid::new("scope", "must be `service` or `admin`")),
        }
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes {
    service: bool,
    admin: bool,
}

impl Scopes {
    /// No scope: an ordinary user.
    pub const NONE: Scopes = Scopes { service: false, admin: false };
    /// Every scope.
    pub const ALL: Scopes = Scopes { service: true, admin: true };

    /// The same set with this scope added.
    #[must_use]
    pub fn with(mut self, scope: Scope) -> Self {
        match scope {
            Scope::Service => self.service = true,
            Scope::Admin => self.admin = true,
        }
        self
    }

    /// Whether the set contains this scope.
    pub fn has(self, scope: Scope) -> bool {
        match scope {
            Scope::Service => self.service,
            Scope::Admin => self.admin,
        }
    }

    /// Adds the scopes named in a space-separated list. Unknown names are ignored: an identity provider puts other
    /// programs' scopes into the same token.
    #[must_use]
    pub fn with_named(self, names: &str) -> Self {
        names.split(' ').filter_map(|name| name.parse().ok()).fold(self, Scopes::with)
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Scopes::NONE, Scopes::with)
    }
}

/// How a caller was identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// By a token that a configured key signed.
    Token,
    /// By a name in the request, where no key is configured.
    Unverified,
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub user: UserId,
    /// Permissions beyond acting for oneself.
    pub scopes: Scopes,
    /// How the caller was identified.
    pub authentication: Authentication,
    /// The conversations the caller takes part in. Any for a service and for an unverified caller.
    pub conversations: Conversations,
    /// When the token expires, in Unix seconds without the leeway; `None` if it never does.
    pub expires_at: Option<u64>,
}

impl Caller {
    /// The viewer for visibility checks. `None` is a service, which sees every user. An unverified caller has every scope
    /// but is still a viewer, so that privacy can be tried out without a key.
    pub fn viewer(&self) -> Option<&UserId> {
        let sees_all = self.authentication == Authentication::Token && self.scopes.has(Scope::Service);
        (!sees_all).then_some(&self.user)
    }

    /// Refuses a caller who does not take part in this conversation, which the request names in `field`. Whether the
    /// conversation exists makes no difference.
    pub(crate) fn require_conversation(&self, field: &str, conversation: &ConversationId) -> Result<(), Problem> {
        if self.conversations.allows(conversation) {
            return Ok(());
        }
        let rule = "is not listed in the `conversations` of the caller's token";
        Err(Problem::about(Kind::Forbidden, field, rule))
    }

    /// Refuses a caller without this scope.
    pub fn needs(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        Err(Problem::new(Kind::Forbidden, format!("this needs a token with the scope `{scope}`")))
    }

    /// Refuses a caller with neither the scope `service` nor `admin`.
    pub(crate) fn needs_service_or_admin(&self) -> Result<(), Problem> {
        if self.scopes.has(Scope::Service) || self.scopes.has(Scope::Admin) {
            return Ok(());
        }
        let (service, admin) = (Scope::Service, Scope::Admin);
        let detail = format!("this needs a token with the scope `{service}` or the scope `{admin}`");
        Err(Problem::new(Kind::Forbidden, detail))
    }

    /// The user the caller acts for: the caller, or for a service the user that the request names.
    pub fn acting_for(&self, named: Option<UserId>) -> Result<UserId, Problem> {
        match named {
            None => Ok(self.user.clone()),
            Some(user) if user == self.user || self.scopes.has(Scope::Service) => Ok(user),
            Some(_) => {
                let rule = "is not the caller; acting for another user needs a token with the scope `service`";
                Err(Problem::about(Kind::Forbidden, "user", rule))
            }
        }
    }
}

/// How callers are identified.
#[derive(Debug, Clone)]
pub enum Access {
    /// By the name in the request. Serve only the loopback in this mode.
    Open,
    /// By tokens.
    Keyed {
        /// The keys that may have signed them.
        keys: Keys,
        /// Claims that a token must have.
        expect: Expect,
    },
}

/// Identifies the caller. `authorization` and `rollcall_user` are the headers `Authorization` and [`ROLLCALL_USER`] as
/// UTF-8; `now` is in Unix seconds and only called to check a token.
///
/// With keys, only a token counts: the header and the query key that name an unverified caller are not read.
pub fn identify(
    access: &Access,
    authorization: Option<&str>,
    rollcall_user: Option<&str>,
    query: &Query<'_>,
    now: impl FnOnce() -> u64,
) -> Result<Caller, Problem> {
    match access {
        Access::Open => unverified(rollcall_user, query),
        Access::Keyed { keys, expect } => match (authorization, query.token()?) {
            (Some(header), _) => verify(keys, expect, bearer(header)?, now()),
            (None, Some(token)) => verify(keys, expect, &token, now()),
            (None, None) => {
                let detail = "the request has no token; send `Authorization: Bearer …`, or `?token=…` where no header can be set";
                Err(Problem::new(Kind::Unidentified, detail))
            }
        },
    }
}

/// Accepts a fresh token for a connection that outlives its first, at `now` in Unix seconds. It must name the same user
/// with the same viewer: a connection does not change its owner. Conversations and expiry may differ.
///
/// Without keys there is nothing to renew, and the token is not read.
pub fn renew(access: &Access, caller: &Caller, token: &str, now: u64) -> Result<Caller, Problem> {
    let Access::Keyed { keys, expect } = access else { return Ok(caller.clone()) };
    let fresh = verify(keys, expect, token, now)?;
    if fresh.user == caller.user && fresh.viewer() == caller.viewer() {
        return Ok(fresh);
    }
    Err(Problem::about(Kind::Forbidden, "token", "names another caller than the one who opened the connection"))
}

fn unverified(header: Option<&str>, query: &Query<'_>) -> Result<Caller, Problem> {
    let (field, name) = match (header, query.caller()?) {
        (Some(name), _) => ("Rollcall-User", name.to_owned()),
        (None, Some(name)) => ("as", name.into_owned()),
        (None, None) => {
            let detail =
                "the request names no user; no key is configured, so send `Rollcall-User: alice` or `?as=alice`";
            return Err(Problem::new(Kind::Unidentified, detail));
        }
    };
    let user = UserId::parse(name).map_err(|invalid| Problem::invalid(field, invalid.rule))?;
    let conversations = Conversations::Any;
    Ok(Caller {
        user,
        scopes: Scopes::ALL,
        authentication: Authentication::Unverified,
        conversations,
        expires_at: None,
    })
}

/// The token in an `Authorization` header. The scheme is case-insensitive.
fn bearer(header: &str) -> Result<&str, Problem> {
    match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(Problem::new(Kind::BadToken, "the header `Authorization` must have the form `Bearer <token>`")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use super::*;
    use crate::keys::SigningKey;
    use crate::route::Operation;
    use crate::token::{Grant, mint};

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn query(text: &str) -> Query<'_> {
        Query::parse(Operation::Heartbeat, Some(text)).unwrap()
    }

    fn keyed() -> Access {
        Access::Keyed { keys: Keys::from_text(SECRET).unwrap(), expect: Expect::default() }
    }

    fn token(scopes: Scopes) -> String {
        let user = UserId::parse("alice").unwrap();
        mint(&SigningKey::from_text(SECRET).unwrap(), &Grant::new(user, scopes, 60), 1000).unwrap()
    }

    #[test]
    fn unverified_caller_has_all_scopes_and_a_viewer() {
        let caller = identify(&Access::Open, None, Some("alice"), &query("as=bob"), || 0).unwrap();
        assert_eq!(caller.user.as_str(), "alice");
        assert_eq!(caller.scopes, Scopes::ALL);
        assert_eq!(caller.viewer(), Some(&caller.user));
        assert_eq!((&caller.conversations, caller.expires_at), (&Conversations::Any, None));
        let caller = identify(&Access::Open, Some("Bearer junk"), None, &query("as=b%20b"), || 0).unwrap();
        assert_eq!(caller.user.as_str(), "b b");
    }

    #[test]
    fn missing_name_error_names_the_header() {
        let problem = identify(&Access::Open, None, None, &query(""), || 0).unwrap_err();
        assert_eq!(problem.status(), 401);
        assert!(problem.detail.contains("Rollcall-User"));
    }

    #[test]
    fn bad_name_error_names_its_source() {
        let field =
            |header, text| identify(&Access::Open, None, header, &query(text), || 0).unwrap_err().field.unwrap();
        assert_eq!(field(Some(""), ""), "Rollcall-User");
        assert_eq!(field(None, "as=a%07"), "as");
        let long = "x".repeat(129);
        assert_eq!(identify(&Access::Open, None, Some(&long), &query(""), || 0).unwrap_err().status(), 400);
    }

    #[test]
    fn token_is_accepted_in_header_or_query() {
        let token = token(Scopes::NONE);
        for (header, text) in
            [(Some(format!("Bearer {token}")), String::new()), (None, format!("token={token}&as=mallory"))]
        {
            let caller = identify(&keyed(), header.as_deref(), Some("mallory"), &query(&text), || 1000).unwrap();
            assert_eq!((caller.user.as_str(), caller.scopes), ("alice", Scopes::NONE));
        }
        assert!(identify(&keyed(), Some(&format!("bEARER  {token}")), None, &query(""), || 1000).is_ok());
    }

    #[test]
    fn keyed_access_refuses_a_bare_name() {
        let problem = identify(&keyed(), None, Some("alice"), &query("as=alice"), || 1000).unwrap_err();
        assert_eq!(problem.kind, Kind::Unidentified);
        for header in ["", "Bearer", "Basic YTpi", "Bearer "] {
            let problem = identify(&keyed(), Some(header), None, &query(""), || 1000).unwrap_err();
            assert_eq!(problem.kind, Kind::BadToken, "{header:?}");
        }
    }

    #[test]
    fn service_sees_and_acts_for_any_user() {
        let identify = |scopes| {
            let header = format!("Bearer {}", token(scopes));
            identify(&keyed(), Some(&header), None, &query(""), || 1000).unwrap()
        };
        let bob = UserId::parse("bob").unwrap();
        let service = identify(Scopes::NONE.with(Scope::Service));
        assert_eq!(service.viewer(), None);
        assert_eq!(service.acting_for(Some(bob.clone())), Ok(bob.clone()));
        assert_eq!(service.needs(Scope::Admin).unwrap_err().status(), 403);
        assert_eq!(service.needs_service_or_admin(), Ok(()));

        let person = identify(Scopes::NONE.with(Scope::Admin));
        assert_eq!(person.needs_service_or_admin(), Ok(()));
        assert_eq!(person.viewer(), Some(&person.user));
        assert_eq!(person.acting_for(None).unwrap(), person.user);
        assert_eq!(person.acting_for(Some(person.user.clone())).unwrap(), person.user);
        let problem = person.acting_for(Some(bob)).unwrap_err();
        assert_eq!((problem.status().as_u16(), problem.field.as_deref()), (403, Some("user")));

        let problem = identify(Scopes::NONE).needs_service_or_admin().unwrap_err();
        assert_eq!(problem.status(), 403);
        assert!(problem.detail.contains("`service`") && problem.detail.contains("`admin`"), "{}", problem.detail);
    }

    #[test]
    fn renewal_requires_same_user_and_viewer() {
        let key = SigningKey::from_text(SECRET).unwrap();
        let minted = |name: &str, scopes, now| {
            let grant = Grant::new(UserId::parse(name).unwrap(), scopes, 60);
            mint(&key, &Grant { conversations: Conversations::Any, ..grant }, now).unwrap()
        };
        let caller =
            identify(&keyed(), Some(&format!("Bearer {}", token(Scopes::NONE))), None, &query(""), || 1000).unwrap();
        assert_eq!((&caller.conversations, caller.expires_at), (&Conversations::NONE, Some(1060)));

        let fresh = renew(&keyed(), &caller, &minted("alice", Scopes::NONE, 1050), 1050).unwrap();
        assert_eq!((&fresh.conversations, fresh.expires_at), (&Conversations::Any, Some(1110)));
        for foreign in [minted("bob", Scopes::NONE, 1050), minted("alice", Scopes::ALL, 1050)] {
            let problem = renew(&keyed(), &caller, &foreign, 1050).unwrap_err();
            assert_eq!((problem.status().as_u16(), problem.field.as_deref()), (403, Some("token")));
        }
        let late = renew(&keyed(), &caller, &minted("alice", Scopes::NONE, 1000), 2000).unwrap_err();
        assert_eq!(late.kind, Kind::BadToken);

        let by_word = identify(&Access::Open, None, Some("alice"), &query(""), || 0).unwrap();
        assert_eq!(renew(&Access::Open, &by_word, "junk", 0), Ok(by_word));
    }

    #[test]
    fn unknown_scopes_are_ignored() {
        assert_eq!(Scopes::NONE.with_named("openid service  profile"), Scopes::NONE.with(Scope::Service));
        assert_eq!(Scopes::NONE.with_named("services SERVICE"), Scopes::NONE);
        assert_eq!([Scope::Admin, Scope::Service].into_iter().collect::<Scopes>(), Scopes::ALL);
    }
}
