//! Errors as RFC 9457 `application/problem+json`.
//!
//! A problem says what the caller can do. Its kind fixes the status and the title, its detail is a sentence, and if it
//! concerns one field of the input it names the field and the rule. It never carries internal details: those are logged
//! where the failure is handled, before it becomes a problem.

use std::borrow::Cow;
use std::fmt;

use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE,
};
use http::{HeaderValue, Response, StatusCode};
use rollcall_core::{Error, Invalid};
use serde::Serialize;

/// A response that any transport can send.
pub type Reply = Response<Vec<u8>>;

/// Kinds of problem, by what the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The body is not JSON: send JSON.
    Malformed,
    /// The input breaks a rule: correct it.
    Invalid,
    /// Too many items: split the request, or remove some first.
    TooMany,
    /// The request does not identify its caller: add a token.
    Unidentified,
    /// The token is not accepted: get another.
    BadToken,
    /// The caller may not do this: do not retry.
    Forbidden,
    /// The path does not exist.
    NotFound,
    /// The path exists, but not for this method.
    WrongMethod,
    /// The body is larger than the limit of this path.
    TooLarge,
    /// The `Content-Type` is not JSON.
    WrongType,
    /// The path is a WebSocket: ask for the upgrade.
    UpgradeRequired,
    /// The store is unavailable: retry later.
    Unavailable,
    /// The server failed.
    Internal,
}

impl Kind {
    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Kind::Malformed | Kind::Invalid | Kind::TooMany => StatusCode::BAD_REQUEST,
            Kind::Unidentified | Kind::BadToken => StatusCode::UNAUTHORIZED,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::WrongType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Kind::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The problem's `type`: an identifier to compare, not a page to visit.
    pub fn urn(self) -> &'static str {
        match self {
            Kind::Malformed => "urn:rollcall:problem:malformed",
            Kind::Invalid => "urn:rollcall:problem:invalid",
            Kind::TooMany => "urn:rollcall:problem:too-many",
            Kind::Unidentified => "urn:rollcall:problem:unidentified",
            Kind::BadToken => "urn:rollcall:problem:bad-token",
            Kind::Forbidden => "urn:rollcall:problem:forbidden",
            Kind::NotFound => "urn:rollcall:problem:not-found",
            Kind::WrongMethod => "urn:rollcall:problem:wrong-method",
            Kind::TooLarge => "urn:rollcall:problem:too-large",
            Kind::WrongType => "urn:rollcall:problem:wrong-type",
            Kind::UpgradeRequired => "urn:rollcall:problem:upgrade-required",
            Kind::Unavailable => "urn:rollcall:problem:unavailable",
            Kind::Internal => "urn:rollcall:problem:internal",
        }
    }

    /// The problem's `title`, the same for every problem of a kind.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Malformed => "The body is not valid JSON",
            Kind::Invalid => "The input breaks a rule",
            Kind::TooMany => "Too many items",
            Kind::Unidentified => "The caller is not identified",
            Kind::BadToken => "The token is not accepted",
            Kind::Forbidden => "Not allowed",
            Kind::NotFound => "Not found",
            Kind::WrongMethod => "Method not allowed",
            Kind::TooLarge => "The body is too large",
            Kind::WrongType => "The body must be JSON",
            Kind::UpgradeRequired => "This path is a WebSocket",
            Kind::Unavailable => "The store is unavailable",
            Kind::Internal => "Internal error",
        }
    }
}

/// Why a request, or one item of a batch, was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Fixes status and title.
    pub kind: Kind,
    /// What happened, as a sentence.
    pub detail: String,
    /// The field concerned, as the caller wrote it: `device`, `users[3]`.
    pub field: Option<String>,
    /// The rule that the field breaks, as a clause: "is empty".
    pub rule: Option<String>,
    /// The most items that are accepted.
    pub limit: Option<u32>,
    /// Seconds to wait before retrying.
    pub retry_after_s: Option<u32>,
    /// The methods that the path takes.
    pub allow: Option<String>,
}

impl Problem {
    /// A problem about the request as a whole.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), field: None, rule: None, limit: None, retry_after_s: None, allow: None }
    }

    /// A problem about one field.
    pub fn about(kind: Kind, field: impl Into<String>, rule: impl Into<String>) -> Self {
        let (field, rule) = (field.into(), rule.into());
        let detail = format!("`{field}` {rule}");
        Self { field: Some(field), rule: Some(rule), ..Self::new(kind, detail) }
    }

    /// A field that breaks a rule.
    pub fn invalid(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::about(Kind::Invalid, field, rule)
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.kind.status()
    }

    /// The response to send.
    pub fn into_reply(self) -> Reply {
        let mut reply = Response::new(self.to_json().into_bytes());
        *reply.status_mut() = self.status();
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self.kind {
            Kind::Unidentified => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"rollcall\""));
            }
            Kind::BadToken => {
                let challenge = "Bearer realm=\"rollcall\", error=\"invalid_token\"";
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            Kind::UpgradeRequired => {
                headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
            _ => {}
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        reply
    }

    /// The problem as a JSON object. Strings and numbers always serialise.
    pub(crate) fn to_json(&self) -> String {
        let object = ProblemJson { kind: self.kind.urn(), members: self.json_body() };
        serde_json::to_string(&object).unwrap_or_default()
    }

    /// The members that a problem has both alone and in a batch.
    pub(crate) fn json_body(&self) -> ErrorJson<'_> {
        ErrorJson {
            title: self.kind.title(),
            status: self.status().as_u16(),
            detail: Cow::Borrowed(&self.detail),
            field: self.field.as_deref().map(Cow::Borrowed),
            rule: self.rule.as_deref().map(Cow::Borrowed),
            limit: self.limit,
            retry_after_s: self.retry_after_s,
        }
    }

    /// The same, consuming the problem.
    pub(crate) fn into_json_body(self) -> ErrorJson<'static> {
        ErrorJson {
            title: self.kind.title(),
            status: self.status().as_u16(),
            detail: Cow::Owned(self.detail),
            field: self.field.map(Cow::Owned),
            rule: self.rule.map(Cow::Owned),
            limit: self.limit,
            retry_after_s: self.retry_after_s,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status().as_u16(), self.detail)
    }
}

