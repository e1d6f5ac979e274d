//! A plot of the lag: for each `--expiry-detection`, the share of users whose event was published by then.

use std::fmt::Write as _;

use anyhow::{Context, Result};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 24.0;

/// The lags shown, in milliseconds, on a logarithmic scale.
const FIRST_MS: f64 = 1.0;
const LAST_MS: f64 = 100_000.0;

const COLOURS: [&str; 3] = ["#c2410c", "#1d4ed8", "#15803d"];

/// Writes `docs/bench/offline-lag.svg`. The lags are sorted; those that never came are infinite.
pub(super) fn write(curves: &[(&str, Vec<f64>)]) -> Result<()> {
    let path = rollcall_tests::root().join("docs/bench/offline-lag.svg");
    std::fs::write(&path, drawn(curves)).with_context(|| format!("cannot write {}", path.display()))
}

fn x(lag_ms: f64) -> f64 {
    let share = (lag_ms.clamp(FIRST_MS, LAST_MS) / FIRST_MS).log10() / (LAST_MS / FIRST_MS).log10();
    LEFT + share * WIDTH
}

fn y(share: f64) -> f64 {
    TOP + (1.0 - share) * HEIGHT
}

fn drawn(curves: &[(&str, Vec<f64>)]) -> String {
    let (full_width, full_height) = (LEFT + WIDTH + 24.0, TOP + HEIGHT + 48.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full_width} {full_height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    // Writing to a string cannot fail.
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y(share);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {at}h{WIDTH}\" stroke=\"#ddd\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0} %</text>",
            LEFT - 6.0,
            at + 4.0,
            share * 100.0
        );
    }
    for (lag_ms, name) in
        [(1.0, "1 ms"), (10.0, "10 ms"), (100.0, "100 ms"), (1e3, "1 s"), (1e4, "10 s"), (1e5, "100 s")]
    {
        let at = x(lag_ms);
        let _ = writeln!(svg, "<path d=\"M{at:.1} {TOP}v{HEIGHT}\" stroke=\"#ddd\"/>");
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>", TOP + HEIGHT + 18.0);
    }
    for (index, ((name, lags_ms), colour)) in curves.iter().zip(COLOURS).enumerate() {
        let _ = writeln!(svg, "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", line(lags_ms));
        let at = TOP + 16.0 + index as f64 * 18.0;
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{at}\" fill=\"{colour}\">{name}</text>", LEFT + 10.0);
    }
    let about = "share of users published as offline, by time after their deadline; a million online in Redis";
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">{about}</text>\n</svg>", TOP + HEIGHT + 38.0);
    svg
}

/// One step per hundredth of the users.
fn line(lags_ms: &[f64]) -> String {
    let mut path = format!("M{LEFT} {}", y(0.0));
    for hundredth in 1..=100 {
        let index = (lags_ms.len() * hundredth / 100).saturating_sub(1);
        match lags_ms.get(index).filter(|lag| lag.is_finite()) {
            Some(lag_ms) => {
                let _ = write!(path, "H{:.1}V{:.1}", x(*lag_ms), y(hundredth as f64 / 100.0));
            }
            None => break,
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_ends_where_notifications_stop() {
        let half: Vec<f64> = (0..100).map(|index| if index < 50 { 10.0 } else { f64::INFINITY }).collect();
        assert!(line(&half).ends_with(&format!("V{:.1}", y(0.5))));
        assert!(drawn(&[("both", half)]).contains(">both</text>"));
    }
}
