//! A `heartbeat` that misbehaves on request: what a device is called says how. Any other device beats as if all were
//! well, so that a test can see who else suffers.

use rollcall_guest::wit::{settings, types};

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "heartbeat-function",
        with: {
            "rollcall:presence/types@0.1.0": rollcall_guest::wit::types,
            "rollcall:presence/settings@0.1.0": rollcall_guest::wit::settings,
            "rollcall:presence/sessions@0.1.0": rollcall_guest::wit::sessions,
        },
    });
    use super::Component;
    export!(Component);
}

use bindings::exports::rollcall::presence::heartbeat as wit;

struct Component;

impl wit::Guest for Component {
    async fn beat_many(beats: wit::Beats) -> Result<Vec<Result<wit::Standing, wit::Error>>, wit::Error> {
        let mut devices = beats.devices.text.as_str();
        for &length in &beats.devices.lengths {
            let (device, rest) = devices.split_at(usize::from(length));
            misbehave(device).await;
            devices = rest;
        }
        let next_beat_ms = settings::current().interval_ms;
        let standing = wit::Standing { state: types::State::Online, version: 1, next_beat_ms };
        Ok(beats.signs.iter().map(|_| Ok(standing)).collect())
    }

    async fn leave_many(_: Vec<wit::Departure>) -> Result<Vec<Result<wit::Standing, wit::Error>>, wit::Error> {
        Err(wit::Error::Denied)
    }

    async fn choose_many(_: Vec<wit::ChoiceRequest>) -> Result<Vec<Result<wit::Chosen, wit::Error>>, wit::Error> {
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

/// Computes for ever. The counter is volatile in effect: its value decides, so that the loop cannot be left out.
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
