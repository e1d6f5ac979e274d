//! Connections, clients and subscribers against a fake server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Context;

use crate::keyspace::{Commands, Keyspace, encode_payload};
use crate::transport::{CommandReply, ConnectionError, OwnedPiece};
use futures::executor::{LocalPool, LocalSpawner};
use futures::future::{AbortHandle, Abortable};
use futures::task::{LocalSpawnExt, noop_waker_ref};
use rollcall_core::{Error, Published, State, UserId};
use rollcall_functions::capabilities::PresenceChange;

use super::fake_server::FakeServer;
use super::{Address, Client, Subscriber, Subscription};

/// The result of a spawned future.
type Outcome<T> = Rc<RefCell<Option<T>>>;

fn begin<T: 'static>(spawner: &LocalSpawner, what: impl Future<Output = T> + 'static) -> (Outcome<T>, AbortHandle) {
    let outcome = Outcome::default();
    let (handle, registration) = AbortHandle::new_pair();
    let kept = Rc::clone(&outcome);
    let what = Abortable::new(async move { *kept.borrow_mut() = Some(what.await) }, registration);
    spawner.spawn_local(async move { _ = what.await }).unwrap();
    (outcome, handle)
}

fn address(url: &str) -> Address {
    Address::parse(Some(url)).unwrap()
}

fn echo(words: &[&str]) -> Commands {
    let mut commands = Commands::default();
    for word in words {
        commands.begin("ECHO").text(word);
    }
    commands
}

fn echoed(words: &[&str]) -> Result<Vec<CommandReply>, ConnectionError> {
    Ok(words.iter().map(|word| CommandReply::Pieces(vec![OwnedPiece::Bytes(word.as_bytes().to_vec())])).collect())
}

struct Calls {
    pool: LocalPool,
    fake: FakeServer,
    client: Rc<Client<FakeServer>>,
}

impl Calls {
    fn new(url: &str) -> Self {
        let fake = FakeServer::default();
        let client = Rc::new(Client::new(fake.clone(), &address(url)));
        Self { pool: LocalPool::new(), fake, client }
    }

    /// With a connection that is already open.
    fn connected() -> Self {
        let mut calls = Self::new("redis://x");
        let warm = calls.call(&["0"]).0;
        calls.run();
        assert_eq!(warm.take(), Some(echoed(&["0"])));
        calls.fake.said();
        calls.fake.writes();
        calls
    }

    fn call(&self, words: &[&str]) -> (Outcome<Result<Vec<CommandReply>, ConnectionError>>, AbortHandle) {
        let (client, commands) = (Rc::clone(&self.client), echo(words));
        begin(&self.pool.spawner(), async move { client.send(&commands).await })
    }

    fn run(&mut self) {
        self.pool.run_until_stalled();
    }
}

#[test]
fn calls_on_one_connection_get_their_replies() {
    let mut calls = Calls::new("redis://:right@x/3");
    let warm = calls.call(&["0"]).0;
    calls.run();
    assert_eq!(warm.take(), Some(echoed(&["0"])));
    calls.fake.set_mute(true);
    let asked = [vec!["a", "b"], vec!["c"], vec!["d", "e", "f"]];
    let answers: Vec<_> = asked.iter().map(|words| calls.call(words).0).collect();
    calls.run();
    assert!(answers.iter().all(|answer| answer.borrow().is_none()));
    calls.fake.set_mute(false);
    calls.run();
    for (words, answer) in asked.iter().zip(answers) {
        assert_eq!(answer.take(), Some(echoed(words)));
    }
    assert_eq!(calls.fake.connections(), (1, 1));
    let said = calls.fake.said();
    assert_eq!(said.get(..2).unwrap(), ["AUTH right", "SELECT 3"]);
    assert_eq!(said.len(), 9);
}

#[test]
fn concurrent_requests_are_sent_together() {
    let mut calls = Calls::connected();
    let answers: Vec<_> = ["a", "b", "c"].iter().map(|word| calls.call(&[word]).0).collect();
    calls.run();
    for (word, answer) in ["a", "b", "c"].iter().zip(answers) {
        assert_eq!(answer.take(), Some(echoed(&[word])));
    }
    assert_eq!(calls.fake.writes(), 1);
}

