//! `rollcall watch` and `rollcall top`, as somebody at a terminal and as a script have them.

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

/// What is printed comes within milliseconds; a busy machine is given more, and a connection time to be made again.
const SOON: Duration = Duration::from_secs(20);

/// A running command of ours. Killed when dropped.
struct Looking {
    child: Child,
    lines: Receiver<String>,
    complaints: Receiver<String>,
}

impl Looking {
    fn at(host: &Host, arguments: &[&str]) -> Self {
        Self::at_address(host.base(), arguments)
    }

    /// Where there may be no host yet.
    fn at_address(base: &str, arguments: &[&str]) -> Self {
        let mut child = command(arguments).args(["--url", base]).spawn().expect("the binary starts");
        let lines = lines_of(child.stdout.take().expect("a pipe"));
        let complaints = lines_of(child.stderr.take().expect("a pipe"));
        Self { child, lines, complaints }
    }

    /// Everything that is printed up to the first line that is as wanted, which is the last.
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

    /// Waits until it ends by itself; what it complained of, too.
    fn ended(mut self) -> (ExitStatus, String) {
        let mut exit = None;
        eventually("the command ends", SOON, || {
            exit = self.child.try_wait().expect("it can be waited for");
            exit.is_some()
        });
        (exit.expect("it ended"), self.complaints.iter().collect::<Vec<_>>().join("\n"))
    }

