//! The reported size of a policy index against what the allocator handed out.

#![allow(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rollcall_core::UserId;
use rollcall_core::policy::{Audience, Numbers, PAGE_BYTES, PolicyChange, Privacy};
use rollcall_policy::PolicyIndex;

thread_local! {
    /// Bytes allocated by this thread, minus those freed: tests run in parallel.
    static ALLOCATED: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: i64) {
    ALLOCATED.set(ALLOCATED.get() + bytes);
}

#[expect(unsafe_code, reason = "an allocator is unsafe; this one forwards and counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn user(name: String) -> UserId {
    UserId::parse(name).expect("a fit id")
}

/// Asserts that the reported size is within 2 % of the allocated bytes.
fn assert_accurate(policy_index: &PolicyIndex, before: i64, when: &str) {
    let (said, taken) = (policy_index.bytes() as f64, (ALLOCATED.get() - before) as f64);
    assert!((said / taken - 1.0).abs() < 0.02, "{when}: {said} reported, {taken} allocated");
}

#[test]
fn reported_size_matches_allocations() {
    let before = ALLOCATED.get();
    let mut policy_index = PolicyIndex::new(5);
    assert_accurate(&policy_index, before, "empty");
    for number in 0..50_000_u32 {
        let pair = (user(format!("user-{number}")), user(format!("user-{}", number * 7 % 50_000)));
        policy_index.apply(&PolicyChange::Block(pair.0.clone(), pair.1.clone()));
        policy_index.apply(&PolicyChange::AddContact(pair.1, pair.0));
    }
    assert_accurate(&policy_index, before, "pairs");
    for number in 0..50_000_u32 {
        policy_index.apply(&PolicyChange::Restrict(user((number * 7919).to_string())));
        let privacy = Privacy { presence: Audience::Contacts, last_seen: Audience::Nobody };
        policy_index.apply(&PolicyChange::SetPrivacy(user(format!("hidden-{number}")), privacy));
    }
    for page in 0..100 {
        let numbers = Numbers::new(page, vec![0xff; PAGE_BYTES]).expect("fit bits");
        policy_index.apply(&PolicyChange::RestrictMany(numbers));
    }
    assert_accurate(&policy_index, before, "full");
    let full = policy_index.bytes();
    for number in 0..45_000_u32 {
        let pair = (user(format!("user-{number}")), user(format!("user-{}", number * 7 % 50_000)));
        policy_index.apply(&PolicyChange::Unblock(pair.0.clone(), pair.1.clone()));
        policy_index.apply(&PolicyChange::RemoveContact(pair.1, pair.0));
        policy_index.apply(&PolicyChange::SetPrivacy(user(format!("hidden-{number}")), Privacy::default()));
        policy_index.apply(&PolicyChange::Unrestrict(user((number * 7919).to_string())));
    }
    assert_accurate(&policy_index, before, "nearly empty again");
    assert!(policy_index.bytes() < full);
    drop(policy_index);
    assert_eq!(ALLOCATED.get(), before);
}
