//! The query string: a few known keys, each at most once.
//!
//! An unknown key is refused by name, like an unknown field of a body: a misspelt `user=` must not be ignored. Values stay
//! percent-encoded until they are used.

use std::borrow::Cow;
use std::fmt;

use rollcall_core::{ConversationId, Invalid, UserId};

use crate::percent;
use crate::problem::{Kind, Problem};
use crate::route::Operation;

/// How much of a caller's text an error repeats: enough to recognise it.
pub(crate) const NAME_ECHO_CHARS: usize = 64;

/// The most keys an operation takes, besides those that identify the caller.
const MAX_KEYS: usize = 7;

/// A request's query, by key. Its `Debug` shows keys but no values: one of them is a token.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Query<'a> {
    token: Option<&'a str>,
    caller: Option<&'a str>,
    /// The keys of this operation, and their values at the same index.
    keys: &'static [&'static str],
    values: [Option<&'a str>; MAX_KEYS],
}

impl fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("token", &self.token.is_some())
            .field("as", &self.caller.is_some())
            .field("keys", &self.given().collect::<Vec<_>>())
            .finish()
    }
}

impl<'a> Query<'a> {
    /// Parses a query (the text after `?`) for this operation.
    pub fn parse(operation: Operation<'_>, text: Option<&'a str>) -> Result<Self, Problem> {
        let mut query = Query { keys: operation.query_keys(), ..Query::default() };
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match key {
                "token" => Some(&mut query.token),
                "as" => Some(&mut query.caller),
                key => query.keys.iter().zip(&mut query.values).find(|(known, _)| **known == key).map(|(_, slot)| slot),
            };
            let slot = slot.ok_or_else(|| unknown_key(operation, key))?;
            if slot.replace(value).is_some() {
                return Err(Problem::invalid(key, "is given twice"));
            }
        }
        Ok(query)
    }

    /// The keys that are present, besides those that identify the caller.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().zip(self.values).filter(|(_, value)| value.is_some()).map(|(key, _)| *key)
    }

    /// The value of `field`, still percent-encoded.
    fn raw(&self, field: &str) -> Option<&'a str> {
        self.keys.iter().zip(self.values).find(|(key, _)| **key == field).and_then(|(_, value)| value)
    }

    /// The token, for browsers that can set no header.
    pub(crate) fn token(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        self.token.map(|token| decode("token", token)).transpose()
    }

    /// The unverified caller, where no key is configured.
    pub(crate) fn caller(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        self.caller.map(|caller| decode("as", caller)).transpose()
    }

    /// The decoded value of `field`.
    pub(crate) fn text(&self, field: &str) -> Result<Option<Cow<'a, str>>, Problem> {
        self.raw(field).map(|text| decode(field, text)).transpose()
    }

    /// The users listed in `field`: at least one, at most `limit`.
    pub(crate) fn users(&self, field: &str, limit: usize) -> Result<Vec<UserId>, Problem> {
        self.users_if_any(field, limit)?.ok_or_else(|| Problem::invalid(field, "is missing"))
    }

    /// The same, if `field` is present.
    pub(crate) fn users_if_any(&self, field: &str, limit: usize) -> Result<Option<Vec<UserId>>, Problem> {
        self.list(field, limit, user_id)
    }

    /// The conversations listed in `field`, if present: at least one, at most `limit`.
    pub(crate) fn conversations_if_any(
        &self,
        field: &str,
        limit: usize,
    ) -> Result<Option<Vec<ConversationId>>, Problem> {
        self.list(field, limit, conversation_id)
    }

    /// Splits at commas before decoding, so that an id may contain a comma as `%2C`.
    fn list<T>(
        &self,
        field: &str,
        limit: usize,
        read: fn(&str, &str) -> Result<T, Problem>,
    ) -> Result<Option<Vec<T>>, Problem> {
        let Some(list) = self.raw(field) else { return Ok(None) };
        if list.is_empty() {
            return Err(Problem::invalid(field, "is empty"));
        }
        let count = list.split(',').count();
        if count > limit {
            return Err(too_many(field, count, limit));
        }
        let ids = list.split(',').enumerate().map(|(place, id)| read(&format!("{field}[{place}]"), id));
        ids.collect::<Result<_, _>>().map(Some)
    }
}

/// Decodes a user id of a path or query.
pub(crate) fn user_id(field: &str, text: &str) -> Result<UserId, Problem> {
    id(field, text, UserId::parse)
}

/// Decodes a conversation id of a path or query.
pub(crate) fn conversation_id(field: &str, text: &str) -> Result<ConversationId, Problem> {
    id(field, text, ConversationId::parse)
}

fn id<T>(field: &str, text: &str, parse: fn(String) -> Result<T, Invalid>) -> Result<T, Problem> {
    parse(decode(field, text)?.into_owned()).map_err(|invalid| Problem::invalid(field, invalid.rule))
}

/// A list with more items than allowed.
pub(crate) fn too_many(field: &str, count: usize, limit: usize) -> Problem {
    let problem = Problem::about(Kind::TooMany, field, format!("has {count} items; at most {limit} are allowed"));
    Problem { limit: u32::try_from(limit).ok(), ..problem }
}

