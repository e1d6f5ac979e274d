//! Rules for documents: paths and links exist, and the README names the first commands.
//!
//! Paths are read from inline code, links from the other text; fenced blocks are skipped. Web addresses, routes, media types and
//! built files are not checked.

use super::Violation;
use super::tree::Tree;

/// The documents in which every path in backticks must exist.
const MAPS: [&str; 3] = ["docs/ARCHITECTURE.md", "README.md", "docs/CONTRIBUTING.md"];

/// Commands that the README must name.
const COMMANDS: [&str; 2] = ["cargo xtask serve", "cargo xtask test"];

/// Endings by which a name without a slash is a path.
const PATH_ENDINGS: [&str; 3] = [".toml", ".md", ".rs"];

/// First parts of names with a slash that are not paths of the repository: built folders and media types.
const NOT_OURS: [&str; 8] = ["target", "dist", "node_modules", "application", "text", "image", "audio", "video"];

/// Checks the paths, the links of every document, and the README.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let paths = MAPS.iter().filter_map(|path| Some((*path, tree.text(path)?)));
    let paths = paths.flat_map(|(path, text)| dead_paths(tree, path, text));
    let links = tree.texts(".md").flat_map(|(path, text)| dead_links(tree, path, text));
    paths.chain(links).chain(unnamed_commands(tree)).collect()
}

fn unnamed_commands(tree: &Tree) -> Vec<Violation> {
    let Some(readme) = tree.text("README.md") else { return Vec::new() };
    let unnamed = COMMANDS.iter().filter(|command| !readme.contains(*command));
    unnamed.map(|command| Violation::new("README.md", 1, format!("does not name `{command}`"))).collect()
}

fn dead_paths(tree: &Tree, document: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (line, content) in lines_outside_fences(text) {
        for code in content.split('`').skip(1).step_by(2) {
            if let Some(path) = repository_path(code).filter(|path| !exists(tree, document, path)) {
                violations.push(Violation::new(document, line, format!("`{path}` does not exist")));
            }
        }
    }
    violations
}

