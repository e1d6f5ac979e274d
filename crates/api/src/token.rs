//! JSON Web Tokens that identify callers.
//!
//! The time is an argument, so that tokens can be verified without a clock and tested without waiting. The signature is
//! verified before any claim is read.
//!
//! Deliberately absent: revocation. A token is valid until it expires, so use short lifetimes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Header;
use rollcall_core::UserId;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::caller::{Authentication, Caller, Scope, Scopes};
use crate::conversations::Conversations;
use crate::keys::{KeyError, Keys, SigningKey};
use crate::problem::{Kind, Problem};

/// Allowed clock difference to the issuer, in seconds.
pub const LEEWAY_S: u64 = 5;

/// Bounds the work for a token that is not ours: four times the usual 2 KB.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// Claims that a token must have. `Default` requires none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expect {
    /// The `iss` that a token must have.
    pub issuer: Option<String>,
    /// The value that must be among a token's `aud`.
    pub audience: Option<String>,
}

/// The contents of a token to mint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The user.
    pub user: UserId,
    /// The scopes.
    pub scopes: Scopes,
    /// The conversations the user takes part in.
    pub conversations: Conversations,
    /// Lifetime in seconds.
    pub ttl_s: u64,
    /// Issuer and audience, as the verifier expects them.
    pub expect: Expect,
}

impl Grant {
    /// A grant with no conversation, no issuer and no audience.
    pub fn new(user: UserId, scopes: Scopes, ttl_s: u64) -> Self {
        Self { user, scopes, conversations: Conversations::NONE, ttl_s, expect: Expect::default() }
    }
}

/// Verifies a token at `now` in Unix seconds.
pub fn verify(keys: &Keys, expect: &Expect, token: &str, now: u64) -> Result<Caller, Problem> {
    let payload = signed_payload(keys, token)?;
    let claims: Claims = part(payload, "claims")?;
    check_times(&claims, now)?;
    check_expected(&claims, expect)?;
    let user = UserId::parse(claims.sub).map_err(|invalid| refused(format!("its `sub` {}", invalid.rule)))?;
    let lists = [claims.scope, claims.scopes, claims.scp];
    let scopes = lists.iter().flatten().flat_map(OneOrMany::iter).fold(Scopes::NONE, Scopes::with_named);
    let listed = conversations(claims.conversations.as_ref())?;
    let conversations = if scopes.has(Scope::Service) { Conversations::Any } else { listed };
    // A fraction is rounded up to the second in which it still holds; a date out of range saturates.
    let expires_at = Some(claims.exp.ceil() as u64);
    Ok(Caller { user, scopes, authentication: Authentication::Token, conversations, expires_at })
}

/// Mints a token at `now` in Unix seconds.
pub fn mint(key: &SigningKey, grant: &Grant, now: u64) -> Result<String, KeyError> {
    let names: Vec<&str> =
        [Scope::Service, Scope::Admin].into_iter().filter(|scope| grant.scopes.has(*scope)).map(Scope::name).collect();
    let claims = MintedClaims {
        sub: grant.user.as_str(),
        iat: now,
        exp: now.saturating_add(grant.ttl_s),
        scope: (!names.is_empty()).then(|| names.join(" ")),
        conversations: grant.conversations.names(),
        iss: grant.expect.issuer.as_deref(),
        aud: grant.expect.audience.as_deref(),
    };
    let token = jsonwebtoken::encode(&Header::new(key.algorithm), &claims, &key.key)
        .map_err(|error| KeyError::Signing(error.to_string()))?;
    if token.len() > MAX_TOKEN_BYTES {
        // `verify` would refuse it. Only a long list of conversations gets there; `*` avoids it.
        return Err(KeyError::Signing(format!("the token would be longer than {MAX_TOKEN_BYTES} bytes")));
    }
    Ok(token)
}

