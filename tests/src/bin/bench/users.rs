//! The users of the benchmarks: as many as needed, with ids as long as a UUID, in random order so that caches do not help.

use std::fmt::Write as _;

use rollcall_core::{DeviceId, DeviceKind, Invalid, UserId};
use rollcall_functions::heartbeat::Beat;

/// The device of every user.
pub(crate) const DEVICE: &str = "web-1";

/// The id of a user.
pub(crate) fn name(index: u64) -> String {
    format!("6f9619ff-8b86-d011-b42d-{index:012}")
}

/// A beat of a user.
pub(crate) fn beat(index: u64) -> Result<Beat, Invalid> {
    Ok(Beat {
        user: UserId::parse(name(index))?,
        device: DeviceId::parse(DEVICE)?,
        kind: DeviceKind::Web,
        active: true,
    })
}

/// An encoded HTTP/1.1 request of a user.
pub(crate) fn request(method: &str, path: &str, index: u64, body: &str) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nRollcall-User: {}\r\n", name(index));
    if !body.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(head, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    format!("{head}\r\n{body}").into_bytes()
}

/// The request for one beat of a user.
pub(crate) fn heartbeat(index: u64) -> Vec<u8> {
    request("POST", "/v1/heartbeat", index, &format!(r#"{{"device":"{DEVICE}","active":true}}"#))
}

/// The request for one beat of each user in a range.
pub(crate) fn heartbeats(indexes: std::ops::Range<u64>) -> Vec<u8> {
    let beats: Vec<String> =
        indexes.map(|index| format!(r#"{{"user":"{}","device":"{DEVICE}","active":true}}"#, name(index))).collect();
    request("POST", "/v1/heartbeats", 0, &format!(r#"{{"beats":[{}]}}"#, beats.join(",")))
}

/// The request for the presence of these users.
pub(crate) fn presences(indexes: impl Iterator<Item = u64>) -> Vec<u8> {
    let names: Vec<String> = indexes.map(|index| format!(r#""{}""#, name(index))).collect();
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
