//! Who is asking, and what may they do?
//!
//! With a key, the caller is whom a token names. Without one — the host then serves only the loopback — the caller is
//! whoever they say they are, with every scope: that is for trying things out, and nothing else.

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

/// A permission beyond being oneself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A backend: acts for anybody, sees everybody, sweeps.
    Service,
    /// An administrator: restricts accounts, and reads everything about everybody, also what they hide: devices, choices
    /// (invisibility among them), notes and last seen.
    Admin,
}

impl Scope {
    /// As a token writes it.
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
            _ => Err(Invalid::new("scope", "is neither `service` nor `admin`")),
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
    /// No scope: a person who is only themselves.
    pub const NONE: Scopes = Scopes { service: false, admin: false };
    /// Every scope.
    pub const ALL: Scopes = Scopes { service: true, admin: true };

    /// The same with one more.
    #[must_use]
    pub fn with(mut self, scope: Scope) -> Self {
        match scope {
            Scope::Service => self.service = true,
            Scope::Admin => self.admin = true,
        }
        self
    }

    /// Whether this one is among them.
    pub fn has(self, scope: Scope) -> bool {
        match scope {
            Scope::Service => self.service,
            Scope::Admin => self.admin,
        }
    }

    /// Adds those named in a space-separated list. Names that mean nothing here are passed over: an identity provider
    /// puts other programs' scopes into the same token.
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

/// How a caller came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// By a token that a trusted key signed.
    ByToken,
    /// By their own word, on the loopback.
    ByWord,
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Who.
    pub user: UserId,
    /// What they may do beyond being themselves.
    pub scopes: Scopes,
    /// How they came to be known.
    pub known: Known,
    /// In which conversations they take part. Any, for a service and for whoever is known by their word.
    pub conversations: Conversations,
    /// Until when to believe it, in Unix seconds and without the leeway; none: as long as they stay.
    pub expires_at: Option<u64>,
}

impl Caller {
    /// Through whose eyes the caller sees others; none: a service's, which see everybody. A caller known by their word
    /// sees as themselves although they have every scope, or privacy could not be tried out without a key.
    pub fn viewer(&self) -> Option<&UserId> {
        let sees_all = self.known == Known::ByToken && self.scopes.has(Scope::Service);
        (!sees_all).then_some(&self.user)
    }

    /// Refuses a caller who takes no part in this conversation, which the request names in `field`. Whether there is
    /// such a conversation makes no difference.
    pub(crate) fn takes_part(&self, field: &str, conversation: &ConversationId) -> Result<(), Problem> {
        if self.conversations.allows(conversation) {
            return Ok(());
        }
        let rule = "is not among the conversations that the caller's token lists";
        Err(Problem::about(Kind::Forbidden, field, rule))
    }

    /// Refuses a caller without this scope.
    pub fn needs(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        Err(Problem::new(Kind::Forbidden, format!("this needs a token with the scope `{scope}`")))
    }

    /// Refuses a caller who has neither the scope of a service nor that of an administrator.
    pub(crate) fn needs_service_or_admin(&self) -> Result<(), Problem> {
        if self.scopes.has(Scope::Service) || self.scopes.has(Scope::Admin) {
            return Ok(());
        }
        let (service, admin) = (Scope::Service, Scope::Admin);
        let detail = format!("this needs a token with the scope `{service}` or the scope `{admin}`");
        Err(Problem::new(Kind::Forbidden, detail))
    }

    /// Whom the caller acts for: themselves, or, for a service, whomever the request names.
    pub fn acting_for(&self, named: Option<UserId>) -> Result<UserId, Problem> {
        match named {
            None => Ok(self.user.clone()),
            Some(user) if user == self.user || self.scopes.has(Scope::Service) => Ok(user),
            Some(_) => {
                let rule = "is somebody else than the caller, which needs a token with the scope `service`";
                Err(Problem::about(Kind::Forbidden, "user", rule))
            }
        }
    }
}

/// How callers are known.
#[derive(Debug, Clone)]
pub enum Access {
    /// By their word. Serve nothing but the loopback like this.
    Open,
    /// By tokens.
    Keyed {
        /// The keys that may have signed them.
        keys: Keys,
        /// What they must say beside the caller.
        expect: Expect,
    },
}

/// Finds out who is asking, at `now` in Unix seconds, which only a token makes it ask for. `authorization` and
/// `rollcall_user` are the headers of these names, the latter [`ROLLCALL_USER`], read as UTF-8.
///
/// With keys, only a token counts: the header and the query key that name a caller without one are not even read.
pub fn identify(
    access: &Access,
    authorization: Option<&str>,
    rollcall_user: Option<&str>,
    query: &Query<'_>,
    now: impl FnOnce() -> u64,
) -> Result<Caller, Problem> {
    match access {
        Access::Open => by_word(rollcall_user, query),
        Access::Keyed { keys, expect } => match (authorization, query.token()?) {
            (Some(header), _) => verify(keys, expect, bearer(header)?, now()),
            (None, Some(token)) => verify(keys, expect, &token, now()),
            (None, None) => {
                let detail = "send a token: `Authorization: Bearer …`, or `?token=…` where no header can be set";
                Err(Problem::new(Kind::Unidentified, detail))
            }
        },
    }
}

