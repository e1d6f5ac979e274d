//! The labels of the metrics. Every value is one of a few constants: no label ever holds foreign input.

use prometheus_client::encoding::EncodeLabelSet;

/// The state that was published.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StateLabel {
    pub(super) state: &'static str,
}

/// What found a user due.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CauseLabel {
    pub(super) cause: &'static str,
}

/// What found a user due, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CauseOutcome {
    pub(super) cause: &'static str,
    pub(super) outcome: &'static str,
}

/// A function, by its component's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FunctionLabel {
    pub(super) function: &'static str,
}

/// An operation of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OperationLabel {
    pub(super) operation: &'static str,
}

/// An operation of the store, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OperationOutcome {
    pub(super) operation: &'static str,
    pub(super) outcome: &'static str,
}

/// The template of an HTTP path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RouteLabel {
    pub(super) route: &'static str,
}

/// A background job. The label is not `job`: that name is Prometheus's, for the scrape configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct JobLabel {
    pub(super) background_job: &'static str,
}

/// The protocol of an upgraded connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProtocolLabel {
    pub(super) protocol: &'static str,
}

/// The protocol of an upgraded connection, and why it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProtocolOutcome {
    pub(super) protocol: &'static str,
    pub(super) outcome: &'static str,
}

/// The state of an instance's policy cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CacheStateLabel {
    pub(super) cache_state: &'static str,
}
