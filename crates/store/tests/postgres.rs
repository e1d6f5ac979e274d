//! The archive in PostgreSQL: the suite, its own guarantees, and its errors.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod archive_suite;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rollcall_core::{Error, Time};
use rollcall_servers::Postgres;
use rollcall_servers::postgres::{ROLE, Tls};
use rollcall_store::postgres::OpenError;
use rollcall_store::{ArchiveStore, PostgresArchive};
use tokio::task::JoinSet;

use archive_suite::{Subject, get, seen, user};

/// The longest a call may take: its timeout of 3 s, and a margin for a busy machine.
const CALL_LIMIT: Duration = Duration::from_secs(5);

/// The longest a reconnect may take: an attempt every 250 ms, on a busy machine.
const RECONNECT_LIMIT: Duration = Duration::from_secs(15);

const UNAVAILABLE: Error = Error::Unavailable(1000);

/// A database for one test.
struct Database {
    server: &'static Postgres,
    name: String,
}

impl Database {
    fn new() -> Self {
        let server = Postgres::shared().unwrap();
        Self { server, name: server.database().unwrap() }
    }

    fn url(&self) -> String {
        self.server.url(&self.name)
    }

    fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.name, sql).unwrap()
    }

    async fn archive(&self) -> PostgresArchive {
        PostgresArchive::open(&self.url()).await.unwrap()
    }
}

impl Subject for Database {
    async fn open(&self) -> Arc<dyn ArchiveStore> {
        Arc::new(self.archive().await)
    }
}

archive_suite!(Database::new());

async fn refusal(url: &str) -> String {
    let error = PostgresArchive::open(url).await.map(drop).unwrap_err().to_string();
    assert!(!error.contains("w%rd") && !error.contains("s3cret"), "{error}");
    error
}

