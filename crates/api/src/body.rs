//! Reading JSON bodies: quickly when they are right, and with a name and a rule when they are not.
//!
//! A body is read straight into its struct. Only when that fails is it read again, member by member, against a list of
//! what each field should be, because serde says what is wrong with a value but not in which field. A wrong request
//! costs two readings; a right one costs nothing for it.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use crate::problem::{Kind, Problem};
use crate::query::echo;

/// A field that a body may have.
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it holds.
    pub(crate) shape: Shape,
    /// Whether it must be there.
    pub(crate) presence: Presence,
}

/// What a field holds.
pub(crate) enum Shape {
    /// A string.
    Text,
    /// True or false.
    Flag,
    /// A whole number between these, both included.
    Whole(u32, u32),
    /// A whole number, however large.
    Count,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A list of anything.
    List,
    /// A list of strings.
    Texts,
}

/// Whether a field must be there.
#[derive(PartialEq, Eq)]
pub(crate) enum Presence {
    /// It must.
    Required,
    /// It need not, and then has a default; but null it may not be.
    Defaulted,
    /// It need not, and null is the same as not being there.
    Optional,
}

/// Reads a JSON object that has these fields.
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], fields: &[Field]) -> Result<T, Problem> {
    // A struct could also be read from an array, by position: nobody means that.
    match body.trim_ascii_start().first() {
        None => return Err(Problem::new(Kind::Malformed, "the body is empty; it must be a JSON object")),
        Some(b'{') => {}
        Some(_) => return Err(not_an_object(body)),
    }
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        Category::Data => explain(body, fields, &error),
        Category::Syntax | Category::Eof | Category::Io => malformed(&error),
    })
}

/// The text that an object has under this name, as far as it can be read at all.
pub(crate) fn peek_text(object: &str, name: &str) -> Option<String> {
    peek(object, name)?.as_str().map(str::to_owned)
}

/// The whole number that an object has under this name, as far as it can be read at all.
pub(crate) fn peek_count(object: &str, name: &str) -> Option<u64> {
    peek(object, name)?.as_u64()
}

fn peek(object: &str, name: &str) -> Option<Value> {
    let Members(members) = serde_json::from_str(object).ok()?;
    members.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

fn not_an_object(body: &[u8]) -> Problem {
    match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
        Ok(_) => Problem::new(Kind::Invalid, "the body is JSON, but not an object"),
        Err(error) => malformed(&error),
    }
}

/// serde's own words: they say what was expected, and at which line and column.
fn malformed(error: &serde_json::Error) -> Problem {
    Problem::new(Kind::Malformed, format!("the body is not valid JSON: {error}"))
}

/// Finds the field that is to blame.
fn explain(body: &[u8], fields: &[Field], error: &serde_json::Error) -> Problem {
    let Members(members) = match serde_json::from_slice(body) {
        Ok(members) => members,
        // The body is also broken further on, which comes first: it is not JSON at all.
        Err(broken) => return malformed(&broken),
    };
    let mut problem = blame(&members, fields)
        .unwrap_or_else(|| Problem::new(Kind::Invalid, "the body does not have the form that this path takes"));
    problem.detail = format!("{} (line {}, column {})", problem.detail, error.line(), error.column());
    problem
}

fn blame(members: &[(String, Value)], fields: &[Field]) -> Option<Problem> {
    for (place, (name, value)) in members.iter().enumerate() {
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
            let rule = if names.is_empty() {
                "is unknown; there are no fields here".to_owned()
            } else {
                format!("is unknown; the fields are {}", names.join(", "))
            };
            return Some(Problem::invalid(echo(name), rule));
        };
        if members.iter().take(place).any(|(earlier, _)| earlier == name) {
            return Some(Problem::invalid(name, "is given twice"));
        }
        if value.is_null() && field.presence == Presence::Optional {
            continue;
        }
        if let Some((place, rule)) = field.shape.broken_by(value) {
            return Some(Problem::invalid(format!("{name}{place}"), rule));
        }
    }
    let missing =
        |field: &&Field| field.presence == Presence::Required && !members.iter().any(|(name, _)| name == field.name);
    fields.iter().find(missing).map(|field| Problem::invalid(field.name, "is missing"))
}

impl Shape {
    /// The rule that the value breaks, and where within it.
    fn broken_by(&self, value: &Value) -> Option<(String, String)> {
        let whole = |rule: &str| Some((String::new(), rule.to_owned()));
        match self {
            Shape::Text if !value.is_string() => whole("is not a string"),
            Shape::Flag if !value.is_boolean() => whole("is neither true nor false"),
            Shape::Whole(min, max) => {
                let fits = |number| (u64::from(*min)..=u64::from(*max)).contains(&number);
                if value.as_u64().is_some_and(fits) {
                    return None;
                }
                whole(&format!("is not a whole number between {min} and {max}"))
            }
            Shape::Count if !value.is_u64() => whole("is not a whole number"),
            Shape::OneOf(words) if !value.as_str().is_some_and(|word| words.contains(&word)) => {
                whole(&format!("is not one of {}", words.join(", ")))
            }
            Shape::List | Shape::Texts if !value.is_array() => whole("is not a list"),
            Shape::Texts => {
                let place = value.as_array()?.iter().position(|element| !element.is_string())?;
                Some((format!("[{place}]"), "is not a string".to_owned()))
            }
            Shape::Text | Shape::Flag | Shape::Count | Shape::OneOf(_) | Shape::List => None,
        }
    }
}

