//! Parses JSON bodies and messages, and names the field and the rule when one is wrong.
//!
//! A body is deserialized straight into its struct. serde says what is wrong with a value but not in which field, so
//! only when that fails is the body parsed again, member by member, against a list of [`Field`]s. A wrong request costs
//! two parses, a right one costs one.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use crate::problem::{Kind, Problem};
use crate::query::echo;

/// A field that a JSON object may have.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: FieldType,
    pub(crate) requirement: Requirement,
}

/// The type of a field's value.
pub(crate) enum FieldType {
    String,
    Bool,
    /// A whole number in this range, both ends included.
    Integer(u32, u32),
    /// Any `u64`.
    Unsigned,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// An array of anything.
    Array,
    /// An array of strings.
    Strings,
}

/// Whether a field may be left out.
#[derive(PartialEq, Eq)]
pub(crate) enum Requirement {
    /// It must be there.
    Required,
    /// It may be left out and then has a default. `null` is refused.
    Defaulted,
    /// It may be left out or `null`.
    Optional,
}

/// Parses a JSON object with these fields.
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], fields: &[Field]) -> Result<T, Problem> {
    // serde would also fill a struct from an array, by position.
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

/// The string member of this name, if the text is an object and has one.
pub(crate) fn peek_string(object: &str, name: &str) -> Option<String> {
    peek(object, name)?.as_str().map(str::to_owned)
}

/// The `u64` member of this name, if the text is an object and has one.
pub(crate) fn peek_unsigned(object: &str, name: &str) -> Option<u64> {
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

/// serde's own message: it says what was expected, and at which line and column.
fn malformed(error: &serde_json::Error) -> Problem {
    Problem::new(Kind::Malformed, format!("the body is not valid JSON: {error}"))
}

/// Finds the field that caused serde's error.
fn explain(body: &[u8], fields: &[Field], error: &serde_json::Error) -> Problem {
    let Members(members) = match serde_json::from_slice(body) {
        Ok(members) => members,
        // The body also has a syntax error further on, which takes precedence.
        Err(broken) => return malformed(&broken),
    };
    let mut problem = find_problem(&members, fields)
        .unwrap_or_else(|| Problem::new(Kind::Invalid, "the body does not match the schema of this path"));
    problem.detail = format!("{} (line {}, column {})", problem.detail, error.line(), error.column());
    problem
}

fn find_problem(members: &[(String, Value)], fields: &[Field]) -> Option<Problem> {
    for (place, (name, value)) in members.iter().enumerate() {
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
            let rule = if names.is_empty() {
                "is not a known field; there are none here".to_owned()
            } else {
                format!("is not a known field; the fields are {}", names.join(", "))
            };
            return Some(Problem::invalid(echo(name), rule));
        };
        if members.iter().take(place).any(|(earlier, _)| earlier == name) {
            return Some(Problem::invalid(name, "is given twice"));
        }
        if value.is_null() && field.requirement == Requirement::Optional {
            continue;
        }
        if let Some((place, rule)) = field.kind.violation(value) {
            return Some(Problem::invalid(format!("{name}{place}"), rule));
        }
    }
    let missing = |field: &&Field| {
        field.requirement == Requirement::Required && !members.iter().any(|(name, _)| name == field.name)
    };
    fields.iter().find(missing).map(|field| Problem::invalid(field.name, "is missing"))
}

impl FieldType {
    /// The rule that the value breaks, and the index within the value if it is an array.
    fn violation(&self, value: &Value) -> Option<(String, String)> {
        let must_be = |expected: &str| Some((String::new(), format!("must be {expected}, found {}", describe(value))));
        match self {
            FieldType::String if !value.is_string() => must_be("a string"),
            FieldType::Bool if !value.is_boolean() => must_be("true or false"),
            FieldType::Integer(min, max) => {
                let fits = |number| (u64::from(*min)..=u64::from(*max)).contains(&number);
                if value.as_u64().is_some_and(fits) {
                    return None;
                }
                must_be(&format!("a whole number between {min} and {max}"))
            }
            FieldType::Unsigned if !value.is_u64() => must_be("a whole number"),
            FieldType::OneOf(names) if !value.as_str().is_some_and(|name| names.contains(&name)) => {
                must_be(&format!("one of {}", names.join(", ")))
            }
            FieldType::Array | FieldType::Strings if !value.is_array() => must_be("an array"),
            FieldType::Strings => {
                let (place, element) =
                    value.as_array()?.iter().enumerate().find(|(_, element)| !element.is_string())?;
                Some((format!("[{place}]"), format!("must be a string, found {}", describe(element))))
            }
            FieldType::String | FieldType::Bool | FieldType::Unsigned | FieldType::OneOf(_) | FieldType::Array => None,
        }
    }
}

/// A value as an error names it: a number or a string itself, the type of anything else.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("`{}`", echo(text)),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The members of an object in order, duplicates included; a map would drop those.
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

/// An enum that JSON writes as a string.
pub(crate) trait StringEnum: Copy + 'static {
    /// Every name with its variant.
    const VARIANTS: &'static [(&'static str, Self)];

    /// The variant of this name.
    fn from_name(text: &str) -> Option<Self> {
        Self::VARIANTS.iter().find(|(name, _)| *name == text).map(|(_, variant)| *variant)
    }
}

