//! Ids, times, errors, and what is known about a user.

use rollcall_core::{
    Choice, ConversationId, DeviceKind, Error, Id, Ids, Invalid, Note, Published, Rules, Stance, State, Time, UserId,
};
use rollcall_functions::capabilities::{LastSeenEntry, PresenceChange, TypingSignal, Typist, Visibility};
use rollcall_functions::query::{Presence, View};

use super::wit::types as wit;
use super::{ms, span};

impl From<wit::Error> for Error {
    fn from(error: wit::Error) -> Self {
        match error {
            wit::Error::Invalid(invalid) => Self::Invalid(Invalid { field: invalid.field, rule: invalid.rule }),
            wit::Error::TooMany(limit) => Self::TooMany(limit),
            wit::Error::Unavailable(retry_ms) => Self::Unavailable(retry_ms),
            wit::Error::Denied => Self::Denied,
            wit::Error::Other(text) => Self::Other(text),
        }
    }
}

impl From<Error> for wit::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(invalid) => invalid.into(),
            Error::TooMany(limit) => Self::TooMany(limit),
            Error::Unavailable(retry_ms) => Self::Unavailable(retry_ms),
            Error::Denied => Self::Denied,
            Error::Other(text) => Self::Other(text),
        }
    }
}

impl From<Invalid> for wit::Error {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(wit::Invalid { field: invalid.field, rule: invalid.rule })
    }
}

impl<I: Id> From<Ids<I>> for wit::Ids {
    fn from(ids: Ids<I>) -> Self {
        let (text, lengths) = ids.into_parts();
        Self { text, lengths }
    }
}

/// The error is that of the first invalid id.
impl<I: Id> TryFrom<wit::Ids> for Ids<I> {
    type Error = Invalid;

    fn try_from(ids: wit::Ids) -> Result<Self, Invalid> {
        Ids::parse(ids.text, ids.lengths).map_err(|invalid| match invalid.pieces() {
            Ok(mut pieces) => {
                let first = pieces.find_map(|piece| I::check(piece).err());
                first.unwrap_or_else(|| Invalid::new(I::FIELD, "is invalid in the packed list"))
            }
            Err(invalid) => invalid,
        })
    }
}

same_cases!(wit::State, State, [Online, Away, Busy, Offline]);
same_cases!(wit::DeviceKind, DeviceKind, [Web, Mobile, Desktop, Other]);
same_cases!(wit::Stance, Stance, [Auto, Away, Busy, Invisible]);

impl From<wit::Note> for Note {
    fn from(note: wit::Note) -> Self {
        Self { text: note.text, emoji: note.emoji, until: note.until.map(Time) }
    }
}

impl From<Note> for wit::Note {
    fn from(note: Note) -> Self {
        Self { text: note.text, emoji: note.emoji, until: note.until.map(|at| at.0) }
    }
}

impl From<wit::Choice> for Choice {
    fn from(choice: wit::Choice) -> Self {
        Self {
            stance: choice.stance.into(),
            at: Time(choice.at),
            until: choice.until.map(Time),
            note: choice.note.map(Into::into),
        }
    }
}

impl From<Choice> for wit::Choice {
    fn from(choice: Choice) -> Self {
        Self {
            stance: choice.stance.into(),
            at: choice.at.0,
            until: choice.until.map(|at| at.0),
            note: choice.note.map(Into::into),
        }
    }
}

impl From<wit::Published> for Published {
    fn from(published: wit::Published) -> Self {
        Self {
            state: published.state.into(),
            note: published.note.map(Into::into),
            since: published.since.map(Time),
            last_seen: published.last_seen.map(Time),
            version: published.version,
        }
    }
}

impl From<Published> for wit::Published {
    fn from(published: Published) -> Self {
        Self {
            state: published.state.into(),
            note: published.note.map(Into::into),
            since: published.since.map(|at| at.0),
            last_seen: published.last_seen.map(|at| at.0),
            version: published.version,
        }
    }
}

impl From<wit::PublishedState> for Published {
    fn from(state: wit::PublishedState) -> Self {
        Self {
            state: state.state.into(),
            note: None,
            since: state.since.map(Time),
            last_seen: state.last_seen.map(Time),
            version: state.version,
        }
    }
}

impl From<&Published> for wit::PublishedState {
    fn from(published: &Published) -> Self {
        Self {
            state: published.state.into(),
            since: published.since.map(|at| at.0),
            last_seen: published.last_seen.map(|at| at.0),
            version: published.version,
        }
    }
}

/// What a viewer sees of each user, from the columns. The choice belongs to `viewer`, wherever that is among the users.
pub fn views(
    presences: wit::Presences,
    viewer: Option<&UserId>,
    users: &[UserId],
) -> Result<Vec<Result<Option<View>, Error>>, Invalid> {
    let wit::Presences { states, notes, choice, failures } = presences;
    if states.len() != users.len() {
        return Err(Invalid::new("states", "has another length than the request"));
    }
    let view = |state: wit::PublishedState| View { published: state.into(), choice: None };
    let mut views: Vec<_> = states.into_iter().map(|state| Ok(state.map(view))).collect();
    for note in notes {
        if let Some(Ok(Some(view))) = views.get_mut(note.index as usize) {
            view.published.note = Some(note.note.into());
        }
    }
    if choice.is_some() {
        let own = users.iter().zip(&mut views).filter(|(user, _)| viewer == Some(*user));
        for (_, view) in own {
            if let Ok(Some(view)) = view {
                view.choice = choice.clone().map(Into::into);
            }
        }
    }
    for failure in failures {
        if let Some(item) = views.get_mut(failure.index as usize) {
            *item = Err(failure.error.into());
        }
    }
    Ok(views)
}

