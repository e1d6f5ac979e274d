//! Heartbeats, departures and choices.

use std::collections::HashMap;

use rollcall_core::choose::{NewChoice, choose};
use rollcall_core::heartbeat::needs_settling;
pub use rollcall_core::heartbeat::{Beat, BeatDetails, Beats, Departure, DepartureReason};
use rollcall_core::settle::settle;
use rollcall_core::{Choice, Error, Rules, UserId};

use crate::capabilities::{DeviceEvent, MAX_BATCH, Sessions, Touch, Touches, bounded};
use crate::commit_loop::{Effect, Outcome, Standing, settle_by};

/// A user sets their choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceRequest {
    /// The user.
    pub user: UserId,
    /// The new choice.
    pub choice: NewChoice,
}

/// The outcome of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceResult {
    /// What others see.
    pub standing: Standing,
    /// The choice as it is stored.
    pub choice: Choice,
}

/// An answer per item, in the order asked; an item that was refused at the edge keeps its error.
pub type Answers<T> = Result<Vec<Result<T, Error>>, Error>;

/// Records heartbeats: one round trip, and more only for users whose visible state changed.
pub async fn beat_many(store: &impl Sessions, rules: &Rules, beats: Beats) -> Answers<Standing> {
    let Beats { users, devices, details } = beats;
    bounded(details.len(), MAX_BATCH)?;
    if details.is_empty() {
        return Ok(Vec::new());
    }
    let alive_for = rules.alive_for();
    let events = details
        .iter()
        .map(|detail| DeviceEvent::Beat { kind: detail.kind, active: detail.active, alive_for })
        .collect();
    let touched = store.touch_many(Touches { users: users.clone(), devices, events }).await?;
    if touched.prior.len() != details.len() {
        return Err(missing_items());
    }
    let mut to_settle = Vec::new();
    let mut answers: Vec<Result<Standing, Error>> = Vec::with_capacity(details.len());
    for ((user, detail), prior) in users.iter().zip(&details).zip(touched.prior) {
        if let Ok(prior) = &prior
            && needs_settling(prior, detail.active, touched.now)
        {
            to_settle.push((answers.len(), UserId::parse(user)?));
        }
        answers.push(prior.map(|prior| Standing { state: prior.state, version: prior.version }));
    }
    if to_settle.is_empty() {
        return Ok(answers);
    }
    // If the store fails here, only the users whose state changed get the error; the other beats are stored.
    let settled = settle_all(store, rules, to_settle.iter().map(|(_, user)| user.clone()).collect()).await;
    for (place, user) in to_settle {
        if let Some(answer) = answers.get_mut(place) {
            *answer = standing_of(&user, &settled);
        }
    }
    Ok(answers)
}

/// Records departures. A departure can move the deadline forward, so the session is always settled.
pub async fn leave_many(
    store: &impl Sessions,
    rules: &Rules,
    departures: Vec<Result<Departure, Error>>,
) -> Answers<Standing> {
    bounded(departures.len(), MAX_BATCH)?;
    let mut users = Vec::with_capacity(departures.len());
    let mut touches = Vec::with_capacity(departures.len());
    for departure in departures {
        users.push(departure.map(|departure| {
            let event = match departure.reason {
                DepartureReason::Logout => DeviceEvent::Logout,
                DepartureReason::Dropped => DeviceEvent::Dropped(rules.grace),
            };
            touches.push(Touch { user: departure.user.clone(), device: departure.device, event });
            departure.user
        }));
    }
    let touched = store.touch_many(touches.into_iter().collect()).await?;
    let mut prior = touched.prior.into_iter();
    for user in &mut users {
        if user.is_ok()
            && let Err(error) = prior.next().unwrap_or_else(|| Err(missing_items()))
        {
            *user = Err(error);
        }
    }
    let settled = settle_all(store, rules, users.iter().flatten().cloned().collect()).await;
    Ok(users.into_iter().map(|user| user.and_then(|user| standing_of(&user, &settled))).collect())
}

/// Records choices. Of several for one user in a batch, the last is applied and answers all.
pub async fn choose_many(
    store: &impl Sessions,
    rules: &Rules,
    requests: Vec<Result<ChoiceRequest, Error>>,
) -> Answers<ChoiceResult> {
    bounded(requests.len(), MAX_BATCH)?;
    let mut new_choices = HashMap::new();
    let mut take = |request: ChoiceRequest| {
        new_choices.insert(request.user.clone(), request.choice);
        request.user
    };
    let users: Vec<Result<UserId, Error>> = requests.into_iter().map(|request| request.map(&mut take)).collect();
    let choosers = new_choices.keys().cloned().collect();
    let settled = settle_by(store, rules, choosers, |user, session, moment| match new_choices.get(user) {
        Some(new) => {
            let (choice, decision) = choose(session, moment, rules, new);
            (Some(decision), Some(choice))
        }
        None => (None, None),
    })
    .await?;
    Ok(users.into_iter().map(|user| user.and_then(|user| chosen(settled.get(&user)))).collect())
}

fn chosen(settled: Option<&Result<Outcome<Option<Choice>>, Error>>) -> Result<ChoiceResult, Error> {
    match settled {
        Some(Ok(Outcome { effect: Effect::Stale, .. })) => Err(Error::Unavailable(RETRY_MS)),
        Some(Ok(Outcome { standing, extra: Some(choice), .. })) => {
            Ok(ChoiceResult { standing: *standing, choice: choice.clone() })
        }
        Some(Err(error)) => Err(error.clone()),
        Some(Ok(_)) | None => Err(missing_items()),
    }
}

/// A choice that lost the compare-and-swap in every round was not stored; the client retries after this.
const RETRY_MS: u32 = 100;

fn standing_of(user: &UserId, settled: &Result<Settled, Error>) -> Result<Standing, Error> {
    match settled.as_ref().map(|settled| settled.get(user)) {
        Ok(Some(Ok(outcome))) => Ok(outcome.standing),
        Ok(Some(Err(error))) | Err(error) => Err(error.clone()),
        Ok(None) => Err(missing_items()),
    }
}

type Settled = HashMap<UserId, Result<Outcome<()>, Error>>;

async fn settle_all(store: &impl Sessions, rules: &Rules, users: Vec<UserId>) -> Result<Settled, Error> {
    if users.is_empty() {
        return Ok(Settled::new());
    }
    settle_by(store, rules, users, |_, session, moment| (settle(session, moment, rules), ())).await
}

/// A store that returns fewer items than requested breaks the contract.
fn missing_items() -> Error {
    Error::Other("the store returned fewer items than requested".to_owned())
}
