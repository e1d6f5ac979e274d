//! A real browser: headless Chromium opens a page of another origin that watches, types, sends heartbeats and leaves. The
//! page, `tests/browser/page.html`, checks what it receives.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rollcall_tests::watcher::{FENCE, Protocol, Watcher, states};
use rollcall_tests::{Host, root};
use serde_json::Value;
use tempfile::TempDir;

/// A browser starts slowly on a busy machine, and the page itself waits up to 20 s per event.
const STEP: Duration = Duration::from_secs(60);

/// Longer than the grace, and far shorter than a heartbeat keeps a device alive.
const GONE: Duration = Duration::from_secs(20);

#[test]
fn page_watches_types_and_leaves_over_websocket() {
    let host = Host::start(&[]);
    let mut tab = Tab::open(&host, "scene=socket");
    let watching = tab.reaches("alice watches bob");
    assert_eq!(host.client("bob").state("alice"), "online", "a socket is a heartbeat");
    assert_eq!(host.client("bob").beat("phone").status, 200);
    watching.go_on("");
    let left = tab.reaches("alice left");
    assert_eq!(host.client("bob").state("alice"), "offline", "at once");
    left.go_on("");
    tab.reaches("the end").go_on("");
}

#[test]
fn cross_origin_page_uses_whole_api() {
    let host = Host::start(&[]);
    Tab::open(&host, "scene=calls").reaches("the end").go_on("");
}

#[test]
fn event_stream_page_survives_restart() {
    // The browser comes back within a third of the interval; Bob, whose page does so too, has all of the tolerance.
    let times = ["--interval", "1s", "--tolerance", "10s"];
    let data = tempfile::tempdir().unwrap();
    let host = Host::start_in(data.path(), &times);
    let mut tab = Tab::open(&host, "scene=events");
    let watching = tab.reaches("carol watches bob");
    let address = host.address().to_owned();
    host.stop();
    let host = Host::start_in(data.path(), &[&times[..], &["--listen", &address]].concat());
    watching.go_on("");
    let received = tab.reaches("carol received only the changes of bob");
    assert!(received.data["failures"].as_u64().unwrap() > 0, "the stream must break: {}", received.data);
    received.go_on("");
    tab.reaches("the end").go_on("");
    drop(tab);
    host.stop();
}

#[test]
fn reload_keeps_online_closing_ends_after_grace() {
    let host = Host::start(&["--grace", "5s"]);
    let users = ["alice", "carol", "erin", "frank"];
    let mut dana = Protocol::Events.watch(&host, "dana", &format!("{},{FENCE}", users.join(",")));
    let mut reloaded = Tab::open(&host, "scene=tab&users=alice,carol");
    let mut killed = Tab::open(&host, "scene=tab&users=erin,frank");
    killed.reaches("both are online").go_on("");
    reloaded.reaches("both are online").go_on("reload");
    let reload = reloaded.reaches("both are online");
    let received = dana.events_so_far(&host);
    assert_eq!(users.map(|user| states(&received, user)), [["online"]; 4], "a reload causes no event: {received:?}");

    // By the time these are offline, the grace of the connections that the reload broke is over too.
    drop(killed);
    both_go_offline(&mut dana, ["erin", "frank"]);
    assert_eq!(dana.events_so_far(&host), [], "no event after the grace either");
    reload.go_on("go elsewhere");
    both_go_offline(&mut dana, ["alice", "carol"]);
    drop(reloaded);
    host.stop();
}

/// Waits for the offline events of both, and checks that there is no other event.
fn both_go_offline(watcher: &mut Watcher, users: [&str; 2]) {
    let mut received = watcher.until("the first is offline", GONE, |received| received.state() == "offline");
    received.extend(watcher.until("the second is offline", GONE, |received| received.state() == "offline"));
    assert_eq!(users.map(|user| states(&received, user)), [["offline"], ["offline"]], "{received:?}");
    assert_eq!(received.len(), 2, "{received:?}");
}

/// A browser with the page open, and the server of the page. Dropping it kills the browser.
struct Tab {
    browser: Child,
    /// The browser's fresh profile and its log.
    folder: TempDir,
    steps: Receiver<Reached>,
}

/// A step that the page reached. The page waits until the test answers.
#[must_use]
struct Reached {
    step: String,
    data: Value,
    page: TcpStream,
}

impl Tab {
    /// Opens the page with a scene, such as `scene=socket`.
    fn open(host: &Host, scene: &str) -> Self {
        let (address, steps) = serve_page();
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let browser = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--no-proxy-server", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("http://{address}/page.html?host={}&{scene}", host.address()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // A process group, so that all processes of the browser can be killed.
            .process_group(0)
            .spawn()
            .expect("Chromium starts; `cargo xtask test` installs it");
        Self { browser, folder, steps }
    }

    /// Waits for the page's next step, which must be this one.
    fn reaches(&mut self, step: &str) -> Reached {
        let reached = self.steps.recv_timeout(STEP);
        let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let reached = reached.unwrap_or_else(|_| panic!("{step}: not within {STEP:?}; the browser:\n{}", log()));
        let found = &reached.step;
        assert_eq!(found, step, "{}\nthe browser:\n{}", reached.data.as_str().unwrap_or_default(), log());
        reached
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        let group = format!("-{}", self.browser.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.browser.wait();
    }
}

impl Reached {
    /// Lets the page continue, with an instruction.
    fn go_on(mut self, instruction: &str) {
        answer(&mut self.page, "200 OK", "text/plain", instruction).expect("the page waits for the answer");
    }
}

/// Serves the page until the process ends. Steps arrive in order.
fn serve_page() -> (SocketAddr, Receiver<Reached>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, steps) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            // A browser opens connections ahead of need; errors on them are ignored.
            std::thread::spawn(move || serve_request(stream, &sender));
        }
    });
    (address, steps)
}

/// Answers one request. The test answers a step.
fn serve_request(mut stream: TcpStream, steps: &Sender<Reached>) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line)?;
    let request = line.clone();
    while !line.trim().is_empty() {
        line.clear();
        reader.read_line(&mut line)?;
        if let Some(("content-length", value)) = line.to_ascii_lowercase().trim().split_once(": ") {
            length = value.parse().map_err(Error::other)?;
        }
    }
    if request.starts_with("POST /reached ") {
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let Value::Object(mut report) = serde_json::from_slice(&body)? else { return Ok(()) };
        let step = report["step"].as_str().unwrap_or_default().to_owned();
        // The test may have failed already.
        let _ = steps.send(Reached { step, data: report["data"].take(), page: stream });
        Ok(())
    } else if request.starts_with("GET /page.html?") {
        let page = std::fs::read_to_string(root().join("tests/browser/page.html"))?;
        answer(&mut stream, "200 OK", "text/html", &page)
    } else {
        answer(&mut stream, "404 Not Found", "text/plain", "")
    }
}

fn answer(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> Result<()> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close");
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes())
}
