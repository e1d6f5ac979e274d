//! The `heartbeat` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_core::choose::{Wish, Words, parse_for_s};
use rollcall_core::{DeviceId, Error, Id, Ids, Invalid, Rules, Unfit, UserId};
use rollcall_functions::Standing;
use rollcall_functions::heartbeat::{self, Beat, Beats, Sign};
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
        let (beats, refused) = beats_in(beats).map_err(error_out)?;
        let answers = heartbeat::beat_many(&PlatformSessions, &rules, beats).await;
        answers_out(answers.map(|answers| refused.among(answers)), |standing| standing_out(standing, &rules))
    }

    async fn leave_many(departures: Vec<wit::Departure>) -> Result<Vec<Result<wit::Standing, wit::Error>>, wit::Error> {
        let rules = rules();
        let departures = departures.into_iter().map(departure_in).collect();
        let answers = heartbeat::leave_many(&PlatformSessions, &rules, departures).await;
        answers_out(answers, |standing| standing_out(standing, &rules))
    }

    async fn choose_many(choosings: Vec<wit::Choosing>) -> Result<Vec<Result<wit::Chosen, wit::Error>>, wit::Error> {
        let rules = rules();
        let choosings = choosings.into_iter().map(choosing_in).collect();
        let answers = heartbeat::choose_many(&PlatformSessions, &rules, choosings).await;
        answers_out(answers, |chosen| wit::Chosen {
            standing: standing_out(chosen.standing, &rules),
            choice: choice_out(chosen.choice),
        })
    }
}

/// The beats that can be tried, and those that cannot.
fn beats_in(beats: wit::Beats) -> Result<(Beats, Refused), Error> {
    let wit::Beats { users, devices, signs } = beats;
    let signs: Vec<Sign> =
        signs.into_iter().map(|sign| Sign { kind: kind_in(sign.kind), active: sign.active }).collect();
    let users = Ids::parse(users.text, users.lengths);
    let devices = Ids::parse(devices.text, devices.lengths);
    match (users, devices) {
        (Ok(users), Ok(devices)) if users.len() == signs.len() && devices.len() == signs.len() => {
            Ok((Beats { users, devices, signs }, Refused::default()))
        }
        (users, devices) => one_by_one(&texts(&users)?, &texts(&devices)?, &signs),
    }
}

/// The same, looking at each: something among them is unfit.
fn one_by_one(users: &[&str], devices: &[&str], signs: &[Sign]) -> Result<(Beats, Refused), Error> {
    if users.len() != signs.len() || devices.len() != signs.len() {
        return Err(Invalid::new("beats", "has columns of different lengths").into());
    }
    let (mut good, mut refused) = (Vec::new(), Refused::default());
    for (place, ((user, device), sign)) in users.iter().zip(devices).zip(signs).enumerate() {
        match UserId::parse(*user).and_then(|user| Ok((user, DeviceId::parse(*device)?))) {
            Ok((user, device)) => good.push(Beat { user, device, kind: sign.kind, active: sign.active }),
            Err(invalid) => refused.0.push((place, invalid.into())),
        }
    }
    Ok((good.into_iter().collect(), refused))
}

fn texts<I: Id>(ids: &Result<Ids<I>, Unfit>) -> Result<Vec<&str>, Error> {
    match ids {
        Ok(ids) => Ok(ids.iter().collect()),
        Err(unfit) => Ok(unfit.pieces()?.collect()),
    }
}

/// Items that were refused, by rising place.
#[derive(Default)]
struct Refused(Vec<(usize, Error)>);

impl Refused {
    /// The answers, with these among them in their places.
    fn among<T>(self, mut answers: Vec<Result<T, Error>>) -> Vec<Result<T, Error>> {
        for (place, error) in self.0 {
            answers.insert(place.min(answers.len()), Err(error));
        }
        answers
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

fn choosing_in(choosing: wit::Choosing) -> Result<heartbeat::Choosing, Error> {
    let words = match choosing.note {
        Some(words) => Some(Words::parse(words.text, words.emoji)?),
        None => None,
    };
    let wish = Wish { stance: stance_in(choosing.stance), lasts: parse_for_s(choosing.for_s)?, words };
    Ok(heartbeat::Choosing { user: UserId::parse(choosing.user)?, wish })
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
