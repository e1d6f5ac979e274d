//! What the reader of a stream has been told, and the text of what is new to them. Pure: the time is the store's, and
//! comes with what is told.

use std::collections::{BTreeMap, HashMap};

use rollcall_api::call::View;
use rollcall_api::{EventId, events};
use rollcall_core::visibility::{SURELY_PUBLISHED, may_be_since};
use rollcall_core::{ConversationId, Rules, State, Time, UserId};

use crate::codec::Update;
use crate::typing::Room;

/// Those who type, each until an instant unless they go on.
type Typists = BTreeMap<UserId, Time>;

/// The reader of a stream. It holds one entry for whomever and wherever they watch.
#[derive(Debug)]
pub(super) struct Watcher {
    /// Up to where everything was told, but for what comes out late.
    heard: u64,
    people: HashMap<UserId, Option<View>>,
    rooms: BTreeMap<ConversationId, Typists>,
}

impl Watcher {
    /// Begins with everybody as they stand and whoever types, and with the event that tells it: all of it, or what may have
    /// changed since.
    pub(super) fn new(
        everybody: Vec<Update>,
        rooms: impl IntoIterator<Item = (ConversationId, Vec<(UserId, Time)>)>,
        since: Option<EventId>,
        rules: &Rules,
    ) -> (Self, String) {
        let heard = everybody.iter().map(|update| update.version).max().unwrap_or_default();
        // A feed that has just begun resumes from the time at which it began.
        let now = Time(heard / 1000);
        let told = |update: &&Update| since.is_none_or(|since| is_since(update.view.as_ref(), &since, now, rules));
        let presence = |update: &Update| events::presence(&update.user, update.view.as_ref());
        let presences: Vec<String> = everybody.iter().filter(told).map(presence).collect();
        let people = everybody.into_iter().map(|update| (update.user, update.view)).collect();
        let rooms = rooms.into_iter().map(|(room, typists)| (room, typists.into_iter().collect())).collect();
        let watcher = Self { heard, people, rooms };
        let typing: Vec<String> = watcher.typists().collect();
        let (presences, typing) = (presences.iter().map(String::as_str), typing.iter().map(String::as_str));
        let snapshot = events::snapshot(presences, typing, since.is_some());
        let text = events::sse(events::SNAPSHOT, Some(&watcher.id()), &snapshot);
        (watcher, text)
    }

    /// The events that tell of people who changed; empty if that is nothing new.
    pub(super) fn changed(&mut self, updates: Vec<Update>) -> String {
        let mut text = String::new();
        for Update { user, view, version } in updates {
            self.heard = self.heard.max(version);
            // A feed that was begun again tells once more what it may have told before.
            if self.people.get(&user).is_some_and(|told| is_alike(told.as_ref(), view.as_ref())) {
                continue;
            }
            let presence = events::presence(&user, view.as_ref());
            text.push_str(&events::sse(events::PRESENCE, Some(&self.id()), &presence));
            self.people.insert(user, view);
        }
        text
    }

    /// The events that tell who began, goes on or stopped typing; empty if nobody did. Of a conversation of which it is not
    /// known who types, nothing is told.
    pub(super) fn typing(&mut self, rooms: Vec<(ConversationId, Room)>) -> String {
        let (mut text, id) = (String::new(), self.id());
        for (conversation, room) in rooms {
            let Ok(typists) = room else { continue };
            let now: Typists = typists.into_iter().collect();
            let before = self.rooms.entry(conversation.clone()).or_default();
            let stopped = before.keys().filter(|user| !now.contains_key(user)).map(|user| (user, None));
            let typing = now.iter().filter(|(user, until)| before.get(user) != Some(until));
            for (user, until) in stopped.chain(typing.map(|(user, until)| (user, Some(*until)))) {
                let typing = events::typing(&conversation, user, until);
                text.push_str(&events::sse(events::TYPING, Some(&id), &typing));
            }
            *before = now;
        }
        text
    }

    fn typists(&self) -> impl Iterator<Item = String> {
        let one = |room, (user, until): (&UserId, &Time)| events::typing(room, user, Some(*until));
        self.rooms.iter().flat_map(move |(room, typists)| typists.iter().map(move |typist| one(room, typist)))
    }

    /// From where to resume, here or at any other host: surely nothing from before is yet to come out.
    fn id(&self) -> String {
        let version = self.heard.saturating_sub(SURELY_PUBLISHED.0.saturating_mul(1000));
        EventId { version, digest: None }.to_string()
    }
}

/// Whether a reader who has heard that much may not know this.
fn is_since(view: Option<&View>, since: &EventId, now: Time, rules: &Rules) -> bool {
    // Of whoever is hidden, and of when somebody left who hides that, nothing tells when it came about: it is told always.
    let Some(View { published, .. }) = view else { return true };
    let hides_when = published.state == State::Offline && published.last_seen.is_none();
    hides_when || may_be_since(published, since.version, now, rules)
}

/// Whether two views tell the same. Where a person is here their last seen moves with every beat, and that is not news.
fn is_alike(told: Option<&View>, now: Option<&View>) -> bool {
    let (told, now) = match (told, now) {
        (Some(told), Some(now)) => (told, now),
        (None, None) => return true,
        (Some(_), None) | (None, Some(_)) => return false,
    };
    let last_seen = |view: &View| view.published.last_seen.filter(|_| view.published.state == State::Offline);
    let looks = |view: &View| (view.published.state, view.published.since, last_seen(view));
    looks(told) == looks(now) && told.published.note == now.published.note && told.choice == now.choice
}

#[cfg(test)]
mod tests;
