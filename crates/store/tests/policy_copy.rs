//! A policy store with a local copy: a restart reads no page from the store, and a damaged file never causes a wrong
//! answer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod folder;
mod policy_suite;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rollcall_core::policy::{Audience, PolicyChange, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, OwnSettings, PolicyPage};
use rollcall_store::{LocalCopy, PolicyStore, SqliteArchive, StoreFuture};
use tokio::sync::{Semaphore, watch};

use folder::Folder;
use policy_suite::model::Model;
use policy_suite::{
    Random, Subject, add_contact, apply, block, changes_since, follow, load, load_with, numbers, restrict, set_privacy,
};

/// A store that counts its reads, and can be unavailable or slow.
struct Counted {
    inner: Arc<dyn PolicyStore>,
    pages: AtomicU64,
    unavailable: AtomicBool,
    /// A page that is read but not returned before the permit comes.
    held: Option<(u32, Semaphore, Semaphore)>,
}

impl Counted {
    fn new(inner: Arc<dyn PolicyStore>) -> Arc<Self> {
        Arc::new(Self { inner, pages: AtomicU64::new(0), unavailable: AtomicBool::new(false), held: None })
    }

    fn pages(&self) -> u64 {
        self.pages.load(Ordering::SeqCst)
    }

    fn check_available(&self) -> Result<(), Error> {
        if self.unavailable.load(Ordering::SeqCst) { Err(Error::Unavailable(1000)) } else { Ok(()) }
    }
}

impl PolicyStore for Counted {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> StoreFuture<'_, Vec<Relation>> {
        self.inner.relations(viewer, subjects)
    }

    fn settings_of(&self, user: UserId) -> StoreFuture<'_, OwnSettings> {
        self.inner.settings_of(user)
    }

    fn snapshot(&self, page: u32) -> StoreFuture<'_, PolicyPage> {
        Box::pin(async move {
            self.check_available()?;
            self.pages.fetch_add(1, Ordering::SeqCst);
            let found = self.inner.snapshot(page).await?;
            if let Some((held, read, go_on)) = &self.held
                && *held == page
            {
                read.add_permits(1);
                go_on.acquire().await.unwrap().forget();
            }
            Ok(found)
        })
    }

    fn since(&self, cursor: Cursor, limit: u32) -> StoreFuture<'_, ChangesSince> {
        Box::pin(async move {
            self.check_available()?;
            self.inner.since(cursor, limit).await
        })
    }

    fn apply_many(&self, changes: Vec<PolicyChange>) -> StoreFuture<'_, Vec<Result<(), Error>>> {
        self.inner.apply_many(changes)
    }

    fn invalidated(&self) -> watch::Receiver<u64> {
        self.inner.invalidated()
    }
}

/// A copy, and the directory that it is in.
struct WithDirectory(LocalCopy, #[allow(dead_code, reason = "kept until the copy is dropped")] Folder);

impl PolicyStore for WithDirectory {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> StoreFuture<'_, Vec<Relation>> {
        self.0.relations(viewer, subjects)
    }
    fn settings_of(&self, user: UserId) -> StoreFuture<'_, OwnSettings> {
        self.0.settings_of(user)
    }
    fn snapshot(&self, page: u32) -> StoreFuture<'_, PolicyPage> {
        self.0.snapshot(page)
    }
    fn since(&self, cursor: Cursor, limit: u32) -> StoreFuture<'_, ChangesSince> {
        self.0.since(cursor, limit)
    }
    fn apply_many(&self, changes: Vec<PolicyChange>) -> StoreFuture<'_, Vec<Result<(), Error>>> {
        self.0.apply_many(changes)
    }
    fn invalidated(&self) -> watch::Receiver<u64> {
        self.0.invalidated()
    }
}

fn subject() -> Subject {
    let archive = SqliteArchive::in_memory().unwrap();
    let folder = Folder::new();
    let copied = LocalCopy::open(Arc::new(archive.policies()), folder.path("copy"), "a store");
    Subject { policies: Arc::new(WithDirectory(copied, folder)), elsewhere: Some(Arc::new(archive.policies())) }
}

policy_suite!(subject());