/// A [`StringEnum`] parsed by name. serde's derive would also accept an object.
pub(crate) struct Named<T>(pub(crate) T);

impl<'de, T: StringEnum> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);
        impl<T: StringEnum> Visitor<'_> for Text<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a known name")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Named<T>, E> {
                T::from_name(text).map(Named).ok_or_else(|| E::custom("unknown name"))
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
        Field { name: "name", kind: FieldType::String, requirement: Requirement::Required },
        Field { name: "flag", kind: FieldType::Bool, requirement: Requirement::Defaulted },
        Field { name: "count", kind: FieldType::Integer(1, 9), requirement: Requirement::Optional },
        Field { name: "list", kind: FieldType::Strings, requirement: Requirement::Optional },
        Field { name: "large", kind: FieldType::Unsigned, requirement: Requirement::Optional },
    ];

    fn refusal(body: &str) -> (Kind, Option<String>, String) {
        let problem = read::<Sample>(body.as_bytes(), FIELDS).unwrap_err();
        (problem.kind, problem.field, problem.detail)
    }

    #[test]
    fn error_names_field_rule_and_place() {
        for (body, field, rule) in [
            (r#"{}"#, "name", "is missing"),
            (r#"{"name":5}"#, "name", "must be a string, found 5"),
            (r#"{"name":null}"#, "name", "must be a string, found null"),
            (r#"{"name":"a","flag":"yes"}"#, "flag", "must be true or false, found `yes`"),
            (r#"{"name":"a","flag":null}"#, "flag", "must be true or false, found null"),
            (r#"{"name":"a","count":-1}"#, "count", "must be a whole number between 1 and 9, found -1"),
            (r#"{"name":"a","count":1.5}"#, "count", "must be a whole number between 1 and 9, found 1.5"),
            (r#"{"name":"a","list":"b"}"#, "list", "must be an array, found `b`"),
            (r#"{"name":"a","list":["b",[]]}"#, "list[1]", "must be a string, found an array"),
            (
                r#"{"name":"a","nmae":"b"}"#,
                "nmae",
                "is not a known field; the fields are name, flag, count, list, large",
            ),
            (r#"{"name":"a","large":{}}"#, "large", "must be a whole number, found an object"),
            (r#"{"name":"a","name":"b"}"#, "name", "is given twice"),
        ] {
            let (kind, named, detail) = refusal(body);
            assert_eq!((kind, named.as_deref()), (Kind::Invalid, Some(field)), "{body}");
            assert!(detail.starts_with(&format!("`{field}` {rule} (line 1, column ")), "{detail}");
        }
        assert!(read::<Sample>(br#" {"name":"a","count":null} "#, FIELDS).is_ok());
    }

    #[test]
    fn invalid_json_is_malformed_with_its_position() {
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
    fn json_other_than_an_object_is_refused() {
        for body in ["[\"a\",true]", "\"a\"", "5", "null"] {
            let (kind, _, detail) = refusal(body);
            assert_eq!(kind, Kind::Invalid);
            assert!(detail.contains("not an object"));
        }
    }

    #[test]
    fn long_unknown_name_is_cut_in_the_error() {
        let (_, field, _) = refusal(&format!("{{\"{}\":1}}", "x".repeat(10_000)));
        assert_eq!(field.unwrap().len(), 64);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in any::<Vec<u8>>(), text in "[\\[\\]{}\",:a-z0-9 .-]{0,60}") {
            let _ = read::<Sample>(&bytes, FIELDS);
            let _ = read::<Sample>(text.as_bytes(), FIELDS);
            let _ = read::<Sample>(format!("{{\"name\":{text}}}").as_bytes(), FIELDS);
            let _ = (peek_string(&text, "name"), peek_unsigned(&text, "name"));
        }
    }
}
