//! The trigger by which Redis itself calls `offline-sweep`: a trigger of Spin's on the notifications of expired keys.
//!
//! Whose `alive` key expired is settled at once. It is the quick hint and not the guarantee: a notification may be late or
//! lost, and what fails here is put right by the next sweep. So a failure is logged, and is nobody's trouble.

use std::cell::OnceCell;
use std::fmt::Display;
use std::io::Write;
use std::rc::Rc;

use rollcall_redis::Keyspace;

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    spin_sdk::wit_bindgen::generate!({
        path: "../../../wit",
        inline: "
            package rollcall:triggers;
            world expiry {
                import rollcall:presence/config@0.1.0;
                import rollcall:presence/offline-sweep@0.1.0;
            }
        ",
        world: "rollcall:triggers/expiry",
        runtime_path: "spin_sdk::wit_bindgen::rt",
        generate_all,
    });
}

use bindings::rollcall::presence::{config, offline_sweep};

#[allow(unsafe_code, clippy::expect_used, reason = "generated: the function by which Spin calls")]
mod trigger {
    use std::convert::Infallible;

    /// Takes the name of a key that expired.
    #[spin_sdk::redis_subscriber]
    async fn expired(key: Vec<u8>) -> Result<(), Infallible> {
        super::settle(&key).await;
        Ok(())
    }
}

/// Settles the person whose `alive` key this is; any other key is passed over.
async fn settle(key: &[u8]) {
    if let (Some(keys), Ok(key)) = (keys(), std::str::from_utf8(key))
        && let Some(user) = keys.whose_alive(key)
        && let Err(error) = offline_sweep::settle(vec![user.to_owned()]).await
    {
        log(format_args!("an expiry could not be settled, and is left to the sweep: {error:?}"));
    }
}

/// The names of keys, as they are set up; none: they are not set up as they must be, and the log says why.
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
                log(format_args!("expiries are passed over, because of what is set: {wrong}"));
                None
            }
        }
    };
    KEYS.with(|keys| keys.get_or_init(read).clone())
}

/// Says something to whoever runs this. If nobody can be told, that is no reason to stop, as it would be with `eprintln`.
fn log(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
