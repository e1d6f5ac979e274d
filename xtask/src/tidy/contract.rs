//! Rules for `wit/`: it parses, everything in it is documented, and every function has its world.
//!
//! Only our own package is looked at; what `wit/deps` brings is documented, or not, by others.

use std::path::Path;

use wit_parser::{Docs, Interface, InterfaceId, PackageId, Resolve, Span, Type, TypeDef, TypeDefKind, TypeOwner};

use super::Finding;

/// The six functions, each of which a world describes.
const WORLDS: [&str; 6] = [
    "heartbeat-function",
    "offline-sweep-function",
    "query-function",
    "restriction-check-function",
    "subscribe-function",
    "typing-function",
];

/// Where the contract is kept.
const FOLDER: &str = "wit";

/// Where its worlds are.
const WORLDS_FILE: &str = "wit/worlds.wit";

/// Parses the contract and checks it.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let mut resolve = Resolve::default();
    match resolve.push_dir(root.join(FOLDER)) {
        Ok((package, _)) => check_package(&resolve, package, root),
        Err(error) => vec![Finding::new(FOLDER, 1, format!("does not parse: {error:#}"))],
    }
}

fn check_package(resolve: &Resolve, package: PackageId, root: &Path) -> Vec<Finding> {
    let mut review = Review { resolve, root, findings: Vec::new() };
    for (id, interface) in resolve.interfaces.iter().filter(|(_, interface)| interface.package == Some(package)) {
        review.interface(id, interface);
    }
    let mut worlds = Vec::new();
    for (_, world) in resolve.worlds.iter().filter(|(_, world)| world.package == Some(package)) {
        review.docs(&world.docs, world.span, "world", &world.name);
        worlds.push(world.name.as_str());
    }
    for missing in WORLDS.iter().filter(|name| !worlds.contains(name)) {
        review.findings.push(Finding::new(WORLDS_FILE, 1, format!("there is no world `{missing}`")));
    }
    review.findings
}

/// A walk over the contract, collecting what lacks a `///`.
struct Review<'a> {
    resolve: &'a Resolve,
    root: &'a Path,
    findings: Vec<Finding>,
}

impl Review<'_> {
    fn interface(&mut self, id: InterfaceId, interface: &Interface) {
        self.docs(&interface.docs, interface.span, "interface", interface.name.as_deref().unwrap_or("inline"));
        for function in interface.functions.values() {
            self.docs(&function.docs, function.span, "function", &function.name);
        }
        for (name, id_of_type) in &interface.types {
            match self.resolve.types.get(*id_of_type) {
                Some(definition) if !self.is_used_from_elsewhere(id, definition) => self.definition(name, definition),
                _ => {}
            }
        }
    }

    /// `use types.{x}` makes an alias of a type that another interface owns; `type y = x` one of a type of our own.
    fn is_used_from_elsewhere(&self, id: InterfaceId, definition: &TypeDef) -> bool {
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
            self.findings.push(Finding::new(&path, line, format!("{kind} `{name}` has no `///`")));
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
        let findings = check_package(&resolve, package, Path::new("."));
        Ok(findings.iter().map(ToString::to_string).filter(|finding| !finding.contains("there is no world")).collect())
    }

    #[test]
    fn everything_without_docs_is_found() -> Result<()> {
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
        found.sort_by_key(|finding| finding.split(':').nth(1).and_then(|line| line.parse::<u32>().ok()));
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
    fn type_used_from_another_interface_needs_no_second_docs() -> Result<()> {
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
    fn missing_world_of_a_function_is_found() -> Result<()> {
        let mut resolve = Resolve::default();
        let package =
            resolve.push_source("wit/worlds.wit", "package test:one; /// Beats.\nworld heartbeat-function {}")?;
        let findings = check_package(&resolve, package, Path::new("."));
        assert_eq!(findings.len(), WORLDS.len() - 1);
        Ok(())
    }

    #[test]
    fn contract_that_does_not_parse_is_found() {
        assert_eq!(check(Path::new("no/such/folder")).len(), 1);
    }
}
