//! Maps a user or conversation to a shard. All stores use this function: the embedded store locks by shard, and Redis
//! uses the shard as hash tag. Stored data depend on it, so it must never change.
//!
//! It is not a library's hasher because those may change, and because it runs for every heartbeat: it reads eight bytes
//! at a time, which is four times as fast as FNV-1a or CRC-16 for a UUID.
//!
//! It is not keyed: users who choose their ids can choose their shard. That costs lock contention only; the tables
//! inside a shard are keyed.

/// The default number of shards: far more than cores or Redis nodes, so that locks rarely contend and a Cluster is
/// balanced; few enough to scan all.
pub const DEFAULT_SHARDS: u32 = 256;

/// An odd constant without structure: the golden ratio's fraction times 2^64.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// The multiplier of MurmurHash3's finaliser, chosen there for its avalanche.
const FACTOR: u64 = 0xff51_afd7_ed55_8ccd;

/// The shard of a user or a conversation among `shards`, from 0 up. Zero shards count as one.
///
/// The bytes are read as little-endian words of eight, the last one padded with zeros and always present; the length
/// goes in first, so that padding is never mistaken for content.
pub fn shard_of(name: &str, shards: u32) -> u32 {
    let (words, rest) = name.as_bytes().as_chunks::<8>();
    let mut hash = SEED ^ name.len() as u64;
    for word in words {
        hash = mix(hash ^ u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    hash = mix(hash ^ u64::from_le_bytes(last));
    // The upper half: multiplication carries every input bit up, not down.
    (hash >> 32) as u32 % shards.max(1)
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(FACTOR);
    word ^ (word >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data are stored under these numbers: if this test fails, the function is wrong, not the test.
    #[test]
    fn the_shard_of_a_name_never_changes() {
        let shards = ["a", "bob", "user-12345", "名前@例.jp", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"]
            .map(|name| shard_of(name, DEFAULT_SHARDS));
        assert_eq!(shards, [93, 111, 54, 217, 171]);
    }

    #[test]
    fn names_spread_evenly() {
        for shards in [3_u32, 16, 256] {
            let mut counts = vec![0_u32; shards as usize];
            let user_count = shards * 400;
            for index in 0..user_count {
                if let Some(count) = counts.get_mut(shard_of(&format!("user-{index}"), shards) as usize) {
                    *count += 1;
                }
            }
            // 400 expected in each; six standard deviations of 20 either way.
            assert!(counts.iter().all(|count| (280..=520).contains(count)), "{shards}: {counts:?}");
        }
    }

    #[test]
    fn zero_shards_count_as_one() {
        assert_eq!(shard_of("bob", 0), 0);
        assert_eq!(shard_of("bob", 1), 0);
    }
}