/// The columns for the caller.
impl From<Vec<Result<Option<View>, Error>>> for wit::Presences {
    fn from(views: Vec<Result<Option<View>, Error>>) -> Self {
        let mut columns =
            Self { states: Vec::with_capacity(views.len()), notes: Vec::new(), choice: None, failures: Vec::new() };
        for (index, view) in (0..).zip(views) {
            let view = view.unwrap_or_else(|error| {
                columns.failures.push(wit::Failure { index, error: error.into() });
                None
            });
            columns.states.push(view.as_ref().map(|view| (&view.published).into()));
            let Some(View { published, choice }) = view else { continue };
            columns.notes.extend(published.note.map(|note| wit::PublishedNote { index, note: note.into() }));
            columns.choice = columns.choice.or(choice.map(Into::into));
        }
        columns
    }
}

impl From<wit::View> for Option<View> {
    fn from(view: wit::View) -> Self {
        match view {
            wit::View::Hidden => None,
            wit::View::Shown(shown) => {
                Some(View { published: shown.published.into(), choice: shown.choice.map(Into::into) })
            }
        }
    }
}

impl From<Option<View>> for wit::View {
    fn from(view: Option<View>) -> Self {
        match view {
            None => Self::Hidden,
            Some(View { published, choice }) => {
                Self::Shown(wit::Shown { published: published.into(), choice: choice.map(Into::into) })
            }
        }
    }
}

impl TryFrom<wit::Presence> for Presence {
    type Error = Invalid;

    fn try_from(presence: wit::Presence) -> Result<Self, Invalid> {
        Ok(Self { user: UserId::parse(presence.user)?, view: presence.view.into() })
    }
}

impl From<Presence> for wit::Presence {
    fn from(presence: Presence) -> Self {
        Self { user: presence.user.into_string(), view: presence.view.into() }
    }
}

/// Drops the user, which the caller knows from the order of the request.
impl From<wit::Presence> for Option<View> {
    fn from(presence: wit::Presence) -> Self {
        presence.view.into()
    }
}

impl From<wit::Visibility> for Visibility {
    fn from(visibility: wit::Visibility) -> Self {
        Self { presence: visibility.presence, last_seen: visibility.last_seen }
    }
}

impl From<Visibility> for wit::Visibility {
    fn from(visibility: Visibility) -> Self {
        Self { presence: visibility.presence, last_seen: visibility.last_seen }
    }
}

impl From<wit::Rules> for Rules {
    fn from(rules: wit::Rules) -> Self {
        Self {
            interval: span(rules.interval_ms),
            tolerance: span(rules.tolerance_ms),
            idle_after: span(rules.idle_after_ms),
            grace: span(rules.grace_ms),
            typing_ttl: span(rules.typing_ttl_ms),
            evict_after: span(rules.evict_after_ms),
            watch_limit: rules.watch_limit,
        }
    }
}

impl From<&Rules> for wit::Rules {
    fn from(rules: &Rules) -> Self {
        Self {
            interval_ms: ms(rules.interval),
            tolerance_ms: ms(rules.tolerance),
            idle_after_ms: ms(rules.idle_after),
            grace_ms: ms(rules.grace),
            typing_ttl_ms: ms(rules.typing_ttl),
            evict_after_ms: ms(rules.evict_after),
            watch_limit: rules.watch_limit,
        }
    }
}

impl TryFrom<wit::PresenceChange> for PresenceChange {
    type Error = Invalid;

    fn try_from(change: wit::PresenceChange) -> Result<Self, Invalid> {
        Ok(Self { user: UserId::parse(change.user)?, published: change.published.into() })
    }
}

impl From<PresenceChange> for wit::PresenceChange {
    fn from(change: PresenceChange) -> Self {
        Self { user: change.user.into_string(), published: change.published.into() }
    }
}

impl TryFrom<wit::TypingSignal> for TypingSignal {
    type Error = Invalid;

    fn try_from(signal: wit::TypingSignal) -> Result<Self, Invalid> {
        Ok(Self {
            conversation: ConversationId::parse(signal.conversation)?,
            user: UserId::parse(signal.user)?,
            lasts: span(signal.lasts_ms),
        })
    }
}

impl From<TypingSignal> for wit::TypingSignal {
    fn from(signal: TypingSignal) -> Self {
        Self {
            conversation: signal.conversation.into_string(),
            user: signal.user.into_string(),
            lasts_ms: ms(signal.lasts),
        }
    }
}

impl TryFrom<wit::Typist> for Typist {
    type Error = Invalid;

    fn try_from(typist: wit::Typist) -> Result<Self, Invalid> {
        Ok(Self { user: UserId::parse(typist.user)?, until: Time(typist.until) })
    }
}

impl From<Typist> for wit::Typist {
    fn from(typist: Typist) -> Self {
        Self { user: typist.user.into_string(), until: typist.until.0 }
    }
}

impl TryFrom<wit::LastSeenEntry> for LastSeenEntry {
    type Error = Invalid;

    fn try_from(entry: wit::LastSeenEntry) -> Result<Self, Invalid> {
        Ok(Self { user: UserId::parse(entry.user)?, last_seen: Time(entry.last_seen) })
    }
}

impl From<LastSeenEntry> for wit::LastSeenEntry {
    fn from(entry: LastSeenEntry) -> Self {
        Self { user: entry.user.into_string(), last_seen: entry.last_seen.0 }
    }
}
