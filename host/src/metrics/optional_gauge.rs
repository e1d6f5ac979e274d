//! A gauge that is left out while its value is unknown, so that a stale one is never exported.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

/// The stored value while unknown.
const UNKNOWN: i64 = -1;

/// A gauge with or without a value.
#[derive(Debug, Clone)]
pub(super) struct OptionalGauge(Arc<AtomicI64>);

impl Default for OptionalGauge {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(UNKNOWN)))
    }
}

impl OptionalGauge {
    /// Sets the value; `None` if it is unknown.
    pub(super) fn set(&self, value: Option<u64>) {
        let value = value.map_or(UNKNOWN, |value| i64::try_from(value).unwrap_or(i64::MAX));
        self.0.store(value, Ordering::Relaxed);
    }
}

impl EncodeMetric for OptionalGauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => Ok(()),
            value => encoder.encode_gauge(&value),
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == UNKNOWN
    }
}
