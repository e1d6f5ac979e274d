//! How the shards are divided: among the hosts of a Redis, and among the workers of a host.
//!
//! There is no leader and no lock. If two hosts disagree about the membership for a moment, both sweep the same shards
//! and the compare-and-swap lets one of them win.

use rollcall_functions::capabilities::Shards;

/// One of several equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Which, from 0.
    pub(crate) index: u32,
    /// Of how many.
    pub(crate) count: u32,
}

impl Partition {
    /// This part of a range of shards. The parts cover the range exactly once.
    pub(crate) fn of(self, shards: Shards) -> Shards {
        let length = shards.end.saturating_sub(shards.first);
        let at = |index: u32| shards.first + length * index / self.count.max(1);
        Shards { first: at(self.index), end: at(self.index + 1) }
    }
}

/// The shards of one host, and its position among the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostShards {
    /// The host's own shards.
    pub(crate) shards: Shards,
    /// The host's position, from 0.
    pub(crate) index: u32,
    /// How many hosts there are, this one included.
    pub(crate) hosts: u32,
}

impl HostShards {
    /// The shards of host `index` of `hosts`.
    pub(crate) fn new(index: u32, hosts: u32, shards: u32) -> Self {
        let partition = Partition { index, count: hosts.max(1) };
        Self { shards: partition.of(Shards { first: 0, end: shards }), index, hosts: partition.count }
    }

    /// The host whose shards this host checks in a round, or `None` if it is alone. In every round each host is checked by
    /// exactly one other; in `hosts - 1` rounds by every other.
    pub(super) fn peer_in_round(self, round: u64) -> Option<u32> {
        let others = self.hosts.checked_sub(1).filter(|others| *others > 0)?;
        let ahead = 1 + (round % u64::from(others)) as u32;
        Some((self.index + ahead) % self.hosts)
    }
}

/// Shards asked about in one call: the answer is at most one batch for all of them.
const SHARDS_PER_CALL: u32 = 16;

/// A range of shards in pieces of one call each.
pub(super) fn per_call(range: Shards) -> impl Iterator<Item = Shards> {
    let firsts = (range.first..range.end).step_by(SHARDS_PER_CALL as usize);
    firsts.map(move |first| Shards { first, end: (first + SHARDS_PER_CALL).min(range.end) })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn numbers(ranges: impl IntoIterator<Item = Shards>) -> Vec<u32> {
        ranges.into_iter().flat_map(|range| range.first..range.end).collect()
    }

    #[test]
    fn hosts_and_workers_cover_every_shard_once() {
        for hosts in 1..=9 {
            for workers in 1..=5 {
                let own = (0..hosts).map(|index| HostShards::new(index, hosts, 256).shards);
                let parts =
                    own.flat_map(|own| (0..workers).map(move |index| Partition { index, count: workers }.of(own)));
                assert_eq!(
                    numbers(parts.flat_map(per_call)),
                    (0..256).collect::<Vec<_>>(),
                    "{hosts} hosts, {workers} workers"
                );
            }
        }
    }

    #[test]
    fn every_host_is_checked_once_per_round() {
        assert_eq!(HostShards::new(0, 1, 100).peer_in_round(7), None);
        for hosts in 2..=9 {
            let checked = |round: u64| (0..hosts).map(move |i| HostShards::new(i, hosts, 100).peer_in_round(round));
            let mut checkers = vec![HashSet::new(); hosts as usize];
            for round in 40..40 + u64::from(hosts) - 1 {
                let checked: Vec<u32> = checked(round).flatten().collect();
                for (host, checker) in checked.iter().zip(0..) {
                    assert_ne!(*host, checker);
                    let is_new = checkers.get_mut(*host as usize).is_some_and(|seen| seen.insert(checker));
                    assert!(is_new, "host {checker} checks host {host} again before all others did");
                }
                let all: HashSet<_> = checked.iter().collect();
                assert_eq!(all.len(), hosts as usize, "a host is skipped in round {round}");
            }
        }
    }
}
