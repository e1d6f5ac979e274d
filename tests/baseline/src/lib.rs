//! The minimal cost of a request on Spin: a component that asks Redis for one key.

// The macros of the SDK name it by its own name.
#[cfg(feature = "wasi-0.2")]
extern crate spin_sdk_0_2 as spin_sdk;

#[cfg(feature = "wasi-0.2")]
#[allow(unsafe_code, reason = "generated: the function by which Spin calls")]
mod wasi_0_2;
#[cfg(feature = "wasi")]
mod wasi_0_3;
