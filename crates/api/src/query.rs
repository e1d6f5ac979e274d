//! The query string: a few known keys, each at most once.
//!
//! A key that a route does not know is refused by its name, as an unknown field of a body is: a misspelt `user=` must
//! not silently mean nobody. Values stay as they were sent until somebody needs them.

use std::borrow::Cow;
use std::fmt;

use rollcall_core::UserId;

use crate::percent;
use crate::problem::{Kind, Problem};
use crate::route::Function;

/// How much of a foreign name an error repeats: enough to recognise it.
pub(crate) const NAME_ECHO_CHARS: usize = 64;

/// A request's query, by key. Its `Debug` shows which keys are there, not what they say: one of them is a token.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Query<'a> {
    token: Option<&'a str>,
    caller: Option<&'a str>,
    subject: Option<&'a str>,
}

impl fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("token", &self.token.is_some())
            .field("as", &self.caller.is_some())
            .field("subject", &self.subject.is_some())
            .finish()
    }
}

impl<'a> Query<'a> {
    /// Reads a query (what follows the `?`) as this function understands it.
    pub fn parse(function: Function<'_>, text: Option<&'a str>) -> Result<Self, Problem> {
        let mut query = Query::default();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match key {
                "token" => &mut query.token,
                "as" => &mut query.caller,
                key if Some(key) == function.query_key() => &mut query.subject,
                unknown => return Err(unknown_key(function, unknown)),
            };
            if slot.replace(value).is_some() {
                return Err(Problem::invalid(key, "is given twice"));
            }
        }
        Ok(query)
    }

    /// The token, where a browser could set no header.
    pub(crate) fn token(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        self.token.map(|token| decode("token", token)).transpose()
    }

    /// Who is asking, where no key is configured.
    pub(crate) fn caller(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        self.caller.map(|caller| decode("as", caller)).transpose()
    }

    /// The one person that the query names in `field`.
    pub(crate) fn user(&self, field: &str) -> Result<Option<String>, Problem> {
        Ok(self.subject.map(|user| decode(field, user)).transpose()?.map(Cow::into_owned))
    }

    /// The people that the query lists in `field`: split at commas first and unescaped then, so that an id may hold a
    /// comma as `%2C`. At least one, at most `limit`.
    pub(crate) fn users(&self, field: &str, limit: usize) -> Result<Vec<UserId>, Problem> {
        let list = self.subject.ok_or_else(|| Problem::invalid(field, "is missing"))?;
        if list.is_empty() {
            return Err(Problem::invalid(field, "is empty"));
        }
        let count = list.split(',').count();
        if count > limit {
            return Err(too_many(field, count, limit));
        }
        let ids = list.split(',').enumerate().map(|(place, id)| user_id(&format!("{field}[{place}]"), id));
        ids.collect()
    }
}

/// An id as it stands in a path or a query.
pub(crate) fn user_id(field: &str, text: &str) -> Result<UserId, Problem> {
    let id = decode(field, text)?;
    UserId::parse(id).map_err(|invalid| Problem::invalid(field, invalid.rule))
}

/// A list that is longer than it may be.
pub(crate) fn too_many(field: &str, count: usize, limit: usize) -> Problem {
    Problem::about(Kind::TooMany, field, format!("has {count} items, more than {limit}"))
}

/// A foreign name, cut to a length that an error can repeat.
pub(crate) fn echo(name: &str) -> String {
    name.chars().take(NAME_ECHO_CHARS).collect()
}

fn decode<'a>(field: &str, text: &'a str) -> Result<Cow<'a, str>, Problem> {
    percent::decode(text).map_err(|rule| Problem::invalid(field, rule))
}

fn unknown_key(function: Function<'_>, key: &str) -> Problem {
    let known = function.query_key().map(|key| format!("`{key}`, ")).unwrap_or_default();
    Problem::invalid(echo(key), format!("is not a query key of this path; {known}`token` and `as` are"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn users(text: &str) -> Result<Vec<String>, Problem> {
        let query = Query::parse(Function::PresenceQuery, Some(text))?;
        Ok(query.users("users", 500)?.into_iter().map(UserId::into_string).collect())
    }

    fn refusal(text: &str) -> (u16, String, String) {
        let problem = users(text).unwrap_err();
        (problem.status().as_u16(), problem.field.unwrap(), problem.rule.unwrap())
    }

    #[test]
    fn a_list_is_split_before_it_is_unescaped() {
        assert_eq!(users("users=a,b%2Cc,%E5%90%8D+1").unwrap(), ["a", "b,c", "名+1"]);
        assert_eq!(users("as=x&users=a&token=t").unwrap(), ["a"]);
    }

    #[test]
    fn a_list_with_a_bad_id_names_its_place() {
        assert_eq!(refusal("users=a,,b"), (400, "users[1]".into(), "is empty".into()));
        assert_eq!(refusal("users=a,%0A").1, "users[1]");
        assert_eq!(refusal(&format!("users={}", "x".repeat(129))).2, "is longer than 128 bytes");
        assert_eq!(refusal("users=%zz").1, "users[0]");
    }

    #[test]
    fn a_list_that_is_empty_or_missing_is_refused() {
        assert_eq!(refusal("users="), (400, "users".into(), "is empty".into()));
        assert_eq!(refusal("users"), (400, "users".into(), "is empty".into()));
        assert_eq!(refusal(""), (400, "users".into(), "is missing".into()));
    }

    #[test]
    fn one_id_more_than_the_limit_is_too_many() {
        let list = |count: usize| format!("users={}", vec!["a"; count].join(","));
        assert_eq!(users(&list(500)).unwrap().len(), 500);
        assert_eq!(refusal(&list(501)), (400, "users".into(), "has 501 items, more than 500".into()));
    }

    #[test]
    fn an_unknown_or_repeated_key_is_refused_by_name() {
        assert_eq!(refusal("users=a&user=b").1, "user");
        assert_eq!(refusal("users=a&users=b"), (400, "users".into(), "is given twice".into()));
        assert_eq!(refusal("users=a&as=b&as=c").1, "as");
        let problem = Query::parse(Function::Heartbeat, Some("users=a")).unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("users"));
    }

    #[test]
    fn a_query_does_not_show_its_token() {
        let query = Query::parse(Function::Sweep, Some("token=hush")).unwrap();
        assert!(!format!("{query:?}").contains("hush"));
    }

    proptest! {
        #[test]
        fn reading_a_query_never_panics(text in any::<String>(), list in "[a-z,%0-9]{0,40}") {
            for function in [Function::Heartbeat, Function::PresenceQuery, Function::DeleteStatus] {
                if let Ok(query) = Query::parse(function, Some(&text)) {
                    let _ = (query.token(), query.caller(), query.user("user"), query.users("users", 5));
                }
            }
            let _ = users(&format!("users={list}"));
        }
    }
}
