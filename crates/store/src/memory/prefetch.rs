//! Prefetches memory.

/// The bytes of a cache line.
const LINE: usize = 64;

/// Starts fetching a value without waiting for it. Only a hint; without a stable intrinsic for the processor it does nothing.
#[inline]
pub(super) fn prefetch<T>(value: &T) {
    for offset in (0..size_of::<T>()).step_by(LINE) {
        line(std::ptr::from_ref(value).cast::<i8>().wrapping_add(offset));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "the intrinsic accepts any address: a prefetch neither faults nor reads")]
fn line(address: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
}

#[cfg(not(target_arch = "x86_64"))]
fn line(_address: *const i8) {}
