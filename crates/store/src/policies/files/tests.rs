//! Files that are written and read back, and invalid files.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rollcall_core::UserId;
use rollcall_core::policy::{Numbers, PolicyChange};
use tempfile::TempDir;

use super::*;
use crate::{PolicyStore, SqliteArchive, SqlitePolicies};

fn policies() -> SqlitePolicies {
    SqliteArchive::in_memory().unwrap().policies()
}

fn file(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("accounts");
    std::fs::write(&path, content).unwrap();
    (folder, path)
}

fn user(id: &str) -> UserId {
    UserId::parse(id).unwrap()
}

async fn apply(policies: &dyn PolicyStore, batches: Batches<'_>) {
    for batch in batches {
        for outcome in policies.apply_many(batch.unwrap()).await.unwrap() {
            outcome.unwrap();
        }
    }
}

async fn exported(policies: &dyn PolicyStore, format: Format) -> (Vec<u8>, Exported) {
    let mut bytes = Vec::new();
    let exported = export(policies, &mut bytes, format).await.unwrap();
    (bytes, exported)
}

fn all(batches: Batches<'_>) -> Vec<PolicyChange> {
    batches.flat_map(|batch| batch.unwrap()).collect()
}

/// Numbers near every page boundary, many of one page, and names; more than one batch of each.
fn ids() -> BTreeSet<String> {
    let boundaries = [0, 1, 7, 8, 65_535, 65_536, u32::MAX - 1, u32::MAX];
    let dense = (0..2000).map(|index| 500_000 + index * 3);
    let sparse = (0..3000).map(|index| index * 1_000_003);
    let names = (0..3000).map(|index| format!("name {index}")).chain(["007".to_owned(), "4294967296".to_owned()]);
    boundaries.into_iter().chain(dense).chain(sparse).map(|number: u32| number.to_string()).chain(names).collect()
}

#[tokio::test]
async fn imported_ids_are_exported() {
    let text: String = ids().iter().map(|id| format!("{id}\r\n")).collect();
    let (_folder, path) = file(text.as_bytes());
    let policies = policies();
    apply(&policies, read_ids(&path, ImportAction::Restrict, |_, _| {}).unwrap()).await;
    let (bytes, exported) = exported(&policies, Format::Ids).await;
    let lines: BTreeSet<String> = String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines, ids());
    assert_eq!(exported, Exported { accounts: ids().len() as u64, left_out: 0 });
}

#[tokio::test]
async fn import_lifts_restrictions() {
    let (_folder, path) = file(ids().into_iter().collect::<Vec<_>>().join("\n").as_bytes());
    let policies = policies();
    policies.apply_many(vec![PolicyChange::Restrict(user("9")), PolicyChange::Restrict(user("al"))]).await.unwrap();
    for action in [ImportAction::Restrict, ImportAction::Unrestrict] {
        apply(&policies, read_ids(&path, action, |_, _| {}).unwrap()).await;
    }
    assert_eq!(exported(&policies, Format::Ids).await.0, b"9\nal\n");
}

#[tokio::test]
async fn imported_bitmap_is_exported_without_names() {
    let mut bitmap = vec![0_u8; 300 * 8192];
    for index in (0..bitmap.len()).filter(|index| index % 8192 < 40 || *index > 299 * 8192) {
        bitmap[index] = (index % 251) as u8;
    }
    // Empty pages, and one with a single account.
    bitmap[8192..3 * 8192].fill(0);
    bitmap[2 * 8192 + 1] = 0x01;
    while bitmap.last() == Some(&0) {
        bitmap.pop();
    }
    let (_folder, path) = file(&bitmap);
    let policies = policies();
    apply(&policies, read_bitmap(&path, ImportAction::Restrict, |_, _| {}).unwrap()).await;
    policies.apply_many(vec![PolicyChange::Restrict(user("al")), PolicyChange::Restrict(user("007"))]).await.unwrap();
    let (bytes, exported_bits) = exported(&policies, Format::Bitmap).await;
    assert!(bytes == bitmap, "{} bytes, and {}", bytes.len(), bitmap.len());
    let ones = bitmap.iter().map(|byte| u64::from(byte.count_ones())).sum();
    assert_eq!(exported_bits, Exported { accounts: ones, left_out: 2 });
    let (text, _) = exported(&policies, Format::Ids).await;
    assert!(String::from_utf8(text).unwrap().lines().any(|line| line == (2 * 65_536 + 15).to_string()));
}

