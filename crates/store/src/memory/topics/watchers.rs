//! How many watch each person, as each station last said.

use std::collections::HashMap;

use parking_lot::Mutex;
use rollcall_core::{Time, UserId};
use smallvec::SmallVec;

use super::Tidying;
use crate::topics::WATCHERS_TTL;

/// Everybody's watchers.
#[derive(Default)]
pub(super) struct Watchers(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    people: HashMap<UserId, SmallVec<[Station; 1]>>,
    tidying: Tidying,
}

/// What one station said.
struct Station {
    name: String,
    count: u32,
    until: Time,
}

impl Watchers {
    /// Keeps what this station says, and answers with the sums.
    pub(super) fn count(&self, station: &str, counts: Vec<(UserId, u32)>, now: Time) -> Vec<u64> {
        let mut kept = self.0.lock();
        if kept.tidying.is_due(kept.people.len()) {
            kept.people.retain(|_, stations| stations.iter().any(|station| station.until > now));
            let left = kept.people.len();
            kept.tidying.done(left);
        }
        counts.into_iter().map(|(user, count)| kept.say(station, user, count, now)).collect()
    }
}

impl Counts {
    fn say(&mut self, name: &str, user: UserId, count: u32, now: Time) -> u64 {
        let mut stations = self.people.remove(&user).unwrap_or_default();
        stations.retain(|station| station.until > now && station.name != name);
        if count > 0 {
            stations.push(Station { name: name.to_owned(), count, until: now + WATCHERS_TTL });
        }
        let sum = stations.iter().map(|station| u64::from(station.count)).sum();
        if !stations.is_empty() {
            self.people.insert(user, stations);
        }
        sum
    }
}
