//! A user's newest record with its serialised events, written once and shared by all watchers.

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_api::call::View;
use rollcall_api::events;
use rollcall_api::responses::state_name;
use rollcall_core::visibility::{Visibility, mask};
use rollcall_core::{Published, State, UserId};

/// A published record and its events as JSON.
#[derive(Debug)]
pub(super) struct CachedPayload {
    pub(super) published: Published,
    /// For viewers who may see everything.
    with_last_seen: OnceCell<Rc<str>>,
    /// For viewers who may not see last seen.
    without_last_seen: OnceCell<Rc<str>>,
}

impl CachedPayload {
    pub(super) fn new(published: Published) -> Rc<Self> {
        Rc::new(Self { published, with_last_seen: OnceCell::new(), without_last_seen: OnceCell::new() })
    }

    /// The event for a viewer with this visibility, or `None` if the user is hidden from them.
    pub(super) fn payload(&self, user: &UserId, visibility: Visibility) -> Option<Rc<str>> {
        let payload = match visibility {
            Visibility { presence: false, .. } => return None,
            Visibility { last_seen: true, .. } => &self.with_last_seen,
            Visibility { last_seen: false, .. } => &self.without_last_seen,
        };
        let write = || {
            let published = mask(self.published.clone(), visibility);
            presence(user, published.map(|published| View { published, choice: None }).as_ref())
        };
        Some(Rc::clone(payload.get_or_init(write)))
    }
}

/// A presence event as JSON.
pub(super) fn presence(user: &UserId, view: Option<&View>) -> Rc<str> {
    events::presence(user, view).into()
}

/// Whether two records look the same to a viewer. While a user is online, last seen changes with every beat and is not
/// shown.
pub(super) fn looks_same(one: &Published, other: &Published) -> bool {
    let seen = |published: &Published| match published.state {
        State::Offline => published.last_seen,
        State::Online | State::Away | State::Busy => None,
    };
    one.state == other.state && one.note == other.note && one.since == other.since && seen(one) == seen(other)
}

/// A number that changes when what a viewer sees of a user changes. The exclusive or over all watched users tells whether
/// anything changed while a client was disconnected, on whichever host it resumes.
///
/// The upper half changes only with the visibility: see [`same_visibility`]. The lower half uses the version, or, for an
/// offline user, last seen: the version of an evicted session is gone, its last seen is in the archive.
pub(super) fn fingerprint(user: &UserId, published: Option<&Published>) -> u64 {
    let mut visibility = Fnv::default();
    visibility.text(user.as_str());
    let mut hash = Fnv(visibility.0);
    visibility.bytes(&[published.map_or(0, |published| if published.last_seen.is_none() { 1 } else { 2 })]);
    if let Some(published) = published {
        let moving = match published.state {
            State::Offline => published.last_seen.map_or(0, |time| time.0),
            State::Online | State::Away | State::Busy => published.version,
        };
        hash.text(state_name(published.state));
        hash.bytes(&moving.to_le_bytes());
        if let Some(note) = &published.note {
            hash.text(&note.text);
            hash.text(&note.emoji);
            hash.bytes(&note.until.map_or(0, |until| until.0).to_le_bytes());
        }
    }
    (visibility.spread() & UPPER) | (hash.spread() & !UPPER)
}

/// The half of a fingerprint that depends on visibility only.
const UPPER: u64 = !0 << 32;

/// Whether two digests of the same users were made with the same visibility. If not, a resume time does not tell what is
/// new to the viewer: a user who became visible may have been in their state for hours.
pub(super) fn same_visibility(then: u64, now: u64) -> bool {
    (then ^ now) & UPPER == 0
}

/// FNV-1a: the same on every host and in every release, unlike the hash of a map.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// A text and a terminator, so that two texts do not run together.
    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }

    /// FNV leaves the upper bits nearly independent of the last bytes, so the result is mixed once more: otherwise the
    /// XOR of similar inputs would cancel out.
    fn spread(self) -> u64 {
        let spread = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        spread ^ (spread >> 29)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::Time;

    fn published(state: State, last_seen: u64, version: u64) -> Published {
        Published { state, note: None, since: Some(Time(1)), last_seen: Some(Time(last_seen)), version }
    }

    #[test]
    fn last_seen_of_online_user_is_ignored() {
        assert!(looks_same(&published(State::Online, 5, 1), &published(State::Online, 6, 1)));
        assert!(!looks_same(&published(State::Offline, 5, 1), &published(State::Offline, 6, 1)));
        assert!(!looks_same(&published(State::Online, 5, 1), &published(State::Away, 5, 1)));
    }

    #[test]
    fn offline_fingerprint_ignores_the_version() {
        let bob = UserId::parse("bob").unwrap();
        let fingerprint = |published| fingerprint(&bob, Some(&published));
        assert_eq!(fingerprint(published(State::Offline, 5, 9)), fingerprint(published(State::Offline, 5, 0)));
        assert_ne!(fingerprint(published(State::Online, 5, 9)), fingerprint(published(State::Online, 5, 10)));
        assert_ne!(fingerprint(published(State::Offline, 5, 9)), super::fingerprint(&bob, None));
        let noted = Published { note: Some(note("out")), ..published(State::Offline, 5, 9) };
        assert_ne!(
            fingerprint(noted),
            fingerprint(published(State::Offline, 5, 9)),
            "a note counts for offline users too"
        );
        assert_ne!(
            fingerprint(published(State::Online, 5, 9)),
            fingerprint(published(State::Away, 5, 9)),
            "so does a derived state"
        );
    }

    #[test]
    fn upper_half_depends_on_visibility_only() {
        let bob = UserId::parse("bob").unwrap();
        let whole = |version| fingerprint(&bob, Some(&published(State::Online, 5, version)));
        let part = fingerprint(&bob, Some(&Published { last_seen: None, ..published(State::Online, 5, 9) }));
        assert!(same_visibility(whole(9), whole(10)), "a new version keeps the upper half");
        assert!(!same_visibility(whole(9), part) && !same_visibility(part, fingerprint(&bob, None)));
        let ann = fingerprint(&UserId::parse("ann").unwrap(), None);
        assert!(!same_visibility(ann ^ whole(9), ann ^ fingerprint(&bob, None)), "also combined with another user");
    }

    fn note(text: &str) -> rollcall_core::Note {
        rollcall_core::Note { text: text.to_owned(), emoji: String::new(), until: None }
    }

    #[test]
    fn payloads_are_cached_and_hide_last_seen() {
        let bob = UserId::parse("bob").unwrap();
        let cached = CachedPayload::new(published(State::Offline, 5, 9));
        let all = Visibility { presence: true, last_seen: true };
        let full = cached.payload(&bob, all).unwrap();
        assert!(Rc::ptr_eq(&full, &cached.payload(&bob, all).unwrap()));
        assert!(full.contains("\"last_seen\":5"), "{full}");
        let part = cached.payload(&bob, Visibility { presence: true, last_seen: false }).unwrap();
        assert!(part.contains("\"last_seen\":null"), "{part}");
        assert_eq!(cached.payload(&bob, Visibility { presence: false, last_seen: true }), None);
    }
}