/// A caller's text, cut to a length that an error can repeat.
pub(crate) fn echo(name: &str) -> String {
    name.chars().take(NAME_ECHO_CHARS).collect()
}

fn decode<'a>(field: &str, text: &'a str) -> Result<Cow<'a, str>, Problem> {
    percent::decode(text).map_err(|rule| Problem::invalid(field, rule))
}

fn unknown_key(operation: Operation<'_>, key: &str) -> Problem {
    let known: String = operation.query_keys().iter().map(|key| format!("`{key}`, ")).collect();
    Problem::invalid(echo(key), format!("is not a query key of this path; the keys are {known}`token`, `as`"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn users(text: &str) -> Result<Vec<String>, Problem> {
        let query = Query::parse(Operation::PresenceQuery, Some(text))?;
        Ok(query.users("users", 500)?.into_iter().map(UserId::into_string).collect())
    }

    fn refusal(text: &str) -> (u16, String, String) {
        let problem = users(text).unwrap_err();
        (problem.status().as_u16(), problem.field.unwrap(), problem.rule.unwrap())
    }

    #[test]
    fn list_is_split_before_decoding() {
        assert_eq!(users("users=a,b%2Cc,%E5%90%8D+1").unwrap(), ["a", "b,c", "名+1"]);
        assert_eq!(users("as=x&users=a&token=t").unwrap(), ["a"]);
    }

    #[test]
    fn bad_id_in_list_is_named_by_index() {
        assert_eq!(refusal("users=a,,b"), (400, "users[1]".into(), "is empty".into()));
        assert_eq!(refusal("users=a,%0A").1, "users[1]");
        assert_eq!(refusal(&format!("users={}", "x".repeat(129))).2, "is longer than 128 bytes");
        assert_eq!(refusal("users=%zz").1, "users[0]");
    }

    #[test]
    fn empty_or_missing_list_is_refused() {
        assert_eq!(refusal("users="), (400, "users".into(), "is empty".into()));
        assert_eq!(refusal("users"), (400, "users".into(), "is empty".into()));
        assert_eq!(refusal(""), (400, "users".into(), "is missing".into()));
    }

    #[test]
    fn list_over_the_limit_is_refused() {
        let list = |count: usize| format!("users={}", vec!["a"; count].join(","));
        assert_eq!(users(&list(500)).unwrap().len(), 500);
        assert_eq!(refusal(&list(501)), (400, "users".into(), "has 501 items; at most 500 are allowed".into()));
    }

    #[test]
    fn unknown_or_repeated_key_is_refused_by_name() {
        assert_eq!(refusal("users=a&user=b").1, "user");
        assert_eq!(refusal("users=a&users=b"), (400, "users".into(), "is given twice".into()));
        assert_eq!(refusal("users=a&as=b&as=c").1, "as");
        let problem = Query::parse(Operation::Heartbeat, Some("users=a")).unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("users"));
    }

    #[test]
    fn debug_output_hides_the_token() {
        let query = Query::parse(Operation::Sweep, Some("token=hush")).unwrap();
        assert!(!format!("{query:?}").contains("hush"));
        let query = Query::parse(Operation::Socket, Some("device=web-1&watch_only=true")).unwrap();
        assert!(format!("{query:?}").contains(r#"["device", "watch_only"]"#));
    }

    #[test]
    fn keys_come_in_any_order_once_each() {
        let query = Query::parse(Operation::Subscribe, Some("since=5&users=a&as=x&conversations=c%2C1,d")).unwrap();
        assert_eq!(query.text("since").unwrap().as_deref(), Some("5"));
        assert_eq!(query.text("device").unwrap(), None);
        let conversations = query.conversations_if_any("conversations", 2).unwrap().unwrap();
        assert_eq!(conversations.iter().map(ConversationId::as_str).collect::<Vec<_>>(), ["c,1", "d"]);
        let refused = |text| Query::parse(Operation::Subscribe, Some(text)).unwrap_err();
        assert_eq!(refused("since=5&users=a&since=6").detail, "`since` is given twice");
        let unknown = refused("user=a").rule.unwrap();
        assert!(
            unknown.contains("`users`, `conversations`, `device`, `kind`, `active`, `watch_only`, `since`, `token`"),
            "{unknown}"
        );
    }

    #[test]
    fn every_function_fits_max_keys() {
        for entry in &crate::ROUTES {
            if let crate::Route::Operation(operation) = entry.route {
                assert!(operation.query_keys().len() <= MAX_KEYS, "{}", entry.template);
            }
        }
    }

    proptest! {
        #[test]
        fn parsing_a_query_never_panics(text in any::<String>(), list in "[a-z,%0-9]{0,40}") {
            for operation in [Operation::Heartbeat, Operation::PresenceQuery, Operation::Privacy, Operation::Subscribe] {
                if let Ok(query) = Query::parse(operation, Some(&text)) {
                    let _ = (query.token(), query.caller(), query.text("user"), query.users("users", 5));
                    let _ = query.conversations_if_any("conversations", 5);
                }
            }
            let _ = users(&format!("users={list}"));
        }
    }
}
