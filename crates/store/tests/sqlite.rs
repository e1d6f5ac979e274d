//! Last seen in SQLite: never backwards, never lost once acknowledged, never a panic over a file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod folder;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rollcall_core::{Error, Time, UserId};
use rollcall_functions::capabilities::Sighting;
use rollcall_store::sqlite::{MAX_SIGHTINGS, OpenError};
use rollcall_store::{LastSeen, SqliteArchive};
use rusqlite::Connection;
use tokio::task::JoinSet;

use folder::Folder;

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn seen(name: &str, at: u64) -> Sighting {
    Sighting { user: user(name), last_seen: Time(at) }
}

async fn get(archive: &SqliteArchive, name: &str) -> Option<u64> {
    archive.get_many(vec![user(name)]).await.unwrap()[0].map(|time| time.0)
}

#[tokio::test]
async fn last_seen_never_moves_backwards() {
    let folder = Folder::new();
    let archive = SqliteArchive::open(folder.path("a.db")).unwrap();
    for (at, expected) in [(5, 5), (3, 5), (5, 5), (9, 9), (0, 9)] {
        archive.put_many(vec![seen("bob", at)]).await.unwrap();
        assert_eq!(get(&archive, "bob").await, Some(expected), "after {at}");
    }
    archive.put_many(vec![seen("eve", 1), seen("eve", 4), seen("eve", 2)]).await.unwrap();
    assert_eq!(get(&archive, "eve").await, Some(4), "also within one call");
}

#[tokio::test]
async fn answers_come_in_the_order_asked() {
    let archive = SqliteArchive::in_memory().unwrap();
    archive.put_many(vec![seen("a", 1), seen("b", 2), seen("é", u64::MAX)]).await.unwrap();
    let asked = ["b", "nobody", "a", "b", "é"].map(user).to_vec();
    let answers: Vec<_> =
        archive.get_many(asked).await.unwrap().into_iter().map(|time| time.map(|time| time.0)).collect();
    assert_eq!(answers, [Some(2), None, Some(1), Some(2), Some(i64::MAX as u64)]);
}

#[tokio::test]
async fn empty_calls_are_answered_and_too_many_refused() {
    let archive = SqliteArchive::open(":memory:").unwrap();
    archive.put_many(Vec::new()).await.unwrap();
    assert!(archive.get_many(Vec::new()).await.unwrap().is_empty());
    let too_many = Error::TooMany(MAX_SIGHTINGS as u32);
    assert_eq!(archive.put_many(vec![seen("bob", 1); MAX_SIGHTINGS + 1]).await, Err(too_many.clone()));
    assert_eq!(archive.get_many(vec![user("bob"); MAX_SIGHTINGS + 1]).await, Err(too_many));
    assert_eq!(get(&archive, "bob").await, None);
    archive.put_many((0..MAX_SIGHTINGS).map(|index| seen(&format!("user-{index}"), 1)).collect()).await.unwrap();
    assert_eq!(get(&archive, "user-9999").await, Some(1));
}

