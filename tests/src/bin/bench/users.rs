//! The users of the benchmarks: as many as needed, with ids as long as a UUID, in random order so that caches do not help.

use std::fmt::Write as _;

use rollcall_core::{DeviceId, DeviceKind, Invalid, UserId};
use rollcall_functions::heartbeat::Beat;

/// The device of every user.
pub(crate) const DEVICE: &str = "web-1";

/// The id of a user.
pub(crate) fn name(person: u64) -> String {
    format!("6f9619ff-8b86-d011-b42d-{person:012}")
}

/// A beat of a user.
pub(crate) fn beat(person: u64) -> Result<Beat, Invalid> {
    Ok(Beat {
        user: UserId::parse(name(person))?,
        device: DeviceId::parse(DEVICE)?,
        kind: DeviceKind::Web,
        active: true,
    })
}

/// An encoded HTTP/1.1 request of a user.
pub(crate) fn request(method: &str, path: &str, person: u64, body: &str) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nRollcall-User: {}\r\n", name(person));
    if !body.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(head, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    format!("{head}\r\n{body}").into_bytes()
}

/// The request for one beat of a user.
pub(crate) fn heartbeat(person: u64) -> Vec<u8> {
    request("POST", "/v1/heartbeat", person, &format!(r#"{{"device":"{DEVICE}","active":true}}"#))
}

/// The request for one beat of each user in a range.
pub(crate) fn heartbeats(people: std::ops::Range<u64>) -> Vec<u8> {
    let beats: Vec<String> =
        people.map(|person| format!(r#"{{"user":"{}","device":"{DEVICE}","active":true}}"#, name(person))).collect();
    request("POST", "/v1/heartbeats", 0, &format!(r#"{{"beats":[{}]}}"#, beats.join(",")))
}

/// The request for the presence of these users.
pub(crate) fn presences(people: impl Iterator<Item = u64>) -> Vec<u8> {
    let names: Vec<String> = people.map(|person| format!(r#""{}""#, name(person))).collect();
    request("POST", "/v1/presence", 0, &format!(r#"{{"users":[{}]}}"#, names.join(",")))
}

/// Xorshift: the same users in every run, in random order.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
