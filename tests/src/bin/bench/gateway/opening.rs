//! The cost of opening a subscription: connection, request, admission by the component, snapshot of ten users.

use std::time::{Duration, Instant};

use anyhow::Result;
use rollcall_servers::redis::Redis;
use rollcall_tests::watcher::Protocol;
use rollcall_tests::watcher_pool::WatcherPool;

use crate::process::cpu_us;
use crate::report::{Goal, Section, number};

const WATCHERS: usize = 5000;

pub(crate) fn run() -> Result<Section> {
    let columns = ["store", "protocol", "watchers admitted/s", "host µs of processor time each"];
    let mut section = Section::new("Opening: watchers of ten users each, 128 handshakes at once", &columns);
    let redis = Redis::start()?;
    let store = redis.url();
    for (name, arguments) in [("embedded", vec![]), ("Redis", vec!["--store", store.as_str()])] {
        for protocol in [Protocol::Events, Protocol::Socket] {
            let host = super::host(&arguments);
            let _warm = WatcherPool::connect(plan(protocol, &host, 0, 500), Duration::from_secs(60));
            let (cpu, began) = (cpu_us(host.pid())?, Instant::now());
            let _pool = WatcherPool::connect(plan(protocol, &host, 500, WATCHERS), Duration::from_secs(120));
            let took = began.elapsed().as_secs_f64();
            let each = (cpu_us(host.pid())? - cpu) / WATCHERS as f64;
            let rate = WATCHERS as f64 / took;
            let cells = [name.to_owned(), super::name(protocol).to_owned(), number(rate), number(each)];
            section.row(cells, Goal::None, rate);
        }
    }
    Ok(section)
}

fn plan(
    protocol: Protocol,
    host: &rollcall_tests::Host,
    first: usize,
    count: usize,
) -> rollcall_tests::watcher_pool::Plan {
    super::idle::plan(protocol, host.address(), first, count, "watch_only=true")
}