fn store() -> Arc<Counted> {
    Counted::new(Arc::new(SqliteArchive::in_memory().unwrap().policies()))
}

fn copied(store: &Arc<Counted>, path: &Path) -> LocalCopy {
    LocalCopy::open(Arc::clone(store) as Arc<dyn PolicyStore>, path, "a store")
}

/// A change for each of the four kinds of pages of the SQLite store.
fn changes_of_every_kind() -> Vec<PolicyChange> {
    vec![
        block("bob", "eve"),
        add_contact("bob", "al"),
        set_privacy("bob", Audience::Contacts, Audience::Nobody),
        restrict("mallory"),
        restrict("70000"),
        PolicyChange::RestrictMany(numbers(3, &[0, 9, 300])),
    ]
}

/// Loads everything and follows to the end of the log, as a reader does.
async fn read(policies: &dyn PolicyStore) -> Model {
    let (mut model, cursor) = load(policies).await;
    follow(policies, &mut model, &cursor).await;
    model
}

#[tokio::test]
async fn restart_reads_no_page_from_the_store() {
    let folder = Folder::new();
    let store = store();
    apply(&*store, &changes_of_every_kind()).await;
    let path = folder.path("copy");
    let first = copied(&store, &path);
    assert_eq!(read(&first).await, Model::of(&changes_of_every_kind()));
    assert_eq!(store.pages(), 4);
    assert_eq!(first.store_reads(), 4 + 1, "the pages, and the changes after them");
    for round in 0..3 {
        let again = copied(&store, &path);
        assert_eq!(read(&again).await, Model::of(&changes_of_every_kind()));
        assert_eq!((store.pages(), again.store_reads()), (4, 2), "in round {round}");
    }
    let files: Vec<_> = std::fs::read_dir(folder.root()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["copy"]);
}

#[tokio::test]
async fn changes_since_the_copy_are_caught_up() {
    let folder = Folder::new();
    let store = store();
    let mut random = Random(3);
    let changes: Vec<PolicyChange> = (0..6000).map(|_| random.change()).collect();
    apply(&*store, &changes[..100]).await;
    let path = folder.path("copy");
    read(&copied(&store, &path)).await;
    let pages = store.pages();
    // Made while no reader followed, and more than one answer returns.
    apply(&*store, &changes[100..5000]).await;
    let second = copied(&store, &path);
    assert_eq!(read(&second).await, Model::of(&changes[..5000]));
    // Made while a reader follows.
    apply(&second, &changes[5000..]).await;
    assert_eq!(read(&second).await, Model::of(&changes));
    let third = copied(&store, &path);
    assert_eq!(read(&third).await, Model::of(&changes));
    assert_eq!(third.store_reads(), 2, "the copy was kept up to date");
    assert_eq!(store.pages(), pages);
}

#[tokio::test]
async fn copy_with_gap_is_dropped() {
    let folder = Folder::new();
    let store = Counted::new(Arc::new(SqliteArchive::in_memory().unwrap().policies_keeping(5)));
    apply(&*store, &changes_of_every_kind()).await;
    let path = folder.path("copy");
    read(&copied(&store, &path)).await;
    let later: Vec<PolicyChange> = (0..20).map(|index| block("al", &format!("other-{index}"))).collect();
    apply(&*store, &later).await;
    let all: Vec<PolicyChange> = changes_of_every_kind().into_iter().chain(later).collect();
    let pages = store.pages();
    assert_eq!(read(&copied(&store, &path)).await, Model::of(&all));
    assert_eq!(store.pages(), 2 * pages, "the store was read");
    assert_eq!(read(&copied(&store, &path)).await, Model::of(&all));
    assert_eq!(store.pages(), 2 * pages, "the copy was written again");
}

#[tokio::test]
async fn gap_found_while_following_drops_the_copy() {
    let folder = Folder::new();
    let store = Counted::new(Arc::new(SqliteArchive::in_memory().unwrap().policies_keeping(5)));
    let copied = copied(&store, &folder.path("copy"));
    let (_, cursor) = load(&copied).await;
    apply(&*store, &(0..20).map(|index| restrict(&format!("name-{index}"))).collect::<Vec<_>>()).await;
    assert_eq!(copied.since(cursor, 10).await.unwrap(), ChangesSince::Gap);
    assert!(!folder.path("copy").exists());
}

