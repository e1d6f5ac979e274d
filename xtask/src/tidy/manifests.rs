//! Rule for `Cargo.toml`: every package inherits the lints of the workspace.

use toml::{Table, Value};

use super::Violation;
use super::tree::Tree;

/// Checks every manifest of the tree.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let manifests = tree.texts("Cargo.toml").filter(|(path, _)| *path == "Cargo.toml" || path.ends_with("/Cargo.toml"));
    manifests.filter_map(|(path, text)| check_manifest(path, text)).collect()
}

fn check_manifest(path: &str, text: &str) -> Option<Violation> {
    let manifest = match text.parse::<Table>() {
        Ok(manifest) => manifest,
        Err(error) => return Some(Violation::new(path, 1, format!("is not TOML: {}", error.message()))),
    };
    let inherits_lints = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
    if !manifest.contains_key("package") || inherits_lints == Some(true) {
        return None;
    }
    Some(Violation::new(path, 1, "does not inherit the lints of the workspace: add `workspace = true` under `[lints]`"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::violations;
    use super::*;

    #[test]
    fn package_without_lints_is_reported() {
        let found =
            violations(check, &[("host/Cargo.toml", "[package]\nname = \"x\"\n[lints.rust]\nunsafe_code = \"deny\"")]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn both_forms_of_lints_pass() {
        let forms =
            ["[package]\nname = \"x\"\n[lints]\nworkspace = true", "lints.workspace = true\n[package]\nname = \"x\""];
        for form in forms {
            assert!(violations(check, &[("host/Cargo.toml", form)]).is_empty(), "{form}");
        }
    }

    #[test]
    fn workspace_without_package_passes() {
        assert!(violations(check, &[("Cargo.toml", "[workspace]\nmembers = []")]).is_empty());
    }

    #[test]
    fn broken_manifest_is_reported() {
        assert_eq!(violations(check, &[("Cargo.toml", "[package")]).len(), 1);
    }
}