    /// Tells it to end as Ctrl-C does.
    fn interrupt(self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
        self.ended().0
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is read line by line, as it comes.
fn lines_of(out: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

/// A running command of ours on a real terminal, which `script` makes of a pipe. Killed when dropped.
struct Terminal {
    child: Child,
    pieces: Receiver<Vec<u8>>,
    /// All that was written to the terminal, colours and commands included.
    written: Vec<u8>,
}

impl Terminal {
    fn of(host: &Host, arguments: &str) -> Self {
        let ours = format!("stty cols 100 rows 30; exec {} {arguments} --url {}", binary().display(), host.base());
        let mut script = without_settings(Command::new("script"));
        script.args(["-qec", &ours, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh").env_remove("NO_COLOR");
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().expect("`script` is there, as on every Debian");
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

    /// Types Ctrl-C; answers what is left on the terminal's own screen, if all went well.
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

/// What opens the other screen of a terminal, without a cursor, and what brings back the first.
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
    let looking = Looking::at(&host, &["watch", "bob", "eve", "--as", "alice", "--typing", "room-1"]);
    let first = looking.until("the snapshot", |line| line.ends_with("  eve  offline"));
    assert!(first[0].ends_with("Z  bob  offline"), "{first:?}");
    let bob = host.client("bob");
    assert_eq!(bob.beat("web").status, 200);
    looking.until("bob is online", |line| line.contains("  bob  online  last seen "));
    assert_eq!(bob.put("/v1/status", json!({ "choice": "busy", "text": "in a meeting", "emoji": "📅" })).status, 200);
    looking.until("bob is busy", |line| line.contains("  bob  busy  📅 “in a meeting”  last seen "));
    assert_eq!(bob.send("PUT", "/v1/typing/room-1", Some(b"{}")).status, 200);
    looking.until("bob types", |line| line.ends_with("  bob  types in room-1"));
    assert_eq!(bob.send("PUT", "/v1/blocks/alice", None).status, 200);
    looking.until("bob hides", |line| line.ends_with("  bob  hidden"));
    assert_eq!(host.client("viewer").state("alice"), "offline", "she only looks");
    assert!(looking.interrupt().success());
}

#[test]
fn json_output_equals_socket_events() {
    let host = Host::start(&[]);
    let looking = Looking::at(&host, &["watch", "bob", "--json"]);
    let snapshot = event(&looking.until("the snapshot", |_| true)[0]);
    let offline =
        json!({ "user": "bob", "state": "offline", "since": null, "last_seen": null, "version": 0, "note": null });
    let expected = json!({ "event": "snapshot", "presences": [offline], "typing": [], "resumed": false });
    assert_eq!(snapshot, expected);
    assert_eq!(host.client("bob").beat("web").status, 200);
    let mut told = event(&looking.until("bob is online", |line| line.contains("online"))[0]);
    assert_eq!(told.as_object_mut().unwrap().remove("event"), Some(json!("presence")));
    assert_eq!(told, host.client("viewer").presence("bob"), "exactly as it is answered");
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
    let looking = Looking::at(&host, &["watch", "bob", "eve"]);
    looking.until("the snapshot", |line| line.contains("  eve  away"));
    host.stop();
    let host = Host::start_in(folder.path(), &["--listen", &address]);
    assert_eq!(host.client("bob").put("/v1/status", json!({ "choice": "auto" })).status, 200);
    let told = looking.until("bob is online", |line| line.contains("  bob  online"));
    assert_eq!(told.len(), 1, "nothing is said of eve, who is as she was: {told:?}");
    assert_eq!(host.client("eve").put("/v1/status", json!({ "choice": "auto" })).status, 200);
    looking.until("eve is online", |line| line.contains("  eve  online"));
    assert!(looking.interrupt().success());
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
        let (exit, said) = Looking::at(&host, &arguments).ended();
        assert_eq!(exit.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("rollcall: ") && said.contains(words), "{arguments:?}: {said}");
    }
    let looking = Looking::at(&host, &["watch", "bob", "--token", &token]);
    looking.until("the snapshot", |line| line.ends_with("  bob  offline"));
}

#[test]
fn token_from_environment_is_sent() {
    let issuer = TokenIssuer::default();
    let host = Host::start(&["--token-key", &issuer.key()]);
    let mut looking = command(&["top", "--once", "--json", "--url", host.base()]);
    let output = looking.env("ROLLCALL_TOKEN", issuer.token("ops", &["admin"])).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn top_prints_rates_between_samples() {
    let host = Host::start(&[]);
    let beating = host.client("bob");
    let looking = Looking::at(&host, &["top", "--once", "--json"]);
    let mut line = None;
    eventually("top has looked twice", SOON, || {
        assert_eq!(beating.beat("web").status, 200);
        line = looking.lines.try_recv().ok();
        line.is_some()
    });
    let seen = event(&line.unwrap());
    assert!(seen["rates"]["heartbeats"].as_f64().unwrap() > 0.0, "{seen}");
    assert!(seen["times"]["functions"]["heartbeat"]["p99_ms"].as_f64().unwrap() > 0.0, "{seen}");
    assert_eq!((&seen["people"]["here"], &seen["store"]["answers"]), (&json!(1), &json!(true)));
    assert!(looking.ended().0.success());
    let looking = Looking::at(&host, &["top", "--once"]);
    let page = looking.until("the page", |line| line.starts_with("Most watched"));
    assert!(page.iter().any(|line| line.starts_with("People here") && line.contains(" 1 ")), "{page:#?}");
    assert!(looking.ended().0.success());
}

#[test]
fn watch_waits_for_host_except_once_mode() {
    let mut looking = command(&["top", "--once", "--url", "http://127.0.0.1:1"]);
    let output = looking.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("http://127.0.0.1:1 cannot be reached"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start_in(folder.path(), &[]);
    let (address, base) = (host.address().to_owned(), host.base().to_owned());
    host.stop();
    let looking = [&["watch", "bob"][..], &["top", "--json"]].map(|words| Looking::at_address(&base, words));
    for looking in &looking {
        let said = looking.complaints.recv_timeout(SOON).expect("a complaint");
        assert!(said.contains("cannot be reached") && said.ends_with("; retrying"), "{said}");
    }
    let _host = Host::start_in(folder.path(), &["--listen", &address]);
    for (looking, line) in looking.iter().zip(["  bob  offline", "\"heartbeats\""]) {
        looking.until("what was waited for", |said| said.contains(line));
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
    assert!(!left.contains("\x1b["), "no colours, nor commands: {left:?}");
}

#[test]
fn top_shows_host_activity() {
    let host = Host::start(&[]);
    let mut terminal = Terminal::of(&host, "top");
    terminal.shows(OPENED);
    terminal.shows("Heartbeats a second");
    terminal.shows("answers in");
    assert_eq!(terminal.interrupted().trim(), "", "what was there before is there again");
}
