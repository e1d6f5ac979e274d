//! The trigger to `heartbeat`: beats, departures, and what people choose for themselves.

use rollcall_api::call::{Beat, Call, ChoiceRequest, ChoiceResult, Departure, Standing};
use rollcall_api::{Function, responses};
use rollcall_core::Error;

use crate::codec::{answers_in, beats_out, choice_request_out, chosen_in, departure_out, standing_in};
use crate::wit::heartbeat as wit;
use crate::{Answer, Setup, Trigger, astray, only};

/// The trigger to `heartbeat`.
#[derive(Debug)]
pub enum Heartbeat {}

impl Trigger for Heartbeat {
    fn leads_to(function: Function<'_>) -> bool {
        matches!(
            function,
            Function::Heartbeat | Function::Heartbeats | Function::Leave | Function::PutStatus | Function::DeleteStatus
        )
    }

    async fn call(_setup: &Setup, call: Call) -> Result<Answer, Error> {
        let reply = match call {
            Call::Beat(beat) => {
                let user = beat.user.clone();
                responses::heartbeat(&user, &only(beat_many([beat]).await?)?)
            }
            Call::Beats(beats) => {
                let good = beats.good.clone();
                let outcomes = if good.is_empty() { Vec::new() } else { beat_many(good).await? };
                responses::heartbeats(&beats, &outcomes)
            }
            Call::Leave(departure) => {
                let user = departure.user.clone();
                responses::leave(&user, &only(leave_many(vec![departure]).await?)?)
            }
            Call::Choose(choice_request) => {
                let user = choice_request.user.clone();
                responses::status(&user, &only(choose_many(vec![choice_request]).await?)?)
            }
            _ => return Err(astray()),
        };
        Ok(reply.into())
    }
}

pub(crate) async fn beat_many(beats: impl IntoIterator<Item = Beat>) -> Result<Vec<Result<Standing, Error>>, Error> {
    answers_in(wit::beat_many(beats_out(beats)).await, |standing| Ok(standing_in(standing)))
}

pub(crate) async fn leave_many(departures: Vec<Departure>) -> Result<Vec<Result<Standing, Error>>, Error> {
    let departures = departures.into_iter().map(departure_out).collect();
    answers_in(wit::leave_many(departures).await, |standing| Ok(standing_in(standing)))
}

async fn choose_many(choice_requests: Vec<ChoiceRequest>) -> Result<Vec<Result<ChoiceResult, Error>>, Error> {
    let choice_requests = choice_requests.into_iter().map(choice_request_out).collect();
    answers_in(wit::choose_many(choice_requests).await, |chosen| Ok(chosen_in(chosen)))
}
