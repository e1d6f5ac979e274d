//! Rules for `Cargo.toml`: every package takes the workspace's lints, so that one place says what is denied.

use toml::{Table, Value};

use super::Finding;
use super::tree::Tree;

/// Checks every manifest of the tree.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.texts("Cargo.toml").filter(|(path, _)| *path == "Cargo.toml" || path.ends_with("/Cargo.toml"));
    manifests.filter_map(|(path, text)| check_manifest(path, text)).collect()
}

fn check_manifest(path: &str, text: &str) -> Option<Finding> {
    let manifest = match text.parse::<Table>() {
        Ok(manifest) => manifest,
        Err(error) => return Some(Finding::new(path, 1, format!("is not TOML: {}", error.message()))),
    };
    let takes_lints = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
    if !manifest.contains_key("package") || takes_lints == Some(true) {
        return None;
    }
    Some(Finding::new(path, 1, "does not take the workspace's lints: add `workspace = true` under `[lints]`"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::findings;
    use super::*;

    #[test]
    fn package_without_the_lints_is_found() {
        let found =
            findings(check, &[("host/Cargo.toml", "[package]\nname = \"x\"\n[lints.rust]\nunsafe_code = \"deny\"")]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn lints_may_be_taken_in_either_form() {
        let forms =
            ["[package]\nname = \"x\"\n[lints]\nworkspace = true", "lints.workspace = true\n[package]\nname = \"x\""];
        for form in forms {
            assert!(findings(check, &[("host/Cargo.toml", form)]).is_empty(), "{form}");
        }
    }

    #[test]
    fn workspace_without_a_package_needs_none() {
        assert!(findings(check, &[("Cargo.toml", "[workspace]\nmembers = []")]).is_empty());
    }

    #[test]
    fn broken_manifest_is_found() {
        assert_eq!(findings(check, &[("Cargo.toml", "[package")]).len(), 1);
    }
}