#[test]
fn call_cancelled_before_writing_is_replaced() {
    let mut calls = Calls::connected();
    let (client, commands) = (Rc::clone(&calls.client), echo(&["a"]));
    let mut cancelled = Box::pin(client.send(&commands));
    assert!(cancelled.as_mut().poll(&mut Context::from_waker(noop_waker_ref())).is_pending());
    let waiting = [calls.call(&["b"]).0, calls.call(&["c"]).0];
    calls.run();
    drop(cancelled);
    calls.run();
    for (word, answer) in ["b", "c"].iter().zip(waiting) {
        assert_eq!(answer.take(), Some(echoed(&[word])));
    }
    assert_eq!(calls.fake.connections(), (1, 1));
    assert_eq!(calls.fake.said(), ["ECHO a", "ECHO b", "ECHO c"]);
}

#[test]
fn call_cancelled_while_writing_fails_the_connection() {
    let mut calls = Calls::connected();
    calls.fake.set_full(true);
    let (cancelled, handle) = calls.call(&["a"]);
    let waiting = calls.call(&["b"]).0;
    calls.run();
    assert!(waiting.borrow().is_none());
    handle.abort();
    calls.run();
    assert_eq!(cancelled.take(), None);
    assert_eq!(waiting.take(), Some(Err(ConnectionError("a call was cancelled while it was sent".to_owned()))));
    calls.fake.set_full(false);
    let next = calls.call(&["c"]).0;
    calls.run();
    assert_eq!((next.take(), calls.fake.connections()), (Some(echoed(&["c"])), (2, 1)));
}

#[test]
fn blocked_write_times_out() {
    let mut calls = Calls::connected();
    calls.fake.set_full(true);
    let waiting = [calls.call(&["a"]).0, calls.call(&["b"]).0];
    calls.run();
    calls.fake.advance(1500);
    calls.run();
    for call in waiting {
        assert_eq!(call.take(), Some(Err(ConnectionError("no reply within the timeout".to_owned()))));
    }
}

#[test]
fn call_cancelled_while_reading_loses_no_replies() {
    let mut calls = Calls::new("redis://x");
    calls.fake.set_mute(true);
    let (cancelled, handle) = calls.call(&["a"]);
    calls.run();
    let (second, third) = (calls.call(&["b"]).0, calls.call(&["c"]).0);
    calls.run();
    handle.abort();
    calls.run();
    calls.fake.set_mute(false);
    calls.run();
    assert_eq!(cancelled.take(), None);
    assert_eq!((second.take(), third.take()), (Some(echoed(&["b"])), Some(echoed(&["c"]))));
    assert_eq!(calls.fake.connections(), (1, 1));
}

#[test]
fn lost_connection_fails_calls_then_reconnects() {
    let mut calls = Calls::new("redis://x");
    calls.fake.set_mute(true);
    let waiting = [calls.call(&["a"]).0, calls.call(&["b"]).0];
    calls.run();
    calls.fake.close_all();
    calls.run();
    for call in waiting {
        assert_eq!(call.take(), Some(Err(ConnectionError("it closed the connection".to_owned()))));
    }
    calls.fake.set_mute(false);
    let next = calls.call(&["c"]).0;
    calls.run();
    assert_eq!(next.take(), Some(echoed(&["c"])));
    assert_eq!(calls.fake.connections(), (2, 1));
}

#[test]
fn silent_server_times_out() {
    let mut calls = Calls::connected();
    calls.fake.set_mute(true);
    let first = calls.call(&["a"]).0;
    calls.run();
    calls.fake.advance(1400);
    let second = calls.call(&["b"]).0;
    calls.run();
    assert!(first.borrow().is_none());
    calls.fake.advance(100);
    calls.run();
    let silent = Some(Err(ConnectionError("no reply within the timeout".to_owned())));
    assert_eq!((first.take(), second.take()), (silent.clone(), silent));
}