impl std::error::Error for Problem {}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        // The contract writes `for-s` where JSON writes `for_s`.
        Self::invalid(invalid.field.replace('-', "_"), invalid.rule)
    }
}

impl From<Error> for Problem {
    /// The text of [`Error::Other`] is dropped: log it before it becomes a problem.
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(invalid) => invalid.into(),
            // The limit of a batch, or of the contacts or blocks that a user may list.
            Error::TooMany(limit) => {
                let detail = format!("more than {limit} items, which is the limit");
                Self { limit: Some(limit), ..Self::new(Kind::TooMany, detail) }
            }
            Error::Unavailable(after_ms) => {
                // Rounded up and never zero, or a client would retry in a tight loop.
                let seconds = after_ms.div_ceil(1000).max(1);
                let detail = format!("the store is unavailable; retry in {seconds} s (retrying is safe)");
                Self { retry_after_s: Some(seconds), ..Self::new(Kind::Unavailable, detail) }
            }
            Error::Denied => Self::new(Kind::Forbidden, "the caller may not do this"),
            Error::Other(_) => Self::new(Kind::Internal, "the request failed; the server's log has the reason"),
        }
    }
}

#[derive(Serialize)]
struct ProblemJson<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    members: ErrorJson<'a>,
}

/// A problem inside a batch, where the `type` would only repeat the status.
#[derive(Serialize)]
pub(crate) struct ErrorJson<'a> {
    title: &'static str,
    status: u16,
    detail: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_s: Option<u32>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use super::*;

    fn json(reply: &Reply) -> serde_json::Value {
        serde_json::from_slice(reply.body()).unwrap()
    }

    #[test]
    fn problem_names_field_and_rule() {
        let reply = Problem::invalid("device", "is empty").into_reply();
        assert_eq!(reply.status(), 400);
        assert_eq!(reply.headers()[CONTENT_TYPE], "application/problem+json");
        let expected = serde_json::json!({
            "type": "urn:rollcall:problem:invalid", "title": "The input breaks a rule", "status": 400,
            "detail": "`device` is empty", "field": "device", "rule": "is empty",
        });
        assert_eq!(json(&reply), expected);
    }

    #[test]
    fn unavailable_rounds_retry_after_up() {
        for (after_ms, header) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (u32::MAX, "4294968")] {
            let reply = Problem::from(Error::Unavailable(after_ms)).into_reply();
            assert_eq!(reply.status(), 503);
            assert_eq!(reply.headers()[RETRY_AFTER], header);
        }
    }

    #[test]
    fn internal_error_hides_its_cause() {
        let reply = Problem::from(Error::Other("redis://secret@10.0.0.1 refused".to_owned())).into_reply();
        assert_eq!(reply.status(), 500);
        assert!(!String::from_utf8_lossy(reply.body()).contains("secret"));
    }

    #[test]
    fn contract_errors_map_to_statuses() {
        let status = |error: Error| Problem::from(error).status().as_u16();
        assert_eq!(status(Invalid::new("user", "is empty").into()), 400);
        assert_eq!(status(Error::TooMany(1024)), 400);
        assert_eq!(status(Error::Denied), 403);
        assert_eq!(json(&Problem::from(Error::TooMany(1024)).into_reply())["limit"], 1024);
        let renamed = Problem::from(Invalid::new("for-s", "is not between 1 and 5"));
        assert_eq!(renamed.field.as_deref(), Some("for_s"));
    }

    #[test]
    fn unauthorized_carries_a_challenge() {
        let challenge = |kind| Problem::new(kind, "x").into_reply().headers()[WWW_AUTHENTICATE].clone();
        assert_eq!(challenge(Kind::Unidentified), "Bearer realm=\"rollcall\"");
        assert_eq!(challenge(Kind::BadToken), "Bearer realm=\"rollcall\", error=\"invalid_token\"");
    }

    #[test]
    fn upgrade_required_names_websocket() {
        let reply = Problem::new(Kind::UpgradeRequired, "x").into_reply();
        assert_eq!((reply.status().as_u16(), &reply.headers()[UPGRADE]), (426, &HeaderValue::from_static("websocket")));
        assert_eq!(
            (&reply.headers()[CONNECTION], &reply.headers()[SEC_WEBSOCKET_VERSION]),
            (&"upgrade".parse().unwrap(), &"13".parse().unwrap())
        );
    }

    #[test]
    fn every_kind_has_its_own_urn() {
        let kinds = [
            Kind::Malformed,
            Kind::Invalid,
            Kind::TooMany,
            Kind::Unidentified,
            Kind::BadToken,
            Kind::Forbidden,
            Kind::NotFound,
            Kind::WrongMethod,
            Kind::TooLarge,
            Kind::WrongType,
            Kind::UpgradeRequired,
            Kind::Unavailable,
            Kind::Internal,
        ];
        let names: std::collections::HashSet<_> = kinds.iter().map(|kind| kind.urn()).collect();
        assert_eq!(names.len(), kinds.len());
        assert!(kinds.iter().all(|kind| kind.status().as_u16() >= 400 && !kind.title().is_empty()));
    }
}
