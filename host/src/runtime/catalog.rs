//! The components of this process: those in the binary, and those given in their place.

use std::path::{Path, PathBuf};

use rollcall_contract::host::functions::heartbeat::{HeartbeatFunction, HeartbeatFunctionPre};
use rollcall_contract::host::functions::offline_sweep::{OfflineSweepFunction, OfflineSweepFunctionPre};
use rollcall_contract::host::functions::query::{QueryFunction, QueryFunctionPre};
use rollcall_contract::host::functions::restriction_check::{RestrictionCheckFunction, RestrictionCheckFunctionPre};
use rollcall_contract::host::functions::subscribe::{SubscribeFunction, SubscribeFunctionPre};
use rollcall_contract::host::functions::typing::{TypingFunction, TypingFunctionPre};
use rollcall_contract::host::wit::policy;
use thiserror::Error;
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use super::instance_queue::try_instantiate;
use super::platform::{Capabilities, Platform, StoreData};

/// Where a component comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Compiled ahead of time by the `precompile` program of this very build.
    Compiled(&'static [u8]),
    /// A `.wasm` file, compiled at start.
    File(PathBuf),
}

/// Why a component cannot serve.
#[derive(Debug, Error)]
pub enum Misfit {
    /// There is no function of that name.
    #[error(
        "there is no function named `{0}`; there are heartbeat, query, subscribe, typing, restriction-check and offline-sweep"
    )]
    Unknown(String),
    /// It cannot be read.
    #[error("cannot read component {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is not a component.
    #[error("{what} is not a WebAssembly component: {error:#}")]
    NotAComponent {
        /// Which one.
        what: String,
        /// Why.
        error: wasmtime::Error,
    },
    /// It imports something that its world does not have.
    #[error("component for `{function}` does not fit its world: an import is missing: {error:#}")]
    Import {
        /// Which function it was to be.
        function: String,
        /// Which import, and why.
        error: wasmtime::Error,
    },
    /// It cannot be instantiated within the limits.
    #[error("component for `{function}` cannot be instantiated: {error:#}")]
    NotInstantiable {
        /// Which function it was to be.
        function: String,
        /// Why.
        error: wasmtime::Error,
    },
    /// It does not export what its function is.
    #[error("component for `{function}` does not fit its world: an export is missing or of another type: {error:#}")]
    Export {
        /// Which function it was to be.
        function: String,
        /// Which export, and why.
        error: wasmtime::Error,
    },
}

/// Every function, type-checked and ready to be instantiated.
#[derive(Clone)]
pub struct Catalog {
    pub(crate) heartbeat: HeartbeatFunctionPre<StoreData>,
    pub(crate) query: QueryFunctionPre<StoreData>,
    pub(crate) subscribe: SubscribeFunctionPre<StoreData>,
    pub(crate) typing: TypingFunctionPre<StoreData>,
    pub(crate) restriction_check: RestrictionCheckFunctionPre<StoreData>,
    pub(crate) offline_sweep: OfflineSweepFunctionPre<StoreData>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").finish_non_exhaustive()
    }
}