#[test]
fn failed_connect_fails_all_waiting_calls() {
    let mut calls = Calls::new("redis://x");
    calls.fake.set_down(true);
    let waiting = [calls.call(&["a"]).0, calls.call(&["b"]).0, calls.call(&["c"]).0];
    calls.run();
    calls.fake.advance(100);
    calls.run();
    for call in waiting {
        assert_eq!(call.take(), Some(Err(ConnectionError("connection refused".to_owned()))));
    }
    assert_eq!(calls.fake.connections().0, 1);
    let next = calls.call(&["d"]).0;
    calls.run();
    assert!(next.borrow().is_none());
    assert_eq!(calls.fake.connections().0, 2);
}

#[test]
fn refusing_or_foreign_server_is_an_error() {
    let mut calls = Calls::new("redis://:wrong@x");
    let refused = calls.call(&["a"]).0;
    calls.run();
    let why = "authentication refused: WRONGPASS invalid password";
    assert_eq!(refused.take(), Some(Err(ConnectionError(why.to_owned()))));
    let mut calls = Calls::new("redis://x");
    let client = Rc::clone(&calls.client);
    let mut noise = Commands::default();
    noise.begin("NOISE");
    let (answer, _) = begin(&calls.pool.spawner(), async move { client.send(&noise).await });
    calls.run();
    assert!(answer.take().unwrap().unwrap_err().0.starts_with("it does not speak RESP"));
}

struct Watching {
    pool: LocalPool,
    fake: FakeServer,
    subscriber: Rc<Subscriber<FakeServer>>,
    keys: Rc<Keyspace>,
}

fn change(user: &str, version: u64) -> PresenceChange {
    let published = Published { state: State::Online, note: None, since: None, last_seen: None, version };
    PresenceChange { user: UserId::parse(user).unwrap(), published }
}

/// What a watcher receives.
type Received = Rc<RefCell<Vec<Result<Option<PresenceChange>, Error>>>>;

impl Watching {
    fn new() -> Self {
        let fake = FakeServer::default();
        // Long after the start of the clock, or the start would count as the last ping.
        fake.advance(100_000);
        let subscriber = Rc::new(Subscriber::new(fake.clone(), &address("redis://x")));
        Self { pool: LocalPool::new(), fake, subscriber, keys: Rc::new(Keyspace::new("rc", 256).unwrap()) }
    }

    fn watch(&mut self, users: &[&str]) -> Subscription<FakeServer> {
        let (subscriber, keys) = (Rc::clone(&self.subscriber), Rc::clone(&self.keys));
        let users: Vec<_> = users.iter().map(|user| UserId::parse(*user).unwrap()).collect();
        let (watch, _) = begin(&self.pool.spawner(), async move { subscriber.watch(&keys, &users).await });
        self.pool.run_until_stalled();
        watch.take().unwrap().unwrap()
    }

    /// Reads until it ends.
    fn read(&self, mut watch: Subscription<FakeServer>) -> (Received, AbortHandle) {
        let received = Received::default();
        let kept = Rc::clone(&received);
        let (_, handle) = begin(&self.pool.spawner(), async move {
            loop {
                let next = watch.next().await;
                let is_over = next.is_err();
                kept.borrow_mut().push(next);
                if is_over {
                    return;
                }
            }
        });
        (received, handle)
    }

    fn publish(&mut self, user: &str, version: u64) {
        let change = change(user, version);
        self.fake.publish(&self.keys.topic(user).to_string(), &encode_payload(user, &change.published));
    }

    fn run(&mut self) {
        self.pool.run_until_stalled();
    }

    /// Lets time pass in small steps.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.fake.advance(100);
            self.run();
        }
    }
}

fn changes(received: &Received) -> Vec<PresenceChange> {
    received.borrow().iter().filter_map(|next| next.clone().unwrap()).collect()
}

#[test]
fn watchers_on_one_connection_get_their_users() {
    let mut watching = Watching::new();
    let (both, one) = (watching.watch(&["bob", "eve"]), watching.watch(&["bob"]));
    let ((both, _), (one, _)) = (watching.read(both), watching.read(one));
    watching.run();
    for (user, version) in [("bob", 1), ("eve", 2), ("mallory", 3)] {
        watching.publish(user, version);
        watching.run();
    }
    assert_eq!(changes(&both), [change("bob", 1), change("eve", 2)]);
    assert_eq!(changes(&one), [change("bob", 1)]);
    assert_eq!(watching.fake.connections(), (1, 1));
}

