//! Load, decide, commit — and once more for those whom somebody overtook.

use std::collections::HashMap;

use rollcall_core::settle::Decision;
use rollcall_core::{Error, Moment, Rules, Session, Span, State, UserId, visibility};

use crate::capabilities::{Commit, Committed, Sessions};

/// How often a decision that was overtaken is made anew. Whoever overtakes brings the session further, so the second
/// round nearly always finds nothing to do; after the last, the deadline that is still set brings the next chance.
const ROUNDS: usize = 4;

/// How a person stands: what others see, and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What others see.
    pub state: State,
    /// The version of that; 0 if nothing was ever published.
    pub version: u64,
}

/// What became of one person's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome<T> {
    pub(crate) standing: Standing,
    pub(crate) fate: Fate,
    /// What the decider wanted to remember of its decision.
    pub(crate) extra: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The record and the deadline were right already.
    Untouched,
    /// Something new was published, so long after it became true.
    Published(Span),
    /// Only the deadline or the choice moved.
    Rescheduled,
    /// Overtaken in every round.
    Stale,
}

/// One person's decision in the making: what to commit, if anything, and what to remember of it.
pub(crate) type Decided<T> = (Option<Decision>, T);

/// Settles people by `decide`, once for each person however often they are named. The answer has every one of them.
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

/// One round. Answers with those who were overtaken.
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
    Ok(overtaken(committers, committed, outcomes))
}

/// What will have become of the person if the commit is applied.
fn outcome<T>(session: &Session, moment: &Moment, rules: &Rules, decision: Option<&Decision>, extra: T) -> Outcome<T> {
    let publish = decision.and_then(|decision| decision.publish.as_ref());
    let standing = match publish {
        Some(published) => Standing { state: published.state, version: published.version },
        None => {
            let now = visibility::look(session, moment, rules);
            Standing { state: now.state, version: now.version }
        }
    };
    let fate = match (decision, publish) {
        (None, _) => Fate::Untouched,
        (Some(decision), Some(_)) => Fate::Published(decision.lag),
        (Some(_), None) => Fate::Rescheduled,
    };
    Outcome { standing, fate, extra }
}

fn overtaken<T>(
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
                    outcome.fate = Fate::Stale;
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
