//! How soon a block made on one host is in force on another, for queries and for watchers there.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rollcall_servers::redis::Redis as Server;
use rollcall_tests::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::load::Connection;
use crate::report::{Goal, Section, number};
use crate::sample::quantile;
use crate::users::{self, Random};

/// Blocks; each is lifted again.
const BLOCKS: u64 = 300;

/// The blocking and the blocked user.
const SUBJECT: u64 = 1;
const VIEWER: u64 = 2;

/// Longest random pause before a change.
const PAUSE_MS: u64 = 20;

/// Deadline for a change to be in force.
const PATIENCE: Duration = Duration::from_secs(10);

/// Target of the 99th percentile, in milliseconds.
const TARGET_MS: f64 = 100.0;

/// A hidden and a visible presence.
const HIDDEN: &[u8] = br#""state":null"#;
const SEEN: &[u8] = br#""state":"online""#;

/// Latencies of the observation, and of the answer to the change.
#[derive(Default)]
struct Lags {
    found_ms: Vec<f64>,
    answered_ms: Vec<f64>,
}

/// Measures queries and watchers.
pub(crate) fn run() -> Result<Section> {
    let server = Server::start()?;
    let hosts = [super::host(Path::new("none"), &server.url(), 2)?, super::host(Path::new("none"), &server.url(), 2)?];
    let [changed_host, observing_host] = &hosts;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (asking, watching) = runtime.block_on(async {
        Connection::open(changed_host.address()).await?.ask(&users::heartbeat(SUBJECT)).await?;
        anyhow::Ok((query_lags(changed_host, observing_host).await?, push_lags(changed_host, observing_host).await?))
    })?;
    let columns = ["what", "changes", "p50 ms", "p99 ms", "max ms"];
    let mut section =
        Section::new("policy-enforced: a block made on one host, in force on the other, over one Redis", &columns);
    let all = BLOCKS * 2;
    row(&mut section, "a query there answers so", all, asking.found_ms, Goal::AtMost(TARGET_MS));
    row(&mut section, "a watcher there receives it", all, watching.found_ms, Goal::AtMost(TARGET_MS));
    let answered = [asking.answered_ms, watching.answered_ms].concat();
    row(&mut section, "the change itself is answered", all * 2, answered, Goal::None);
    section.note(&format!(
        "{BLOCKS} blocks for each, each lifted again, by PUT and DELETE on one host, at random moments. All times \
        start when the request is sent. The query is repeated over one connection; the watcher has an event stream. The \
        change is answered once it is in force on the whole host that took it. Two hosts, Redis and the client share the \
        cores.",
    ));
    Ok(section)
}

fn row(section: &mut Section, what: &str, changes: u64, mut lags_ms: Vec<f64>, goal: Goal) {
    lags_ms.sort_unstable_by(f64::total_cmp);
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| quantile(&lags_ms, share));
    section.row([what.to_owned(), changes.to_string(), number(p50), number(p99), number(max)], goal, p99);
}

/// The change, and the presence that the viewer then sees.
fn change(block: bool) -> (Vec<u8>, &'static [u8]) {
    let path = format!("/v1/blocks/{}", users::name(VIEWER));
    let (method, looks) = if block { ("PUT", HIDDEN) } else { ("DELETE", SEEN) };
    (users::request(method, &path, SUBJECT, ""), looks)
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

async fn pause(random: &mut Random) {
    tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MS))).await;
}

/// Queries again and again until the change is in force.
async fn query_lags(changed_host: &Host, observing_host: &Host) -> Result<Lags> {
    let (mut changing, mut asking) =
        (Connection::open(changed_host.address()).await?, Connection::open(observing_host.address()).await?);
    let query = users::request("GET", &format!("/v1/presence/{}", users::name(SUBJECT)), VIEWER, "");
    let (mut lags, mut random) = (Lags::default(), Random::new(1));
    for block in (0..BLOCKS).flat_map(|_| [true, false]) {
        pause(&mut random).await;
        let (request, looks) = change(block);
        let began = Instant::now();
        let made = async {
            changing.ask(&request).await?;
            anyhow::Ok(ms(began))
        };
        let found = async {
            while !has(asking.ask(&query).await?, looks) {
                ensure!(began.elapsed() < PATIENCE, "a block made on one host is not in force on the other");
            }
            anyhow::Ok(ms(began))
        };
        let (answered_ms, found_ms) = tokio::try_join!(made, found)?;
        lags.answered_ms.push(answered_ms);
        lags.found_ms.push(found_ms);
    }
    Ok(lags)
}

/// Waits for the event that reports the change.
async fn push_lags(changed_host: &Host, observing_host: &Host) -> Result<Lags> {
    let mut changing = Connection::open(changed_host.address()).await?;
    let mut watching = Watching::open(observing_host).await?;
    let (mut lags, mut random) = (Lags::default(), Random::new(2));
    for block in (0..BLOCKS).flat_map(|_| [true, false]) {
        pause(&mut random).await;
        let (request, looks) = change(block);
        let began = Instant::now();
        let made = async {
            changing.ask(&request).await?;
            anyhow::Ok(ms(began))
        };
        let found = async {
            watching.until(looks).await?;
            anyhow::Ok(ms(began))
        };
        let (answered_ms, found_ms) = tokio::try_join!(made, found)?;
        lags.answered_ms.push(answered_ms);
        lags.found_ms.push(found_ms);
    }
    Ok(lags)
}

/// An event stream about the subject.
struct Watching {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Watching {
    async fn open(host: &Host) -> Result<Self> {
        let mut stream = TcpStream::connect(host.address()).await?;
        stream.set_nodelay(true)?;
        let path = format!("/v1/subscribe?watch_only=true&users={}", users::name(SUBJECT));
        stream.write_all(&users::request("GET", &path, VIEWER, "")).await?;
        let mut watching = Self { stream, heard: Vec::new() };
        watching.until(SEEN).await?;
        Ok(watching)
    }

    /// Reads until the text arrives, and drops what arrived with it.
    async fn until(&mut self, said: &[u8]) -> Result<()> {
        while !has(&self.heard, said) {
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.heard)).await;
            let read =
                read.with_context(|| format!("a watcher did not receive {}", String::from_utf8_lossy(said)))??;
            ensure!(read > 0, "the host closed the stream: {}", String::from_utf8_lossy(&self.heard));
        }
        self.heard.clear();
        Ok(())
    }
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
