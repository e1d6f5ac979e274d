//! Load, decide, commit; again for users whose commit lost the compare-and-swap.

use std::collections::HashMap;

use rollcall_core::settle::Decision;
use rollcall_core::{Error, Moment, Rules, Session, Span, State, UserId, visibility};

use crate::capabilities::{Commit, Committed, Sessions};

/// How often a stale decision is made again. The winner of the race usually settled the session, so that the second round
/// finds nothing to do; after the last round, the deadline that is still set brings the next chance.
const ROUNDS: usize = 4;

/// A user's visible state and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What others see.
    pub state: State,
    /// Its version; 0 if nothing was ever published.
    pub version: u64,
}

/// The outcome of one user's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome<T> {
    pub(crate) standing: Standing,
    pub(crate) effect: Effect,
    /// What the caller wants back from its decision.
    pub(crate) extra: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The record and the deadline were right already.
    Unchanged,
    /// A record was published, this long after the deadline.
    Published(Span),
    /// Only the deadline or the choice changed.
    Rescheduled,
    /// The commit was stale in every round.
    Stale,
}

/// What to commit for one user, if anything, and what the caller wants back.
pub(crate) type Decided<T> = (Option<Decision>, T);

/// Settles users by `decide`, each once even if listed twice. The answer has an entry for every user.
pub(crate) async fn settle_by<T: Clone>(
    store: &impl Sessions,
    rules: &Rules,
    mut users: Vec<UserId>,
    decide: impl Fn(&UserId, &Session, &Moment) -> Decided<T>,
) -> Result<HashMap<UserId, Result<Outcome<T>, Error>>, Error> {
    users.sort_unstable();
    users.dedup();
    let mut outcomes = HashMap::with_capacity(users.len());
    for _ in 0..ROUNDS {
        if users.is_empty() {
            break;
        }
        users = round(store, rules, users, &decide, &mut outcomes).await?;
    }
    Ok(outcomes)
}

/// One round. Returns the users whose commit was stale.
async fn round<T: Clone>(
    store: &impl Sessions,
    rules: &Rules,
    users: Vec<UserId>,
    decide: &impl Fn(&UserId, &Session, &Moment) -> Decided<T>,
    outcomes: &mut HashMap<UserId, Result<Outcome<T>, Error>>,
) -> Result<Vec<UserId>, Error> {
    let loaded = store.load_many(users.clone()).await?;
    let mut commits = Vec::new();
    for (user, session) in users.into_iter().zip(loaded.sessions) {
        let session = match session {
            Ok(session) => session,
            Err(error) => {
                outcomes.insert(user, Err(error));
                continue;
            }
        };
        let (decision, extra) = decide(&user, &session, &loaded.moment);
        outcomes.insert(user.clone(), Ok(outcome(&session, &loaded.moment, rules, decision.as_ref(), extra)));
        if let Some(decision) = decision {
            commits.push(Commit { user, expected: session.revision, decision });
        }
    }
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let committers: Vec<UserId> = commits.iter().map(|commit| commit.user.clone()).collect();
    let committed = store.commit_many(commits).await?;
    Ok(stale(committers, committed, outcomes))
}

/// The outcome if the commit is applied.
fn outcome<T>(session: &Session, moment: &Moment, rules: &Rules, decision: Option<&Decision>, extra: T) -> Outcome<T> {
    let publish = decision.and_then(|decision| decision.publish.as_ref());
    let standing = match publish {
        Some(published) => Standing { state: published.state, version: published.version },
        None => {
            let now = visibility::derive_published(session, moment, rules);
            Standing { state: now.state, version: now.version }
        }
    };
    let effect = match (decision, publish) {
        (None, _) => Effect::Unchanged,
        (Some(decision), Some(_)) => Effect::Published(decision.lag),
        (Some(_), None) => Effect::Rescheduled,
    };
    Outcome { standing, effect, extra }
}

fn stale<T>(
    users: Vec<UserId>,
    committed: Vec<Result<Committed, Error>>,
    outcomes: &mut HashMap<UserId, Result<Outcome<T>, Error>>,
) -> Vec<UserId> {
    let mut again = Vec::new();
    for (user, committed) in users.into_iter().zip(committed) {
        match committed {
            Ok(Committed::Applied) => {}
            Ok(Committed::Stale) => {
                if let Some(Ok(outcome)) = outcomes.get_mut(&user) {
                    outcome.effect = Effect::Stale;
                }
                again.push(user);
            }
            Err(error) => {
                outcomes.insert(user, Err(error));
            }
        }
    }
    again
}
