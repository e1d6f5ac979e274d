//! The command line: the commands of `rollcall` and their help.
//!
//! The flags of settings come from the table of settings. `main` runs the commands, except for those that are tested
//! separately.

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
pub use token::{TokenArgs, TokenError};
pub use top::{TopArgs, top};
pub use watch::{WatchArgs, watch};

const EXAMPLES: &str = "\
Examples:
  rollcall serve                                  everything in this process, on 127.0.0.1:8080
  rollcall serve --preset brisk --data none       short times, nothing on disk
  rollcall serve --listen 0.0.0.0:8080 --token-key token.key
  rollcall token --user alice --key token.key     a token for alice, for one hour
  rollcall config --example > rollcall.toml       a config file to start from
  rollcall serve --config rollcall.toml
  rollcall restrictions import banned.txt --store redis://localhost
  rollcall watch bob carol                        show states as they change
  rollcall top                                    show rates and times of a host

Try it, while `rollcall serve` runs:
  curl '127.0.0.1:8080/v1/heartbeat?as=bob' --json '{\"device\":\"web-1\"}'
  curl '127.0.0.1:8080/v1/presence/bob?as=alice'

`rollcall serve --help` explains every setting.";

const SERVE_AFTER: &str = "\
Every flag is also a key of the file (idle_after = \"5m\") and a variable (ROLLCALL_IDLE_AFTER=5m).
A flag overrides a variable, a variable overrides the file, the file overrides the default.
`rollcall config`, with the same flags, shows the values in force and their sources.";

const TOKEN_AFTER: &str = "\
Examples:
  rollcall token --user alice --key token.key
  rollcall token --user billing --scope service --ttl 24h --key private.pem

Only the token is printed, for use in scripts:
  curl -H \"Authorization: Bearer $(rollcall token --user alice --key token.key)\" …";

const RESTRICTIONS_AFTER: &str = "\
Examples:
  rollcall restrictions import banned.txt --store redis://localhost
  rollcall restrictions import --bitmap banned.bits --store redis://localhost
  rollcall restrictions import --lift lifted.txt --store redis://localhost
  rollcall restrictions export - --store redis://localhost | wc -l

Hosts on the store enforce it at once. Only one process can use the embedded store: stop the host
first, or use PUT /v1/restrictions/{user} and POST /v1/policy while it runs.";

const WATCH_AFTER: &str = "\
Examples:
  rollcall watch bob carol                         as `operator`, on this machine
  rollcall watch bob --as alice --typing room-1    as alice, and with typing in room-1
  rollcall watch bob --json | jq .state            one event a line, for scripts

With a token, also over TLS:
  export ROLLCALL_TOKEN=$(rollcall token --user alice --key token.key)
  rollcall watch bob --url https://presence.example.com

Watching sends no heartbeat. On a terminal it shows a table; elsewhere, or with NO_COLOR, a line
for each change. A broken connection is made again and resumes. Ctrl-C stops it; if the host refuses,
the exit code is 1.";

const TOP_AFTER: &str = "\
Examples:
  rollcall top                                     on this machine, once a second
  rollcall top --once                              two samples, then exit
  rollcall top --once --json | jq .rates.heartbeats

If the host requires tokens, it needs one with the scope `admin`:
  export ROLLCALL_TOKEN=$(rollcall token --user ops --scope admin --key token.key)
  rollcall top --url https://presence.example.com

Rates and latencies cover the last ten seconds of the host at --url; users online are counted in the
whole store.";

const CONFIG_AFTER: &str = "\
Examples:
  rollcall config                                  what `rollcall serve` would use
  rollcall config --config rollcall.toml --preset brisk
  rollcall config --example > rollcall.toml        every setting, documented, with its default

Keys are never printed, only the paths of their files.";

/// Presence as WebAssembly functions: who is online, away, busy or offline, and when they were last seen.
#[derive(Debug, Parser)]
#[command(name = "rollcall", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve presence over HTTP until stopped.
    #[command(after_help = SERVE_AFTER)]
    Serve {
        /// The settings.
        #[command(flatten)]
        settings: SettingFlags,
    },
    /// Make a token for a user or a service, for experiments and scripts.
    #[command(after_help = TOKEN_AFTER)]
    Token(TokenArgs),
    /// Import restricted accounts from a file, or export them.
    #[command(after_help = RESTRICTIONS_AFTER, subcommand)]
    Restrictions(RestrictionsCommand),
    /// Show users' states in the terminal as they change.
    #[command(after_help = WATCH_AFTER)]
    Watch(WatchArgs),
    /// Show a host's rates and times, users online and most watched users.
    #[command(after_help = TOP_AFTER)]
    Top(TopArgs),
    /// Print the configuration in force, with the source of each value.
    #[command(after_help = CONFIG_AFTER)]
    Config {
        /// Print the example file instead: every setting with its documentation, unit and default.
        #[arg(long)]
        example: bool,
        /// The settings.
        #[command(flatten)]
        settings: SettingFlags,
    },
}

/// Returns when the process receives SIGINT or SIGTERM.
async fn interrupted() -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
