//! A `heartbeat` that misbehaves on request: the device id says how. Every other device gets a normal answer, so that a test
//! can see which other calls are affected.

use rollcall_contract::guest::exports::heartbeat::heartbeat as export;
use rollcall_contract::guest::rules;
use rollcall_contract::guest::wit::types as wit;
use rollcall_core::State;
use rollcall_functions::Standing;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Component;
    rollcall_contract::guest::exports::heartbeat::export_heartbeat!(Component);
}

struct Component;

impl export::Guest for Component {
    async fn beat_many(beats: wit::Beats) -> Result<Vec<Result<wit::Standing, wit::Error>>, wit::Error> {
        let mut devices = beats.devices.text.as_str();
        for &length in &beats.devices.lengths {
            let (device, rest) = devices.split_at(usize::from(length));
            misbehave(device).await;
            devices = rest;
        }
        let standing = Standing { state: State::Online, version: 1 };
        let standing = wit::Standing::from((standing, &rules()));
        Ok(beats.details.iter().map(|_| Ok(standing)).collect())
    }

    async fn leave_many(_: Vec<wit::Departure>) -> Result<Vec<Result<wit::Standing, wit::Error>>, wit::Error> {
        Err(wit::Error::Denied)
    }

    async fn choose_many(_: Vec<wit::ChoiceRequest>) -> Result<Vec<Result<wit::ChoiceResult, wit::Error>>, wit::Error> {
        Err(wit::Error::Denied)
    }
}

async fn misbehave(how: &str) {
    match how {
        "trap" => std::process::abort(),
        "loop" => spin(),
        "hoard" => hoard(),
        "hang" => std::future::pending().await,
        _ => {}
    }
}

/// Computes for ever. The value of the counter decides, so that the loop is not optimised away.
fn spin() {
    let mut n = 1u64;
    while n != 0 {
        n = std::hint::black_box(n | 1);
    }
}

/// Takes memory until there is no more.
fn hoard() {
    let mut hoard = Vec::new();
    loop {
        hoard.push(std::hint::black_box(vec![1u8; 1 << 20]));
    }
}
