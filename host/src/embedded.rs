//! What the binary contains: the functions, compiled ahead of time by `precompile`, and the console. Only `main` uses this
//! file, so the library and `precompile` can be built before any component.

include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The compiled component of a function.
pub(crate) fn component(function: &str) -> Option<&'static [u8]> {
    match function {
        "heartbeat" => Some(include_bytes!(concat!(env!("ROLLCALL_COMPONENTS"), "/heartbeat.cwasm"))),
        "offline-sweep" => Some(include_bytes!(concat!(env!("ROLLCALL_COMPONENTS"), "/offline-sweep.cwasm"))),
        "query" => Some(include_bytes!(concat!(env!("ROLLCALL_COMPONENTS"), "/query.cwasm"))),
        "restriction-check" => Some(include_bytes!(concat!(env!("ROLLCALL_COMPONENTS"), "/restriction-check.cwasm"))),
        "subscribe" => Some(include_bytes!(concat!(env!("ROLLCALL_COMPONENTS"), "/subscribe.cwasm"))),
        "typing" => Some(include_bytes!(concat!(env!("ROLLCALL_COMPONENTS"), "/typing.cwasm"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_in_the_binary() {
        for function in rollcall_host::config::FUNCTIONS {
            assert!(component(function).is_some(), "{function}");
        }
    }
}