/// Takes a fresh token for a connection that outlives its first, at `now` in Unix seconds. It must name the same caller,
/// who must see what they saw: a connection does not change hands. In which conversations they take part, and until when
/// to believe it, may be new.
///
/// Without keys there is nothing to renew, and a token is not even read.
pub fn renew(access: &Access, caller: &Caller, token: &str, now: u64) -> Result<Caller, Problem> {
    let Access::Keyed { keys, expect } = access else { return Ok(caller.clone()) };
    let fresh = verify(keys, expect, token, now)?;
    if fresh.user == caller.user && fresh.viewer() == caller.viewer() {
        return Ok(fresh);
    }
    Err(Problem::about(Kind::Forbidden, "token", "is not for the caller whose connection this is"))
}

fn by_word(header: Option<&str>, query: &Query<'_>) -> Result<Caller, Problem> {
    let (field, name) = match (header, query.caller()?) {
        (Some(name), _) => ("Rollcall-User", name.to_owned()),
        (None, Some(name)) => ("as", name.into_owned()),
        (None, None) => {
            let detail = "no key is configured: say who you are with the header `Rollcall-User: alice` or `?as=alice`";
            return Err(Problem::new(Kind::Unidentified, detail));
        }
    };
    let user = UserId::parse(name).map_err(|invalid| Problem::invalid(field, invalid.rule))?;
    let conversations = Conversations::Any;
    Ok(Caller { user, scopes: Scopes::ALL, known: Known::ByWord, conversations, expires_at: None })
}

/// The token in an `Authorization` header; the scheme's case does not matter.
fn bearer(header: &str) -> Result<&str, Problem> {
    match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(Problem::new(Kind::BadToken, "the `Authorization` header is not of the form `Bearer <token>`")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use super::*;
    use crate::keys::SigningKey;
    use crate::route::Function;
    use crate::token::{Grant, mint};

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn query(text: &str) -> Query<'_> {
        Query::parse(Function::Heartbeat, Some(text)).unwrap()
    }

    fn keyed() -> Access {
        Access::Keyed { keys: Keys::from_text(SECRET).unwrap(), expect: Expect::default() }
    }

    fn token(scopes: Scopes) -> String {
        let user = UserId::parse("alice").unwrap();
        mint(&SigningKey::from_text(SECRET).unwrap(), &Grant::new(user, scopes, 60), 1000).unwrap()
    }

    #[test]
    fn without_a_key_the_caller_is_whom_they_say_and_sees_as_themselves() {
        let caller = identify(&Access::Open, None, Some("alice"), &query("as=bob"), || 0).unwrap();
        assert_eq!(caller.user.as_str(), "alice");
        assert_eq!(caller.scopes, Scopes::ALL);
        assert_eq!(caller.viewer(), Some(&caller.user));
        assert_eq!((&caller.conversations, caller.expires_at), (&Conversations::Any, None));
        let caller = identify(&Access::Open, Some("Bearer junk"), None, &query("as=b%20b"), || 0).unwrap();
        assert_eq!(caller.user.as_str(), "b b");
    }

    #[test]
    fn without_a_key_or_a_name_the_caller_is_told_what_to_do() {
        let problem = identify(&Access::Open, None, None, &query(""), || 0).unwrap_err();
        assert_eq!(problem.status(), 401);
        assert!(problem.detail.contains("Rollcall-User"));
    }

    #[test]
    fn a_bad_name_is_named_by_where_it_stood() {
        let field =
            |header, text| identify(&Access::Open, None, header, &query(text), || 0).unwrap_err().field.unwrap();
        assert_eq!(field(Some(""), ""), "Rollcall-User");
        assert_eq!(field(None, "as=a%07"), "as");
        let long = "x".repeat(129);
        assert_eq!(identify(&Access::Open, None, Some(&long), &query(""), || 0).unwrap_err().status(), 400);
    }

    #[test]
    fn with_a_key_a_token_counts_in_the_header_or_in_the_query() {
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
    fn with_a_key_a_mere_name_is_nobody() {
        let problem = identify(&keyed(), None, Some("alice"), &query("as=alice"), || 1000).unwrap_err();
        assert_eq!(problem.kind, Kind::Unidentified);
        for header in ["", "Bearer", "Basic YTpi", "Bearer "] {
            let problem = identify(&keyed(), Some(header), None, &query(""), || 1000).unwrap_err();
            assert_eq!(problem.kind, Kind::BadToken, "{header:?}");
        }
    }

    #[test]
    fn a_service_sees_everybody_and_acts_for_anybody() {
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
    fn a_fresh_token_is_taken_only_for_the_same_caller_with_the_same_sight() {
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
    fn scopes_are_found_among_foreign_ones() {
        assert_eq!(Scopes::NONE.with_named("openid service  profile"), Scopes::NONE.with(Scope::Service));
        assert_eq!(Scopes::NONE.with_named("services SERVICE"), Scopes::NONE);
        assert_eq!([Scope::Admin, Scope::Service].into_iter().collect::<Scopes>(), Scopes::ALL);
    }
}
