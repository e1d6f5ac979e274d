//! Policy in SQLite: the suite, and what is specific to a file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod folder;
mod policy_suite;

use std::sync::Arc;

use rollcall_core::Error;
use rollcall_core::policy::PolicyChange;
use rollcall_functions::capabilities::ChangesSince;
use rollcall_store::{PolicyStore, SqliteArchive};
use rusqlite::Connection;

use folder::Folder;
use policy_suite::model::Model;
use policy_suite::{Random, Subject, apply, block, changes_since, follow, load, numbers, relation, restrict, user};

/// Two handles to one open file, both from the archive.
fn subject() -> Subject {
    let folder = Folder::new();
    let archive = SqliteArchive::open(folder.path("a.db")).unwrap();
    let subject = Subject { policies: Arc::new(archive.policies()), elsewhere: Some(Arc::new(archive.policies())) };
    // An open file survives the deletion of its folder.
    drop(folder);
    subject
}

fn in_memory() -> Subject {
    let archive = SqliteArchive::in_memory().unwrap();
    Subject { policies: Arc::new(archive.policies()), elsewhere: Some(Arc::new(archive.policies())) }
}

mod in_a_file {
    use super::*;
    policy_suite!(subject());
}

mod without_file {
    use super::*;
    policy_suite!(in_memory());
}

#[tokio::test]
async fn reopened_file_has_its_policy() {
    let folder = Folder::new();
    let archive = SqliteArchive::open(folder.path("a.db")).unwrap();
    let policies = archive.policies();
    drop(archive);
    let changes: Vec<PolicyChange> = (0..400)
        .map({
            let mut random = Random(1);
            move |_| random.change()
        })
        .collect();
    apply(&policies, &changes[..200]).await;
    let (_, cursor) = load(&policies).await;
    drop(policies);

    let policies = SqliteArchive::open(folder.path("a.db")).unwrap().policies();
    assert_eq!(load(&policies).await, (Model::of(&changes[..200]), cursor.clone()));
    apply(&policies, &changes[200..]).await;
    let mut followed = Model::of(&changes[..200]);
    follow(&policies, &mut followed, &cursor).await;
    assert_eq!(followed, Model::of(&changes), "a cursor outlives the process");
}

