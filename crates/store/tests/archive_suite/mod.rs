//! The suite of every archive: each claim of `wit/archive.wit` is a function that takes an empty archive.
//!
//! To test an archive, implement [`Subject`] for it and call `archive_suite!`. The macro lists every claim once; an
//! unlisted one is dead code, which the lints refuse.

use std::sync::Arc;
use std::time::Duration;

use rollcall_core::{Error, Time, UserId};
use rollcall_functions::capabilities::LastSeenEntry;
use rollcall_functions::capabilities::MAX_LAST_SEEN_ENTRIES;
use rollcall_store::ArchiveStore;
use tokio::task::JoinSet;

/// An empty database for one test.
pub(crate) trait Subject: Send + Sync + 'static {
    /// Opens the archive. Opening it again finds the stored data.
    fn open(&self) -> impl Future<Output = Arc<dyn ArchiveStore>> + Send;
}

/// Makes a test of every claim; `$subject` creates an empty database for each.
#[macro_export]
macro_rules! archive_suite {
    ($subject:expr) => {
        $crate::archive_suite! { @list $subject;
            last_seen_never_moves_backwards,
            answers_are_in_request_order,
            times_have_millisecond_precision,
            far_future_time_is_clamped,
            user_ids_are_compared_byte_for_byte,
            empty_calls_are_answered,
            oversized_batches_are_refused,
            full_batch_is_stored_and_answered_in_order,
            reopened_archive_has_its_data,
            abandoned_calls_do_no_harm,
            concurrent_readers_and_writers_stay_consistent,
        }
    };
    (@list $subject:expr; $($claim:ident,)*) => {
        mod claims {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $claim() {
                    $crate::archive_suite::$claim(&$subject).await;
                }
            )*
        }
    };
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub(crate) fn seen(name: &str, at: u64) -> LastSeenEntry {
    LastSeenEntry { user: user(name), last_seen: Time(at) }
}

pub(crate) async fn get(archive: &dyn ArchiveStore, name: &str) -> Option<u64> {
    get_many(archive, &[name]).await[0]
}

async fn get_many(archive: &dyn ArchiveStore, names: &[&str]) -> Vec<Option<u64>> {
    let answers = archive.get_many(names.iter().copied().map(user).collect()).await.unwrap();
    answers.into_iter().map(|time| time.map(|time| time.0)).collect()
}

pub(crate) async fn last_seen_never_moves_backwards(subject: &impl Subject) {
    let archive = subject.open().await;
    for (at, expected) in [(5, 5), (3, 5), (5, 5), (9, 9), (0, 9)] {
        archive.put_many(vec![seen("bob", at)]).await.unwrap();
        assert_eq!(get(&*archive, "bob").await, Some(expected), "after {at}");
    }
    archive.put_many(vec![seen("eve", 1), seen("eve", 4), seen("eve", 2)]).await.unwrap();
    assert_eq!(get(&*archive, "eve").await, Some(4), "also within one call");
    archive.put_many(vec![seen("bob", 8), seen("eve", 5), seen("new", 1)]).await.unwrap();
    assert_eq!(
        get_many(&*archive, &["bob", "eve", "new"]).await,
        [Some(9), Some(5), Some(1)],
        "each user independently"
    );
}

pub(crate) async fn answers_are_in_request_order(subject: &impl Subject) {
    let archive = subject.open().await;
    archive.put_many(vec![seen("a", 1), seen("b", 2), seen("é", 3)]).await.unwrap();
    let answers = get_many(&*archive, &["b", "absent", "a", "b", "é", "absent"]).await;
    assert_eq!(answers, [Some(2), None, Some(1), Some(2), Some(3), None]);
}

pub(crate) async fn times_have_millisecond_precision(subject: &impl Subject) {
    let archive = subject.open().await;
    // Around the epoch of PostgreSQL, this century, and the last millisecond with a year of four digits.
    let times = [0, 1, 999, 946_684_799_999, 946_684_800_001, 1_700_000_000_123, 253_402_300_799_999];
    for at in times {
        archive.put_many(vec![seen(&format!("at-{at}"), at)]).await.unwrap();
    }
    for at in times {
        assert_eq!(get(&*archive, &format!("at-{at}")).await, Some(at));
    }
}

pub(crate) async fn far_future_time_is_clamped(subject: &impl Subject) {
    let archive = subject.open().await;
    archive.put_many(vec![seen("bob", u64::MAX), seen("ann", 7)]).await.unwrap();
    let end = get(&*archive, "bob").await;
    assert!(end > Some(253_402_300_799_999), "{end:?}");
    archive.put_many(vec![seen("bob", u64::MAX - 1)]).await.unwrap();
    assert_eq!(get_many(&*archive, &["bob", "ann"]).await, [end, Some(7)]);
}

