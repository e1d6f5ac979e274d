//! Rule against retired words: metaphors that `docs/GLOSSARY.md` replaced with the words of Redis, pub/sub and WebAssembly.
//!
//! It checks identifiers, comments and documents. Each word has a maximum, which only goes down: a new use is a violation, and a
//! removed one is a reason to lower the maximum. Decision records and the changelog may name what things were called.

use super::Violation;
use super::names::words;
use super::tree::Tree;

/// A retired word, what to write instead, and how often it may still occur.
type Retired = (&'static str, &'static str, usize);

/// The retired words.
const RETIRED: [Retired; 52] = [
    ("agenda", "due queue", 0),
    ("amnesty", "outage grace", 0),
    ("attendance", "connection heartbeats", 0),
    ("bonds", "contacts and blocks", 0),
    ("book", "policy index", 0),
    ("crew", "function handles", 0),
    ("deafening", "proxy", 0),
    ("desk", "cache", 0),
    ("diary", "recorder", 0),
    ("door", "trigger", 0),
    ("doors", "triggers", 0),
    ("dues", "deadline cache", 0),
    ("ear", "subscriber", 0),
    ("ears", "cluster subscriber", 0),
    ("eyes", "watchers", 2),
    ("fleet", "topology", 0),
    ("flushes", "debounce", 1),
    ("forsake", "remove watcher", 0),
    ("hearing", "push handler", 0),
    ("inbox", "mailbox", 0),
    ("judgement", "verdict", 0),
    ("lane", "instance queue", 0),
    ("lanes", "instance queues", 0),
    ("manners", "options", 0),
    ("overdue", "due", 4),
    ("parade", "chunked fan-out", 0),
    ("pardon", "outage grace", 0),
    ("roster", "hub", 0),
    ("rosters", "hubs", 0),
    ("sight", "visibility", 0),
    ("sights", "visibility", 0),
    ("somebody", "user", 3),
    ("spectator", "subscription", 0),
    ("spectators", "subscriptions", 0),
    ("spoken", "error parser", 0),
    ("stirring", "invalidation", 0),
    ("stranger", "unknown user", 1),
    ("tap", "subscription", 0),
    ("taps", "subscriptions", 0),
    ("telling", "fan-out", 0),
    ("tellings", "updates", 0),
    ("tending", "supervisor", 0),
    ("town", "fixture", 0),
    ("vigil", "recorder", 0),
    ("visitor", "connection", 3),
    ("visitors", "connections", 1),
    ("whoever", "user, viewer, caller", 0),
    ("whom", "user, viewer, caller", 6),
    ("whomever", "user, viewer, caller", 0),
    ("witness", "replica acknowledgement", 0),
    ("yardstick", "baseline", 0),
    ("yardsticks", "baselines", 0),
];

/// The files that are checked, by ending.
const CHECKED: [&str; 6] = [".rs", ".wit", ".lua", ".ts", ".tsx", ".md"];

/// Where a retired word may occur: history, and this list.
const EXEMPT: [&str; 4] = ["CHANGELOG.md", "docs/adr/", "docs/GLOSSARY.md", "xtask/src/tidy/words.rs"];

/// How many places a violation lists.
const LISTED: usize = 10;

/// Checks every word.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    check_words(tree, &RETIRED)
}

fn check_words(tree: &Tree, retired: &[Retired]) -> Vec<Violation> {
    let mut places = vec![Vec::new(); retired.len()];
    for ending in CHECKED {
        for (path, text) in tree.texts(ending).filter(|(path, _)| !EXEMPT.iter().any(|exempt| path.starts_with(exempt)))
        {
            let lines = std::iter::once((1, path)).chain((1..).zip(text.lines()));
            for (line, content) in lines {
                for word in words(content) {
                    let found = retired.iter().zip(&mut places).filter(|((retired, _, _), _)| *retired == word);
                    found.for_each(|(_, places)| places.push((path, line)));
                }
            }
        }
    }
    retired.iter().zip(&places).filter_map(|(retired, places)| compare(retired, places)).collect()
}

fn compare((word, instead, maximum): &Retired, places: &[(&str, usize)]) -> Option<Violation> {
    let count = places.len();
    if count < *maximum {
        println!("tidy: `{word}` occurs {count} times; lower its maximum of {maximum} in xtask/src/tidy/words.rs");
    }
    let (path, line) = places.first().filter(|_| count > *maximum)?;
    let others = places.iter().skip(1).take(LISTED).map(|(path, line)| format!("{path}:{line}")).collect::<Vec<_>>();
    let others = if others.is_empty() { String::new() } else { format!("; also {}", others.join(", ")) };
    let message =
        format!("`{word}` is retired and occurs {count} times, more than {maximum}: write `{instead}`{others}");
    Some(Violation::new(path, *line, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(maximum: usize, files: &[(&str, &str)]) -> Vec<String> {
        let retired = [("ear", "subscriber", maximum)];
        check_words(&Tree::of(files), &retired).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn retired_words_are_reported_in_code_and_prose() {
        let files = [("a.rs", "struct Ear;\nlet the_ear = 1; // heart"), ("docs/b.md", "An ear."), ("ear.lua", "")];
        let message = "`ear` is retired and occurs 4 times, more than 0: write `subscriber`";
        assert_eq!(found(0, &files), [format!("a.rs:1: {message}; also a.rs:2, ear.lua:1, docs/b.md:1")]);
    }

    #[test]
    fn uses_up_to_maximum_pass() {
        let files = [("a.rs", "ear ear"), ("CHANGELOG.md", "ear"), ("docs/adr/1.md", "ear"), ("a.svg", "ear")];
        assert_eq!((found(2, &files), found(3, &files), found(1, &files).len()), (Vec::new(), Vec::new(), 1));
    }
}
