//! Markdown tables, for the terminal and `docs/bench/`.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context, Result};

use crate::sample::Spread;

/// The method, printed once per page.
const METHOD: &str = "\
Client and server share the few cores of one noisy machine. So figures are only compared within one run, and contenders take
turns in short slices (ABAB…): a slow moment hits both. A figure is the median over slices; a ratio is the median of the ratios
of neighbouring slices (in process: of rounds of twenty slices each), and min–max is its spread. A wide spread means that the
machine was busy. Absolute figures vary by tens of per cent from run to run, ratios less. Slowness fails nothing: a missed target
says `no`.";

/// The target of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    None,
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    /// The target, and whether it was met.
    fn cells(self, value: f64) -> [String; 2] {
        let met = |met: bool| if met { "yes" } else { "no" }.to_owned();
        match self {
            Goal::None => ["—".to_owned(), "—".to_owned()],
            Goal::AtMost(most) => [format!("≤ {most}"), met(value <= most)],
            Goal::AtLeast(least) => [format!("≥ {least}"), met(value >= least)],
        }
    }
}

/// One benchmark's table with its notes.
pub(crate) struct Section {
    title: &'static str,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Section {
    pub(crate) fn new(title: &'static str, columns: &[&str]) -> Self {
        let head = columns.iter().chain(&["target", "met"]).map(|column| (*column).to_owned()).collect();
        Self { title, rows: vec![head], notes: Vec::new() }
    }

    /// A row, with the goal and the value of its main figure.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>, goal: Goal, value: f64) {
        self.rows.push(cells.into_iter().chain(goal.cells(value)).collect());
    }

    pub(crate) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n", self.title);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        for (index, row) in self.rows.iter().enumerate() {
            let line: Vec<String> =
                row.iter().enumerate().map(|(column, cell)| format!("{cell:width$}", width = width(column))).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} |", line.join(" | "));
            if index == 0 {
                let rule: Vec<String> = (0..row.len()).map(|column| "-".repeat(width(column))).collect();
                let _ = writeln!(text, "| {} |", rule.join(" | "));
            }
        }
        for note in &self.notes {
            let _ = write!(text, "\n{}", wrapped(note));
        }
        text
    }
}

/// Machine, compiler and commit of a run.
pub(crate) struct Machine {
    facts: Vec<(&'static str, String)>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
        let facts = vec![
            ("command", "`cargo xtask bench`".to_owned()),
            ("commit", commit()),
            ("date", output_of("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
            ("machine", format!("{}, {cores} cores; load average before the run {load}", model.unwrap_or("unknown"))),
            ("compiler", output_of("rustc", &["--version"])),
        ];
        Self { facts }
    }

    pub(crate) fn markdown(&self) -> String {
        self.facts.iter().fold(String::new(), |text, (name, fact)| format!("{text}- {name}: {fact}\n"))
    }
}

fn commit() -> String {
    let head = output_of("git", &["rev-parse", "--short", "HEAD"]);
    let clean = output_of("git", &["status", "--porcelain"]).is_empty();
    match (head.is_empty(), clean) {
        (true, _) => "none yet".to_owned(),
        (false, true) => head,
        (false, false) => format!("{head} with local changes"),
    }
}

/// The output of a program run in the workspace; empty if it fails.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(rollcall_tests::root()).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Writes a chapter's page.
pub(crate) fn write(chapter: &str, machine: &Machine, sections: &[Section]) -> Result<()> {
    let page = format!("docs/bench/{chapter}.md");
    let title = match chapter {
        "redis" => "Benchmarks: the host on Redis",
        "reads" => "Benchmarks: reads",
        "gateway" => "Benchmarks: the gateway",
        "policy" => "Benchmarks: policy",
        "hosts" => "Benchmarks: other hosts",
        _ => "Benchmarks: the host",
    };
    let path = rollcall_tests::root().join(&page);
    let tables: Vec<String> = sections.iter().map(Section::markdown).collect();
    let text = format!(
        "# {title}\n\nWritten by `cargo xtask bench`; do not edit.\n\n{}\n{METHOD}\n\n{}",
        machine.markdown(),
        tables.join("\n"),
    );
    std::fs::create_dir_all(path.parent().context("a path without a folder")?)?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("written: {page}");
    Ok(())
}

/// A figure with three significant digits, or all digits before the point.
pub(crate) fn number(value: f64) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        let left = whole.len() - place;
        if place > 0 && left % 3 == 0 && digit != '-' {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    fraction.map_or(grouped.clone(), |fraction| format!("{grouped}.{fraction}"))
}

/// A ratio's median and spread.
pub(crate) fn ratio(spread: Spread) -> (String, String) {
    (format!("{:.2}", spread.median), format!("{:.2}–{:.2}", spread.low, spread.high))
}

/// Wraps prose like the documents.
fn wrapped(prose: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in prose.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > 120 {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_significant_digits() {
        let texts = [1_234_567.8, 999.4, 12.34, 1.234, 0.5].map(number);
        assert_eq!(texts, ["1,234,568", "999", "12.3", "1.23", "0.50"]);
    }

    #[test]
    fn table_shows_whether_goal_was_met() {
        let mut section = Section::new("speed", &["what", "ratio"]);
        section.row(["a".to_owned(), "1.20".to_owned()], Goal::AtMost(1.5), 1.2);
        section.row(["b".to_owned(), "0.50".to_owned()], Goal::AtLeast(0.6), 0.5);
        let text = section.markdown();
        assert!(text.contains("| a    | 1.20  | ≤ 1.5  | yes |"), "{text}");
        assert!(text.contains("| b    | 0.50  | ≥ 0.6  | no  |"), "{text}");
    }
}
