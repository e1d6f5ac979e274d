//! A store of policy with a copy on disk: a start costs the store nothing, and whatever happens to the file, nobody is
//! told anything that is not so.

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

use rollcall_core::policy::{Audience, Change, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, OwnSettings, Page};
use rollcall_store::{Answer, Copied, Policies, SqliteArchive};
use tokio::sync::{Semaphore, watch};

use folder::Folder;
use policy_suite::model::Model;
use policy_suite::{
    Random, Subject, add_contact, apply, block, changes_since, follow, load, load_with, numbers, restrict, set_privacy,
};

/// A store that counts what it is asked, may be away, and may be slow to hand out a page.
struct Counted {
    inner: Arc<dyn Policies>,
    pages: AtomicU64,
    away: AtomicBool,
    /// A page that is read but not handed out before the permit comes.
    held: Option<(u32, Semaphore, Semaphore)>,
}

impl Counted {
    fn new(inner: Arc<dyn Policies>) -> Arc<Self> {
        Arc::new(Self { inner, pages: AtomicU64::new(0), away: AtomicBool::new(false), held: None })
    }

    fn pages(&self) -> u64 {
        self.pages.load(Ordering::SeqCst)
    }

    fn there(&self) -> Result<(), Error> {
        if self.away.load(Ordering::SeqCst) { Err(Error::Unavailable(1000)) } else { Ok(()) }
    }
}

impl Policies for Counted {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Answer<'_, Vec<Relation>> {
        self.inner.relations(viewer, subjects)
    }

    fn settings_of(&self, user: UserId) -> Answer<'_, OwnSettings> {
        self.inner.settings_of(user)
    }

    fn snapshot(&self, page: u32) -> Answer<'_, Page> {
        Box::pin(async move {
            self.there()?;
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

    fn since(&self, cursor: Cursor, limit: u32) -> Answer<'_, ChangesSince> {
        Box::pin(async move {
            self.there()?;
            self.inner.since(cursor, limit).await
        })
    }

    fn apply_many(&self, changes: Vec<Change>) -> Answer<'_, Vec<Result<(), Error>>> {
        self.inner.apply_many(changes)
    }

    fn invalidated(&self) -> watch::Receiver<u64> {
        self.inner.invalidated()
    }
}

/// A copy, and the folder that it is in.
struct Housed(Copied, #[allow(dead_code, reason = "kept until the copy is dropped")] Folder);

impl Policies for Housed {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Answer<'_, Vec<Relation>> {
        self.0.relations(viewer, subjects)
    }
    fn settings_of(&self, user: UserId) -> Answer<'_, OwnSettings> {
        self.0.settings_of(user)
    }
    fn snapshot(&self, page: u32) -> Answer<'_, Page> {
        self.0.snapshot(page)
    }
    fn since(&self, cursor: Cursor, limit: u32) -> Answer<'_, ChangesSince> {
        self.0.since(cursor, limit)
    }
    fn apply_many(&self, changes: Vec<Change>) -> Answer<'_, Vec<Result<(), Error>>> {
        self.0.apply_many(changes)
    }
    fn invalidated(&self) -> watch::Receiver<u64> {
        self.0.invalidated()
    }
}

fn subject() -> Subject {
    let archive = SqliteArchive::in_memory().unwrap();
    let folder = Folder::new();
    let copied = Copied::open(Arc::new(archive.policies()), folder.path("copy"), "a store");
    Subject { policies: Arc::new(Housed(copied, folder)), elsewhere: Some(Arc::new(archive.policies())) }
}

policy_suite!(subject());

fn store() -> Arc<Counted> {
    Counted::new(Arc::new(SqliteArchive::in_memory().unwrap().policies()))
}

fn copied(store: &Arc<Counted>, path: &Path) -> Copied {
    Copied::open(Arc::clone(store) as Arc<dyn Policies>, path, "a store")
}

/// Something on each of the four sorts of pages that SQLite has.
fn something() -> Vec<Change> {
    vec![
        block("bob", "eve"),
        add_contact("bob", "al"),
        set_privacy("bob", Audience::Contacts, Audience::Nobody),
        restrict("mallory"),
        restrict("70000"),
        Change::RestrictMany(numbers(3, &[0, 9, 300])),
    ]
}

/// Loads everything and follows until nothing comes any more, as a reader does.
async fn read(policies: &dyn Policies) -> Model {
    let (mut model, cursor) = load(policies).await;
    follow(policies, &mut model, &cursor).await;
    model
}

#[tokio::test]
async fn a_restart_asks_the_store_for_no_page() {
    let folder = Folder::new();
    let store = store();
    apply(&*store, &something()).await;
    let path = folder.path("copy");
    let first = copied(&store, &path);
    assert_eq!(read(&first).await, Model::of(&something()));
    assert_eq!(store.pages(), 4);
    assert_eq!(first.store_reads(), 4 + 1, "its pages, and what came after them");
    for round in 0..3 {
        let again = copied(&store, &path);
        assert_eq!(read(&again).await, Model::of(&something()));
        assert_eq!((store.pages(), again.store_reads()), (4, 2), "in round {round}");
    }
    let files: Vec<_> = std::fs::read_dir(folder.root()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["copy"]);
}

