//! Rule against names without meaning, such as `utils` or `Manager`.
//!
//! It checks files and folders; `rust.rs` applies it to modules and types.

use super::Violation;
use super::tree::Tree;

/// Words that no file, module or type name may contain.
const EMPTY_WORDS: [&str; 8] = ["common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"];

/// Checks every part of every path.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.files()
        .filter_map(|(path, _)| path.split('/').find_map(empty_word).map(|word| violation(path, word)))
        .collect()
}

fn violation(path: &str, word: &str) -> Violation {
    Violation::new(path, 1, format!("`{word}` has no meaning: name it after its content"))
}

/// The empty word in a name in any notation: `HubManager`, `hub_manager`, `hub-manager.rs`.
pub(super) fn empty_word(name: &str) -> Option<&'static str> {
    words(name).iter().find_map(|word| EMPTY_WORDS.into_iter().find(|empty| empty == word))
}

/// The words of a name in lower case. A capital starts a word unless it follows another capital: `HTTPHelper` has the words
/// `http` and `helper`.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = name.chars().peekable();
    let mut before_was_capital = true;
    while let Some(character) = characters.next() {
        let capital = character.is_uppercase();
        let next_is_small = characters.peek().is_some_and(|next| next.is_lowercase());
        if !character.is_alphanumeric() || (capital && (!before_was_capital || next_is_small)) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
        before_was_capital = capital;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::super::tree::violations;
    use super::*;

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words("HTTPHelper"), ["http", "helper"]);
        assert_eq!(words("hub-manager_2.test.ts"), ["hub", "manager", "2", "test", "ts"]);
        assert_eq!(words("LastSeen"), ["last", "seen"]);
    }

    #[test]
    fn empty_file_and_folder_names_are_reported() {
        for path in
            ["host/src/utils.rs", "tests/common/mod.rs", "web/SocketManager.tsx", "misc/x.md", "crates/json-util/a"]
        {
            assert_eq!(violations(check, &[(path, "")]).len(), 1, "{path}");
        }
    }

    #[test]
    fn longer_words_pass() {
        assert!(
            violations(check, &[("host/src/utility_bill.rs", ""), ("docs/commons.md", ""), ("a/manage.rs", "")])
                .is_empty()
        );
    }
}