/// The payload of a token that one of the keys signed.
fn signed_payload<'a>(keys: &Keys, token: &'a str) -> Result<&'a str, Problem> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(refused(format!("it is longer than {MAX_TOKEN_BYTES} bytes")));
    }
    let not_a_token = || refused("it does not have the form header.claims.signature");
    let (message, signature) = token.rsplit_once('.').ok_or_else(not_a_token)?;
    let (header, payload) = message.split_once('.').ok_or_else(not_a_token)?;
    let header: TokenHeader = part(header, "header")?;
    if header.crit.is_some() {
        // RFC 7515 §4.1.11: a token with a critical extension that is not understood must be refused. We know none.
        return Err(refused("its header has critical extensions"));
    }
    let mut candidates = keys.candidates(&header.alg, header.kid.as_deref()).peekable();
    if candidates.peek().is_none() {
        return Err(refused("it is unsigned, or no key is configured for its algorithm and key id"));
    }
    if !candidates.any(|key| key.signed(message, signature)) {
        return Err(refused("no key matches its signature"));
    }
    Ok(payload)
}

fn check_times(claims: &Claims, now: u64) -> Result<(), Problem> {
    // Dates may be fractions; an f64 is exact for whole seconds up to 2^53.
    let (now, leeway) = (now as f64, LEEWAY_S as f64);
    if now >= claims.exp + leeway {
        return Err(refused("it has expired"));
    }
    if claims.nbf.is_some_and(|not_before| now + leeway < not_before) {
        return Err(refused("it is not valid yet"));
    }
    Ok(())
}

fn check_expected(claims: &Claims, expect: &Expect) -> Result<(), Problem> {
    if expect.issuer.is_some() && claims.iss != expect.issuer {
        return Err(refused("its issuer `iss` is not the expected one"));
    }
    if let Some(audience) = &expect.audience
        && !claims.aud.iter().flat_map(OneOrMany::iter).any(|name| name == audience)
    {
        return Err(refused("its audience `aud` does not contain the expected one"));
    }
    Ok(())
}

/// The conversations that a token lists. One bad entry refuses the token: if ignored, the user would be missing from a
/// conversation without an error.
fn conversations(claim: Option<&Value>) -> Result<Conversations, Problem> {
    let Some(claim) = claim else { return Ok(Conversations::NONE) };
    let list = claim.as_array().ok_or_else(|| refused("its `conversations` is not a list"))?;
    let names = list.iter().enumerate().map(|(place, name)| {
        name.as_str().ok_or_else(|| refused(format!("its `conversations[{place}]` is not a string")))
    });
    let names: Vec<&str> = names.collect::<Result<_, _>>()?;
    Conversations::parse(names)
        .map_err(|(place, invalid)| refused(format!("its `conversations[{place}]` {}", invalid.rule)))
}

/// Decodes one of the JSON parts of a token.
fn part<T: DeserializeOwned>(text: &str, name: &str) -> Result<T, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| refused(format!("its {name} is not base64url")))?;
    // serde's message names a missing claim; it repeats at most a value of the caller's own token.
    serde_json::from_slice(&bytes).map_err(|error| refused(format!("its {name} cannot be read: {error}")))
}

fn refused(why: impl AsRef<str>) -> Problem {
    Problem::new(Kind::BadToken, format!("the token is not accepted: {}", why.as_ref()))
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

/// The claims we use; others are ignored.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
    nbf: Option<f64>,
    iss: Option<String>,
    aud: Option<OneOrMany>,
    scope: Option<OneOrMany>,
    scopes: Option<OneOrMany>,
    scp: Option<OneOrMany>,
    conversations: Option<Value>,
}

/// Some issuers write a single value as a string, others as a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
        }
        .iter()
        .map(String::as_str)
    }
}