/// Waits until writes and reads succeed again.
async fn wait_for_reconnect(archive: &PostgresArchive, name: &str, at: u64) {
    let deadline = Instant::now() + RECONNECT_LIMIT;
    while archive.put_many(vec![seen(name, at)]).await.is_err() || archive.get_many([user(name)].into()).await.is_err()
    {
        assert!(Instant::now() < deadline, "the archive did not reconnect");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn other_programs_can_read_the_table() {
    let database = Database::new();
    let archive = database.archive().await;
    archive.put_many(vec![seen("bob", 1_700_000_000_123)]).await.unwrap();
    let rows = database.sql("SET TimeZone = 'UTC'; SELECT user_id, last_seen_at FROM user_presence");
    assert_eq!(rows, "bob|2023-11-14 22:13:20.123+00");
    database
        .sql("INSERT INTO user_presence VALUES ('old', '1969-01-01'), ('ever', 'infinity'), ('never', '-infinity')");
    assert_eq!(get(&archive, "old").await, Some(0));
    assert_eq!(get(&archive, "never").await, Some(0));
    assert!(get(&archive, "ever").await > Some(1_700_000_000_123));
}

#[tokio::test]
async fn batch_with_a_refused_row_stores_nothing() {
    let database = Database::new();
    let archive = database.archive().await;
    database.sql("ALTER TABLE user_presence ADD CHECK (user_id <> 'cursed')");
    let error = archive.put_many(vec![seen("ann", 1), seen("cursed", 1), seen("zoe", 1)]).await.unwrap_err();
    assert!(
        matches!(&error, Error::Other(text) if text.contains("constraint") && !text.contains("cursed")),
        "{error:?}"
    );
    assert_eq!(archive.get_many([user("ann"), user("zoe")].into()).await.unwrap(), [None, None]);
    archive.put_many(vec![seen("ann", 2)]).await.unwrap();
    assert_eq!(get(&archive, "ann").await, Some(2), "the connection still works");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_nodes_neither_deadlock_nor_move_backwards() {
    let database = Database::new();
    let mut tasks = JoinSet::new();
    for node in 0..4_u64 {
        let archive = database.archive().await;
        tasks.spawn(async move {
            for round in 0..25_u64 {
                // Each node writes the users in a different order, with times that overtake each other.
                let users = (0..400).map(|index| (index * 7 + node * 131 + round) % 400);
                let entries = users.map(|user| seen(&format!("user-{user}"), round * 4 + (node + user) % 4));
                archive.put_many(entries.collect()).await.unwrap();
                let floor = archive.get_many((0..400).map(|index| user(&format!("user-{index}"))).collect()).await;
                assert!(floor.unwrap().into_iter().all(|time| time >= Some(Time(round * 4))));
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let archive = database.archive().await;
    assert_eq!(get(&archive, "user-7").await, Some(99), "the latest time");
    let deadlocks = database.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
    assert_eq!(deadlocks, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_starting_together_create_one_table() {
    let database = Database::new();
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let url = database.url();
        tasks.spawn(async move { PostgresArchive::open(&url).await.map(drop) });
    }
    while let Some(opened) = tasks.join_next().await {
        opened.unwrap().unwrap();
    }
}

#[tokio::test]
async fn role_without_create_uses_existing_table() {
    let database = Database::new();
    let role = format!("modest_{}", database.name);
    database.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD 's3cret'; REVOKE CREATE ON SCHEMA public FROM PUBLIC"));
    let url = database.server.url_for(&role, "s3cret", &database.name);
    let error = refusal(&url).await;
    assert!(error.contains("may not create the table") && error.contains("CREATE TABLE user_presence ("), "{error}");
    assert!(error.contains(&format!("GRANT SELECT, INSERT, UPDATE ON user_presence TO \"{role}\"")), "{error}");

    // The commands of the message solve the problem.
    let advice = error.split_once("run as a role that may: ").unwrap().1;
    let (table, grant) = advice.split_once("; ").unwrap();
    database.sql(table);
    let error = refusal(&url).await;
    assert!(error.contains("permission denied for table user_presence") && error.contains(grant), "{error}");
    database.sql(grant);
    let archive = PostgresArchive::open(&url).await.unwrap();
    archive.put_many(vec![seen("bob", 1)]).await.unwrap();
    archive.put_many(vec![seen("bob", 2)]).await.unwrap();
    assert_eq!(get(&archive, "bob").await, Some(2));
}

#[tokio::test]
async fn table_of_another_shape_is_refused() {
    let key = "user_presence (user_id text PRIMARY KEY, last_seen_at";
    for (table, reason) in [
        (format!("{key} bigint NOT NULL)"), "`user_presence.last_seen_at` is bigint"),
        (format!("{key} timestamp NOT NULL)"), "is timestamp without time zone"),
        ("user_presence (user_id uuid PRIMARY KEY, last_seen_at timestamptz)".to_owned(), "user_id` is uuid"),
        ("user_presence (user_id text, last_seen_at timestamptz)".to_owned(), "is not its primary key"),
        ("user_presence (name text)".to_owned(), "`user_presence.user_id` is missing"),
    ] {
        let database = Database::new();
        database.sql(&format!("CREATE TABLE {table}; ALTER TABLE user_presence OWNER TO {ROLE}"));
        let error = refusal(&database.url()).await;
        assert!(error.contains(reason) && error.contains(&database.name), "{error}");
    }
}

#[tokio::test]
async fn connection_errors_name_cause_but_no_password() {
    let database = Database::new();
    let (server, name) = (database.server, &*database.name);
    let error = refusal(&server.url_for(ROLE, "s3cret", name)).await;
    assert!(error.contains("refuses the user `rollcall`") && error.contains("Check user and password"), "{error}");
    let error = refusal(&server.url_for("unknown", "s3cret", name)).await;
    assert!(error.contains("refuses the user `unknown`"), "{error}");
    let error = refusal(&format!("postgres://{ROLE}@127.0.0.1:{}/{name}", server.port())).await;
    assert!(error.contains("asks for a password"), "{error}");
    let missing = PostgresArchive::open(&server.url("nowhere")).await.map(drop).unwrap_err();
    assert!(matches!(&missing, OpenError::NoDatabase { database, .. } if database == "nowhere"), "{missing}");
    assert!(missing.to_string().contains("CREATE DATABASE \"nowhere\" OWNER \"rollcall\""), "{missing}");
    let error = refusal(&format!("{}?sslmode=require", database.url())).await;
    assert!(error.contains("does not support TLS"), "{error}");
    let port = rollcall_servers::free_port().unwrap();
    let error = refusal(&format!("postgres://{ROLE}:s3cret@127.0.0.1:{port}/{name}")).await;
    assert!(error.contains(&format!("cannot reach PostgreSQL at 127.0.0.1:{port}")), "{error}");
    assert!(error.contains("refused"), "{error}");
}

#[tokio::test]
async fn locked_table_is_unavailable_until_unlocked() {
    let database = Database::new();
    let archive = Arc::new(database.archive().await);
    archive.put_many(vec![seen("bob", 1)]).await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE user_presence IN EXCLUSIVE MODE; SELECT pg_sleep({}); COMMIT", 4);
    let (server, name) = (database.server, database.name.clone());
    let holder = std::thread::spawn(move || server.sql(&name, &lock).unwrap());
    let held = "SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND relation = 'user_presence'::regclass";
    rollcall_servers::wait_until("the lock", CALL_LIMIT, || Ok(server.sql(&database.name, held)? == "1")).unwrap();
    let started = Instant::now();
    assert_eq!(archive.put_many(vec![seen("bob", 2)]).await, Err(UNAVAILABLE));
    assert!(started.elapsed() < CALL_LIMIT, "{:?}", started.elapsed());
    assert_eq!(get(&*archive, "bob").await, Some(1), "a read does not wait for the lock");
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    assert_eq!(database.sql(waiting), "0", "no statement is left waiting");
    holder.join().unwrap();
    archive.put_many(vec![seen("bob", 3)]).await.unwrap();
    assert_eq!(get(&*archive, "bob").await, Some(3));
}

#[tokio::test]
async fn killed_server_loses_no_acknowledged_write() {
    let mut server = Postgres::start().unwrap();
    let name = server.database().unwrap();
    let archive = PostgresArchive::open(&server.url(&name)).await.unwrap();
    for round in 1..=2 {
        archive.put_many(vec![seen("bob", round)]).await.unwrap();
        server.kill();
        let started = Instant::now();
        assert_eq!(archive.put_many(vec![seen("bob", 9)]).await, Err(UNAVAILABLE));
        assert_eq!(archive.get_many([user("bob")].into()).await, Err(UNAVAILABLE));
        for _ in 0..100 {
            assert_eq!(archive.get_many([user("bob")].into()).await, Err(UNAVAILABLE));
        }
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        server.start_again().unwrap();
        wait_for_reconnect(&archive, "eve", round).await;
        assert_eq!(get(&archive, "bob").await, Some(round));
    }
}

#[tokio::test]
async fn terminated_session_is_replaced() {
    let database = Database::new();
    let archive = database.archive().await;
    let ours = "application_name = 'rollcall' AND datname = current_database()";
    let ended = database.sql(&format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {ours}"));
    assert_eq!(ended, "2", "one session to write and one to read");
    wait_for_reconnect(&archive, "bob", 1).await;
    drop(archive);
    let open = format!("SELECT count(*) FROM pg_stat_activity WHERE {ours}");
    rollcall_servers::wait_until("the sessions to be closed", CALL_LIMIT, || Ok(database.sql(&open) == "0")).unwrap();
}

#[tokio::test]
async fn frozen_server_costs_one_timeout_only() {
    let server = Postgres::start().unwrap();
    let name = server.database().unwrap();
    let archive = PostgresArchive::open(&server.url(&name)).await.unwrap();
    archive.put_many(vec![seen("bob", 1)]).await.unwrap();
    server.freeze().unwrap();
    let started = Instant::now();
    let (put, got) = tokio::join!(archive.put_many(vec![seen("bob", 2)]), archive.get_many([user("bob")].into()));
    assert_eq!((put, got), (Err(UNAVAILABLE), Err(UNAVAILABLE)));
    assert!(started.elapsed() < CALL_LIMIT, "{:?}", started.elapsed());
    let started = Instant::now();
    for _ in 0..100 {
        assert_eq!(archive.get_many([user("bob")].into()).await, Err(UNAVAILABLE));
    }
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    server.thaw().unwrap();
    wait_for_reconnect(&archive, "bob", 3).await;
    assert_eq!(get(&archive, "bob").await, Some(3));
}

#[tokio::test]
async fn tls_modes_match_psql() {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = own.cert.pem();
    let key = own.signing_key.serialize_pem();
    let server = Postgres::start_with(Tls::On { certificate: &certificate, key: &key }).unwrap();
    let name = server.database().unwrap();
    let folder = std::env::temp_dir().join(format!("rollcall-store-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("own.pem"), &certificate).unwrap();
    std::fs::write(folder.join("other.pem"), other.cert.pem()).unwrap();
    let url = |query: &str| format!("{}?{}", server.url(&name), query.replace('@', folder.to_str().unwrap()));
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE ssl AND application_name = 'rollcall'";
    for (query, sessions) in [
        ("sslmode=disable", "0"),
        ("sslmode=prefer", "2"),
        ("", "2"),
        ("sslmode=require", "2"),
        ("sslmode=require&channel_binding=require", "2"),
        ("sslmode=verify-full&sslrootcert=@/own.pem", "2"),
    ] {
        let archive = PostgresArchive::open(&url(query)).await.unwrap_or_else(|error| panic!("{query}: {error}"));
        archive.put_many(vec![seen("bob", 1)]).await.unwrap();
        assert_eq!(server.sql(&name, encrypted).unwrap(), sessions, "{query}");
        drop(archive);
        let gone = || Ok(server.sql(&name, encrypted)? == "0");
        rollcall_servers::wait_until("the sessions to end", CALL_LIMIT, gone).unwrap();
    }
    for query in ["sslmode=verify-full&sslrootcert=@/other.pem", "sslmode=verify-full&sslrootcert=system"] {
        let error = refusal(&url(query)).await;
        assert!(error.contains("TLS") && error.contains("certificate"), "{query}: {error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