/// The members of an object in their order, duplicates and all: a map would keep quiet about those.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A value that JSON writes as one of a few words.
pub(crate) trait Word: Copy + 'static {
    /// The words, and what they mean.
    const MEANINGS: &'static [(&'static str, Self)];

    /// What this word means.
    fn meaning(text: &str) -> Option<Self> {
        Self::MEANINGS.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning)
    }
}

/// A [`Word`], read. An enum that serde derives could also be read from an object: nobody means that either.
pub(crate) struct Named<T>(pub(crate) T);

impl<'de, T: Word> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);
        impl<T: Word> Visitor<'_> for Text<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a known word")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Named<T>, E> {
                T::meaning(text).map(Named).ok_or_else(|| E::custom("unknown word"))
            }
        }
        deserializer.deserialize_str(Text(PhantomData)).map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only whether it can be read matters")]
    struct Sample {
        name: String,
        #[serde(default)]
        flag: bool,
        count: Option<u32>,
        list: Option<Vec<String>>,
        large: Option<u64>,
    }

    const FIELDS: &[Field] = &[
        Field { name: "name", shape: Shape::Text, presence: Presence::Required },
        Field { name: "flag", shape: Shape::Flag, presence: Presence::Defaulted },
        Field { name: "count", shape: Shape::Whole(1, 9), presence: Presence::Optional },
        Field { name: "list", shape: Shape::Texts, presence: Presence::Optional },
        Field { name: "large", shape: Shape::Count, presence: Presence::Optional },
    ];

    fn refusal(body: &str) -> (Kind, Option<String>, String) {
        let problem = read::<Sample>(body.as_bytes(), FIELDS).unwrap_err();
        (problem.kind, problem.field, problem.detail)
    }

    #[test]
    fn a_wrong_field_is_named_with_its_rule_and_place() {
        for (body, field, rule) in [
            (r#"{}"#, "name", "is missing"),
            (r#"{"name":5}"#, "name", "is not a string"),
            (r#"{"name":null}"#, "name", "is not a string"),
            (r#"{"name":"a","flag":"yes"}"#, "flag", "is neither true nor false"),
            (r#"{"name":"a","flag":null}"#, "flag", "is neither true nor false"),
            (r#"{"name":"a","count":-1}"#, "count", "is not a whole number between 1 and 9"),
            (r#"{"name":"a","count":1.5}"#, "count", "is not a whole number between 1 and 9"),
            (r#"{"name":"a","list":"b"}"#, "list", "is not a list"),
            (r#"{"name":"a","list":["b",5]}"#, "list[1]", "is not a string"),
            (r#"{"name":"a","nmae":"b"}"#, "nmae", "is unknown; the fields are name, flag, count, list, large"),
            (r#"{"name":"a","large":1.5}"#, "large", "is not a whole number"),
            (r#"{"name":"a","name":"b"}"#, "name", "is given twice"),
        ] {
            let (kind, named, detail) = refusal(body);
            assert_eq!((kind, named.as_deref()), (Kind::Invalid, Some(field)), "{body}");
            assert!(detail.starts_with(&format!("`{field}` {rule} (line 1, column ")), "{detail}");
        }
        assert!(read::<Sample>(br#" {"name":"a","count":null} "#, FIELDS).is_ok());
    }

    #[test]
    fn what_is_not_json_is_malformed_and_says_where() {
        for body in ["{", "{\"name\":", "nonsense", "{\"name\":\"a\"} x", "{\"name\":5,]", "\u{feff}{}"] {
            let (kind, field, detail) = refusal(body);
            assert_eq!((kind, field), (Kind::Malformed, None), "{body}");
            assert!(detail.contains("line 1 column"), "{detail}");
        }
        assert_eq!(refusal(" \n").0, Kind::Malformed);
        assert_eq!(read::<Sample>(b"{\"name\":\"\xff\"}", FIELDS).unwrap_err().kind, Kind::Malformed);
        let deep = format!("{{\"name\":{}", "[".repeat(100_000));
        assert_eq!(refusal(&deep).0, Kind::Malformed);
    }

    #[test]
    fn json_that_is_no_object_is_refused_even_if_its_values_would_fit() {
        for body in ["[\"a\",true]", "\"a\"", "5", "null"] {
            let (kind, _, detail) = refusal(body);
            assert_eq!(kind, Kind::Invalid);
            assert!(detail.contains("not an object"));
        }
    }

    #[test]
    fn a_long_foreign_name_is_not_repeated_in_full() {
        let (_, field, _) = refusal(&format!("{{\"{}\":1}}", "x".repeat(10_000)));
        assert_eq!(field.unwrap().len(), 64);
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes in any::<Vec<u8>>(), text in "[\\[\\]{}\",:a-z0-9 .-]{0,60}") {
            let _ = read::<Sample>(&bytes, FIELDS);
            let _ = read::<Sample>(text.as_bytes(), FIELDS);
            let _ = read::<Sample>(format!("{{\"name\":{text}}}").as_bytes(), FIELDS);
            let _ = (peek_text(&text, "name"), peek_count(&text, "name"));
        }
    }
}
