//! The `heartbeat` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_core::choose::{NewChoice, NoteContent, parse_for_s};
use rollcall_core::{DeviceId, Error, Rules, UserId};
use rollcall_functions::heartbeat::{self, BeatDetails};
use rollcall_functions::{Standing, packed_beats};
use rollcall_guest::{PlatformSessions, choice_out, error_out, kind_in, rules, stance_in, state_out};

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "heartbeat-function",
        with: {
            "rollcall:presence/types@0.1.0": rollcall_guest::wit::types,
            "rollcall:presence/settings@0.1.0": rollcall_guest::wit::settings,
            "rollcall:presence/sessions@0.1.0": rollcall_guest::wit::sessions,
        },
    });
    use super::Component;
    export!(Component);
}

use bindings::exports::rollcall::presence::heartbeat as wit;

struct Component;

impl wit::Guest for Component {
    async fn beat_many(beats: wit::Beats) -> Result<Vec<Result<wit::Standing, wit::Error>>, wit::Error> {
        let rules = rules();
        let wit::Beats { users, devices, signs } = beats;
        let signs =
            signs.into_iter().map(|sign| BeatDetails { kind: kind_in(sign.kind), active: sign.active }).collect();
        let (users, devices) = ((users.text, users.lengths), (devices.text, devices.lengths));
        let (beats, refused) = packed_beats::unpack(users, devices, signs).map_err(error_out)?;
        let answers = heartbeat::beat_many(&PlatformSessions, &rules, beats).await;
        answers_out(answers.map(|answers| refused.among(answers)), |standing| standing_out(standing, &rules))
    }

    async fn leave_many(departures: Vec<wit::Departure>) -> Result<Vec<Result<wit::Standing, wit::Error>>, wit::Error> {
        let rules = rules();
        let departures = departures.into_iter().map(departure_in).collect();
        let answers = heartbeat::leave_many(&PlatformSessions, &rules, departures).await;
        answers_out(answers, |standing| standing_out(standing, &rules))
    }

    async fn choose_many(
        choice_requests: Vec<wit::ChoiceRequest>,
    ) -> Result<Vec<Result<wit::Chosen, wit::Error>>, wit::Error> {
        let rules = rules();
        let choice_requests = choice_requests.into_iter().map(choice_request_in).collect();
        let answers = heartbeat::choose_many(&PlatformSessions, &rules, choice_requests).await;
        answers_out(answers, |chosen| wit::Chosen {
            standing: standing_out(chosen.standing, &rules),
            choice: choice_out(chosen.choice),
        })
    }
}

fn departure_in(departure: wit::Departure) -> Result<heartbeat::Departure, Error> {
    Ok(heartbeat::Departure {
        user: UserId::parse(departure.user)?,
        device: DeviceId::parse(departure.device)?,
        reason: match departure.reason {
            wit::Reason::Logout => heartbeat::Reason::Logout,
            wit::Reason::Dropped => heartbeat::Reason::Dropped,
        },
    })
}

fn choice_request_in(choice_request: wit::ChoiceRequest) -> Result<heartbeat::ChoiceRequest, Error> {
    let note = match choice_request.note {
        Some(note) => Some(NoteContent::parse(note.text, note.emoji)?),
        None => None,
    };
    let choice =
        NewChoice { stance: stance_in(choice_request.stance), lasts: parse_for_s(choice_request.for_s)?, note };
    Ok(heartbeat::ChoiceRequest { user: UserId::parse(choice_request.user)?, choice })
}

fn standing_out(standing: Standing, rules: &Rules) -> wit::Standing {
    wit::Standing {
        state: state_out(standing.state),
        version: standing.version,
        next_beat_ms: u32::try_from(rules.interval.0).unwrap_or(u32::MAX),
    }
}

fn answers_out<T, W>(
    answers: heartbeat::Answers<T>,
    encode: impl Fn(T) -> W,
) -> Result<Vec<Result<W, wit::Error>>, wit::Error> {
    let answers = answers.map_err(error_out)?;
    Ok(answers.into_iter().map(|answer| answer.map(&encode).map_err(error_out)).collect())
}
