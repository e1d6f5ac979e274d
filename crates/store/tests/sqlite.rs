//! The archive in SQLite: the suite, no loss of acknowledged writes, and errors of the file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod archive_suite;
mod folder;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rollcall_core::{Error, Time};
use rollcall_store::sqlite::OpenError;
use rollcall_store::{ArchiveStore, SqliteArchive};
use rusqlite::Connection;

use archive_suite::{Subject, get, seen, user};
use folder::Folder;

struct File(Folder);

impl File {
    fn new() -> Self {
        Self(Folder::new())
    }
}

impl Subject for File {
    async fn open(&self) -> Arc<dyn ArchiveStore> {
        Arc::new(SqliteArchive::open(self.0.path("a.db")).unwrap())
    }
}

archive_suite!(File::new());

#[tokio::test]
async fn in_memory_databases_are_separate() {
    let archive = SqliteArchive::open(":memory:").unwrap();
    archive.put_many(vec![seen("bob", 1), seen("eve", u64::MAX)]).await.unwrap();
    assert_eq!(get(&archive, "bob").await, Some(1));
    assert_eq!(get(&archive, "eve").await, Some(i64::MAX as u64));
    assert_eq!(get(&SqliteArchive::open(":memory:").unwrap(), "bob").await, None);
}

#[tokio::test]
async fn closing_leaves_one_file() {
    let folder = Folder::new();
    for round in 1..=3 {
        let archive = SqliteArchive::open(folder.path("a.db")).unwrap();
        archive.put_many(vec![seen("bob", round)]).await.unwrap();
        drop(archive);
        let files: Vec<_> = std::fs::read_dir(folder.root()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["a.db"], "the WAL is merged into the file");
    }
}

/// Not a test: the next test starts it as a process and kills it. It writes and prints what was acknowledged.
#[test]
fn writes_until_killed() {
    let Some(path) = std::env::var_os("ROLLCALL_TEST_KILLED") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let archive = SqliteArchive::open(path).unwrap();
    for at in 1.. {
        let entries = (0..20).map(|index| seen(&format!("user-{at}-{index}"), at)).chain([seen("bob", at)]);
        runtime.block_on(archive.put_many(entries.collect())).unwrap();
        println!("acknowledged {at}");
    }
}

#[tokio::test]
async fn killed_process_loses_no_acknowledged_write() {
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
        // Kills it while it writes; what it printed until it ended counts too.
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
fn unusable_file_is_refused_by_name() {
    let folder = Folder::new();
    let text = folder.path("notes.txt");
    std::fs::write(&text, "not a database, but long enough to be read as one".repeat(100)).unwrap();
    assert!(refusal(&text).contains("not a database"));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("not a database"), "the file is unchanged");
    assert!(refusal(&folder.path("missing/a.db")).contains("unable to open"));
    assert!(refusal(folder.root()).contains("unable to open"));

    let foreign = folder.path("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(SqliteArchive::open(&foreign), Err(OpenError::Foreign { .. })));
    assert!(refusal(&foreign).contains("another program's"));

    let newer = folder.path("newer.db");
    drop(SqliteArchive::open(&newer).unwrap());
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", 3).unwrap();
    assert!(matches!(SqliteArchive::open(&newer), Err(OpenError::Newer { found: 3, known: 2, .. })));
    assert!(refusal(&newer).contains("version 3"));
}

#[tokio::test]
async fn locked_file_is_unavailable_until_unlocked() {
    let folder = Folder::new();
    let path = folder.path("a.db");
    let archive = SqliteArchive::open(&path).unwrap();
    archive.put_many(vec![seen("bob", 1)]).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(archive.put_many(vec![seen("bob", 2)]).await, Err(Error::Unavailable(1000)));
    assert_eq!(get(&archive, "bob").await, Some(1), "a read does not wait for the lock");
    other.execute_batch("ROLLBACK").unwrap();
    archive.put_many(vec![seen("bob", 3)]).await.unwrap();
    assert_eq!(get(&archive, "bob").await, Some(3));
}

#[tokio::test]
async fn damaged_file_is_an_error_not_a_panic() {
    let folder = Folder::new();
    let path = folder.path("a.db");
    let archive = SqliteArchive::open(&path).unwrap();
    archive.put_many((0..5000).map(|index| seen(&format!("user-{index}"), 1)).collect()).await.unwrap();
    drop(archive);
    let mut bytes = std::fs::read(&path).unwrap();
    let length = bytes.len();
    // Everything but the first pages, which identify the file.
    bytes[5 * 4096..length].fill(0xee);
    std::fs::write(&path, bytes).unwrap();
    let archive = SqliteArchive::open(&path).unwrap();
    let users = (0..5000).map(|index| user(&format!("user-{index}"))).collect();
    let error = archive.get_many(users).await.unwrap_err();
    assert!(matches!(&error, Error::Other(text) if text.contains("a.db") && text.contains("damaged")), "{error:?}");
    assert!(archive.put_many((0..5000).map(|index| seen(&format!("user-{index}"), 2)).collect()).await.is_err());
}