/// The path in a piece of inline code, if it is one: without a line number, and up to the first part with a wildcard, as in
/// `components/*` or `docs/adr/<number>.md`.
fn repository_path(code: &str) -> Option<String> {
    let code = match code.rsplit_once(':') {
        Some((path, line)) if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()) => path,
        _ => code,
    };
    let code = code.strip_prefix("./").unwrap_or(code);
    let parts = code.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>();
    let first = parts.first()?;
    let has_slash = code.contains('/');
    let is_host_name = has_slash && first.chars().skip(1).any(|character| character == '.');
    let is_unit = parts.iter().any(|part| part.len() == 1 && part.bytes().all(|byte| byte.is_ascii_alphabetic()));
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/*<>{}".contains(c);
    if code.starts_with('/')
        || !(has_slash || PATH_ENDINGS.iter().any(|ending| code.len() > ending.len() && code.ends_with(ending)))
        || !code.chars().all(allowed)
        || !code.chars().any(|c| c.is_ascii_alphabetic())
        || NOT_OURS.contains(first)
        || is_host_name
        || is_unit
    {
        return None;
    }
    let fixed = parts.into_iter().take_while(|part| !part.contains(['*', '<', '{'])).collect::<Vec<_>>();
    Some(fixed.join("/")).filter(|path| !path.is_empty())
}

/// Whether the path exists from the root or from the document; a name without a slash may be that of any file.
fn exists(tree: &Tree, document: &str, path: &str) -> bool {
    let beside = join(document, path).is_some_and(|path| tree.contains(&path));
    let anywhere = !path.contains('/') && tree.files().any(|(file, _)| file.rsplit('/').next() == Some(path));
    beside || anywhere || tree.contains(path)
}

fn dead_links(tree: &Tree, document: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (line, content) in lines_outside_fences(text) {
        let prose = content.split('`').step_by(2).collect::<String>();
        for link in links(&prose).into_iter().filter(|link| is_relative(link)) {
            let path = link.split(['#', '?']).next().unwrap_or_default();
            let target = match path.strip_prefix('/') {
                Some(path) => Some(path.to_owned()),
                None => join(document, path),
            };
            if !target.is_some_and(|target| tree.contains(target.trim_end_matches('/'))) {
                violations.push(Violation::new(
                    document,
                    line,
                    format!("the target of the link `{link}` does not exist"),
                ));
            }
        }
    }
    violations
}

/// The targets of the Markdown links, pictures and HTML attributes in a line.
fn links(line: &str) -> Vec<&str> {
    let openings = [("](", ')'), ("src=\"", '"'), ("href=\"", '"')];
    let found = openings.iter().flat_map(|(opening, close)| {
        line.split(opening).skip(1).filter_map(|rest| rest.split(*close).next()).collect::<Vec<_>>()
    });
    found.filter_map(|link| link.split_whitespace().next()).map(|link| link.trim_matches(['<', '>'])).collect()
}

fn is_relative(link: &str) -> bool {
    !(link.contains("://") || link.starts_with("mailto:") || link.starts_with('#') || link.starts_with("data:"))
}

/// The path from the root of a path in a document; `None` if it is outside the repository.
fn join(document: &str, relative: &str) -> Option<String> {
    let mut parts = document.split('/').collect::<Vec<_>>();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn lines_outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = ["```", "~~~"].iter().any(|fence| line.trim_start().starts_with(fence));
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::violations;
    use super::*;

    /// The violations of a document beside a few other files.
    fn found(document: &str, text: &str) -> Vec<String> {
        let rest =
            [("host/src/lib.rs", ""), ("components/query/src/edge.rs", ""), (".ci/run", ""), ("docs/API.md", "")];
        violations(check, &[rest.as_slice(), &[(document, text)]].concat())
    }

    #[test]
    fn missing_path_is_reported() {
        let text = "a map\n\n`host/src/gone.rs` and `crates/gone` and `gone.toml`";
        let expected = ["host/src/gone.rs", "crates/gone", "gone.toml"];
        let expected = expected.map(|path| format!("docs/ARCHITECTURE.md:3: `{path}` does not exist"));
        assert_eq!(found("docs/ARCHITECTURE.md", text), expected);
        assert_eq!(found("docs/CONTRIBUTING.md", "`tests/gone/`").len(), 1);
    }

    #[test]
    fn existing_path_passes() {
        let text = "`host/src/lib.rs`, `host/`, `.ci/run`, `./host/src`, `host/src/lib.rs:12`, `edge.rs`, `API.md`, `components/*`, \
                    `components/<name>/src`";
        assert_eq!(found("docs/ARCHITECTURE.md", text), [""; 0]);
    }

    #[test]
    fn other_inline_code_passes() {
        let text = "`/v1/heartbeat`, `GET /v1/presence`, `application/problem+json`, `text/html`, `wasi:http/handler`, `I/O`, \
                    `beats/s`, `30/45`, `target/debug/rollcall`, `https://x.org/y`, `github.com/a/b`, `cargo xtask serve`, `.rs`";
        assert_eq!(found("docs/ARCHITECTURE.md", text), [""; 0]);
    }

    #[test]
    fn fenced_block_is_skipped() {
        assert!(found("docs/ARCHITECTURE.md", "```\n`crates/gone` [x](gone.md)\n```").is_empty());
        assert_eq!(found("docs/ARCHITECTURE.md", "```\n```\n`crates/gone`").len(), 1);
    }

    #[test]
    fn broken_link_is_reported() {
        for link in [
            "[a](gone.md)",
            "![a](gone.svg \"title\")",
            "<img src=\"gone.svg\">",
            "[`a`](gone.md#part)",
            "[a](../../x)",
        ] {
            assert_eq!(found("docs/adr/0001.md", link).len(), 1, "{link}");
        }
    }

    #[test]
    fn working_link_passes() {
        for link in
            ["[a](../API.md#part)", "[a](#part)", "[a](https://x.org/y.md)", "[a](/host/src/lib.rs)", "`[a](gone.md)`"]
        {
            assert_eq!(found("docs/adr/0001.md", link), [""; 0], "{link}");
        }
    }

    #[test]
    fn readme_without_first_commands_is_reported() {
        assert_eq!(found("README.md", "Run `cargo xtask serve`."), ["README.md:1: does not name `cargo xtask test`"]);
    }
}
