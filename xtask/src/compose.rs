//! Puts components together into one file, so that a host need not link them.

use std::collections::HashMap;

use anyhow::{Context, Result};
use wac_graph::types::Package;
use wac_graph::{CompositionGraph, EncodeOptions, NodeId, PackageId};

/// A component by the name under which errors speak of it.
pub(crate) struct Part<'a> {
    /// As people know it: `adapters/spin-redis`.
    pub(crate) name: &'a str,
    /// The component.
    pub(crate) bytes: &'a [u8],
}

/// One component of several. Each of them is instantiated once, in order, and whatever it imports is what the last of those
/// before it exports under that name; what none exports stays an import of the whole. The whole exports what the last
/// exports.
pub(crate) fn composed(parts: &[Part<'_>]) -> Result<Vec<u8>> {
    let mut graph = CompositionGraph::new();
    let mut exports: HashMap<String, NodeId> = HashMap::new();
    let mut last = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let about = || format!("{} does not fit to what comes before it", part.name);
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

/// The same component may be there twice, so its place is a part of the name that the graph knows it by.
fn instantiate(graph: &mut CompositionGraph, place: usize, part: &Part<'_>) -> Result<(PackageId, NodeId)> {
    let name = format!("rollcall:part{place}");
    let package = Package::from_bytes(&name, None, part.bytes.to_vec(), graph.types_mut());
    let package = package.with_context(|| format!("{} is no component that can be composed", part.name))?;
    let package = graph.register_package(package)?;
    Ok((package, graph.instantiate(package)))
}

/// Which side of a component.
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