#[tokio::test]
async fn copy_of_another_store_is_not_used() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    apply(&*store, &changes_of_every_kind()).await;
    // The same store under other identities: its cursors alone would match all of these copies.
    for (round, identity) in (0..).zip(["one", "other", "on", "one", ""]) {
        for _ in 0..2 {
            let copied = LocalCopy::open(Arc::clone(&store) as Arc<dyn PolicyStore>, &path, identity);
            assert_eq!(read(&copied).await, Model::of(&changes_of_every_kind()));
            assert_eq!(store.pages(), 4 * (round + 1), "{identity}");
        }
    }
}

#[tokio::test]
async fn unavailable_store_is_unavailable_with_a_copy() {
    let folder = Folder::new();
    let store = store();
    apply(&*store, &changes_of_every_kind()).await;
    let path = folder.path("copy");
    read(&copied(&store, &path)).await;
    let (pages, copied) = (store.pages(), copied(&store, &path));
    store.unavailable.store(true, Ordering::SeqCst);
    assert_eq!(copied.snapshot(0).await, Err(Error::Unavailable(1000)));
    store.unavailable.store(false, Ordering::SeqCst);
    assert_eq!(read(&copied).await, Model::of(&changes_of_every_kind()));
    assert_eq!(store.pages(), pages, "the copy is still valid after the outage");
}

/// A copy with a snapshot and a log, and the state at each cursor.
async fn with_log(store: &Arc<Counted>, path: &Path) -> (HashMap<Cursor, Model>, Model) {
    let mut random = Random(11);
    apply(&**store, &changes_of_every_kind()).await;
    let copied = copied(store, path);
    let (mut model, mut cursor) = load(&copied).await;
    let mut states = HashMap::from([(cursor.clone(), model.clone())]);
    for _ in 0..6 {
        // Numbers take 8 KiB per change, which only makes the file longer.
        let single = std::iter::repeat_with(|| random.change())
            .filter(|change| !matches!(change, PolicyChange::RestrictMany(_) | PolicyChange::UnrestrictMany(_)));
        apply(&copied, &single.take(3).collect::<Vec<_>>()).await;
        cursor = follow(&copied, &mut model, &cursor).await;
        states.insert(cursor.clone(), model.clone());
    }
    (states, model)
}

/// A start with this file serves only the state at its cursor, and ends with the true state.
async fn harmless(store: &Arc<Counted>, path: &Path, states: &HashMap<Cursor, Model>, truth: &Model, what: &str) {
    let copied = copied(store, path);
    let (mut model, cursor) = load(&copied).await;
    assert_eq!(states.get(&cursor), Some(&model), "{what}");
    follow(&copied, &mut model, &cursor).await;
    assert_eq!(&model, truth, "{what}");
}

#[tokio::test]
async fn damaged_byte_is_harmless() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let (states, truth) = with_log(&store, &path).await;
    let whole = std::fs::read(&path).unwrap();
    let pages = store.pages();
    harmless(&store, &path, &states, &truth, "undamaged").await;
    assert_eq!(store.pages(), pages, "undamaged, it is used");
    // Most of the file is unused space, all zeros: every byte that is not, and some of those.
    let used = whole.iter().enumerate().filter(|(at, byte)| **byte != 0 || at % 61 == 0).map(|(at, _)| at);
    for (at, flip) in used.flat_map(|at| [0x01, 0x80, 0xff].map(|flip| (at, flip))) {
        let mut damaged = whole.clone();
        damaged[at] ^= flip;
        std::fs::write(&path, &damaged).unwrap();
        harmless(&store, &path, &states, &truth, &format!("byte {at} of {} by {flip}", whole.len())).await;
    }
}

#[tokio::test]
async fn truncated_file_is_harmless() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let (states, truth) = with_log(&store, &path).await;
    let whole = std::fs::read(&path).unwrap();
    for length in (0..=whole.len()).step_by(37).chain([whole.len() - 1, whole.len()]) {
        std::fs::write(&path, &whole[..length]).unwrap();
        harmless(&store, &path, &states, &truth, &format!("{length} of {}", whole.len())).await;
    }
}

