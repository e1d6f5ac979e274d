//! Policy on the native transport: hints that something changed, and waiting for replicas.

mod stirring;
mod witness;

pub(super) use stirring::Stirring;
pub(super) use witness::Witnesses;
