//! What an adapter brings, and what was set by whoever deploys it.

use std::marker::PhantomData;
use std::rc::Rc;

use rollcall_core::{Error, Rules, Span, UserId};
use rollcall_functions::capabilities::{Archive, Policy, Sessions, Typing};
use rollcall_redis::{Options, options, rules};

use crate::bindings::exports::rollcall::presence::settings as wit;
use crate::bindings::rollcall::presence::config;
use crate::watch::Watch;

/// Makes the capabilities of the contract out of what a platform has.
#[allow(async_fn_in_trait, reason = "an adapter runs on one thread")]
pub trait Adapter: 'static {
    /// All that is answered without a stream.
    type Platform: Sessions + Archive + Policy + Typing;

    /// What this instance made of its settings, once; an error names the setting that is wrong.
    fn ready() -> Result<Rc<Ready<Self::Platform>>, String>;
}

/// An adapter that lets people be watched.
#[allow(async_fn_in_trait, reason = "an adapter runs on one thread")]
pub trait Watching: Adapter {
    /// People being watched.
    type Watch: Watch;

    /// Watches these people. Nobody is among them twice.
    async fn watch(users: Vec<UserId>) -> Result<Self::Watch, Error>;

    /// Goes on with this after the call in which it was begun has returned: `wit_bindgen`'s `spawn_local`, which is there only
    /// for a component that was built to do so.
    fn spawn(task: impl Future<Output = ()> + 'static);
}

/// What an instance made of its settings.
#[derive(Debug)]
pub struct Ready<P> {
    /// The rules in force.
    pub rules: Rules,
    /// The capabilities.
    pub platform: P,
}

/// The text set under this name; none if none is set.
pub fn setting(name: &str) -> Option<String> {
    config::get(name)
}

/// Reads the settings and makes the capabilities; nothing is connected yet.
pub fn ready<P>(make: impl FnOnce(Options) -> Result<P, String>) -> Result<Ready<P>, String> {
    let rules = rules(setting)?;
    let options = options(&setting, &rules)?;
    Ok(Ready { rules, platform: make(options)? })
}

/// The capabilities of this adapter, for as long as a call takes. While a setting is wrong every call says so.
pub(crate) fn platform_of<A: Adapter>() -> Result<Rc<Ready<A::Platform>>, Error> {
    A::ready().map_err(Error::Other)
}

/// An adapter, as the contract's exports.
pub struct Exports<A>(PhantomData<A>);

impl<A: Adapter> wit::Guest for Exports<A> {
    /// While a setting is wrong these are the product's own: the contract has no way to say so here, and whatever the
    /// function then asks for fails by the name of the setting.
    fn current() -> wit::Rules {
        rules_out(&A::ready().map_or(Rules::STANDARD, |ready| ready.rules))
    }
}

fn rules_out(rules: &Rules) -> wit::Rules {
    let ms = |span: Span| u32::try_from(span.0).unwrap_or(u32::MAX);
    wit::Rules {
        interval_ms: ms(rules.interval),
        tolerance_ms: ms(rules.tolerance),
        idle_after_ms: ms(rules.idle_after),
        grace_ms: ms(rules.grace),
        typing_ttl_ms: ms(rules.typing_ttl),
        evict_after_ms: ms(rules.evict_after),
        watch_limit: rules.watch_limit,
    }
}
