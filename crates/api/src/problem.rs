//! What went wrong, as RFC 9457 `application/problem+json`.
//!
//! A problem says what the caller can do: its kind fixes the status and the title, its detail is a sentence, and where
//! it is about one field of the input it names the field and the rule. It never carries anything internal: what a
//! failure of ours was is for the log of whoever handles it, before it becomes a problem.

use std::borrow::Cow;
use std::fmt;

use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE,
};
use http::{HeaderValue, Response, StatusCode};
use rollcall_core::{Error, Invalid};
use serde::Serialize;

/// An answer that any transport can send.
pub type Reply = Response<Vec<u8>>;

/// The sorts of problem, by what the caller can do about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The body is not JSON: send JSON.
    Malformed,
    /// The input breaks a rule: mend it.
    Invalid,
    /// More than there may be: ask in smaller parts, or make room first.
    TooMany,
    /// Nobody said who is asking: say so.
    Unidentified,
    /// The token is no good: get another.
    BadToken,
    /// The caller may not do this: stop asking.
    Forbidden,
    /// There is nothing at this path.
    NotFound,
    /// There is something at this path, but not by this method.
    WrongMethod,
    /// The body is larger than this route takes.
    TooLarge,
    /// The body is of another type than JSON.
    WrongType,
    /// The path speaks WebSocket, and the request does not: ask for the upgrade.
    UpgradeRequired,
    /// The store is away: try again later.
    Unavailable,
    /// A failure of ours.
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

    /// The problem's `type`: a name for programs to compare, not a page to visit.
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
            Kind::TooMany => "Too many",
            Kind::Unidentified => "Nobody said who is asking",
            Kind::BadToken => "The token is not accepted",
            Kind::Forbidden => "Not allowed",
            Kind::NotFound => "Nothing here",
            Kind::WrongMethod => "Wrong method",
            Kind::TooLarge => "The body is too large",
            Kind::WrongType => "The body must be JSON",
            Kind::UpgradeRequired => "This path speaks WebSocket",
            Kind::Unavailable => "The store is away",
            Kind::Internal => "Something failed on our side",
        }
    }
}

/// Why a request, or one item of a batch, was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Of which sort.
    pub kind: Kind,
    /// What happened this time, as a sentence.
    pub detail: String,
    /// The field that it is about, as the caller wrote it: `device`, `users[3]`.
    pub field: Option<String>,
    /// The rule that the field breaks, as a clause: "is empty".
    pub rule: Option<String>,
    /// After how many seconds to try again.
    pub retry_after_s: Option<u32>,
    /// The methods that would have worked.
    pub allow: Option<String>,
}

impl Problem {
    /// A problem about the request as a whole.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), field: None, rule: None, retry_after_s: None, allow: None }
    }

    /// A problem about one field.
    pub fn about(kind: Kind, field: impl Into<String>, rule: impl Into<String>) -> Self {
        let (field, rule) = (field.into(), rule.into());
        let detail = format!("`{field}` {rule}");
        Self { field: Some(field), rule: Some(rule), ..Self::new(kind, detail) }
    }

    /// A broken rule about one field: the commonest problem.
    pub fn invalid(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::about(Kind::Invalid, field, rule)
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.kind.status()
    }

    /// The answer to send.
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

    /// The problem as an object. Strings and numbers always serialise; an empty text would still go with its status.
    pub(crate) fn to_json(&self) -> String {
        let wire = WireProblem { kind: self.kind.urn(), members: self.wire() };
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// The members that a problem has wherever it stands, alone or in a batch.
    pub(crate) fn wire(&self) -> WireError<'_> {
        WireError {
            title: self.kind.title(),
            status: self.status().as_u16(),
            detail: Cow::Borrowed(&self.detail),
            field: self.field.as_deref().map(Cow::Borrowed),
            rule: self.rule.as_deref().map(Cow::Borrowed),
            retry_after_s: self.retry_after_s,
        }
    }

    /// The same, of a problem that nobody else keeps.
    pub(crate) fn into_wire(self) -> WireError<'static> {
        WireError {
            title: self.kind.title(),
            status: self.status().as_u16(),
            detail: Cow::Owned(self.detail),
            field: self.field.map(Cow::Owned),
            rule: self.rule.map(Cow::Owned),
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
            // Of what was asked for at once, and also of what a person may have listed.
            Error::TooMany(limit) => Self::new(
                Kind::TooMany,
                format!("this would be more than {limit}, which is the most that there may be"),
            ),
            Error::Unavailable(after_ms) => {
                // Rounded up, and never zero: a client told to wait no time at all would spin.
                let seconds = after_ms.div_ceil(1000).max(1);
                let detail = format!("the service cannot answer now; the same again is safe; try in {seconds} s");
                Self { retry_after_s: Some(seconds), ..Self::new(Kind::Unavailable, detail) }
            }
            Error::Denied => Self::new(Kind::Forbidden, "the caller may not do this"),
            Error::Other(_) => {
                Self::new(Kind::Internal, "the request could not be completed; the server's log says why")
            }
        }
    }
}

