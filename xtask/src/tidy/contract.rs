//! Rules for `wit/`: it parses, everything in it is documented, and every function has its world.
//!
//! Only our own package is checked, not `wit/deps`.

use std::path::Path;

use wit_parser::{Docs, Interface, InterfaceId, PackageId, Resolve, Span, Type, TypeDef, TypeDefKind, TypeOwner};

use super::Violation;

/// The worlds of the six functions.
const WORLDS: [&str; 6] = [
    "heartbeat-function",
    "offline-sweep-function",
    "query-function",
    "restriction-check-function",
    "subscribe-function",
    "typing-function",
];

/// The folder of the contract.
const FOLDER: &str = "wit";

/// The file of its worlds.
const WORLDS_FILE: &str = "wit/worlds.wit";

/// Parses the contract and checks it.
pub(super) fn check(root: &Path) -> Vec<Violation> {
    let mut resolve = Resolve::default();
    match resolve.push_dir(root.join(FOLDER)) {
        Ok((package, _)) => check_package(&resolve, package, root),
        Err(error) => vec![Violation::new(FOLDER, 1, format!("does not parse: {error:#}"))],
    }
}

fn check_package(resolve: &Resolve, package: PackageId, root: &Path) -> Vec<Violation> {
    let mut review = Review { resolve, root, violations: Vec::new() };
    for (id, interface) in resolve.interfaces.iter().filter(|(_, interface)| interface.package == Some(package)) {
        review.interface(id, interface);
    }
    let mut worlds = Vec::new();
    for (_, world) in resolve.worlds.iter().filter(|(_, world)| world.package == Some(package)) {
        review.docs(&world.docs, world.span, "world", &world.name);
        worlds.push(world.name.as_str());
    }
    for missing in WORLDS.iter().filter(|name| !worlds.contains(name)) {
        review.violations.push(Violation::new(WORLDS_FILE, 1, format!("world `{missing}` is missing")));
    }
    review.violations
}

/// Visits the contract and collects what has no `///`.
struct Review<'a> {
    resolve: &'a Resolve,
    root: &'a Path,
    violations: Vec<Violation>,
}

impl Review<'_> {
    fn interface(&mut self, id: InterfaceId, interface: &Interface) {
        self.docs(&interface.docs, interface.span, "interface", interface.name.as_deref().unwrap_or("inline"));
        for function in interface.functions.values() {
            self.docs(&function.docs, function.span, "function", &function.name);
        }
        for (name, id_of_type) in &interface.types {
            match self.resolve.types.get(*id_of_type) {
                Some(definition) if !self.is_imported(id, definition) => self.definition(name, definition),
                _ => {}
            }
        }
    }

    /// Whether the type is `use types.{x}`, an alias of a type of another interface; `type y = x` is not.
    fn is_imported(&self, id: InterfaceId, definition: &TypeDef) -> bool {
        let TypeDefKind::Type(Type::Id(original)) = definition.kind else { return false };
        self.resolve.types.get(original).is_some_and(|original| original.owner != TypeOwner::Interface(id))
    }

    fn definition(&mut self, name: &str, definition: &TypeDef) {
        self.docs(&definition.docs, definition.span, definition.kind.as_str(), name);
        match &definition.kind {
            TypeDefKind::Record(record) => {
                for field in &record.fields {
                    self.docs(&field.docs, field.span, "field", &format!("{name}.{}", field.name));
                }
            }
            TypeDefKind::Variant(variant) => {
                for case in &variant.cases {
                    self.docs(&case.docs, case.span, "case", &format!("{name}.{}", case.name));
                }
            }
            TypeDefKind::Enum(cases) => {
                for case in &cases.cases {
                    self.docs(&case.docs, case.span, "case", &format!("{name}.{}", case.name));
                }
            }
            TypeDefKind::Flags(flags) => {
                for flag in &flags.flags {
                    self.docs(&flag.docs, flag.span, "flag", &format!("{name}.{}", flag.name));
                }
            }
            _ => {}
        }
    }

    fn docs(&mut self, docs: &Docs, span: Span, kind: &str, name: &str) {
        if docs.contents.as_deref().is_none_or(|text| text.trim().is_empty()) {
            let (path, line) = self.place(span);
            self.violations.push(Violation::new(&path, line, format!("{kind} `{name}` has no `///`")));
        }
    }

    /// The file, from the root, and the line of a span.
    fn place(&self, span: Span) -> (String, usize) {
        let location = self.resolve.render_location(span);
        let mut parts = location.rsplitn(3, ':').skip(1);
        let line = parts.next().and_then(|line| line.parse().ok()).unwrap_or(1);
        let path = Path::new(parts.next().unwrap_or(FOLDER));
        (path.strip_prefix(self.root).unwrap_or(path).display().to_string(), line)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::*;

    fn found(text: &str) -> Result<Vec<String>> {
        let mut resolve = Resolve::default();
        let package = resolve.push_source("wit/all.wit", text)?;
        let violations = check_package(&resolve, package, Path::new("."));
        Ok(violations.iter().map(ToString::to_string).filter(|violation| !violation.contains("is missing")).collect())
    }

    #[test]
    fn everything_without_docs_is_reported() -> Result<()> {
        let text = "package test:bare;
            interface bare {
                record r {
                    field: u8,
                }
                variant v {
                    case,
                }
                enum e {
                    case,
                }
                flags f {
                    flag,
                }
                type alias = string;
                call: func();
            }
            world w {}
        ";
        let mut found = found(text)?;
        found.sort_by_key(|violation| violation.split(':').nth(1).and_then(|line| line.parse::<u32>().ok()));
        let expected = [
            "wit/all.wit:2: interface `bare` has no `///`",
            "wit/all.wit:3: record `r` has no `///`",
            "wit/all.wit:4: field `r.field` has no `///`",
            "wit/all.wit:6: variant `v` has no `///`",
            "wit/all.wit:7: case `v.case` has no `///`",
            "wit/all.wit:9: enum `e` has no `///`",
            "wit/all.wit:10: case `e.case` has no `///`",
            "wit/all.wit:12: flags `f` has no `///`",
            "wit/all.wit:13: flag `f.flag` has no `///`",
            "wit/all.wit:15: type `alias` has no `///`",
            "wit/all.wit:16: function `call` has no `///`",
            "wit/all.wit:18: world `w` has no `///`",
        ];
        assert_eq!(found, expected);
        Ok(())
    }

    #[test]
    fn imported_type_needs_no_docs() -> Result<()> {
        let text = "package test:uses;
            /// Nouns.
            interface nouns {
                /// A name.
                type name = string;
            }
            /// Verbs.
            interface verbs {
                use nouns.{name};
                type other = name;
            }
        ";
        assert_eq!(found(text)?, ["wit/all.wit:10: type `other` has no `///`"]);
        Ok(())
    }

    #[test]
    fn missing_world_is_reported() -> Result<()> {
        let mut resolve = Resolve::default();
        let package =
            resolve.push_source("wit/worlds.wit", "package test:one; /// Beats.\nworld heartbeat-function {}")?;
        let violations = check_package(&resolve, package, Path::new("."));
        assert_eq!(violations.len(), WORLDS.len() - 1);
        Ok(())
    }

    #[test]
    fn contract_that_does_not_parse_is_reported() {
        assert_eq!(check(Path::new("no/such/folder")).len(), 1);
    }
}
