//! What was sent on a stream, and the events that are new. Pure: the store's time comes with the updates.

use std::collections::{BTreeMap, HashMap};

use rollcall_api::call::View;
use rollcall_api::{EventId, events};
use rollcall_core::visibility::{self, MAX_PUBLISH_DELAY};
use rollcall_core::{ConversationId, Rules, State, Time, UserId};
use rollcall_functions::capabilities::Typist;
use rollcall_functions::query::Presence;
use rollcall_functions::subscribe::Update;

use crate::typing::Typists;

/// The users typing in a conversation, and when their signals end.
type Typing = BTreeMap<UserId, Time>;

/// The state of one stream: one entry per watched user and conversation.
#[derive(Debug)]
pub(super) struct Watcher {
    /// The newest version sent.
    version: u64,
    users: HashMap<UserId, Option<View>>,
    conversations: BTreeMap<ConversationId, Typing>,
}

impl Watcher {
    /// Starts with everyone's presence and the users typing. Returns the snapshot event: everything, or what may have changed
    /// since `since`.
    pub(super) fn new(
        updates: Vec<Update>,
        conversations: impl IntoIterator<Item = (ConversationId, Vec<Typist>)>,
        since: Option<EventId>,
        rules: &Rules,
    ) -> (Self, String) {
        let version = updates.iter().map(|update| update.version).max().unwrap_or_default();
        // The newest version of a new feed is the time at which it began.
        let now = Time(version / 1000);
        let is_new = |update: &&Update| {
            since.is_none_or(|since| may_have_changed_since(update.presence.view.as_ref(), &since, now, rules))
        };
        let presence = |update: &Update| events::presence(&update.presence.user, update.presence.view.as_ref());
        let presences: Vec<String> = updates.iter().filter(is_new).map(presence).collect();
        let users = updates.into_iter().map(|update| (update.presence.user, update.presence.view)).collect();
        let conversations = conversations.into_iter().map(|(id, typists)| (id, by_user(typists))).collect();
        let watcher = Self { version, users, conversations };
        let typing: Vec<String> = watcher.typists().collect();
        let (presences, typing) = (presences.iter().map(String::as_str), typing.iter().map(String::as_str));
        let snapshot = events::snapshot(presences, typing, since.is_some());
        let text = events::sse(events::SNAPSHOT, Some(&watcher.id()), &snapshot);
        (watcher, text)
    }

    /// The events for users who changed; empty if nothing is new.
    pub(super) fn changed(&mut self, updates: Vec<Update>) -> String {
        let mut text = String::new();
        for Update { presence: Presence { user, view }, version } in updates {
            self.version = self.version.max(version);
            // A feed that was started again may repeat updates.
            if self.users.get(&user).is_some_and(|sent| is_alike(sent.as_ref(), view.as_ref())) {
                continue;
            }
            let presence = events::presence(&user, view.as_ref());
            text.push_str(&events::sse(events::PRESENCE, Some(&self.id()), &presence));
            self.users.insert(user, view);
        }
        text
    }

    /// The events for users who started, continued or stopped typing. A conversation that could not be read is skipped.
    pub(super) fn typing(&mut self, polled: Vec<(ConversationId, Typists)>) -> String {
        let (mut text, id) = (String::new(), self.id());
        for (conversation, typists) in polled {
            let Ok(typists) = typists else { continue };
            let now = by_user(typists);
            let before = self.conversations.entry(conversation.clone()).or_default();
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
        let one = |id, (user, until): (&UserId, &Time)| events::typing(id, user, Some(*until));
        self.conversations.iter().flat_map(move |(id, typing)| typing.iter().map(move |typist| one(id, typist)))
    }

    /// The id to resume from, on any host: no older change can still be published.
    fn id(&self) -> String {
        let version = self.version.saturating_sub(MAX_PUBLISH_DELAY.0.saturating_mul(1000));
        EventId { version, digest: None }.to_string()
    }
}

fn by_user(typists: Vec<Typist>) -> Typing {
    typists.into_iter().map(|typist| (typist.user, typist.until)).collect()
}

/// Whether a reader that resumes from `since` may not know this.
fn may_have_changed_since(view: Option<&View>, since: &EventId, now: Time, rules: &Rules) -> bool {
    // A hidden user, and an offline user who hides last seen, have no time to compare: they are always sent.
    let Some(View { published, .. }) = view else { return true };
    let hides_when = published.state == State::Offline && published.last_seen.is_none();
    hides_when || visibility::may_have_changed_since(published, since.version, now, rules)
}

/// Whether two views are the same for a viewer. The last seen of a user who is not offline moves with every beat and does
/// not count.
fn is_alike(sent: Option<&View>, now: Option<&View>) -> bool {
    let (sent, now) = match (sent, now) {
        (Some(sent), Some(now)) => (sent, now),
        (None, None) => return true,
        (Some(_), None) | (None, Some(_)) => return false,
    };
    let last_seen = |view: &View| view.published.last_seen.filter(|_| view.published.state == State::Offline);
    let looks = |view: &View| (view.published.state, view.published.since, last_seen(view));
    looks(sent) == looks(now) && sent.published.note == now.published.note && sent.choice == now.choice
}

#[cfg(test)]
mod tests;
