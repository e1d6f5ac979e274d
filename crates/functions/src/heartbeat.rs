//! People come, stay, leave, and say how they wish to be seen.

use std::collections::HashMap;

use rollcall_core::choose::{Wish, choose};
use rollcall_core::heartbeat::moves;
pub use rollcall_core::heartbeat::{Beat, BeatDetails, Beats, Departure, Reason};
use rollcall_core::settle::settle;
use rollcall_core::{Choice, Error, Rules, UserId};

use crate::capabilities::{DeviceEvent, Sessions, Touch, Touches, bounded};
use crate::settling::{Fate, Outcome, Standing, settle_by};

/// A person's own setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceRequest {
    /// Who chooses.
    pub user: UserId,
    /// What.
    pub wish: Wish,
}

/// How a person chose and how they stand now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceResult {
    /// What others see.
    pub standing: Standing,
    /// The setting as it is kept.
    pub choice: Choice,
}

/// An answer per item, in the order asked; an item that was refused at the edge stays refused, in its place.
pub type Answers<T> = Result<Vec<Result<T, Error>>, Error>;

/// Takes heartbeats: one round trip, and more only for those whose visible state changed.
pub async fn beat_many(store: &impl Sessions, rules: &Rules, beats: Beats) -> Answers<Standing> {
    let Beats { users, devices, details } = beats;
    bounded(&details)?;
    if details.is_empty() {
        return Ok(Vec::new());
    }
    let alive_for = rules.alive_for();
    let events = details
        .iter()
        .map(|detail| DeviceEvent::Beat { kind: detail.kind, active: detail.active, alive_for })
        .collect();
    let touched = store.touch_many(Touches { users: users.clone(), devices, events }).await?;
    if touched.found.len() != details.len() {
        return Err(short_answer());
    }
    let mut movers = Vec::new();
    let mut answers: Vec<Result<Standing, Error>> = Vec::with_capacity(details.len());
    for ((user, detail), found) in users.iter().zip(&details).zip(touched.found) {
        if let Ok(found) = &found
            && moves(found, detail.active, touched.now)
        {
            movers.push((answers.len(), UserId::parse(user)?));
        }
        answers.push(found.map(|found| Standing { state: found.state, version: found.version }));
    }
    if movers.is_empty() {
        return Ok(answers);
    }
    // If the store went away meanwhile, those who moved fail; the others' beats are in.
    let settled = settle_all(store, rules, movers.iter().map(|(_, user)| user.clone()).collect()).await;
    for (place, user) in movers {
        if let Some(answer) = answers.get_mut(place) {
            *answer = standing_of(&user, &settled);
        }
    }
    Ok(answers)
}

/// Takes departures. A departure can bring the deadline nearer, so the session is always settled.
pub async fn leave_many(
    store: &impl Sessions,
    rules: &Rules,
    departures: Vec<Result<Departure, Error>>,
) -> Answers<Standing> {
    bounded(&departures)?;
    let mut people = Vec::with_capacity(departures.len());
    let mut touches = Vec::with_capacity(departures.len());
    for departure in departures {
        people.push(departure.map(|departure| {
            let event = match departure.reason {
                Reason::Logout => DeviceEvent::Logout,
                Reason::Dropped => DeviceEvent::Dropped(rules.grace),
            };
            touches.push(Touch { user: departure.user.clone(), device: departure.device, event });
            departure.user
        }));
    }
    let touched = store.touch_many(touches.into_iter().collect()).await?;
    let mut found = touched.found.into_iter();
    for person in &mut people {
        if person.is_ok()
            && let Err(error) = found.next().unwrap_or_else(|| Err(short_answer()))
        {
            *person = Err(error);
        }
    }
    let settled = settle_all(store, rules, people.iter().flatten().cloned().collect()).await;
    Ok(people.into_iter().map(|person| person.and_then(|user| standing_of(&user, &settled))).collect())
}

/// Takes people's own settings. Of several for one person in a batch, the last counts and answers for all.
pub async fn choose_many(
    store: &impl Sessions,
    rules: &Rules,
    choice_requests: Vec<Result<ChoiceRequest, Error>>,
) -> Answers<ChoiceResult> {
    bounded(&choice_requests)?;
    let mut wishes = HashMap::new();
    let people: Vec<Result<UserId, Error>> = choice_requests
        .into_iter()
        .map(|choice_request| {
            choice_request.map(|choice_request| {
                wishes.insert(choice_request.user.clone(), choice_request.wish);
                choice_request.user
            })
        })
        .collect();
    let users = wishes.keys().cloned().collect();
    let settled = settle_by(store, rules, users, |user, session, moment| match wishes.get(user) {
        Some(wish) => {
            let (choice, decision) = choose(session, moment, rules, wish);
            (Some(decision), Some(choice))
        }
        None => (None, None),
    })
    .await?;
    Ok(people.into_iter().map(|person| person.and_then(|user| chosen(settled.get(&user)))).collect())
}

fn chosen(settled: Option<&Result<Outcome<Option<Choice>>, Error>>) -> Result<ChoiceResult, Error> {
    match settled {
        Some(Ok(Outcome { fate: Fate::Stale, .. })) => Err(Error::Unavailable(RETRY_MS)),
        Some(Ok(Outcome { standing, extra: Some(choice), .. })) => {
            Ok(ChoiceResult { standing: *standing, choice: choice.clone() })
        }
        Some(Err(error)) => Err(error.clone()),
        Some(Ok(_)) | None => Err(short_answer()),
    }
}

/// A choice that was overtaken in every round was not kept; a moment later it will be.
const RETRY_MS: u32 = 100;

fn standing_of(user: &UserId, settled: &Result<Settled, Error>) -> Result<Standing, Error> {
    match settled.as_ref().map(|settled| settled.get(user)) {
        Ok(Some(Ok(outcome))) => Ok(outcome.standing),
        Ok(Some(Err(error))) | Err(error) => Err(error.clone()),
        Ok(None) => Err(short_answer()),
    }
}

type Settled = HashMap<UserId, Result<Outcome<()>, Error>>;

async fn settle_all(store: &impl Sessions, rules: &Rules, users: Vec<UserId>) -> Result<Settled, Error> {
    if users.is_empty() {
        return Ok(Settled::new());
    }
    settle_by(store, rules, users, |_, session, moment| (settle(session, moment, rules), ())).await
}

/// A platform that answers with fewer items than it was asked for breaks the contract.
fn short_answer() -> Error {
    Error::Other("the store answered with fewer items than it was asked for".to_owned())
}
