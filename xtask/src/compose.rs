//! Plugs one component into the import of another, so that both are one file that needs neither a host that links them nor
//! the import any more.

use anyhow::{Context, Result};
use wac_graph::types::Package;
use wac_graph::{CompositionGraph, EncodeOptions, plug};

/// A component with another plugged into whatever it imports that the other exports.
pub(crate) fn plugged(socket: &[u8], into_it: &[u8]) -> Result<Vec<u8>> {
    let mut graph = CompositionGraph::new();
    let mut register = |name: &str, bytes: &[u8]| {
        let package = Package::from_bytes(name, None, bytes.to_vec(), graph.types_mut())?;
        anyhow::Ok(graph.register_package(package)?)
    };
    let socket = register("rollcall:socket", socket).context("the component with the import")?;
    let into_it = register("rollcall:plug", into_it).context("the component that is plugged in")?;
    plug(&mut graph, vec![into_it], socket)?;
    Ok(graph.encode(EncodeOptions::default())?)
}
