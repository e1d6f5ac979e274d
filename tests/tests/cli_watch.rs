//! `rollcall watch` and `rollcall top`, at a terminal and in a script.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rollcall_tests::{Host, TokenIssuer, binary, eventually};
use serde_json::{Value, json};

/// Output comes within milliseconds; a busy machine and a reconnect need more.
const SOON: Duration = Duration::from_secs(20);

/// A running `rollcall` command with its output. Killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Running {
    fn at(host: &Host, arguments: &[&str]) -> Self {
        Self::at_address(host.base(), arguments)
    }

    /// Like [`Self::at`], for an address where no host may run yet.
    fn at_address(base: &str, arguments: &[&str]) -> Self {
        let mut child = command(arguments).args(["--url", base]).spawn().expect("the binary starts");
        let lines = lines_of(child.stdout.take().expect("a pipe"));
        let errors = lines_of(child.stderr.take().expect("a pipe"));
        Self { child, lines, errors }
    }

    /// All lines printed up to and including the first wanted one.
    #[track_caller]
    fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let end = Instant::now() + SOON;
        let mut all = Vec::new();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => all.push(line),
                Err(error) => panic!("{what}: {error}; printed: {all:#?}"),
            }
            if all.last().is_some_and(|line| wanted(line)) {
                return all;
            }
        }
    }

    /// Waits until it ends. Returns its status and standard error.
    fn ended(mut self) -> (ExitStatus, String) {
        let mut exit = None;
        eventually("the command ends", SOON, || {
            exit = self.child.try_wait().expect("it can be waited for");
            exit.is_some()
        });
        (exit.expect("it ended"), self.errors.iter().collect::<Vec<_>>().join("\n"))
    }

    /// Ends it with SIGINT, like Ctrl-C.
    fn interrupt(self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
        self.ended().0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe, as they are written.
fn lines_of(out: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

/// A running `rollcall` command on a real terminal, which `script` provides. Killed when dropped.
struct Terminal {
    child: Child,
    pieces: Receiver<Vec<u8>>,
    /// Everything written to the terminal, with control sequences.
    written: Vec<u8>,
}

impl Terminal {
    fn of(host: &Host, arguments: &str) -> Self {
        let command_line =
            format!("stty cols 100 rows 30; exec {} {arguments} --url {}", binary().display(), host.base());
        let mut script = without_settings(Command::new("script"));
        script
            .args(["-qec", &command_line, "/dev/null"])
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env_remove("NO_COLOR");
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().expect("`script` is installed, as on every Debian");
        let (sender, pieces) = channel();
        let mut out = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = out.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, pieces, written: Vec::new() }
    }

    #[track_caller]
    fn shows(&mut self, wanted: &str) {
        let end = Instant::now() + SOON;
        while !self.text().contains(wanted) {
            match self.pieces.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.written.extend(piece),
                Err(error) => panic!("{wanted:?} is not shown: {error}; written: {:?}", self.text()),
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written).into_owned()
    }

    /// Types Ctrl-C and expects success. Returns what is left on the main screen.
    #[track_caller]
    fn interrupted(mut self) -> String {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"\x03").expect("it is typed");
        self.shows(CLOSED);
        eventually("the command ends", SOON, || {
            self.child.try_wait().expect("it can be waited for").is_some_and(|exit| exit.success())
        });
        self.written.extend(self.pieces.iter().flatten());
        self.text().split(CLOSED).last().expect("it was closed").to_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Switches to the alternate screen and hides the cursor; switches back and shows it.
const OPENED: &str = "\x1b[?1049h\x1b[?25l";
const CLOSED: &str = "\x1b[?25h\x1b[?1049l";

fn command(arguments: &[&str]) -> Command {
    let mut command = without_settings(Command::new(binary()));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ROLLCALL_")) {
        command.env_remove(name);
    }
    command
}

fn event(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn watch_prints_changes_without_going_online() {
    let host = Host::start(&[]);
    let running = Running::at(&host, &["watch", "bob", "eve", "--as", "alice", "--typing", "room-1"]);
    let first = running.until("the snapshot", |line| line.ends_with("  eve  offline"));
    assert!(first[0].ends_with("Z  bob  offline"), "{first:?}");
    let bob = host.client("bob");
    assert_eq!(bob.beat("web").status, 200);
    running.until("bob is online", |line| line.contains("  bob  online  last seen "));
    assert_eq!(bob.put("/v1/status", json!({ "choice": "busy", "text": "in a meeting", "emoji": "📅" })).status, 200);
    running.until("bob is busy", |line| line.contains("  bob  busy  📅 “in a meeting”  last seen "));
    assert_eq!(bob.send("PUT", "/v1/typing/room-1", Some(b"{}")).status, 200);
    running.until("bob types", |line| line.ends_with("  bob  types in room-1"));
    assert_eq!(bob.send("PUT", "/v1/blocks/alice", None).status, 200);
    running.until("bob hides", |line| line.ends_with("  bob  hidden"));
    assert_eq!(host.client("viewer").state("alice"), "offline", "watching sends no heartbeats");
    assert!(running.interrupt().success());
}

#[test]
fn json_output_equals_socket_events() {
    let host = Host::start(&[]);
    let running = Running::at(&host, &["watch", "bob", "--json"]);
    let snapshot = event(&running.until("the snapshot", |_| true)[0]);
    let offline =
        json!({ "user": "bob", "state": "offline", "since": null, "last_seen": null, "version": 0, "note": null });
    let expected = json!({ "event": "snapshot", "presences": [offline], "typing": [], "resumed": false });
    assert_eq!(snapshot, expected);
    assert_eq!(host.client("bob").beat("web").status, 200);
    let mut received = event(&running.until("bob is online", |line| line.contains("online"))[0]);
    assert_eq!(received.as_object_mut().unwrap().remove("event"), Some(json!("presence")));
    assert_eq!(received, host.client("viewer").presence("bob"), "the same as the answer to a query");
}

#[test]
fn watch_survives_host_restart_and_catches_up() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start_in(folder.path(), &["--drain", "1s"]);
    let address = host.address().to_owned();
    for (name, state) in [("bob", "busy"), ("eve", "away")] {
        let client = host.client(name);
        assert_eq!(client.beat("web").status, 200);
        assert_eq!(client.put("/v1/status", json!({ "choice": state })).status, 200);
    }
    let running = Running::at(&host, &["watch", "bob", "eve"]);
    running.until("the snapshot", |line| line.contains("  eve  away"));
    host.stop();
    let host = Host::start_in(folder.path(), &["--listen", &address]);
    assert_eq!(host.client("bob").put("/v1/status", json!({ "choice": "auto" })).status, 200);
    let received = running.until("bob is online", |line| line.contains("  bob  online"));
    assert_eq!(received.len(), 1, "eve did not change: {received:?}");
    assert_eq!(host.client("eve").put("/v1/status", json!({ "choice": "auto" })).status, 200);
    running.until("eve is online", |line| line.contains("  eve  online"));
    assert!(running.interrupt().success());
}

#[test]
fn watch_ends_with_the_host_refusal() {
    let issuer = TokenIssuer::default();
    let host = Host::start(&["--token-key", &issuer.key(), "--watch-limit", "2"]);
    let token = issuer.token("alice", &[]);
    for (arguments, words) in [
        (vec!["watch", "bob", "--as", "alice"], "The caller is not identified"),
        (vec!["watch", "bob", "--token", "nonsense"], "The token is not accepted"),
        (vec!["watch", "a", "b", "c", "--token", &token], "Too many"),
        (vec!["watch", "bob", "--typing", "room-1", "--token", &token], "Not allowed"),
        (vec!["top", "--token", &token], "Not allowed: this needs a token with the scope `admin`"),
    ] {
        let (exit, said) = Running::at(&host, &arguments).ended();
        assert_eq!(exit.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("rollcall: ") && said.contains(words), "{arguments:?}: {said}");
    }
    let running = Running::at(&host, &["watch", "bob", "--token", &token]);
    running.until("the snapshot", |line| line.ends_with("  bob  offline"));
}

#[test]
fn token_from_environment_is_sent() {
    let issuer = TokenIssuer::default();
    let host = Host::start(&["--token-key", &issuer.key()]);
    let mut running = command(&["top", "--once", "--json", "--url", host.base()]);
    let output = running.env("ROLLCALL_TOKEN", issuer.token("ops", &["admin"])).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn top_prints_rates_between_samples() {
    let host = Host::start(&[]);
    let bob = host.client("bob");
    let running = Running::at(&host, &["top", "--once", "--json"]);
    let mut line = None;
    eventually("top has two samples", SOON, || {
        assert_eq!(bob.beat("web").status, 200);
        line = running.lines.try_recv().ok();
        line.is_some()
    });
    let seen = event(&line.unwrap());
    assert!(seen["rates"]["heartbeats"].as_f64().unwrap() > 0.0, "{seen}");
    assert!(seen["times"]["functions"]["heartbeat"]["p99_ms"].as_f64().unwrap() > 0.0, "{seen}");
    assert_eq!((&seen["users"]["online"], &seen["store"]["answers"]), (&json!(1), &json!(true)));
    assert!(running.ended().0.success());
    let running = Running::at(&host, &["top", "--once"]);
    let page = running.until("the page", |line| line.starts_with("Most watched"));
    assert!(page.iter().any(|line| line.starts_with("Users online") && line.contains(" 1 ")), "{page:#?}");
    assert!(running.ended().0.success());
}

#[test]
fn watch_waits_for_host_except_once_mode() {
    let mut running = command(&["top", "--once", "--url", "http://127.0.0.1:1"]);
    let output = running.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("http://127.0.0.1:1 cannot be reached"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start_in(folder.path(), &[]);
    let (address, base) = (host.address().to_owned(), host.base().to_owned());
    host.stop();
    let running = [&["watch", "bob"][..], &["top", "--json"]].map(|words| Running::at_address(&base, words));
    for running in &running {
        let said = running.errors.recv_timeout(SOON).expect("a line on standard error");
        assert!(said.contains("cannot be reached") && said.ends_with("; retrying"), "{said}");
    }
    let _host = Host::start_in(folder.path(), &["--listen", &address]);
    for (running, line) in running.iter().zip(["  bob  offline", "\"heartbeats\""]) {
        running.until("output once the host runs", |said| said.contains(line));
    }
}

#[test]
fn terminal_shows_table_and_is_restored() {
    let host = Host::start(&[]);
    let mut terminal = Terminal::of(&host, "watch bob eve --as alice");
    terminal.shows(OPENED);
    terminal.shows("offline");
    assert_eq!(host.client("bob").beat("web").status, 200);
    terminal.shows("\x1b[32monline");
    let left = terminal.interrupted();
    assert!(left.contains("● bob      online") && left.contains("○ eve      offline"), "{left:?}");
    assert!(!left.contains("\x1b["), "no control sequences: {left:?}");
}

#[test]
fn top_shows_host_activity() {
    let host = Host::start(&[]);
    let mut terminal = Terminal::of(&host, "top");
    terminal.shows(OPENED);
    terminal.shows("Heartbeats a second");
    terminal.shows("answers in");
    assert_eq!(terminal.interrupted().trim(), "", "the earlier screen is back");
}
