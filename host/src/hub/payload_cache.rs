//! What is known of a person, as JSON that is written once and shared by everybody who is told.

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_api::call::View;
use rollcall_api::events;
use rollcall_api::responses::state_name;
use rollcall_core::visibility::{Visibility, mask};
use rollcall_core::{Published, State, UserId};

/// One published presence, and the texts in which it is told.
#[derive(Debug)]
pub(super) struct CachedPayload {
    pub(super) published: Published,
    /// For whoever may see everything.
    whole: OnceCell<Rc<str>>,
    /// For whoever may not see when the person was last here.
    part: OnceCell<Rc<str>>,
}

impl CachedPayload {
    pub(super) fn new(published: Published) -> Rc<Self> {
        Rc::new(Self { published, whole: OnceCell::new(), part: OnceCell::new() })
    }

    /// The text for a viewer with this much visibility; none for one who may see nothing.
    pub(super) fn payload(&self, user: &UserId, visibility: Visibility) -> Option<Rc<str>> {
        let text = match visibility {
            Visibility { presence: false, .. } => return None,
            Visibility { last_seen: true, .. } => &self.whole,
            Visibility { last_seen: false, .. } => &self.part,
        };
        let write = || {
            let published = mask(self.published.clone(), visibility);
            presence(user, published.map(|published| View { published, choice: None }).as_ref())
        };
        Some(Rc::clone(text.get_or_init(write)))
    }
}

/// A presence as text.
pub(super) fn presence(user: &UserId, view: Option<&View>) -> Rc<str> {
    events::presence(user, view).into()
}

/// Whether two presences look looks_same. Where a person is here their last seen moves with every beat, and that is not news.
pub(super) fn looks_same(one: &Published, other: &Published) -> bool {
    let seen = |published: &Published| match published.state {
        State::Offline => published.last_seen,
        State::Online | State::Away | State::Busy => None,
    };
    one.state == other.state && one.note == other.note && one.since == other.since && seen(one) == seen(other)
}

/// A number that changes when what a viewer was told of a person changes. Together, by exclusive or, those of all whom a
/// viewer watches tell whether anything changed while the viewer was away, on whichever host it comes back to.
///
/// Its upper half changes only with how much of the person the viewer sees: see [`same_visibility`]. Of the lower half: the version
/// of somebody offline is forgotten after a while, their last seen is not, so that is what counts.
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

/// The half of a fingerprint that says how much is seen.
const UPPER: u64 = !0 << 32;

/// Whether a viewer with these traces of the same people saw as much of each of them then as now. If not, a time does not tell
/// what is new to the viewer: whoever is shown again may have been as they are for hours.
pub(super) fn same_visibility(then: u64, now: u64) -> bool {
    (then ^ now) & UPPER == 0
}

/// FNV-1a: the same on every host and in every release, which the hash of a map need not be.
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

    /// A text and its end, so that two do not run together.
    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }

    /// Its last steps alone hardly reach the upper bits; this spreads them, or likenesses would cancel out.
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
    fn beats_of_somebody_who_is_here_are_no_news() {
        assert!(looks_same(&published(State::Online, 5, 1), &published(State::Online, 6, 1)));
        assert!(!looks_same(&published(State::Offline, 5, 1), &published(State::Offline, 6, 1)));
        assert!(!looks_same(&published(State::Online, 5, 1), &published(State::Away, 5, 1)));
    }

    #[test]
    fn the_trace_of_somebody_offline_outlives_the_version() {
        let bob = UserId::parse("bob").unwrap();
        let fingerprint = |published| fingerprint(&bob, Some(&published));
        assert_eq!(fingerprint(published(State::Offline, 5, 9)), fingerprint(published(State::Offline, 5, 0)));
        assert_ne!(fingerprint(published(State::Online, 5, 9)), fingerprint(published(State::Online, 5, 10)));
        assert_ne!(fingerprint(published(State::Offline, 5, 9)), super::fingerprint(&bob, None));
        let noted = Published { note: Some(note("out")), ..published(State::Offline, 5, 9) };
        assert_ne!(
            fingerprint(noted),
            fingerprint(published(State::Offline, 5, 9)),
            "a note is news, also of somebody offline"
        );
        assert_ne!(
            fingerprint(published(State::Online, 5, 9)),
            fingerprint(published(State::Away, 5, 9)),
            "so is what was derived"
        );
    }

    #[test]
    fn half_of_a_trace_is_how_much_is_seen() {
        let bob = UserId::parse("bob").unwrap();
        let whole = |version| fingerprint(&bob, Some(&published(State::Online, 5, version)));
        let part = fingerprint(&bob, Some(&Published { last_seen: None, ..published(State::Online, 5, 9) }));
        assert!(same_visibility(whole(9), whole(10)), "what changed is another matter");
        assert!(!same_visibility(whole(9), part) && !same_visibility(part, fingerprint(&bob, None)));
        let ann = fingerprint(&UserId::parse("ann").unwrap(), None);
        assert!(!same_visibility(ann ^ whole(9), ann ^ fingerprint(&bob, None)), "among others, too");
    }

    fn note(text: &str) -> rollcall_core::Note {
        rollcall_core::Note { text: text.to_owned(), emoji: String::new(), until: None }
    }

    #[test]
    fn texts_are_written_once_and_hide_what_is_hidden() {
        let bob = UserId::parse("bob").unwrap();
        let known = CachedPayload::new(published(State::Offline, 5, 9));
        let all = Visibility { presence: true, last_seen: true };
        let whole = known.payload(&bob, all).unwrap();
        assert!(Rc::ptr_eq(&whole, &known.payload(&bob, all).unwrap()));
        assert!(whole.contains("\"last_seen\":5"), "{whole}");
        let part = known.payload(&bob, Visibility { presence: true, last_seen: false }).unwrap();
        assert!(part.contains("\"last_seen\":null"), "{part}");
        assert_eq!(known.payload(&bob, Visibility { presence: false, last_seen: true }), None);
    }
}