pub(crate) async fn user_ids_are_compared_byte_for_byte(subject: &impl Subject) {
    let archive = subject.open().await;
    // Two encodings of é, upper and lower case, spaces at the ends, and characters special in SQL and in arrays.
    let names =
        ["é", "e\u{301}", "Bob", "bob", "bob ", " bob", "NULL", "'; --", "{a,b}", "\"", "\\", "%", "ß", "ss", "😀"];
    archive.put_many((1..).zip(names).map(|(at, name)| seen(name, at)).collect()).await.unwrap();
    let expected: Vec<_> = (1..).take(names.len()).map(Some).collect();
    assert_eq!(get_many(&*archive, &names).await, expected);
    let longest = "x".repeat(128);
    archive.put_many(vec![seen(&longest, 1)]).await.unwrap();
    assert_eq!(get_many(&*archive, &[&longest, &longest[1..]]).await, [Some(1), None]);
}

pub(crate) async fn empty_calls_are_answered(subject: &impl Subject) {
    let archive = subject.open().await;
    archive.put_many(Vec::new()).await.unwrap();
    assert!(archive.get_many([].into()).await.unwrap().is_empty());
}

pub(crate) async fn oversized_batches_are_refused(subject: &impl Subject) {
    let archive = subject.open().await;
    let too_many = Error::TooMany(MAX_LAST_SEEN_ENTRIES as u32);
    assert_eq!(archive.put_many(vec![seen("bob", 1); MAX_LAST_SEEN_ENTRIES + 1]).await, Err(too_many.clone()));
    assert_eq!(archive.get_many(vec![user("bob"); MAX_LAST_SEEN_ENTRIES + 1].iter().collect()).await, Err(too_many));
    assert_eq!(get(&*archive, "bob").await, None);
}

pub(crate) async fn full_batch_is_stored_and_answered_in_order(subject: &impl Subject) {
    let archive = subject.open().await;
    let name = |index: usize| format!("user-{}", index * 7919 % MAX_LAST_SEEN_ENTRIES);
    let entries = (0..MAX_LAST_SEEN_ENTRIES).map(|index| seen(&name(index), index as u64)).collect();
    archive.put_many(entries).await.unwrap();
    let answers = archive.get_many((0..MAX_LAST_SEEN_ENTRIES).map(|index| user(&name(index))).collect()).await.unwrap();
    assert!(answers.into_iter().eq((0..MAX_LAST_SEEN_ENTRIES as u64).map(|at| Some(Time(at)))));
}

pub(crate) async fn reopened_archive_has_its_data(subject: &impl Subject) {
    for round in 1..=3 {
        let archive = subject.open().await;
        assert_eq!(get(&*archive, "bob").await, (round > 1).then_some(round - 1));
        archive.put_many(vec![seen("bob", round)]).await.unwrap();
    }
}

pub(crate) async fn abandoned_calls_do_no_harm(subject: &impl Subject) {
    let archive = subject.open().await;
    drop(archive.put_many(vec![seen("never-polled", 1)]));
    drop(tokio::time::timeout(Duration::ZERO, archive.put_many(vec![seen("bob", 1)])).await);
    archive.put_many(vec![seen("bob", 2)]).await.unwrap();
    drop(tokio::time::timeout(Duration::ZERO, archive.get_many([user("bob")].into())).await);
    assert_eq!(get(&*archive, "bob").await, Some(2));
    assert_eq!(get(&*archive, "never-polled").await, None);
}

pub(crate) async fn concurrent_readers_and_writers_stay_consistent(subject: &impl Subject) {
    let archive = subject.open().await;
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let (writer, reader) = (Arc::clone(&archive), Arc::clone(&archive));
        tasks.spawn(async move {
            let own = format!("user-{task}");
            for at in 1..=50 {
                writer.put_many(vec![seen("shared", at), seen(&own, at)]).await.unwrap();
                // An acknowledged write is visible to every later read.
                assert!(get(&*writer, &own).await >= Some(at));
            }
        });
        tasks.spawn(async move {
            let mut last = None;
            for _ in 0..200 {
                let now = get(&*reader, "shared").await;
                assert!(now >= last, "{now:?} after {last:?}");
                last = now;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(get(&*archive, "shared").await, Some(50));
}
