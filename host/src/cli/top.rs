//! `rollcall top`: a host's rates and times, once a second. The numbers are those of the console, which averages over five
//! seconds and not ten: a chart must follow quickly, a number must be readable.

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
use super::remote::{Remote, RemoteArgs, RemoteError};
use super::terminal::{Screen, escape_controls, is_interactive};
use window::Window;

/// How often the host is sampled.
const EVERY: Duration = Duration::from_secs(1);

/// Rates and quantiles are over this many samples: over one they would jump.
const SPAN: usize = 10;

/// The arguments of `top`.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Take two samples, a second apart, print the result, and exit
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object per sample, for scripts
    #[arg(long)]
    pub json: bool,
    /// The host and the caller.
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// The form of the output.
enum Output {
    Objects,
    Page,
    Screen(Screen),
}

/// Samples until a signal arrives or the host refuses.
pub async fn top(args: &TopArgs) -> Result<()> {
    let remote = Remote::new(&args.remote)?;
    let output = match args.json {
        true => Output::Objects,
        false if is_interactive() && !args.once => Output::Screen(Screen::open()?),
        false => Output::Page,
    };
    tokio::select! {
        sampled = keep_sampling(&remote, args.once, &output) => sampled,
        interrupted = interrupted() => Ok(interrupted?),
    }
}

async fn keep_sampling(remote: &Remote, once: bool, output: &Output) -> Result<()> {
    let mut samples: VecDeque<Stats> = VecDeque::new();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let trouble = match sample(remote).await {
            Ok(stats) => {
                // The counters of a restarted host begin at zero.
                samples.retain(|sample| sample.host.started == stats.host.started);
                samples.push_back(stats);
                None
            }
            Err(RemoteError::Unavailable(said)) if !once => Some(said),
            Err(trouble) => return Err(trouble.into()),
        };
        if samples.len() > SPAN + 1 {
            samples.pop_front();
        }
        let window =
            samples.front().zip(samples.back()).filter(|_| samples.len() > 1).map(|(from, to)| Window::of(from, to));
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

async fn sample(remote: &Remote) -> Result<Stats, RemoteError> {
    let body = remote.get("/v1/stats").await?;
    serde_json::from_slice(&body)
        .map_err(|error| RemoteError::Refused(format!("the response is not from Rollcall: {error}")))
}

fn show(output: &Output, remote: &Remote, window: Option<&Window>, trouble: Option<&str>) -> io::Result<()> {
    let host = remote.address.as_str();
    match (output, window) {
        (Output::Screen(screen), window) => screen.draw(&table::lines(host, window, trouble)),
        (_, None) => trouble.map_or(Ok(()), print_error),
        (_, Some(_)) if trouble.is_some() => trouble.map_or(Ok(()), print_error),
        (Output::Objects, Some(window)) => print(&serde_json::to_string(window)?),
        (Output::Page, Some(window)) => {
            let lines = table::lines(host, Some(window), None);
            print(&lines.iter().map(|line| line.plain() + "\n").collect::<String>())
        }
    }
}

fn print_error(trouble: &str) -> io::Result<()> {
    writeln!(io::stderr(), "rollcall: {}; retrying", escape_controls(trouble))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}