#[tokio::test]
async fn it_survives_being_reopened_and_leaves_one_file() {
    let folder = Folder::new();
    for round in 1..=3 {
        let archive = SqliteArchive::open(folder.path("a.db")).unwrap();
        assert_eq!(get(&archive, "bob").await, (round > 1).then_some(round - 1));
        archive.put_many(vec![seen("bob", round)]).await.unwrap();
        drop(archive);
        let files: Vec<_> = std::fs::read_dir(folder.root()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["a.db"], "the log is folded into the file");
    }
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_does_no_harm() {
    let folder = Folder::new();
    let archive = SqliteArchive::open(folder.path("a.db")).unwrap();
    drop(archive.put_many(vec![seen("never-asked", 1)]));
    drop(tokio::time::timeout(std::time::Duration::ZERO, archive.put_many(vec![seen("bob", 1)])).await);
    archive.put_many(vec![seen("bob", 2)]).await.unwrap();
    assert_eq!(get(&archive, "bob").await, Some(2));
    assert_eq!(get(&archive, "never-asked").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_and_writers_do_not_disturb_each_other() {
    let folder = Folder::new();
    let archive = Arc::new(SqliteArchive::open(folder.path("a.db")).unwrap());
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let (writer, reader) = (Arc::clone(&archive), Arc::clone(&archive));
        tasks.spawn(async move {
            for at in 1..=50 {
                writer.put_many(vec![seen("shared", at), seen(&format!("user-{task}"), at)]).await.unwrap();
                // What is acknowledged is visible to whoever asks from then on.
                assert!(get(&writer, &format!("user-{task}")).await >= Some(at));
            }
        });
        tasks.spawn(async move {
            let mut last = None;
            for _ in 0..200 {
                let now = get(&reader, "shared").await;
                assert!(now >= last, "{now:?} after {last:?}");
                last = now;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(get(&archive, "shared").await, Some(50));
}

/// Not a test of its own: the process that the next one kills. It writes and says what was acknowledged, for ever.
#[test]
fn writes_until_killed() {
    let Some(path) = std::env::var_os("ROLLCALL_TEST_KILLED") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let archive = SqliteArchive::open(path).unwrap();
    for at in 1.. {
        let sightings = (0..20).map(|index| seen(&format!("user-{at}-{index}"), at)).chain([seen("bob", at)]);
        runtime.block_on(archive.put_many(sightings.collect())).unwrap();
        println!("acknowledged {at}");
    }
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let folder = Folder::new();
    let path = folder.path("a.db");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writes_until_killed", "--nocapture"])
        .env("ROLLCALL_TEST_KILLED", &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acknowledged = |line: String| line.split("acknowledged ").nth(1).and_then(|at| at.trim().parse::<u64>().ok());
    let mut last = 0;
    for at in lines.map_while(Result::ok).filter_map(acknowledged) {
        last = at;
        // Killed in the middle of its writing; what it still said before it died counts too.
        if at == 40 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(last >= 40);
    let archive = SqliteArchive::open(&path).unwrap();
    assert!(get(&archive, "bob").await >= Some(last));
    for at in 1..=last {
        let users = (0..20).map(|index| user(&format!("user-{at}-{index}"))).collect();
        assert_eq!(archive.get_many(users).await.unwrap(), vec![Some(Time(at)); 20], "of {last}");
    }
}

fn refusal(path: &Path) -> String {
    let error = SqliteArchive::open(path).map(drop).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    error
}

#[test]
fn a_file_that_cannot_be_used_is_refused_by_name() {
    let folder = Folder::new();
    let text = folder.path("notes.txt");
    std::fs::write(&text, "not a database, but long enough to be looked at as if it were one".repeat(100)).unwrap();
    assert!(refusal(&text).contains("not a database"));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("not a database"), "and left as it was");
    assert!(refusal(&folder.path("missing/a.db")).contains("unable to open"));
    assert!(refusal(folder.root()).contains("unable to open"));

    let foreign = folder.path("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(SqliteArchive::open(&foreign), Err(OpenError::Foreign { .. })));
    assert!(refusal(&foreign).contains("another program's"));

    let newer = folder.path("newer.db");
    drop(SqliteArchive::open(&newer).unwrap());
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", 2).unwrap();
    assert!(matches!(SqliteArchive::open(&newer), Err(OpenError::Newer { found: 2, known: 1, .. })));
    assert!(refusal(&newer).contains("version 2"));
}

#[tokio::test]
async fn a_file_that_somebody_else_locks_is_away_and_comes_back() {
    let folder = Folder::new();
    let path = folder.path("a.db");
    let archive = SqliteArchive::open(&path).unwrap();
    archive.put_many(vec![seen("bob", 1)]).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(archive.put_many(vec![seen("bob", 2)]).await, Err(Error::Unavailable(1000)));
    assert_eq!(get(&archive, "bob").await, Some(1), "looking does not wait for it");
    other.execute_batch("ROLLBACK").unwrap();
    archive.put_many(vec![seen("bob", 3)]).await.unwrap();
    assert_eq!(get(&archive, "bob").await, Some(3));
}

#[tokio::test]
async fn a_file_damaged_while_in_use_is_an_error_and_no_panic() {
    let folder = Folder::new();
    let path = folder.path("a.db");
    let archive = SqliteArchive::open(&path).unwrap();
    archive.put_many((0..5000).map(|index| seen(&format!("user-{index}"), 1)).collect()).await.unwrap();
    drop(archive);
    let mut bytes = std::fs::read(&path).unwrap();
    let length = bytes.len();
    // Everything but the first pages, which say what the file is.
    bytes[5 * 4096..length].fill(0xee);
    std::fs::write(&path, bytes).unwrap();
    let archive = SqliteArchive::open(&path).unwrap();
    let users = (0..5000).map(|index| user(&format!("user-{index}"))).collect();
    let error = archive.get_many(users).await.unwrap_err();
    assert!(matches!(&error, Error::Other(text) if text.contains("a.db") && text.contains("damaged")), "{error:?}");
    assert!(archive.put_many((0..5000).map(|index| seen(&format!("user-{index}"), 2)).collect()).await.is_err());
}
