//! Names that say nothing: what is called a manager or a helper, or kept under utils, was not yet understood.
//!
//! The rule looks at files and folders here, and lends its verdict of one name to the rules for Rust.

use super::Finding;
use super::tree::Tree;

/// Words that no file, module or type may carry.
const EMPTY_WORDS: [&str; 8] = ["common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"];

/// Checks every part of every path.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files().filter_map(|(path, _)| path.split('/').find_map(empty_word).map(|word| finding(path, word))).collect()
}

fn finding(path: &str, word: &str) -> Finding {
    Finding::new(path, 1, format!("`{word}` says nothing: name it after what it holds"))
}

/// The empty word in a name, however the name is written: `HubManager`, `hub_manager`, `hub-manager.rs`.
pub(super) fn empty_word(name: &str) -> Option<&'static str> {
    words(name).iter().find_map(|word| EMPTY_WORDS.into_iter().find(|empty| empty == word))
}

/// The words of a name in lower case. A capital begins a new one unless it follows another: `HTTPHelper` has the words
/// `http` and `helper`.
fn words(name: &str) -> Vec<String> {
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
    use super::super::tree::findings;
    use super::*;

    #[test]
    fn names_fall_into_words() {
        assert_eq!(words("HTTPHelper"), ["http", "helper"]);
        assert_eq!(words("hub-manager_2.test.ts"), ["hub", "manager", "2", "test", "ts"]);
        assert_eq!(words("LastSeen"), ["last", "seen"]);
    }

    #[test]
    fn empty_names_of_files_and_folders_are_found() {
        for path in
            ["host/src/utils.rs", "tests/common/mod.rs", "web/SocketManager.tsx", "misc/x.md", "crates/json-util/a"]
        {
            assert_eq!(findings(check, &[(path, "")]).len(), 1, "{path}");
        }
    }

    #[test]
    fn names_that_only_contain_such_letters_pass() {
        assert!(
            findings(check, &[("host/src/utility_bill.rs", ""), ("docs/commons.md", ""), ("a/manage.rs", "")])
                .is_empty()
        );
    }
}
