//! A number that somebody may not know at present. Then it is left out: a value of before would pass for one of now.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

/// Stands for no number.
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
    /// None: nobody knows.
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