/// The tables of version 1.
const VERSION_1: &str = "
    CREATE TABLE user_presence (user_id TEXT PRIMARY KEY, last_seen_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE choice (user_id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE session (user_id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    PRAGMA user_version = 1;
    INSERT INTO user_presence VALUES ('bob', 7);
    INSERT INTO meta VALUES ('saved_at', 9);
";

#[tokio::test]
async fn version_1_file_is_migrated_with_its_data() {
    let folder = Folder::new();
    let path = folder.path("a.db");
    Connection::open(&path).unwrap().execute_batch(VERSION_1).unwrap();
    for _ in 0..2 {
        let archive = SqliteArchive::open(&path).unwrap();
        let seen = rollcall_store::ArchiveStore::get_many(&archive, [user("bob")].into()).await.unwrap();
        assert_eq!(seen, [Some(rollcall_core::Time(7))]);
        let saved = archive.load_saved(rollcall_core::Time(10)).await.unwrap();
        assert_eq!(saved.at, Some(rollcall_core::Time(9)));
        apply(&archive.policies(), &[block("bob", "eve")]).await;
        assert!(relation(&archive.policies(), "eve", "bob").await.blocked);
    }
    let version: i64 =
        Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 2);
}

#[tokio::test]
async fn trimmed_log_is_a_gap_for_late_readers() {
    let policies = SqliteArchive::in_memory().unwrap().policies_keeping(10);
    let (_, begin) = load(&policies).await;
    let mut cursors = vec![begin];
    for index in 0..30 {
        apply(&policies, &[restrict(&format!("name-{index}"))]).await;
        cursors.push(load(&policies).await.1);
    }
    for (done, cursor) in cursors.iter().enumerate() {
        match policies.since(cursor.clone(), 1000).await.unwrap() {
            ChangesSince::Gap => assert!(done < 20, "after {done} of 30 changes"),
            ChangesSince::Changes(changes, after) => {
                assert!(done >= 20, "after {done} of 30 changes");
                let later: Vec<PolicyChange> = (done..30).map(|index| restrict(&format!("name-{index}"))).collect();
                assert_eq!((changes, &after), (later, cursors.last().unwrap()));
            }
        }
    }
}

#[tokio::test]
async fn empty_log_still_has_a_position() {
    let policies = SqliteArchive::in_memory().unwrap().policies_keeping(0);
    let (_, before) = load(&policies).await;
    apply(&policies, &[restrict("bob"), block("bob", "eve")]).await;
    let (_, after) = load(&policies).await;
    assert_ne!(before, after);
    assert_eq!(policies.since(before, 10).await.unwrap(), ChangesSince::Gap);
    assert_eq!(policies.since(after.clone(), 10).await.unwrap(), ChangesSince::Changes(Vec::new(), after));
}

#[tokio::test]
async fn lost_log_rows_are_a_gap() {
    for lost in ["seq = (SELECT min(seq) FROM policy_log)", "seq = (SELECT max(seq) FROM policy_log)", "prev > 0", "1"]
    {
        let folder = Folder::new();
        let policies = SqliteArchive::open(folder.path("a.db")).unwrap().policies();
        let (_, cursor) = load(&policies).await;
        for name in ["a", "b", "c"] {
            apply(&policies, &[restrict(name)]).await;
        }
        let other = Connection::open(folder.path("a.db")).unwrap();
        assert!(other.execute(&format!("DELETE FROM policy_log WHERE {lost}"), []).unwrap() > 0);
        let mut cursor = cursor;
        let gap = loop {
            match policies.since(cursor.clone(), 100).await.unwrap() {
                ChangesSince::Gap => break true,
                ChangesSince::Changes(_, after) if after == cursor => break false,
                ChangesSince::Changes(_, after) => cursor = after,
            }
        };
        assert!(gap, "{lost}");
    }
}

#[tokio::test]
async fn restored_backup_is_a_gap() {
    let folder = Folder::new();
    let (path, copy) = (folder.path("a.db"), folder.path("copy.db"));
    let policies = SqliteArchive::open(&path).unwrap().policies();
    apply(&policies, &[restrict("a")]).await;
    let (_, old) = load(&policies).await;
    drop(policies);
    std::fs::copy(&path, &copy).unwrap();
    let policies = SqliteArchive::open(&path).unwrap().policies();
    apply(&policies, &[restrict("b")]).await;
    let (_, newest) = load(&policies).await;
    drop(policies);
    std::fs::copy(&copy, &path).unwrap();

    let policies = SqliteArchive::open(&path).unwrap().policies();
    assert_eq!(policies.since(newest.clone(), 10).await.unwrap(), ChangesSince::Gap);
    apply(&policies, &[restrict("c"), restrict("d")]).await;
    assert_eq!(policies.since(newest, 10).await.unwrap(), ChangesSince::Gap);
    assert_eq!(changes_since(&policies, &old, 10).await.0, [restrict("c"), restrict("d")]);
}

#[tokio::test]
async fn large_snapshot_skips_empty_pages() {
    let policies = SqliteArchive::in_memory().unwrap().policies();
    let changes: Vec<PolicyChange> = (0..10_000)
        .map(|index| block(&format!("owner-{}", index % 7), &format!("other-{index}")))
        .chain((0..300).map(|page| PolicyChange::RestrictMany(numbers(page * 200, &[page, 65_535]))))
        .collect();
    apply(&policies, &changes).await;
    let removals: Vec<PolicyChange> = changes[4000..9000]
        .iter()
        .map(|change| match change {
            PolicyChange::Block(owner, other) => PolicyChange::Unblock(owner.clone(), other.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    apply(&policies, &removals).await;
    let (mut next, mut pages, mut model) = (Some(0), Vec::new(), Model::default());
    while let Some(page) = next {
        let loaded = policies.snapshot(page).await.unwrap();
        assert!(!loaded.changes.is_empty() && loaded.changes.len() <= 4096);
        loaded.changes.iter().for_each(|change| model.apply(change));
        pages.push(page);
        next = loaded.next;
    }
    assert!(pages.len() > 100, "number pages are far apart: {} pages", pages.len());
    let all: Vec<PolicyChange> = changes.iter().chain(&removals).cloned().collect();
    assert_eq!(model, Model::of(&all));
}

#[tokio::test]
async fn answers_with_number_pages_stay_small() {
    let policies = SqliteArchive::in_memory().unwrap().policies();
    let (_, cursor) = load(&policies).await;
    let changes: Vec<PolicyChange> =
        (0..200).map(|page| PolicyChange::RestrictMany(numbers(page, &[1, 65_535]))).collect();
    apply(&policies, &changes).await;
    let ChangesSince::Changes(first, _) = policies.since(cursor.clone(), 1000).await.unwrap() else { panic!("a gap") };
    assert!(first.len() <= 2 * 17, "{} changes of 8 KiB", first.len());
    assert_eq!(Model::of(&changes_since(&policies, &cursor, 1000).await.0), Model::of(&changes));
}

#[tokio::test]
async fn item_beyond_list_bound_fails_alone() {
    let policies = SqliteArchive::in_memory().unwrap().policies();
    let full: Vec<PolicyChange> = (0..10_000).map(|index| block("bob", &format!("other-{index}"))).collect();
    apply(&policies, &full).await;
    let outcomes = policies.apply_many(vec![restrict("a"), block("bob", "one-more"), block("eve", "bob")]).await;
    assert_eq!(outcomes.unwrap(), [Ok(()), Err(Error::TooMany(10_000)), Ok(())]);
    assert!(relation(&policies, "eve", "bob").await.blocked);
    assert!(!relation(&policies, "one-more", "bob").await.blocked);
}
