//! Composes components into one, so that a host need not link them.

use std::collections::HashMap;

use anyhow::{Context, Result};
use wac_graph::types::Package;
use wac_graph::{CompositionGraph, EncodeOptions, NodeId, PackageId};

/// A component and its name in errors.
pub(crate) struct Part<'a> {
    /// For example `adapters/spin-redis`.
    pub(crate) name: &'a str,
    /// The component.
    pub(crate) bytes: &'a [u8],
}

/// Composes components. Each is instantiated once, in order. An import is satisfied by the nearest earlier component that
/// exports it; otherwise it stays an import of the result. The result exports what the last component exports.
pub(crate) fn composed(parts: &[Part<'_>]) -> Result<Vec<u8>> {
    let mut graph = CompositionGraph::new();
    let mut exports: HashMap<String, NodeId> = HashMap::new();
    let mut last = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let about = || format!("{} does not fit the components before it", part.name);
        let (package, instance) = instantiate(&mut graph, place, part)?;
        for import in names(&graph, package, Side::Imports) {
            if let Some(export) = exports.get(&import) {
                graph.set_instantiation_argument(instance, &import, *export).with_context(about)?;
            }
        }
        last = names(&graph, package, Side::Exports);
        for export in &last {
            exports.insert(export.clone(), graph.alias_instance_export(instance, export).with_context(about)?);
        }
    }
    for export in last {
        if let Some(node) = exports.get(&export) {
            graph.export(*node, export)?;
        }
    }
    Ok(graph.encode(EncodeOptions::default())?)
}

/// The same component may occur twice, so its position is part of its name in the graph.
fn instantiate(graph: &mut CompositionGraph, place: usize, part: &Part<'_>) -> Result<(PackageId, NodeId)> {
    let name = format!("rollcall:part{place}");
    let package = Package::from_bytes(&name, None, part.bytes.to_vec(), graph.types_mut());
    let package = package.with_context(|| format!("{} is not a component that can be composed", part.name))?;
    let package = graph.register_package(package)?;
    Ok((package, graph.instantiate(package)))
}

/// Imports or exports of a component.
#[derive(Clone, Copy)]
enum Side {
    Imports,
    Exports,
}

fn names(graph: &CompositionGraph, package: PackageId, side: Side) -> Vec<String> {
    let world = &graph.types()[graph[package].ty()];
    let items = match side {
        Side::Imports => &world.imports,
        Side::Exports => &world.exports,
    };
    items.keys().cloned().collect()
}
