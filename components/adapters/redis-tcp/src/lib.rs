//! What the contract's functions ask of a platform, on one Redis over sockets of WASI 0.3: for any host that has those.
//!
//! Everything but `topics`, which is `redis-topics`'s: whoever tells of changes goes on after it has answered, and a component
//! that can do that takes a turn of the host's loop more every time that it waits.

use std::rc::Rc;

use rollcall_adapter::{Adapter, Exports};
use rollcall_platform::Platform;
use rollcall_sockets::{Prepared, Socket, prepared};

/// Redis by a socket.
struct RedisTcp;

impl Adapter for RedisTcp {
    type Platform = Platform<Socket>;

    fn ready() -> Result<Rc<Prepared>, String> {
        prepared()
    }
}

type Component = Exports<RedisTcp>;

#[allow(unsafe_code, reason = "generated from wit/")]
mod export {
    use super::Component;
    rollcall_adapter::bindings::export_platform!(Component);
}