#[test]
fn many_numbers_of_a_page_become_one_change() {
    let dense: String = (0..100).map(|number| format!("{number}\n")).collect();
    let (_folder, path) = file(format!("{dense}70000\n70001\nal\n").as_bytes());
    let mut bits = vec![0xff; 12];
    bits.push(0xf0);
    let changes = all(read_ids(&path, ImportAction::Restrict, |_, _| {}).unwrap());
    let singles = ["70000", "70001", "al"].map(|id| PolicyChange::Restrict(user(id)));
    assert_eq!(changes[0], PolicyChange::RestrictMany(Numbers::new(0, bits).unwrap()));
    assert_eq!(changes[1..], singles);
}

#[test]
fn batches_are_bounded() {
    let (_folder, path) = file(&[0xff; 200 * 8192]);
    let batches: Vec<usize> =
        read_bitmap(&path, ImportAction::Restrict, |_, _| {}).unwrap().map(|batch| batch.unwrap().len()).collect();
    assert_eq!(batches, [64, 64, 64, 8]);
    let names: String = (0..5000).map(|index| format!("name-{index}\n")).collect();
    let (_folder, path) = file(names.as_bytes());
    let batches: Vec<usize> =
        read_ids(&path, ImportAction::Restrict, |_, _| {}).unwrap().map(|batch| batch.unwrap().len()).collect();
    assert!(batches.iter().all(|length| *length <= 1024) && batches.len() == 5, "{batches:?}");
    assert_eq!(batches.iter().sum::<usize>(), 5000);
}

#[test]
fn bad_lines_are_reported_before_any_batch() {
    let good: String = (0..5000).map(|index| format!("name-{index}\n")).collect();
    let (_folder, path) = file(format!("{good}a\u{1}b\n# fine\n{}\n", "x".repeat(129)).as_bytes());
    let Err(error) = read_ids(&path, ImportAction::Restrict, |_, _| {}) else { panic!("it was read") };
    assert_eq!(
        error.to_string(),
        "2 bad lines; line 5001 contains a control character; line 5003 is longer than 128 bytes"
    );
    let (_folder, path) = file("\u{1}\n".repeat(1000).as_bytes());
    let Err(FileError::BadLines { lines, count }) = read_ids(&path, ImportAction::Restrict, |_, _| {}) else {
        panic!()
    };
    assert_eq!((lines.len(), count), (MAX_REPORTED, 1000));
}

#[test]
fn file_changed_between_passes_gives_error() {
    let (_folder, path) = file(b"al\nbob\n");
    let mut batches = read_ids(&path, ImportAction::Restrict, |_, _| {}).unwrap();
    std::fs::write(&path, b"al\nb\x01\n").unwrap();
    assert!(matches!(batches.next(), Some(Err(FileError::BadLines { count: 1, .. }))));
    assert!(batches.next().is_none());
}

#[test]
fn bitmap_longer_than_all_numbers_is_refused() {
    let (_folder, path) = file(b"");
    std::fs::File::options().write(true).open(&path).unwrap().set_len((512 << 20) + 1).unwrap();
    assert!(matches!(read_bitmap(&path, ImportAction::Restrict, |_, _| {}), Err(FileError::TooLong(536_870_913))));
    assert!(matches!(read_bitmap(path.join("x"), ImportAction::Restrict, |_, _| {}), Err(FileError::Io(_))));
}

#[test]
fn progress_only_grows_and_reaches_the_end() {
    let names: String = (0..200_000).map(|index| format!("name-{index}\n")).collect();
    let numbers: String = (0..200_000).map(|index| format!("{}\n", index * 17)).collect();
    for (content, times) in [(names.clone() + &numbers, 2), (names, 2), (numbers, 2), ("# nothing\n".to_owned(), 2)] {
        let (_folder, path) = file(content.as_bytes());
        let mut seen = Vec::new();
        let batches = read_ids(&path, ImportAction::Restrict, |done, of| seen.push((done, of))).unwrap();
        all(batches);
        let of = times * content.len() as u64;
        assert!(seen.iter().all(|(_, total)| *total == of));
        assert!(seen.is_sorted());
        assert_eq!(seen.last(), Some(&(of, of)));
    }
}

#[tokio::test]
async fn empty_store_exports_empty_file() {
    for format in [Format::Ids, Format::Bitmap] {
        assert_eq!(exported(&policies(), format).await, (Vec::new(), Exported { accounts: 0, left_out: 0 }));
    }
}

#[tokio::test]
async fn inexpressible_names_are_left_out_and_counted() {
    let policies = policies();
    let names = ["#1", " padded ", "plain"].map(|id| PolicyChange::Restrict(user(id)));
    policies.apply_many(names.to_vec()).await.unwrap();
    let expected = (b"plain\n".to_vec(), Exported { accounts: 1, left_out: 2 });
    assert_eq!(exported(&policies, Format::Ids).await, expected);
}
