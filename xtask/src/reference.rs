//! `cargo xtask reference`: writes `docs/API.md` from the OpenAPI document. `tidy` checks that both agree.
//!
//! The page contains only what the document contains: unclear text is corrected in the document.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use crate::build::write_if_changed;

/// The document and the page, relative to the root.
const DOCUMENT: &str = "crates/api/openapi.json";
pub(crate) const PAGE: &str = "docs/API.md";

/// Prefix of a reference to a schema.
const SCHEMAS: &str = "#/components/schemas/";

/// The beginning of the page.
const HEAD: &str = "\
# The HTTP API

This page is written from the document that every host serves at `/openapi.json`, by `cargo xtask reference`: change
`crates/api/openapi.json`, not this.
";

/// Writes the page.
pub(crate) fn write(root: &Path) -> Result<()> {
    write_if_changed(&root.join(PAGE), page(root)?.as_bytes())
}

/// The page for the current document.
pub(crate) fn page(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join(DOCUMENT)).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let document: Value = serde_json::from_str(&text).with_context(|| format!("{DOCUMENT} is not JSON"))?;
    Ok(Reference { document: &document }.page())
}

struct Reference<'a> {
    document: &'a Value,
}

impl Reference<'_> {
    fn page(&self) -> String {
        let mut page = String::from(HEAD);
        for key in ["/info/summary", "/info/description"] {
            paragraph(&mut page, self.document.pointer(key));
        }
        page.push_str("\n## Authentication\n");
        for scheme in members(self.document.pointer("/components/securitySchemes")) {
            paragraph(&mut page, scheme.1.get("description"));
        }
        let known = members(self.document.pointer("/components/parameters")).map(|(_, parameter)| parameter);
        self.parameters(&mut page, &known.collect::<Vec<_>>());
        for tag in list(self.document.get("tags")) {
            let name = text(tag.get("name"));
            line(&mut page, &format!("\n## Calls: {name}"));
            paragraph(&mut page, tag.get("description"));
            for (path, methods) in members(self.document.get("paths")) {
                for (method, operation) in members(Some(methods)).filter(|(_, it)| tagged(it, name)) {
                    self.operation(&mut page, method, path, operation);
                }
            }
        }
        page.push_str("\n## Errors\n\n| status | |\n|---|---|\n");
        for (_, response) in members(self.document.pointer("/components/responses")) {
            let status = self.status_of(response);
            line(&mut page, &format!("| {status} | {} |", cell(text(response.get("description")))));
        }
        page.push_str("\n## Shapes\n");
        for (name, schema) in members(self.document.pointer("/components/schemas")) {
            self.shape(&mut page, name, schema);
        }
        page
    }

    fn operation(&self, page: &mut String, method: &str, path: &str, operation: &Value) {
        line(page, &format!("\n### `{} {path}`", method.to_uppercase()));
        line(page, &format!("\n**{}.** {}", text(operation.get("summary")), text(operation.get("description"))));
        let own = list(operation.get("parameters")).filter(|parameter| parameter.get("$ref").is_none());
        self.parameters(page, &own.collect::<Vec<_>>());
        for (kind, content) in members(operation.pointer("/requestBody/content")) {
            line(page, &format!("\nBody, `{kind}`: {}", self.kind(content.get("schema"))));
            example(page, content);
        }
        for (status, response) in members(operation.get("responses")).filter(|(_, it)| it.get("$ref").is_none()) {
            let description = text(response.get("description"));
            let kinds = members(response.get("content")).map(|(_, content)| self.kind(content.get("schema")));
            let kinds = kinds.filter(|kind| kind.starts_with('[')).collect::<Vec<_>>().join(", ");
            let kinds = if kinds.is_empty() { kinds } else { format!(" {kinds}.") };
            line(page, &format!("\n`{status}`{kinds} {description}"));
            members(response.get("content")).for_each(|(_, content)| example(page, content));
        }
        let errors = members(operation.get("responses")).filter(|(_, response)| response.get("$ref").is_some());
        let errors = errors.map(|(status, _)| format!("`{status}`")).collect::<Vec<_>>();
        if !errors.is_empty() {
            line(page, &format!("\nErrors: {}", errors.join(", ")));
        }
    }

    /// The status that operations use this response for.
    fn status_of(&self, response: &Value) -> String {
        let all = members(self.document.get("paths")).flat_map(|(_, methods)| members(Some(methods)));
        let all = all.flat_map(|(_, operation)| members(operation.get("responses")));
        let named = |it: &Value| self.resolved(it).is_some_and(|resolved| resolved == response);
        let found = all.filter(|(_, it)| it.get("$ref").is_some() && named(it)).map(|(status, _)| status);
        found.min().map_or_else(String::new, |status| format!("`{status}`"))
    }

    fn resolved(&self, reference: &Value) -> Option<&Value> {
        self.document.pointer(reference.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    fn parameters(&self, page: &mut String, parameters: &[&Value]) {
        if parameters.is_empty() {
            return;
        }
        page.push_str("\n| | where | what | |\n|---|---|---|---|\n");
        for parameter in parameters {
            let [name, place, about] = ["name", "in", "description"].map(|key| text(parameter.get(key)));
            let about = cell(about);
            line(page, &format!("| `{name}` | {place} | {} | {about} |", cell(&self.kind(parameter.get("schema")))));
        }
    }

    fn shape(&self, page: &mut String, name: &str, schema: &Value) {
        line(page, &format!("\n### {name}"));
        paragraph(page, schema.get("description"));
        if schema.get("properties").is_none() {
            line(page, &format!("\n{}", self.kind(Some(schema))));
            return;
        }
        page.push_str("\n| | what | |\n|---|---|---|\n");
        self.fields(page, "", schema);
    }

    /// A row for each field, followed by the fields of an inline object or list of objects.
    fn fields(&self, page: &mut String, within: &str, schema: &Value) {
        let required = list(schema.get("required")).filter_map(Value::as_str).collect::<Vec<_>>();
        for (field, of) in members(schema.get("properties")) {
            let optional = if required.contains(&field.as_str()) { "" } else { ", may be absent" };
            let (name, about) = (format!("{within}{field}"), cell(text(of.get("description"))));
            line(page, &format!("| `{name}` | {}{optional} | {about} |", cell(&self.kind(Some(of)))));
            self.fields(page, &format!("{name}."), of);
            of.get("items").iter().for_each(|items| self.fields(page, &format!("{name}[]."), items));
        }
    }

    /// The type of a schema, in a few words.
    fn kind(&self, schema: Option<&Value>) -> String {
        let Some(schema) = schema else { return String::new() };
        if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix(SCHEMAS)) {
            return format!("[{name}](#{})", name.to_lowercase());
        }
        for key in ["oneOf", "anyOf"] {
            if schema.get(key).is_some() {
                let kinds = list(schema.get(key)).map(|one| self.kind(Some(one)));
                return kinds.collect::<Vec<_>>().join(" or ");
            }
        }
        if let Some(constant) = schema.get("const") {
            return format!("`{constant}`");
        }
        if schema.get("enum").is_some() {
            return list(schema.get("enum")).map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        }
        let kinds = match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
            kind => text(kind).to_owned(),
        };
        let of = match (schema.get("items"), schema.get("additionalProperties")) {
            (Some(items), _) => format!(" of {}", self.kind(Some(items))),
            (None, Some(values @ Value::Object(_))) => format!(" of {}", self.kind(Some(values))),
            _ => String::new(),
        };
        format!("{kinds}{of}{}", bounds(schema))
    }
}

