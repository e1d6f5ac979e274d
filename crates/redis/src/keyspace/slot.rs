//! The Cluster slot of a key: CRC-16 of its hash tag, as in the Cluster specification.

/// How many slots a Cluster has.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: of the text between its first `{` and the next `}` if that is not empty, else of the whole key.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tag_of(key)) % SLOTS
}

fn tag_of(key: &[u8]) -> &[u8] {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    };
    tag().unwrap_or(key)
}

/// CRC-16/XMODEM, bit by bit: it runs once per shard when a topology is read, not per key.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `CLUSTER KEYSLOT` answers.
    #[test]
    fn slots_match_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [("foo", 12_182), ("bar", 5_061), ("{user1000}.following", 3_443), ("", 0)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn only_the_first_nonempty_tag_counts() {
        assert_eq!(slot_of(b"rc:{7}:user:b{o}b"), slot_of(b"7"));
        assert_eq!(tag_of(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(tag_of(b"foo{bar"), b"foo{bar");
        assert_eq!(tag_of(b"foo{{bar}}zap"), b"{bar");
    }
}
