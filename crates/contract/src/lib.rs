//! The contract: the bindings of `wit/`, and the conversion between its types and those of `rollcall-core`.
//!
//! - [`guest`] (feature `guest`): for components. Types, capabilities to import, functions to call, and the export side of
//!   functions and adapters, by `wit-bindgen`.
//! - `host` (feature `host`): the same types for the native host, by `wasmtime`.
//!
//! The two generators name types and fields alike, so one conversion, the folder `convert`, is compiled against both.
//! Another calling convention of the same contract is one more module like these two.
//!
//! Nothing in this crate decides anything.

#![allow(clippy::duplicate_mod, reason = "one conversion, compiled against the bindings of two generators")]

#[cfg(feature = "guest")]
pub mod guest;
#[cfg(feature = "host")]
pub mod host;
