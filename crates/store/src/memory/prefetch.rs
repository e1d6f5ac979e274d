//! Asks for memory before it is needed.

/// The bytes that a processor fetches at once.
const LINE: usize = 64;

/// Starts fetching a value, and goes on without waiting. A hint: it changes nothing but the time that reading the value
/// takes later. Where the processor has no stable intrinsic for it, nothing happens.
#[inline]
pub(super) fn prefetch<T>(value: &T) {
    for offset in (0..size_of::<T>()).step_by(LINE) {
        line(std::ptr::from_ref(value).cast::<i8>().wrapping_add(offset));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "the intrinsic takes any address whatever: a prefetch neither faults nor reads")]
fn line(address: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
}

#[cfg(not(target_arch = "x86_64"))]
fn line(_address: *const i8) {}