#[derive(Serialize)]
struct MintedClaims<'a> {
    sub: &'a str,
    iat: u64,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conversations: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use jsonwebtoken::{Algorithm, EncodingKey};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::keys::tests::{ED_PRIVATE, ED_PUBLIC, RSA_PRIVATE, RSA_PUBLIC, SECRET, key_set};

    const NOW: u64 = 1_700_000_000;

    fn keys(text: &str) -> Keys {
        Keys::from_text(text).unwrap()
    }

    fn grant() -> Grant {
        Grant::new(UserId::parse("alice").unwrap(), Scopes::NONE.with(Scope::Service), 60)
    }

    /// A token of any claims and header, signed with the secret.
    fn signed(header: &Header, claims: &Value) -> String {
        jsonwebtoken::encode(header, claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
    }

    fn with_claims(claims: Value) -> Result<Caller, Problem> {
        verify(&keys(SECRET), &Expect::default(), &signed(&Header::default(), &claims), NOW)
    }

    fn refusal(result: Result<Caller, Problem>) -> String {
        let problem = result.unwrap_err();
        assert_eq!(problem.status(), 401);
        problem.detail
    }

    #[test]
    fn token_verifies_only_with_its_key() {
        let pairs = [(SECRET, SECRET), (RSA_PRIVATE, RSA_PUBLIC), (ED_PRIVATE, ED_PUBLIC)];
        for (private, public) in pairs {
            let token = mint(&SigningKey::from_text(private).unwrap(), &grant(), NOW).unwrap();
            for (_, other) in pairs {
                let result = verify(&keys(other), &Expect::default(), &token, NOW);
                assert_eq!(result.is_ok(), other == public);
            }
            let caller = verify(&keys(&key_set()), &Expect::default(), &token, NOW).unwrap();
            assert_eq!(caller.user.as_str(), "alice");
            assert_eq!(caller.scopes, Scopes::NONE.with(Scope::Service));
        }
    }

    #[test]
    fn token_of_another_secret_is_refused() {
        let foreign = SigningKey::from_text(&"f".repeat(32)).unwrap();
        let token = mint(&foreign, &grant(), NOW).unwrap();
        assert!(refusal(verify(&keys(SECRET), &Expect::default(), &token, NOW)).contains("signature"));
    }

    #[test]
    fn tampered_token_is_refused() {
        let token = mint(&SigningKey::from_text(SECRET).unwrap(), &grant(), NOW).unwrap();
        let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
        let claims = json!({"sub": "admin", "exp": NOW + 60}).to_string();
        if let Some(payload) = parts.get_mut(1) {
            *payload = URL_SAFE_NO_PAD.encode(claims);
        }
        assert!(refusal(verify(&keys(SECRET), &Expect::default(), &parts.join("."), NOW)).contains("signature"));
    }

    #[test]
    fn unsigned_token_is_refused() {
        let claims = URL_SAFE_NO_PAD.encode(json!({"sub": "alice", "exp": NOW + 60}).to_string());
        for alg in ["none", "None", "", "HS512", "ES256"] {
            let header = URL_SAFE_NO_PAD.encode(json!({ "alg": alg }).to_string());
            for text in [SECRET, RSA_PUBLIC, &key_set()] {
                let result = verify(&keys(text), &Expect::default(), &format!("{header}.{claims}."), NOW);
                assert!(refusal(result).contains("unsigned"), "{alg}");
            }
        }
    }

    #[test]
    fn public_key_is_not_an_hmac_secret() {
        let header = Header::new(Algorithm::HS256);
        let claims = json!({"sub": "alice", "exp": NOW + 60});
        for secret in [RSA_PUBLIC, RSA_PUBLIC.trim()] {
            let token = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap();
            assert!(refusal(verify(&keys(RSA_PUBLIC), &Expect::default(), &token, NOW)).contains("no key"));
        }
    }

    #[test]
    fn token_expires_after_leeway() {
        let token = mint(&SigningKey::from_text(SECRET).unwrap(), &grant(), NOW).unwrap();
        let at = |now| verify(&keys(SECRET), &Expect::default(), &token, now);
        assert!(at(NOW + 60 + LEEWAY_S - 1).is_ok());
        assert!(refusal(at(NOW + 60 + LEEWAY_S)).contains("expired"));
        assert!(refusal(at(u64::MAX)).contains("expired"));
    }

    #[test]
    fn token_is_invalid_before_nbf() {
        let claims = |nbf: u64| json!({"sub": "alice", "exp": NOW + 60, "nbf": nbf});
        assert!(with_claims(claims(NOW + LEEWAY_S)).is_ok());
        assert!(refusal(with_claims(claims(NOW + LEEWAY_S + 1))).contains("not valid yet"));
    }

    #[test]
    fn token_needs_exp_and_sub() {
        assert!(refusal(with_claims(json!({"sub": "alice"}))).contains("`exp`"));
        assert!(refusal(with_claims(json!({"exp": NOW + 60}))).contains("`sub`"));
        assert!(refusal(with_claims(json!({"sub": "", "exp": NOW + 60}))).contains("`sub` is empty"));
        assert!(refusal(with_claims(json!({"sub": "a\nb", "exp": NOW + 60}))).contains("control character"));
        assert!(refusal(with_claims(json!({"sub": "alice", "exp": "soon"}))).contains("cannot be read"));
        assert!(with_claims(json!({"sub": "alice", "exp": NOW as f64 + 0.5})).is_ok());
    }

    #[test]
    fn scopes_are_read_from_three_claims() {
        let scopes = |claim: &str, value: Value| {
            with_claims(json!({"sub": "alice", "exp": NOW + 60, claim: value})).unwrap().scopes
        };
        assert_eq!(scopes("scope", json!("openid service admin")), Scopes::ALL);
        assert_eq!(scopes("scopes", json!(["admin"])), Scopes::NONE.with(Scope::Admin));
        assert_eq!(scopes("scp", json!(["service", "x"])), Scopes::NONE.with(Scope::Service));
        assert_eq!(scopes("roles", json!("service")), Scopes::NONE);
    }

    #[test]
    fn token_lists_conversations() {
        let claimed = |claim: Value| {
            with_claims(json!({"sub": "alice", "exp": NOW + 60, "conversations": claim}))
                .map(|caller| caller.conversations)
        };
        let of = |names: &[&str]| Conversations::parse(names.iter().copied()).unwrap();
        assert_eq!(claimed(json!(["c1", "c2"])), Ok(of(&["c1", "c2"])));
        assert_eq!(claimed(json!(["c1", "*"])), Ok(Conversations::Any));
        assert_eq!((claimed(json!([])), claimed(Value::Null)), (Ok(Conversations::NONE), Ok(Conversations::NONE)));
        let silent = with_claims(json!({"sub": "alice", "exp": NOW + 60})).unwrap();
        assert_eq!(silent.conversations, Conversations::NONE);
        let service = json!({"sub": "s", "exp": NOW + 60, "scope": "service", "conversations": ["c1"]});
        assert_eq!(with_claims(service).unwrap().conversations, Conversations::Any);

        let minted = Grant { scopes: Scopes::NONE, conversations: of(&["c1", "c2"]), ..grant() };
        let token = mint(&SigningKey::from_text(SECRET).unwrap(), &minted, NOW).unwrap();
        let caller = verify(&keys(SECRET), &Expect::default(), &token, NOW).unwrap();
        assert_eq!(caller.conversations, minted.conversations);
    }

    #[test]
    fn oversized_token_is_not_minted() {
        let minted = |count: usize| {
            let names: Vec<String> = (0..count).map(|place| format!("{place:0128}")).collect();
            let conversations = Conversations::parse(names.iter().map(String::as_str)).unwrap();
            mint(&SigningKey::from_text(SECRET).unwrap(), &Grant { conversations, ..grant() }, NOW)
        };
        assert!(verify(&keys(SECRET), &Expect::default(), &minted(40).unwrap(), NOW).is_ok());
        assert!(minted(50).is_err_and(|error| error.to_string().contains("longer than 8192 bytes")));
    }

    #[test]
    fn bad_conversations_claim_refuses_the_token() {
        for (claim, detail) in [
            (json!("c1"), "`conversations` is not a list"),
            (json!({"c1": true}), "`conversations` is not a list"),
            (json!(["c1", 2]), "`conversations[1]` is not a string"),
            (json!(["c1", ""]), "`conversations[1]` is empty"),
            (json!(["*", "a\nb"]), "`conversations[1]` contains a control character"),
            (json!(["x".repeat(129)]), "`conversations[0]` is longer than 128 bytes"),
        ] {
            let claims = json!({"sub": "alice", "exp": NOW + 60, "conversations": claim});
            let said = refusal(with_claims(claims));
            assert!(said.contains(detail), "{said}");
        }
    }

    #[test]
    fn caller_carries_token_expiry() {
        let expires_at = |exp: Value| with_claims(json!({"sub": "alice", "exp": exp})).unwrap().expires_at;
        assert_eq!(expires_at(json!(NOW + 60)), Some(NOW + 60));
        assert_eq!(expires_at(json!(NOW as f64 + 0.5)), Some(NOW + 1));
        assert_eq!(expires_at(json!(1e300)), Some(u64::MAX));
    }

    #[test]
    fn expected_issuer_and_audience_are_checked() {
        let expect = Expect { issuer: Some("idp".to_owned()), audience: Some("rollcall".to_owned()) };
        let check = |claims: Value| {
            let token = signed(&Header::default(), &claims);
            verify(&keys(SECRET), &expect, &token, NOW)
        };
        let claims = |iss: Value, aud: Value| json!({"sub": "alice", "exp": NOW + 60, "iss": iss, "aud": aud});
        assert!(check(claims(json!("idp"), json!("rollcall"))).is_ok());
        assert!(check(claims(json!("idp"), json!(["other", "rollcall"]))).is_ok());
        assert!(refusal(check(claims(json!("else"), json!("rollcall")))).contains("issuer"));
        assert!(refusal(check(claims(Value::Null, json!("rollcall")))).contains("issuer"));
        assert!(refusal(check(claims(json!("idp"), json!("rollcall2")))).contains("audience"));
        assert!(refusal(check(claims(json!("idp"), Value::Null))).contains("audience"));
        let minted = mint(&SigningKey::from_text(SECRET).unwrap(), &Grant { expect: expect.clone(), ..grant() }, NOW);
        assert!(verify(&keys(SECRET), &expect, &minted.unwrap(), NOW).is_ok());
    }

    #[test]
    fn key_is_selected_by_id() {
        let claims = json!({"sub": "alice", "exp": NOW + 60});
        let header = |id: &str| Header { kid: Some(id.to_owned()), ..Header::default() };
        let set = keys(&key_set());
        assert!(verify(&set, &Expect::default(), &signed(&header("hmac"), &claims), NOW).is_ok());
        assert!(verify(&set, &Expect::default(), &signed(&header("rsa"), &claims), NOW).is_err());
        assert!(verify(&set, &Expect::default(), &signed(&header("gone"), &claims), NOW).is_err());
    }

    #[test]
    fn critical_extension_is_refused() {
        let header = Header { crit: Some(vec!["b64".to_owned()]), ..Header::default() };
        let token = signed(&header, &json!({"sub": "alice", "exp": NOW + 60}));
        assert!(refusal(verify(&keys(SECRET), &Expect::default(), &token, NOW)).contains("critical"));
    }

    #[test]
    fn malformed_token_is_refused() {
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        for token in ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "e30.e30.e30", "=.=.=", &long] {
            refusal(verify(&keys(SECRET), &Expect::default(), token, NOW));
        }
    }

    proptest! {
        #[test]
        fn verifying_a_token_never_panics(text in any::<String>(), parts in prop::array::uniform3("[A-Za-z0-9_-]{0,30}")) {
            let _ = verify(&keys(SECRET), &Expect::default(), &text, NOW);
            let _ = verify(&keys(SECRET), &Expect::default(), &parts.join("."), NOW);
        }

        #[test]
        fn parsing_claims_never_panics(header in any::<Vec<u8>>(), claims in any::<Vec<u8>>(), now in any::<u64>()) {
            let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(&claims));
            let _ = verify(&keys(SECRET), &Expect::default(), &format!("{message}.AAAA"), now);
            let sealed = format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#), URL_SAFE_NO_PAD.encode(claims));
            let key = EncodingKey::from_secret(SECRET.as_bytes());
            let signature = jsonwebtoken::crypto::sign(sealed.as_bytes(), &key, Algorithm::HS256).unwrap();
            let _ = verify(&keys(SECRET), &Expect::default(), &format!("{sealed}.{signature}"), now);
        }
    }
}
