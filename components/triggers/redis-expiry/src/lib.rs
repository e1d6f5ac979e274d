//! The trigger of `offline-sweep` for expired keys: Spin's Redis trigger calls it with the name of a key.
//!
//! The user whose `alive` key expired is settled at once. This is a hint, not the guarantee: a notification may be late or
//! lost, and the next sweep settles what failed here. So a failure is only logged.

#[cfg(feature = "wasi-rc")]
extern crate spin_sdk_rc as spin_sdk;

use std::cell::OnceCell;
use std::fmt::Display;
use std::io::Write;
use std::rc::Rc;

use rollcall_contract::guest::wit::{config, offline_sweep};
use rollcall_contract::{call, lent};
use rollcall_redis::Keyspace;

#[cfg(not(feature = "wasi-0.2"))]
#[allow(unsafe_code, clippy::expect_used, reason = "generated: the function by which Spin calls")]
mod trigger {
    use std::convert::Infallible;

    /// Receives the name of an expired key.
    #[spin_sdk::redis_subscriber]
    async fn expired(key: Vec<u8>) -> Result<(), Infallible> {
        super::settle(&key).await;
        Ok(())
    }
}

#[cfg(feature = "wasi-0.2")]
#[allow(missing_docs, unsafe_code, reason = "generated: the function by which Spin calls")]
mod trigger {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package rollcall:triggers;
            world redis-expiry {
                export fermyon:spin/inbound-redis;
            }
        ",
        world: "rollcall:triggers/redis-expiry",
        generate_all,
    });
    use exports::fermyon::spin::inbound_redis::{Error, Guest};

    struct Component;

    export!(Component);

    impl Guest for Component {
        fn handle_message(key: Vec<u8>) -> Result<(), Error> {
            rollcall_contract::guest::run(super::settle(&key));
            Ok(())
        }
    }
}

/// Settles the user whose `alive` key this is. Other keys are ignored.
async fn settle(key: &[u8]) {
    if let (Some(keys), Ok(key)) = (keys(), std::str::from_utf8(key))
        && let Some(user) = keys.user_of_alive_key(key)
        && let Err(error) = call!(offline_sweep::settle(lent!(Vec::from([user.to_owned()]))))
    {
        log(format_args!("settling an expired user failed; the sweep tries again: {error:?}"));
    }
}

/// The configured names of keys; `None` if a setting is invalid, which is logged.
fn keys() -> Option<Rc<Keyspace>> {
    thread_local! {
        static KEYS: OnceCell<Option<Rc<Keyspace>>> = const { OnceCell::new() };
    }
    let read = || {
        let get = |name: &str| config::get(name);
        let set = rollcall_redis::rules(get).and_then(|rules| rollcall_redis::options(&get, &rules));
        match set {
            Ok(options) => Some(Rc::new(Keyspace::of_hosts(options.shards))),
            Err(wrong) => {
                log(format_args!("invalid settings; ignoring expired keys: {wrong}"));
                None
            }
        }
    };
    KEYS.with(|keys| keys.get_or_init(read).clone())
}

/// Writes a log line. Unlike `eprintln`, it does not panic if that fails.
fn log(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