impl Catalog {
    /// Loads each function from its source, by name. Each gets the imports of its world and no more: a replacement of
    /// `heartbeat` cannot reach the archive. A component whose world imports `restriction-check` may have that composed in,
    /// and then imports `policy` instead.
    pub fn load(engine: &Engine, source: impl Fn(&str) -> Source) -> Result<Self, Misfit> {
        let link = |function: &str, provide: fn(&mut Linker<StoreData>) -> wasmtime::Result<()>| {
            let component = component(engine, &source(function))?;
            let mut linker = Linker::new(engine);
            let linked = provide(&mut linker).and_then(|()| linker.instantiate_pre(&component));
            linked.map_err(|error| Misfit::Import { function: function.to_owned(), error })
        };
        let export = |function: &str, error| Misfit::Export { function: function.to_owned(), error };
        let heartbeat = link("heartbeat", |l| HeartbeatFunction::add_to_linker::<_, Capabilities>(l, |data| data))?;
        let query = link("query", |l| {
            QueryFunction::add_to_linker::<_, Capabilities>(l, |data| data).and_then(|()| add_policy(l))
        })?;
        let subscribe = link("subscribe", |l| {
            SubscribeFunction::add_to_linker::<_, Capabilities>(l, |data| data).and_then(|()| add_policy(l))
        })?;
        let typing = link("typing", |l| {
            TypingFunction::add_to_linker::<_, Capabilities>(l, |data| data).and_then(|()| add_policy(l))
        })?;
        let check =
            link("restriction-check", |l| RestrictionCheckFunction::add_to_linker::<_, Capabilities>(l, |data| data))?;
        let sweep = link("offline-sweep", |l| OfflineSweepFunction::add_to_linker::<_, Capabilities>(l, |data| data))?;
        Ok(Self {
            heartbeat: HeartbeatFunctionPre::new(heartbeat).map_err(|error| export("heartbeat", error))?,
            query: QueryFunctionPre::new(query).map_err(|error| export("query", error))?,
            subscribe: SubscribeFunctionPre::new(subscribe).map_err(|error| export("subscribe", error))?,
            typing: TypingFunctionPre::new(typing).map_err(|error| export("typing", error))?,
            restriction_check: RestrictionCheckFunctionPre::new(check)
                .map_err(|error| export("restriction-check", error))?,
            offline_sweep: OfflineSweepFunctionPre::new(sweep).map_err(|error| export("offline-sweep", error))?,
        })
    }

    /// Creates one instance of each and drops it, so that a component that cannot be instantiated is refused at start.
    pub async fn try_instantiate(&self, engine: &Engine, platform: &Platform) -> Result<(), Misfit> {
        let refused = |function: &str, error| Misfit::NotInstantiable { function: function.to_owned(), error };
        let tried = try_instantiate::<HeartbeatFunction>(engine, &self.heartbeat, platform).await;
        tried.map_err(|error| refused("heartbeat", error))?;
        let tried = try_instantiate::<QueryFunction>(engine, &self.query, platform).await;
        tried.map_err(|error| refused("query", error))?;
        let tried = try_instantiate::<SubscribeFunction>(engine, &self.subscribe, platform).await;
        tried.map_err(|error| refused("subscribe", error))?;
        let tried = try_instantiate::<TypingFunction>(engine, &self.typing, platform).await;
        tried.map_err(|error| refused("typing", error))?;
        let tried = try_instantiate::<RestrictionCheckFunction>(engine, &self.restriction_check, platform).await;
        tried.map_err(|error| refused("restriction-check", error))?;
        let tried = try_instantiate::<OfflineSweepFunction>(engine, &self.offline_sweep, platform).await;
        tried.map_err(|error| refused("offline-sweep", error))
    }
}

/// The imports of `restriction-check`, for a component that has it composed in.
fn add_policy(linker: &mut Linker<StoreData>) -> wasmtime::Result<()> {
    policy::add_to_linker::<_, Capabilities>(linker, |data| data)
}

fn component(engine: &Engine, source: &Source) -> Result<Component, Misfit> {
    match source {
        Source::Compiled(bytes) => deserialize(engine, bytes),
        Source::File(path) => compile(engine, path),
    }
}

fn compile(engine: &Engine, path: &Path) -> Result<Component, Misfit> {
    let bytes = std::fs::read(path).map_err(|error| Misfit::Unreadable { path: path.to_owned(), error })?;
    Component::from_binary(engine, &bytes)
        .map_err(|error| Misfit::NotAComponent { what: path.display().to_string(), error })
}

#[allow(unsafe_code, reason = "the bytes were compiled by this build's own `precompile` and are part of the binary")]
fn deserialize(engine: &Engine, bytes: &'static [u8]) -> Result<Component, Misfit> {
    // SAFETY: `Source::Compiled` is only made from what `precompile` wrote for this build; wasmtime checks version and
    // settings, and the bytes cannot have been changed since, being inside this executable.
    unsafe { Component::deserialize(engine, bytes) }
        .map_err(|error| Misfit::NotAComponent { what: "a component in this binary".to_owned(), error })
}
