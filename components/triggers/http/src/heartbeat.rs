//! The trigger of `heartbeat`: beats, departures and choices.

use rollcall_api::call::{Beat, Call, ChoiceRequest, ChoiceResult, Departure, Standing};
use rollcall_api::{Operation, responses};
use rollcall_contract::guest::convert::{answers, each};
use rollcall_contract::guest::wit::heartbeat as wit;
use rollcall_contract::{call, lent};
use rollcall_core::Error;

use crate::{Answer, Setup, Trigger, misrouted, only};

/// The trigger of `heartbeat`.
#[derive(Debug)]
pub enum Heartbeat {}

impl Trigger for Heartbeat {
    fn serves(operation: Operation<'_>) -> bool {
        matches!(
            operation,
            Operation::Heartbeat
                | Operation::Heartbeats
                | Operation::Leave
                | Operation::PutStatus
                | Operation::DeleteStatus
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
            Call::Choose(request) => {
                let user = request.user.clone();
                responses::status(&user, &only(choose_many(vec![request]).await?)?)
            }
            _ => return Err(misrouted()),
        };
        Ok(reply.into())
    }
}

pub(crate) async fn beat_many(beats: impl IntoIterator<Item = Beat>) -> Result<Vec<Result<Standing, Error>>, Error> {
    answers(call!(wit::beat_many(lent!(beats.into_iter().collect()))))
}

pub(crate) async fn leave_many(departures: Vec<Departure>) -> Result<Vec<Result<Standing, Error>>, Error> {
    answers(call!(wit::leave_many(lent!(each(departures)))))
}

async fn choose_many(requests: Vec<ChoiceRequest>) -> Result<Vec<Result<ChoiceResult, Error>>, Error> {
    answers(call!(wit::choose_many(lent!(each(requests)))))
}
