//! Which shard a name belongs to. The one place that decides it, for every store: the embedded store locks by it, and
//! in Redis it is the hash tag, so a deployment's data depend on this function never changing.
//!
//! It is a hash of our own because it must be stable for ever, which no library's hasher promises, and because it runs
//! for every heartbeat: FNV-1a or CRC-16 take a byte at a time, four times as long for a UUID as this does with eight.
//! The hash is not keyed: a user who may choose their own id can choose their shard. That costs a busier lock, no more;
//! the tables behind it are keyed.

/// The default number of shards: far more than cores or Redis nodes, so that locks seldom
/// meet and a Cluster spreads evenly; few enough that looking at every shard is nothing.
pub const DEFAULT_SHARDS: u32 = 256;

/// An odd constant without structure: the golden ratio's fraction times 2^64.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// The multiplier of MurmurHash3's finaliser, chosen there for its avalanche.
const FACTOR: u64 = 0xff51_afd7_ed55_8ccd;

/// The shard of a person or a conversation among `shards`, from 0 up. Zero shards count as one.
///
/// The bytes are taken as little-endian words of eight, the last one padded with zeros and always present; the length
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

    /// Data are kept under these numbers: if this test fails, the function is wrong, not the test.
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
            let people = shards * 400;
            for person in 0..people {
                if let Some(count) = counts.get_mut(shard_of(&format!("user-{person}"), shards) as usize) {
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
