//! The trigger of `query`: presence, and the pages about the service.

use rollcall_api::call::{Call, View};
use rollcall_api::{Operation, Reply, StatusPage, openapi, pages, responses};
use rollcall_contract::guest::convert::views;
use rollcall_contract::guest::wit::query as wit;
use rollcall_contract::{call, lent};
use rollcall_core::{Error, Ids, UserId};

use crate::{Answer, Setup, Trigger, misrouted, only, text};

/// The user that the readiness check looks up.
const CANARY: &str = "rollcall/canary";

/// The trigger of `query`.
#[derive(Debug)]
pub enum Query {}

impl Trigger for Query {
    fn serves(operation: Operation<'_>) -> bool {
        matches!(
            operation,
            Operation::PresenceOne(_) | Operation::PresenceQuery | Operation::PresencePost | Operation::PresenceBatch
        )
    }

    async fn call(_setup: &Setup, call: Call) -> Result<Answer, Error> {
        let Call::LookUp(asked) = call else { return Err(misrouted()) };
        let views = look_up(asked.viewer.as_ref(), &asked.users).await?;
        Ok(responses::look_up(&asked, &views).into())
    }

    async fn page(page: StatusPage) -> Option<Result<Reply, Error>> {
        match page {
            StatusPage::Healthz => Some(Ok(pages::healthz())),
            StatusPage::Readyz => Some(canary().await.map(|()| pages::readyz())),
            StatusPage::OpenApi => Some(Ok(openapi())),
            // The platform that runs the components counts calls.
            StatusPage::Metrics => None,
        }
    }
}

async fn look_up(viewer: Option<&UserId>, users: &[UserId]) -> Result<Vec<Result<Option<View>, Error>>, Error> {
    let packed: Ids<UserId> = users.iter().collect();
    let presences = call!(wit::look_up(lent!(text: viewer.map(text)), lent!(packed.into())))?;
    Ok(views(presences, viewer, users)?)
}

/// Reads through the function, the store and the archive.
async fn canary() -> Result<(), Error> {
    only(look_up(None, &[UserId::parse(CANARY)?]).await?).map(|_| ())
}
