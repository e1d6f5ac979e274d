//! The `heartbeat` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_contract::exported;
use rollcall_contract::guest::convert::each;
use rollcall_contract::guest::exports::heartbeat::heartbeat as export;
use rollcall_contract::guest::wit::types as wit;
use rollcall_contract::guest::{PlatformSessions, rules};
use rollcall_core::{Error, Rules};
use rollcall_functions::{batch, heartbeat};

/// An answer per item, for the caller.
type Replies<W> = Result<Vec<Result<W, wit::Error>>, wit::Error>;

struct Component;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Component;
    rollcall_contract::guest::exports::heartbeat::export_heartbeat!(Component);
}

impl export::Guest for Component {
    exported! {
        async fn beat_many(beats: wit::Beats) -> Replies<wit::Standing> {
            let rules = rules();
            let wit::Beats { users, devices, details } = beats;
            let (users, devices) = ((users.text, users.lengths), (devices.text, devices.lengths));
            let (beats, refused) = batch::beats(users, devices, each(details))?;
            let answers = heartbeat::beat_many(&PlatformSessions, &rules, beats).await?;
            Ok(replies(refused.among(answers), &rules))
        }

        async fn leave_many(departures: Vec<wit::Departure>) -> Replies<wit::Standing> {
            let rules = rules();
            let departures = departures.into_iter().map(|departure| Ok(departure.try_into()?)).collect();
            Ok(replies(heartbeat::leave_many(&PlatformSessions, &rules, departures).await?, &rules))
        }

        async fn choose_many(requests: Vec<wit::ChoiceRequest>) -> Replies<wit::ChoiceResult> {
            let rules = rules();
            let requests = requests.into_iter().map(|request| Ok(request.try_into()?)).collect();
            Ok(replies(heartbeat::choose_many(&PlatformSessions, &rules, requests).await?, &rules))
        }
    }
}

/// The rules say when to beat again.
fn replies<'r, T, W: From<(T, &'r Rules)>>(
    answers: Vec<Result<T, Error>>,
    rules: &'r Rules,
) -> Vec<Result<W, wit::Error>> {
    answers.into_iter().map(|answer| Ok((answer?, rules).into())).collect()
}