#[tokio::test]
async fn what_changed_meanwhile_is_caught_up() {
    let folder = Folder::new();
    let store = store();
    let mut random = Random(3);
    let changes: Vec<Change> = (0..6000).map(|_| random.change()).collect();
    apply(&*store, &changes[..100]).await;
    let path = folder.path("copy");
    read(&copied(&store, &path)).await;
    let pages = store.pages();
    // Made while nobody followed, and more than one question brings.
    apply(&*store, &changes[100..5000]).await;
    let second = copied(&store, &path);
    assert_eq!(read(&second).await, Model::of(&changes[..5000]));
    // Made while somebody follows.
    apply(&second, &changes[5000..]).await;
    assert_eq!(read(&second).await, Model::of(&changes));
    let third = copied(&store, &path);
    assert_eq!(read(&third).await, Model::of(&changes));
    assert_eq!(third.store_reads(), 2, "the copy was kept up to date");
    assert_eq!(store.pages(), pages);
}

#[tokio::test]
async fn a_copy_that_the_store_cannot_continue_is_dropped() {
    let folder = Folder::new();
    let store = Counted::new(Arc::new(SqliteArchive::in_memory().unwrap().policies_keeping(5)));
    apply(&*store, &something()).await;
    let path = folder.path("copy");
    read(&copied(&store, &path)).await;
    let later: Vec<Change> = (0..20).map(|index| block("al", &format!("other-{index}"))).collect();
    apply(&*store, &later).await;
    let all: Vec<Change> = something().into_iter().chain(later).collect();
    let pages = store.pages();
    assert_eq!(read(&copied(&store, &path)).await, Model::of(&all));
    assert_eq!(store.pages(), 2 * pages, "the store was read");
    assert_eq!(read(&copied(&store, &path)).await, Model::of(&all));
    assert_eq!(store.pages(), 2 * pages, "and copied anew");
}

#[tokio::test]
async fn a_gap_found_by_whoever_follows_drops_the_copy_too() {
    let folder = Folder::new();
    let store = Counted::new(Arc::new(SqliteArchive::in_memory().unwrap().policies_keeping(5)));
    let copied = copied(&store, &folder.path("copy"));
    let (_, cursor) = load(&copied).await;
    apply(&*store, &(0..20).map(|index| restrict(&format!("name-{index}"))).collect::<Vec<_>>()).await;
    assert_eq!(copied.since(cursor, 10).await.unwrap(), ChangesSince::Gap);
    assert!(!folder.path("copy").exists());
}

#[tokio::test]
async fn a_copy_of_another_store_is_not_used() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    apply(&*store, &something()).await;
    // The same store under other names: by its cursors alone it would take all of these copies for its own.
    for (round, identity) in (0..).zip(["one", "other", "on", "one", ""]) {
        for _ in 0..2 {
            let copied = Copied::open(Arc::clone(&store) as Arc<dyn Policies>, &path, identity);
            assert_eq!(read(&copied).await, Model::of(&something()));
            assert_eq!(store.pages(), 4 * (round + 1), "{identity}");
        }
    }
}

#[tokio::test]
async fn a_store_that_is_away_is_away_with_a_copy_too() {
    let folder = Folder::new();
    let store = store();
    apply(&*store, &something()).await;
    let path = folder.path("copy");
    read(&copied(&store, &path)).await;
    let (pages, copied) = (store.pages(), copied(&store, &path));
    store.away.store(true, Ordering::SeqCst);
    assert_eq!(copied.snapshot(0).await, Err(Error::Unavailable(1000)));
    store.away.store(false, Ordering::SeqCst);
    assert_eq!(read(&copied).await, Model::of(&something()));
    assert_eq!(store.pages(), pages, "and the copy is still good when it comes back");
}

/// A copy with a snapshot and news, and the state at each cursor that it may be cut back to.
async fn with_news(store: &Arc<Counted>, path: &Path) -> (HashMap<Cursor, Model>, Model) {
    let mut random = Random(11);
    apply(&**store, &something()).await;
    let copied = copied(store, path);
    let (mut model, mut cursor) = load(&copied).await;
    let mut states = HashMap::from([(cursor.clone(), model.clone())]);
    for _ in 0..6 {
        // Numbers are told 8 KiB at a time, which only makes the file longer.
        let single = std::iter::repeat_with(|| random.change())
            .filter(|change| !matches!(change, Change::RestrictMany(_) | Change::UnrestrictMany(_)));
        apply(&copied, &single.take(3).collect::<Vec<_>>()).await;
        cursor = follow(&copied, &mut model, &cursor).await;
        states.insert(cursor.clone(), model.clone());
    }
    (states, model)
}

/// Whoever starts with this file is told nothing that was not so at the cursor, and ends with what is so.
async fn harmless(store: &Arc<Counted>, path: &Path, states: &HashMap<Cursor, Model>, truth: &Model, what: &str) {
    let copied = copied(store, path);
    let (mut model, cursor) = load(&copied).await;
    assert_eq!(states.get(&cursor), Some(&model), "{what}");
    follow(&copied, &mut model, &cursor).await;
    assert_eq!(&model, truth, "{what}");
}