/// A process that is killed within a transaction leaves SQLite's journal beside the file.
#[tokio::test]
async fn leftover_journal_is_harmless() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let (states, truth) = with_log(&store, &path).await;
    let whole = std::fs::read(&path).unwrap();
    for journal in [&b"not a journal"[..], &whole] {
        for copy in [&whole[..], &whole[..whole.len() / 2], b"not a database"] {
            std::fs::write(&path, copy).unwrap();
            std::fs::write(folder.path("copy-journal"), journal).unwrap();
            harmless(&store, &path, &states, &truth, "with a journal").await;
            harmless(&store, &path, &states, &truth, "after that").await;
        }
    }
}

#[tokio::test]
async fn second_process_drops_its_stale_copy() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let (mut states, mut truth) = with_log(&store, &path).await;
    let (first, second) = (copied(&store, &path), copied(&store, &path));
    let ((mut one, mut cursor), (_, other)) = (load(&first).await, load(&second).await);
    apply(&*store, &[restrict("new")]).await;
    cursor = follow(&first, &mut one, &cursor).await;
    follow(&second, &mut truth, &other).await;
    assert_eq!(one, truth, "each serves its own reader");
    states.insert(cursor, one);
    harmless(&store, &path, &states, &truth, "what both left").await;
}

#[tokio::test]
async fn process_killed_while_recording_is_harmless() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let (states, truth) = with_log(&store, &path).await;
    let whole = std::fs::read(&path).unwrap();
    for length in (0..=whole.len()).step_by(97) {
        std::fs::remove_file(&path).ok();
        std::fs::write(folder.path("copy.new"), &whole[..length]).unwrap();
        harmless(&store, &path, &states, &truth, &format!("{length} of {}", whole.len())).await;
        assert!(path.exists() && !folder.path("copy.new").exists());
    }
}

#[tokio::test]
async fn copy_damaged_while_read_falls_back_to_store() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    // Large enough for several groups of 256 KiB.
    let many: Vec<PolicyChange> =
        (0..200).map(|page| PolicyChange::RestrictMany(numbers(page, &[page, 65_535 - page, 65_535]))).collect();
    apply(&*store, &many).await;
    read(&copied(&store, &path)).await;
    let pages = store.pages();
    let copied = copied(&store, &path);
    let damage = |page: u32| {
        if page == 0 {
            let mut bytes = std::fs::read(&path).unwrap();
            let length = bytes.len();
            bytes[length / 2..].fill(0xee);
            std::fs::write(&path, bytes).unwrap();
        }
    };
    let (mut model, cursor) = load_with(&copied, async |page| damage(page)).await;
    assert!(store.pages() > pages);
    follow(&copied, &mut model, &cursor).await;
    assert_eq!(model, Model::of(&many));
}

