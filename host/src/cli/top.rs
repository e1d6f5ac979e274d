//! `rollcall top`: what a host is doing, once a second, in a terminal. The figures are those of the console, where rates are
//! of five seconds and not of ten: a line of a chart must follow, a number that is read must stand still.

mod table;
mod window;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rollcall_api::responses::Stats;
use tokio::time::{MissedTickBehavior, interval};

use super::interrupted;
use super::remote::{Remote, RemoteArgs, Trouble};
use super::terminal::{Screen, harmless, is_for_eyes};
use window::Window;

/// How often the host is asked.
const EVERY: Duration = Duration::from_secs(1);

/// Rates and quantiles are those of so many seconds at most: of one alone they would jump.
const SPAN: usize = 10;

/// How to show it.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Look twice, a second apart, print what came of it, and end
    #[arg(long)]
    pub once: bool,
    /// Print one object of JSON for each look, for scripts
    #[arg(long)]
    pub json: bool,
    /// Which host, and who looks.
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// How it is shown.
enum Output {
    Objects,
    Page,
    Screen(Screen),
}

/// Looks until the process is told to end, or the host refuses.
pub async fn top(args: &TopArgs) -> Result<()> {
    let remote = Remote::new(&args.remote)?;
    let output = match args.json {
        true => Output::Objects,
        false if is_for_eyes() && !args.once => Output::Screen(Screen::open()?),
        false => Output::Page,
    };
    tokio::select! {
        looked = keep_looking(&remote, args.once, &output) => looked,
        interrupted = interrupted() => Ok(interrupted?),
    }
}

async fn keep_looking(remote: &Remote, once: bool, output: &Output) -> Result<()> {
    let mut looks: VecDeque<Stats> = VecDeque::new();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let trouble = match look(remote).await {
            Ok(stats) => {
                // A host that was started anew counts from the beginning.
                looks.retain(|look| look.host.started == stats.host.started);
                looks.push_back(stats);
                None
            }
            Err(Trouble::Away(said)) if !once => Some(said),
            Err(trouble) => return Err(trouble.into()),
        };
        if looks.len() > SPAN + 1 {
            looks.pop_front();
        }
        let window = looks.front().zip(looks.back()).filter(|_| looks.len() > 1).map(|(from, to)| Window::of(from, to));
        let shown = show(output, remote, window.as_ref(), trouble.as_deref());
        match shown {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            shown => shown.context("cannot write to standard output")?,
        }
        if once && window.is_some() {
            return Ok(());
        }
    }
}

async fn look(remote: &Remote) -> Result<Stats, Trouble> {
    let body = remote.get("/v1/stats").await?;
    serde_json::from_slice(&body)
        .map_err(|error| Trouble::Refused(format!("the answer is none of Rollcall's: {error}")))
}

fn show(output: &Output, remote: &Remote, window: Option<&Window>, trouble: Option<&str>) -> io::Result<()> {
    let host = remote.address.as_str();
    match (output, window) {
        (Output::Screen(screen), window) => screen.draw(&table::lines(host, window, trouble)),
        (_, None) => trouble.map_or(Ok(()), complain),
        (_, Some(_)) if trouble.is_some() => trouble.map_or(Ok(()), complain),
        (Output::Objects, Some(window)) => print(&serde_json::to_string(window)?),
        (Output::Page, Some(window)) => {
            let lines = table::lines(host, Some(window), None);
            print(&lines.iter().map(|line| line.plain() + "\n").collect::<String>())
        }
    }
}

fn complain(trouble: &str) -> io::Result<()> {
    writeln!(io::stderr(), "rollcall: {}; trying again", harmless(trouble))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}
