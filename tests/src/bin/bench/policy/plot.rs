//! A plot of the filter's false positive rate by its size.

use std::fmt::Write as _;

use anyhow::{Context, Result};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 24.0;

/// The sizes shown, in bits per key.
const MOST_BITS: f64 = 24.0;

/// The rates shown, as powers of ten.
const LOWEST: f64 = -5.0;
const HIGHEST: f64 = 0.0;

const MEASURED: &str = "#1d4ed8";
const THEORY: &str = "#999999";
const FOUND: &str = "#c2410c";

/// Bits set per key: see `docs/adr/0014-bloom-filter-for-policy.md`.
const BITS_SET: i32 = 6;

/// Writes `docs/bench/policy-filter.svg`: the curve, and where the filters of the policy indexes were.
pub(super) fn write(curve: &[(f64, f64)], found: &[(f64, f64)]) -> Result<()> {
    let path = rollcall_tests::root().join("docs/bench/policy-filter.svg");
    std::fs::write(&path, drawn(curve, found)).with_context(|| format!("cannot write {}", path.display()))
}

fn x(bits: f64) -> f64 {
    LEFT + bits / MOST_BITS * WIDTH
}

fn y(rate: f64) -> f64 {
    let power = rate.log10().clamp(LOWEST, HIGHEST);
    TOP + (HIGHEST - power) / (HIGHEST - LOWEST) * HEIGHT
}

fn drawn(curve: &[(f64, f64)], found: &[(f64, f64)]) -> String {
    let (full_width, full_height) = (LEFT + WIDTH + 24.0, TOP + HEIGHT + 48.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full_width} {full_height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    // Writing to a string cannot fail.
    for (rate, name) in
        [(1.0, "100 %"), (0.1, "10 %"), (0.01, "1 %"), (1e-3, "0.1 %"), (1e-4, "0.01 %"), (1e-5, "0.001 %")]
    {
        let at = y(rate);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {at}h{WIDTH}\" stroke=\"#ddd\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>", LEFT - 6.0, at + 4.0);
    }
    for bits in [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0] {
        let at = x(bits);
        let _ = writeln!(svg, "<path d=\"M{at} {TOP}v{HEIGHT}\" stroke=\"#ddd\"/>");
        let _ = writeln!(svg, "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{bits}</text>", TOP + HEIGHT + 18.0);
    }
    let theory: Vec<(f64, f64)> = curve.iter().map(|(bits, _)| (*bits, unblocked(*bits))).collect();
    let _ = writeln!(svg, "<path d=\"{}\" fill=\"none\" stroke=\"{THEORY}\" stroke-dasharray=\"4\"/>", line(&theory));
    let _ = writeln!(svg, "<path d=\"{}\" fill=\"none\" stroke=\"{MEASURED}\" stroke-width=\"2\"/>", line(curve));
    for (bits, rate) in found {
        let _ = writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{FOUND}\"/>", x(*bits), y(*rate));
    }
    let legend = [
        (MEASURED, "six bits of one cache line, measured"),
        (THEORY, "six bits anywhere, by theory"),
        (FOUND, "the filters of the policy indexes in the table"),
    ];
    for (index, (colour, text)) in legend.into_iter().enumerate() {
        let at = TOP + 20.0 + index as f64 * 18.0;
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{at}\" fill=\"{colour}\">{text}</text>", LEFT + WIDTH * 0.55);
    }
    let about = "false positive rate of the filter, by bits per key";
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">{about}</text>\n</svg>", TOP + HEIGHT + 38.0);
    svg
}

/// The rate of a classic Bloom filter, whose bits may be anywhere.
fn unblocked(bits: f64) -> f64 {
    (1.0 - f64::exp(-f64::from(BITS_SET) / bits)).powi(BITS_SET)
}

fn line(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (bits, rate)) in points.iter().enumerate() {
        let _ = write!(path, "{}{:.1} {:.1}", if index == 0 { 'M' } else { 'L' }, x(*bits), y(*rate));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_false_positives_plot_lower() {
        let rates = [0.1, 0.01, 0.001].map(y);
        assert!(rates.is_sorted() && rates.first() < rates.last());
        assert_eq!(line(&[(12.0, 0.1)]), format!("M{:.1} {:.1}", x(12.0), y(0.1)));
    }
}