#[derive(Serialize)]
struct WireProblem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    members: WireError<'a>,
}

/// A problem as it stands in a batch, where the `type` would only repeat the status.
#[derive(Serialize)]
pub(crate) struct WireError<'a> {
    title: &'static str,
    status: u16,
    detail: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<Cow<'a, str>>,
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
    fn a_problem_names_its_field_and_rule() {
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
    fn a_store_that_is_away_is_retried_after_whole_seconds_and_never_at_once() {
        for (after_ms, header) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (u32::MAX, "4294968")] {
            let reply = Problem::from(Error::Unavailable(after_ms)).into_reply();
            assert_eq!(reply.status(), 503);
            assert_eq!(reply.headers()[RETRY_AFTER], header);
        }
    }

    #[test]
    fn an_internal_failure_leaks_nothing() {
        let reply = Problem::from(Error::Other("redis://secret@10.0.0.1 refused".to_owned())).into_reply();
        assert_eq!(reply.status(), 500);
        assert!(!String::from_utf8_lossy(reply.body()).contains("secret"));
    }

    #[test]
    fn every_error_of_the_contract_has_its_status() {
        let status = |error: Error| Problem::from(error).status().as_u16();
        assert_eq!(status(Invalid::new("user", "is empty").into()), 400);
        assert_eq!(status(Error::TooMany(1024)), 400);
        assert_eq!(status(Error::Denied), 403);
        assert!(Problem::from(Error::TooMany(1024)).detail.contains("more than 1024"));
        let renamed = Problem::from(Invalid::new("for-s", "is not between 1 and 5"));
        assert_eq!(renamed.field.as_deref(), Some("for_s"));
    }

    #[test]
    fn whoever_must_identify_is_told_how() {
        let challenge = |kind| Problem::new(kind, "x").into_reply().headers()[WWW_AUTHENTICATE].clone();
        assert_eq!(challenge(Kind::Unidentified), "Bearer realm=\"rollcall\"");
        assert_eq!(challenge(Kind::BadToken), "Bearer realm=\"rollcall\", error=\"invalid_token\"");
    }

    #[test]
    fn whoever_must_upgrade_is_told_to_what() {
        let reply = Problem::new(Kind::UpgradeRequired, "x").into_reply();
        assert_eq!((reply.status().as_u16(), &reply.headers()[UPGRADE]), (426, &HeaderValue::from_static("websocket")));
        assert_eq!(
            (&reply.headers()[CONNECTION], &reply.headers()[SEC_WEBSOCKET_VERSION]),
            (&"upgrade".parse().unwrap(), &"13".parse().unwrap())
        );
    }

    #[test]
    fn every_kind_is_an_error_of_its_own_name() {
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
