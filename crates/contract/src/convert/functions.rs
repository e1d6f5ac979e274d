//! Requests and answers of the functions.

use rollcall_core::choose::{NewChoice, NoteContent, parse_for_s};
use rollcall_core::heartbeat::{BeatDetails, Beats, Departure, DepartureReason};
use rollcall_core::{ConversationId, DeviceId, Invalid, Rules, UserId};
use rollcall_functions::Standing;
use rollcall_functions::heartbeat::{ChoiceRequest, ChoiceResult};
use rollcall_functions::subscribe::{InitialPresence, Update};
use rollcall_functions::sweep::{Archived, Settled};
use rollcall_functions::typing::TypingUpdate;

use super::wit::types as wit;
use super::{each, ms, span};

impl From<Beats> for wit::Beats {
    fn from(beats: Beats) -> Self {
        Self { users: beats.users.into(), devices: beats.devices.into(), details: each(beats.details) }
    }
}

impl From<BeatDetails> for wit::BeatDetails {
    fn from(details: BeatDetails) -> Self {
        Self { kind: details.kind.into(), active: details.active }
    }
}

impl From<wit::BeatDetails> for BeatDetails {
    fn from(details: wit::BeatDetails) -> Self {
        Self { kind: details.kind.into(), active: details.active }
    }
}

same_cases!(wit::DepartureReason, DepartureReason, [Logout, Dropped]);

impl From<Departure> for wit::Departure {
    fn from(departure: Departure) -> Self {
        Self {
            user: departure.user.into_string(),
            device: departure.device.into_string(),
            reason: departure.reason.into(),
        }
    }
}

impl TryFrom<wit::Departure> for Departure {
    type Error = Invalid;

    fn try_from(departure: wit::Departure) -> Result<Self, Invalid> {
        Ok(Self {
            user: UserId::parse(departure.user)?,
            device: DeviceId::parse(departure.device)?,
            reason: departure.reason.into(),
        })
    }
}

impl From<NoteContent> for wit::NoteContent {
    fn from(note: NoteContent) -> Self {
        Self { text: note.text, emoji: note.emoji }
    }
}

impl TryFrom<wit::ChoiceRequest> for ChoiceRequest {
    type Error = Invalid;

    fn try_from(request: wit::ChoiceRequest) -> Result<Self, Invalid> {
        let note = request.note.map(|note| NoteContent::parse(note.text, note.emoji)).transpose()?;
        let choice = NewChoice { stance: request.stance.into(), lasts: parse_for_s(request.for_s)?, note };
        Ok(Self { user: UserId::parse(request.user)?, choice })
    }
}

/// The rules say when to beat again.
impl From<(Standing, &Rules)> for wit::Standing {
    fn from((standing, rules): (Standing, &Rules)) -> Self {
        Self { state: standing.state.into(), version: standing.version, next_beat_ms: ms(rules.interval) }
    }
}

impl From<(ChoiceResult, &Rules)> for wit::ChoiceResult {
    fn from((result, rules): (ChoiceResult, &Rules)) -> Self {
        Self { standing: (result.standing, rules).into(), choice: result.choice.into() }
    }
}

impl From<(&str, InitialPresence)> for wit::InitialPresence {
    fn from((user, initial): (&str, InitialPresence)) -> Self {
        let presence = wit::Presence { user: user.to_owned(), view: initial.view.into() };
        Self { presence, visibility: initial.visibility.into(), settled: initial.settled }
    }
}

/// Drops the user, which the caller knows from the order of the request.
impl From<wit::InitialPresence> for InitialPresence {
    fn from(initial: wit::InitialPresence) -> Self {
        Self { view: initial.presence.into(), visibility: initial.visibility.into(), settled: initial.settled }
    }
}

impl From<Update> for wit::Update {
    fn from(update: Update) -> Self {
        Self { presence: update.presence.into(), version: update.version }
    }
}

impl TryFrom<wit::Update> for Update {
    type Error = Invalid;

    fn try_from(update: wit::Update) -> Result<Self, Invalid> {
        Ok(Self { presence: update.presence.try_into()?, version: update.version })
    }
}

impl TryFrom<wit::TypingUpdate> for TypingUpdate {
    type Error = Invalid;

    fn try_from(update: wit::TypingUpdate) -> Result<Self, Invalid> {
        Ok(Self {
            user: UserId::parse(update.user)?,
            conversation: ConversationId::parse(update.conversation)?,
            typing: update.typing,
        })
    }
}

impl From<Settled> for wit::Settled {
    fn from(settled: Settled) -> Self {
        Self {
            examined: settled.examined,
            published: settled.published,
            rescheduled: settled.rescheduled,
            stale: settled.stale,
            failed: settled.failed,
            lags_ms: settled.lags.into_iter().map(ms).collect(),
        }
    }
}

impl From<wit::Settled> for Settled {
    fn from(settled: wit::Settled) -> Self {
        Self {
            examined: settled.examined,
            published: settled.published,
            rescheduled: settled.rescheduled,
            stale: settled.stale,
            failed: settled.failed,
            lags: settled.lags_ms.into_iter().map(span).collect(),
        }
    }
}

impl From<Archived> for wit::Archived {
    fn from(archived: Archived) -> Self {
        Self { kept: archived.kept, dropped: archived.dropped }
    }
}

impl From<wit::Archived> for Archived {
    fn from(archived: wit::Archived) -> Self {
        Self { kept: archived.kept, dropped: archived.dropped }
    }
}

/// Requests and answers as `rollcall-api` has them.
#[cfg(feature = "api")]
mod api {
    use rollcall_api::call;

    use super::wit;

    impl From<call::ChoiceRequest> for wit::ChoiceRequest {
        fn from(request: call::ChoiceRequest) -> Self {
            Self {
                user: request.user.into_string(),
                stance: request.stance.into(),
                for_s: request.for_s,
                note: request.note.map(Into::into),
            }
        }
    }

    impl FromIterator<call::Beat> for wit::Beats {
        fn from_iter<T: IntoIterator<Item = call::Beat>>(beats: T) -> Self {
            let beats: super::Beats = beats.into_iter().collect();
            beats.into()
        }
    }

    impl From<wit::Standing> for call::Standing {
        fn from(standing: wit::Standing) -> Self {
            Self { state: standing.state.into(), version: standing.version, next_beat_ms: standing.next_beat_ms }
        }
    }

    impl From<wit::ChoiceResult> for call::ChoiceResult {
        fn from(result: wit::ChoiceResult) -> Self {
            Self { standing: result.standing.into(), choice: result.choice.into() }
        }
    }

    impl From<call::TypingUpdate> for wit::TypingUpdate {
        fn from(update: call::TypingUpdate) -> Self {
            Self {
                user: update.user.into_string(),
                conversation: update.conversation.into_string(),
                typing: update.typing,
            }
        }
    }

    impl From<wit::Settled> for call::Settled {
        fn from(settled: wit::Settled) -> Self {
            Self {
                examined: settled.examined,
                published: settled.published,
                rescheduled: settled.rescheduled,
                stale: settled.stale,
                failed: settled.failed,
            }
        }
    }
}
