//! Medians and spreads. Slices alternate between two contenders, and ratios are taken pair by pair: a slow moment of the machine
//! hits both.

/// Minimum, median and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { low: quantile(&sorted, 0.0), median: quantile(&sorted, 0.5), high: quantile(&sorted, 1.0) }
    }
}

/// The quantile of sorted values; zero if there are none.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
}

/// One figure of two contenders, slice by slice.
#[derive(Debug, Clone, Default)]
pub(crate) struct Comparison {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Comparison {
    pub(crate) fn push(&mut self, ours: f64, theirs: f64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
    }

    pub(crate) fn ours(&self) -> f64 {
        Spread::of(&self.ours).median
    }

    pub(crate) fn theirs(&self) -> f64 {
        Spread::of(&self.theirs).median
    }

    /// Ours divided by theirs, pair by pair.
    pub(crate) fn ratio(&self) -> Spread {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect();
        Spread::of(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_slice_does_not_move_the_ratio() {
        let mut comparison = Comparison::default();
        for pace in [1.0, 1.1, 9.0, 1.2, 1.0] {
            comparison.push(3.0 * pace, 2.0 * pace);
        }
        let ratio = comparison.ratio();
        assert!((ratio.median - 1.5).abs() < 1e-9 && (ratio.high - 1.5).abs() < 1e-9);
        assert!((comparison.ours() - 3.3).abs() < 1e-9);
    }

    #[test]
    fn quantiles_are_observed_values() {
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!((quantile(&sorted, 0.5), quantile(&sorted, 0.99), quantile(&[], 0.5)), (50.0, 99.0, 0.0));
    }
}