/// The bounds and the default of a schema.
fn bounds(schema: &Value) -> String {
    let words = [
        ("minimum", "at least "),
        ("maximum", "at most "),
        ("minLength", "no shorter than "),
        ("maxLength", "no longer than "),
        ("minItems", "no fewer than "),
        ("maxItems", "no more than "),
        ("default", "by default "),
    ];
    let said = words.iter().filter_map(|(key, words)| Some(format!(", {words}{}", schema.get(*key)?)));
    said.collect()
}

fn tagged(operation: &Value, tag: &str) -> bool {
    list(operation.get("tags")).any(|name| name == tag)
}

fn example(page: &mut String, content: &Value) {
    let whole = content.get("example").into_iter();
    let named = members(content.get("examples")).filter_map(|(_, example)| example.get("value"));
    for example in whole.chain(named) {
        let (language, text) = match example {
            Value::String(text) => ("", text.trim_end().to_owned()),
            json => ("json", json.to_string()),
        };
        line(page, &format!("\n```{language}\n{text}\n```"));
    }
}

fn paragraph(page: &mut String, words: Option<&Value>) {
    if let Some(words) = words.and_then(Value::as_str) {
        line(page, &format!("\n{words}"));
    }
}

/// Adds a line without trailing spaces.
fn line(page: &mut String, words: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{}", words.trim_end());
}

/// Text for a table cell.
fn cell(words: &str) -> String {
    words.replace('\n', " ").replace('|', "\\|")
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn members(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operation_lists_parameters_body_and_errors() {
        let document = json!({
            "info": { "summary": "Who is online?" },
            "tags": [{ "name": "presence", "description": "Being here." }],
            "paths": { "/v1/leave": { "post": {
                "tags": ["presence"], "summary": "A device leaves", "description": "At once.",
                "parameters": [{ "$ref": "#/components/parameters/As" },
                    { "name": "why", "in": "query", "description": "a|b", "schema": { "type": "string", "maxLength": 9 } }],
                "requestBody": { "content": { "application/json": {
                    "schema": { "$ref": "#/components/schemas/Leave" }, "example": { "device": "web-1" } } } },
                "responses": { "200": { "description": "Gone." }, "400": { "$ref": "#/components/responses/Invalid" } },
            } } },
            "components": {
                "responses": { "Invalid": { "description": "It makes no sense." } },
                "schemas": { "Leave": { "required": ["device"], "properties": {
                    "device": { "type": "string" }, "reason": { "enum": ["logout", "dropped"] },
                    "by": { "type": "object", "required": ["who"], "properties": {
                        "who": { "type": "array", "items": {
                            "type": "object", "properties": { "id": { "type": "string" } } } } } } } } },
            },
        });
        let page = Reference { document: &document }.page();
        for expected in [
            "\n## Calls: presence\n\nBeing here.\n",
            "\n### `POST /v1/leave`\n\n**A device leaves.** At once.\n",
            "\n| `why` | query | string, no longer than 9 | a\\|b |\n",
            "\nBody, `application/json`: [Leave](#leave)\n\n```json\n{\"device\":\"web-1\"}\n```\n",
            "\n`200` Gone.\n\nErrors: `400`\n",
            "\n| `400` | It makes no sense. |\n",
            "\n| `device` | string |  |\n",
            "\n| `reason` | `\"logout\"`, `\"dropped\"`, may be absent |  |\n",
            "\n| `by` | object, may be absent |  |\n| `by.who` | array of object |  |\n| `by.who[].id` | string, may be absent |  |\n",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
    }
}
