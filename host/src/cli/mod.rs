//! The command line: what can be asked of `rollcall`, and the help that teaches it.
//!
//! The flags of settings are not written here: they come from the table of settings. What is asked is carried out by
//! `main`, except for what is worth testing by itself.

mod clock;
mod flags;
mod remote;
mod restrictions;
mod terminal;
mod token;
mod top;
mod watch;

use std::io;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

pub use flags::{AccessFlags, SettingFlags};
pub use remote::{Address, RemoteArgs};
pub use restrictions::{RestrictionsCommand, restrictions};
pub use token::{TokenArgs, TokenFault};
pub use top::{TopArgs, top};
pub use watch::{WatchArgs, watch};

const EXAMPLES: &str = "\
Examples:
  rollcall serve                                  all in this process, on 127.0.0.1:8080
  rollcall serve --preset brisk --data none       quick to notice, nothing on disk
  rollcall serve --listen 0.0.0.0:8080 --token-key token.key
  rollcall token --user alice --key token.key     a token for alice, for one hour
  rollcall config --example > rollcall.toml       a file to start from
  rollcall serve --config rollcall.toml
  rollcall restrictions import banned.txt --store redis://localhost
  rollcall watch bob carol                        their states, as they change
  rollcall top                                    what the service is doing

Try it, while `rollcall serve` runs:
  curl '127.0.0.1:8080/v1/heartbeat?as=bob' --json '{\"device\":\"web-1\"}'
  curl '127.0.0.1:8080/v1/presence/bob?as=alice'

`rollcall serve --help` explains every setting.";

const SERVE_AFTER: &str = "\
Every flag is also a key of the file (idle_after = \"5m\") and a variable (ROLLCALL_IDLE_AFTER=5m).
A flag covers a variable, a variable covers the file, the file covers the default.
`rollcall config`, with the same flags, shows what is in force and why.";

const TOKEN_AFTER: &str = "\
Examples:
  rollcall token --user alice --key token.key
  rollcall token --user billing --scope service --ttl 24h --key private.pem

Only the token is printed, so that a script can use it:
  curl -H \"Authorization: Bearer $(rollcall token --user alice --key token.key)\" …";

const RESTRICTIONS_AFTER: &str = "\
Examples:
  rollcall restrictions import banned.txt --store redis://localhost
  rollcall restrictions import --bitmap banned.bits --store redis://localhost
  rollcall restrictions import --lift pardoned.txt --store redis://localhost
  rollcall restrictions export - --store redis://localhost | wc -l

Hosts on the store enforce it at once. The embedded store is its host's alone: stop that first, or
use PUT /v1/restrictions/{user} and POST /v1/policy while it runs.";

const WATCH_AFTER: &str = "\
Examples:
  rollcall watch bob carol                         as `operator`, on this machine
  rollcall watch bob --as alice --typing room-1    as alice sees it, and who types in room-1
  rollcall watch bob --json | jq .state            one event a line, for scripts

With a token, also over TLS:
  export ROLLCALL_TOKEN=$(rollcall token --user alice --key token.key)
  rollcall watch bob --url https://presence.example.com

Looking makes nobody online. On a terminal it is a table; elsewhere, or with NO_COLOR, a line for
each change. A connection that breaks is made again, and told what changed meanwhile. Ctrl-C ends it;
a host that refuses ends it with 1.";

const TOP_AFTER: &str = "\
Examples:
  rollcall top                                     on this machine, once a second
  rollcall top --once                              two looks, printed
  rollcall top --once --json | jq .rates.heartbeats

Where a key is set, it needs a token with the scope `admin`:
  export ROLLCALL_TOKEN=$(rollcall token --user ops --scope admin --key token.key)
  rollcall top --url https://presence.example.com

Rates and times are those of the last ten seconds, on the host that was asked; who is here is counted
in the whole store.";

const CONFIG_AFTER: &str = "\
Examples:
  rollcall config                                  what `rollcall serve` would use, and why
  rollcall config --config rollcall.toml --preset brisk
  rollcall config --example > rollcall.toml        every setting, documented, with its default

Keys are never printed, only the paths of their files.";

/// Presence as WebAssembly functions: who is online, away, busy or offline, and when they were last seen.
#[derive(Debug, Parser)]
#[command(name = "rollcall", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What can be asked.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve presence over HTTP until told to stop.
    #[command(after_help = SERVE_AFTER)]
    Serve {
        /// The settings.
        #[command(flatten)]
        settings: SettingFlags,
    },
    /// Make a token for a user or a service, for trying out and for scripts.
    #[command(after_help = TOKEN_AFTER)]
    Token(TokenArgs),
    /// Restrict many accounts at once from a file, or write down those that are.
    #[command(after_help = RESTRICTIONS_AFTER, subcommand)]
    Restrictions(RestrictionsCommand),
    /// Show people's states in the terminal, as they change.
    #[command(after_help = WATCH_AFTER)]
    Watch(WatchArgs),
    /// Show what a host is doing: rates, times, who is here, who is watched most.
    #[command(after_help = TOP_AFTER)]
    Top(TopArgs),
    /// Print the configuration that is in force, and where each value came from.
    #[command(after_help = CONFIG_AFTER)]
    Config {
        /// Print the example file instead: every setting with its meaning, unit and default.
        #[arg(long)]
        example: bool,
        /// The settings.
        #[command(flatten)]
        settings: SettingFlags,
    },
}

/// Returns when the process is told to end.
async fn interrupted() -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