#[tokio::test]
async fn concurrent_readers_leave_one_valid_copy() {
    for order in 0..64_u64 {
        let folder = Folder::new();
        let (store, path) = (store(), folder.path("copy"));
        apply(&*store, &changes_of_every_kind()).await;
        let copied = copied(&store, &path);
        let mut readers = [Some(0), Some(0)];
        let (mut random, mut changes) = (Random(order), changes_of_every_kind());
        for step in 0.. {
            let turn = usize::from(order >> (step % 6) & 1 == 1);
            let turn = if readers[turn].is_some() { turn } else { 1 - turn };
            let Some(page) = readers[turn] else { break };
            readers[turn] = copied.snapshot(page).await.unwrap().next;
            let change = random.change();
            apply(&*store, std::slice::from_ref(&change)).await;
            changes.push(change);
        }
        let pages = store.pages();
        assert_eq!(read(&self::copied(&store, &path)).await, Model::of(&changes), "order {order}");
        assert_eq!(store.pages(), pages, "order {order}: the copy was used");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn page_read_before_the_recording_is_left_out() {
    let folder = Folder::new();
    let inner: Arc<dyn PolicyStore> = Arc::new(SqliteArchive::in_memory().unwrap().policies());
    apply(&*inner, &[block("bob", "eve"), restrict("al")]).await;
    let second = inner.snapshot(0).await.unwrap().next.unwrap();
    let held = Some((second, Semaphore::new(0), Semaphore::new(0)));
    let (pages, unavailable) = (AtomicU64::new(0), AtomicBool::new(false));
    let store = Arc::new(Counted { inner, pages, unavailable, held });
    let (_, is_read, go_on) = store.held.as_ref().unwrap();
    let copied = Arc::new(copied(&store, &folder.path("copy")));

    let slow = tokio::spawn({
        let copied = Arc::clone(&copied);
        async move { copied.snapshot(second).await.unwrap() }
    });
    is_read.acquire().await.unwrap().forget();
    apply(&*store, &[restrict("mallory")]).await;
    assert_eq!(copied.snapshot(0).await.unwrap().next, Some(second));
    go_on.add_permits(1);
    assert_eq!(slow.await.unwrap().changes, [restrict("al")], "read before the change");
    go_on.add_permits(1);
    assert_eq!(copied.snapshot(second).await.unwrap().next, None);

    let all = [block("bob", "eve"), restrict("al"), restrict("mallory")];
    let pages = store.pages();
    assert_eq!(read(&self::copied(&store, &folder.path("copy"))).await, Model::of(&all));
    assert_eq!(store.pages(), pages);
}

#[tokio::test]
async fn unwritable_disk_costs_only_the_copy() {
    let folder = Folder::new();
    let store = store();
    apply(&*store, &changes_of_every_kind()).await;
    std::fs::create_dir(folder.path("a-folder")).unwrap();
    for path in [folder.path("missing/copy"), folder.path("a-folder")] {
        let copied = copied(&store, &path);
        for _ in 0..2 {
            let pages = store.pages();
            assert_eq!(read(&copied).await, Model::of(&changes_of_every_kind()));
            assert_eq!(store.pages(), pages + 4);
        }
    }
}

#[tokio::test]
async fn copy_with_overlong_log_is_written_again() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let copied = copied(&store, &path);
    let (mut model, mut cursor) = load(&copied).await;
    let small = std::fs::metadata(&path).unwrap().len();
    // A page of numbers takes a little more than 8 KiB, so that 16 MiB of log have about 2,000 of them.
    for round in 0..3000 {
        let number = numbers(7, &[round % 500]);
        let restricts = round / 500 % 2 == 0;
        let change = if restricts { PolicyChange::RestrictMany(number) } else { PolicyChange::UnrestrictMany(number) };
        apply(&copied, &[change]).await;
        cursor = follow(&copied, &mut model, &cursor).await;
    }
    let grown = std::fs::metadata(&path).unwrap().len();
    assert!(((16 << 20)..(48 << 20)).contains(&grown), "it stops growing at 16 MiB and SQLite's overhead: {grown}");
    let pages = store.pages();
    assert_eq!(read(&copied).await, model);
    assert!(store.pages() > pages, "the store was read");
    assert!(std::fs::metadata(&path).unwrap().len() < small + (64 << 10));
    let pages = store.pages();
    assert_eq!(read(&self::copied(&store, &path)).await, model);
    assert_eq!(store.pages(), pages, "the copy was written again");
}

#[tokio::test]
async fn copy_left_behind_follows_the_store_itself() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let copied = copied(&store, &path);
    load(&copied).await;
    // A reader that loaded elsewhere, so that none of its cursors is ever the copy's.
    apply(&*store, &[restrict("first"), restrict("second")]).await;
    let (_, mut cursor) = load(&*store).await;
    let mut all = vec![restrict("first"), restrict("second")];
    for index in 0..200 {
        let change = restrict(&format!("name-{index}"));
        apply(&*store, std::slice::from_ref(&change)).await;
        all.push(change);
        cursor = changes_since(&copied, &cursor, 10).await.1;
    }
    let written = std::fs::read(&path).unwrap();
    let has = |name: &str| written.windows(name.len()).any(|window| window == name.as_bytes());
    assert!(has("first") && has("name-60") && has("name-120"), "of {} bytes", written.len());
    let again = self::copied(&store, &path);
    assert_eq!(read(&again).await, Model::of(&all));
    assert_eq!(again.store_reads(), 2);
}