#[test]
fn slow_reader_finds_the_newest_per_user() {
    let mut watching = Watching::new();
    let mut slow = watching.watch(&["bob", "eve"]);
    let (quick, _) = {
        let quick = watching.watch(&["bob"]);
        watching.read(quick)
    };
    watching.run();
    for (user, version) in [("bob", 1), ("eve", 2), ("bob", 3)] {
        watching.publish(user, version);
        watching.run();
    }
    assert_eq!(changes(&quick), [change("bob", 1), change("bob", 3)]);
    let (received, _) = begin(&watching.pool.spawner(), async move { (slow.next().await, slow.next().await, slow) });
    watching.run();
    let (first, second, _) = received.take().unwrap();
    assert_eq!((first, second), (Ok(Some(change("bob", 3))), Ok(Some(change("eve", 2)))));
}

#[test]
fn watch_dropped_while_reading_loses_no_changes() {
    let mut watching = Watching::new();
    let leader = watching.watch(&["bob"]);
    let (_, leader) = watching.read(leader);
    watching.run();
    let other = watching.watch(&["eve"]);
    let (received, _) = watching.read(other);
    watching.run();
    leader.abort();
    watching.run();
    watching.publish("eve", 1);
    watching.run();
    assert_eq!(changes(&received), [change("eve", 1)]);
    watching.fake.said();
    watching.pass(3100);
    let cancelled = format!("UNSUBSCRIBE {}", watching.keys.topic("bob"));
    assert_eq!(watching.fake.said(), [cancelled, "PING".to_owned()]);
    assert_eq!(watching.fake.connections(), (1, 1));
}

#[test]
fn connection_closes_with_the_last_watch() {
    let mut watching = Watching::new();
    let watch = watching.watch(&["bob"]);
    assert_eq!(watching.fake.connections(), (1, 1));
    drop(watch);
    assert_eq!(watching.fake.connections(), (1, 0));
    let again = watching.watch(&["bob"]);
    assert_eq!(watching.fake.connections(), (2, 1));
    drop(again);
}

#[test]
fn lost_connection_ends_watches_after_received_changes() {
    let mut watching = Watching::new();
    let (first, second) = (watching.watch(&["bob"]), watching.watch(&["bob"]));
    let (first, _) = watching.read(first);
    watching.run();
    watching.publish("bob", 1);
    watching.fake.close_all();
    watching.run();
    let (second, _) = watching.read(second);
    watching.run();
    for received in [first, second] {
        assert_eq!(received.take(), [Ok(Some(change("bob", 1))), Err(Error::Unavailable(500))]);
    }
    watching.watch(&["bob"]);
    assert_eq!(
        watching.fake.logged(),
        ["Redis subscription lost; retrying: it closed the connection", "Redis subscription restored"]
    );
}

#[test]
fn silent_server_ends_every_watch() {
    let mut watching = Watching::new();
    let watch = watching.watch(&["bob"]);
    let (received, _) = watching.read(watch);
    watching.run();
    watching.pass(7000);
    assert!(received.take().iter().all(|next| *next == Ok(None)), "a server that answers is not silent");
    watching.fake.set_mute(true);
    watching.pass(5000);
    assert_eq!(received.take().last(), Some(&Err(Error::Unavailable(500))));
}

#[test]
fn one_ping_serves_all_watches() {
    let mut watching = Watching::new();
    for user in ["bob", "eve", "ann"] {
        let watch = watching.watch(&[user]);
        watching.read(watch);
    }
    watching.run();
    watching.fake.said();
    watching.pass(9500);
    let pings = watching.fake.said();
    assert!((2..=4).contains(&pings.len()) && pings.iter().all(|said| said == "PING"), "{pings:?}");
}

#[test]
fn loss_is_noticed_without_a_reader() {
    let mut watching = Watching::new();
    let mut watch = watching.watch(&["bob"]);
    let (lost, _) = begin(&watching.pool.spawner(), async move { watch.lost().await });
    watching.run();
    watching.publish("bob", 1);
    watching.run();
    assert_eq!(lost.take(), None);
    watching.fake.close_all();
    watching.run();
    assert_eq!(lost.take(), Some(Error::Unavailable(500)));
}