#[tokio::test]
async fn a_damaged_byte_anywhere_is_harmless() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let (states, truth) = with_news(&store, &path).await;
    let whole = std::fs::read(&path).unwrap();
    let pages = store.pages();
    harmless(&store, &path, &states, &truth, "undamaged").await;
    assert_eq!(store.pages(), pages, "undamaged, it is used");
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            std::fs::write(&path, &damaged).unwrap();
            harmless(&store, &path, &states, &truth, &format!("byte {at} of {} by {flip}", whole.len())).await;
        }
    }
}

#[tokio::test]
async fn a_file_cut_off_anywhere_is_harmless() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let (states, truth) = with_news(&store, &path).await;
    let whole = std::fs::read(&path).unwrap();
    for length in 0..=whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        harmless(&store, &path, &states, &truth, &format!("{length} of {}", whole.len())).await;
    }
}

#[tokio::test]
async fn a_process_killed_while_it_copied_leaves_nothing_that_matters() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let (states, truth) = with_news(&store, &path).await;
    let whole = std::fs::read(&path).unwrap();
    for length in (0..=whole.len()).step_by(7) {
        std::fs::remove_file(&path).ok();
        std::fs::write(folder.path("copy.new"), &whole[..length]).unwrap();
        harmless(&store, &path, &states, &truth, &format!("{length} of {}", whole.len())).await;
        assert!(path.exists() && !folder.path("copy.new").exists());
    }
}

#[tokio::test]
async fn a_copy_damaged_while_it_is_read_is_completed_from_the_store() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    // Large enough for several parts of 256 KiB.
    let many: Vec<Change> =
        (0..200).map(|page| Change::RestrictMany(numbers(page, &[page, 65_535 - page, 65_535]))).collect();
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
async fn two_readers_at_once_leave_one_good_copy() {
    for order in 0..64_u64 {
        let folder = Folder::new();
        let (store, path) = (store(), folder.path("copy"));
        apply(&*store, &something()).await;
        let copied = copied(&store, &path);
        let mut readers = [Some(0), Some(0)];
        let (mut random, mut changes) = (Random(order), something());
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
async fn a_page_that_was_read_before_the_copy_was_begun_is_not_taken_into_it() {
    let folder = Folder::new();
    let inner: Arc<dyn Policies> = Arc::new(SqliteArchive::in_memory().unwrap().policies());
    apply(&*inner, &[block("bob", "eve"), restrict("al")]).await;
    let second = inner.snapshot(0).await.unwrap().next.unwrap();
    let held = Some((second, Semaphore::new(0), Semaphore::new(0)));
    let (pages, away) = (AtomicU64::new(0), AtomicBool::new(false));
    let store = Arc::new(Counted { inner, pages, away, held });
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
async fn a_disk_that_cannot_be_written_costs_only_the_copy() {
    let folder = Folder::new();
    let store = store();
    apply(&*store, &something()).await;
    std::fs::create_dir(folder.path("a-folder")).unwrap();
    for path in [folder.path("missing/copy"), folder.path("a-folder")] {
        let copied = copied(&store, &path);
        for _ in 0..2 {
            let pages = store.pages();
            assert_eq!(read(&copied).await, Model::of(&something()));
            assert_eq!(store.pages(), pages + 4);
        }
    }
}

#[tokio::test]
async fn a_copy_whose_news_outgrew_it_is_written_anew() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let copied = copied(&store, &path);
    let (mut model, mut cursor) = load(&copied).await;
    let small = std::fs::metadata(&path).unwrap().len();
    // A page of numbers is told in a little more than 8 KiB, so 16 MiB of news take about 2,000 of them.
    for round in 0..3000 {
        let number = numbers(7, &[round % 500]);
        let restricts = round / 500 % 2 == 0;
        let change = if restricts { Change::RestrictMany(number) } else { Change::UnrestrictMany(number) };
        apply(&copied, &[change]).await;
        cursor = follow(&copied, &mut model, &cursor).await;
    }
    let grown = std::fs::metadata(&path).unwrap().len();
    assert!(((16 << 20)..(17 << 20)).contains(&grown), "it ends to grow when it is too long: {grown}");
    let pages = store.pages();
    assert_eq!(read(&copied).await, model);
    assert!(store.pages() > pages, "the store was read");
    assert!(std::fs::metadata(&path).unwrap().len() < small + 20_000);
    let pages = store.pages();
    assert_eq!(read(&self::copied(&store, &path)).await, model);
    assert_eq!(store.pages(), pages, "and copied anew");
}

#[tokio::test]
async fn a_copy_that_nobody_follows_from_follows_by_itself() {
    let folder = Folder::new();
    let (store, path) = (store(), folder.path("copy"));
    let copied = copied(&store, &path);
    load(&copied).await;
    // A reader that came from elsewhere, so that none of its cursors is ever the copy's.
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
