//! A seeded simulation: the real procedures of this crate run concurrently over a simple reference store, while calls
//! are lost, delayed and reordered, and procedures crash and stall. After every step it checks invariants 1 to 5 of
//! `docs/ARCHITECTURE.md` against an oracle that records every event.
//!
//! `ROLLCALL_SIM_SEED=0x2a cargo test -p rollcall-functions --test simulation` runs one seed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a simulation that cannot go on fails where it is"
)]

mod agents;
mod checker;
mod client;
mod oracle;
mod random;
mod store;
mod world;

use store::Broken;
use world::{Faults, Plan, Report, run};

/// 16 seeds with 320 users for 2 hours are 10,240 user-hours.
const PLAN: Plan = Plan { seed: 0, users: 320, hours: 2, faults: Faults::All, has_sweepers: true, broken: None };
const SEEDS: u64 = 16;

/// Runs every plan on two threads: the smallest machine this is developed on has two cores.
fn run_all(plans: &[Plan]) -> Vec<Report> {
    let (left, right) = plans.split_at(plans.len() / 2);
    std::thread::scope(|scope| {
        let right = scope.spawn(|| right.iter().map(|&plan| run(plan)).collect::<Vec<_>>());
        let mut reports: Vec<Report> = left.iter().map(|&plan| run(plan)).collect();
        reports.extend(right.join().unwrap());
        reports
    })
}

fn chosen_seed() -> Option<u64> {
    let text = std::env::var("ROLLCALL_SIM_SEED").ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|error| panic!("ROLLCALL_SIM_SEED={text}: {error}")))
}

#[test]
fn every_invariant_holds_for_ten_thousand_user_hours() {
    let seeds = chosen_seed().map_or_else(|| (1..=SEEDS).collect(), |seed| vec![seed]);
    let plans: Vec<Plan> = seeds.iter().map(|&seed| Plan { seed, ..PLAN }).collect();
    let reports = run_all(&plans);
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    println!(
        "{} user-hours, {} steps, {} publications, {} procedures interrupted, at most {} in flight",
        sum(|report| report.user_hours),
        sum(|report| report.steps),
        sum(|report| report.publications),
        sum(|report| report.crashes),
        reports.iter().map(|report| report.most_in_flight).max().unwrap_or_default(),
    );
    let violations: Vec<&String> = reports.iter().filter_map(|report| report.violation.as_ref()).collect();
    assert!(violations.is_empty(), "{} of {} seeds: {}", violations.len(), reports.len(), violations[0]);
    assert!(chosen_seed().is_some() || sum(|report| report.user_hours) >= 10_000);
}

/// Every eighth user always beats in time and must never be published offline: neither without faults nor after a store
/// outage, which gives every user a full `d + ε` to beat again.
#[test]
fn user_who_beats_in_time_never_flickers() {
    let plans =
        [Faults::None, Faults::StoreOutages].map(|faults| Plan { seed: 1, users: 64, hours: 4, faults, ..PLAN });
    for report in run_all(&plans) {
        assert_eq!(report.violation, None);
        assert_eq!(report.steady_offlines, 0);
        assert!(report.publications > 1000);
    }
}

/// Asserts that some run of this plan reports a violation with one of these texts.
fn assert_caught(plan: Plan, texts: &[&str]) {
    let plans: Vec<Plan> = (1..=4).map(|seed| Plan { seed, ..plan }).collect();
    let violations: Vec<String> = run_all(&plans).into_iter().filter_map(|report| report.violation).collect();
    let is_named = violations.iter().any(|violation| texts.iter().any(|text| violation.contains(text)));
    assert!(is_named, "{plan:?}: {violations:#?}");
}

#[test]
fn commit_that_ignores_touches_is_caught() {
    assert_caught(
        Plan { broken: Some(Broken::CommitIgnoresTouches), ..PLAN },
        &["3: a late heartbeat beats the sweep"],
    );
}

#[test]
fn double_publication_is_caught() {
    assert_caught(Plan { broken: Some(Broken::PublishesTwice), ..PLAN }, &["2: versions strictly rise"]);
}

#[test]
fn missing_sweep_is_caught() {
    assert_caught(Plan { has_sweepers: false, ..PLAN }, &["4: what is published is wrong"]);
}

#[test]
fn lost_deadline_is_caught() {
    assert_caught(Plan { broken: Some(Broken::LosesDeadlines), ..PLAN }, &["4: what is published is wrong"]);
}

#[test]
fn beat_without_deadline_is_caught() {
    let texts = ["1: a query answers", "4: what is published is wrong", "5: a session is left behind"];
    assert_caught(Plan { broken: Some(Broken::BeatSetsNoDeadline), ..PLAN }, &texts);
}

#[test]
fn logout_that_loses_last_beat_is_caught() {
    assert_caught(Plan { broken: Some(Broken::LogoutLosesBeat), ..PLAN }, &["5: last seen"]);
}

#[test]
fn archive_that_moves_backwards_is_caught() {
    assert_caught(Plan { broken: Some(Broken::ArchiveMovesBackwards), ..PLAN }, &["5: last seen was lost"]);
}
