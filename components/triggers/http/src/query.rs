//! The trigger to `query`: who is here, and how this service itself is.

use rollcall_api::call::{Call, View};
use rollcall_api::{Function, Page, Reply, openapi, pages, responses};
use rollcall_core::{Error, UserId};

use crate::codec::{answers_in, names_out, view_in, viewer_out};
use crate::wit::query as wit;
use crate::{Answer, Setup, Trigger, astray, only};

/// Who is looked for to find out whether anybody can be.
const CANARY: &str = "rollcall/canary";

/// The trigger to `query`.
#[derive(Debug)]
pub enum Query {}

impl Trigger for Query {
    fn leads_to(function: Function<'_>) -> bool {
        matches!(
            function,
            Function::PresenceOne(_) | Function::PresenceQuery | Function::PresencePost | Function::PresenceBatch
        )
    }

    async fn call(_setup: &Setup, call: Call) -> Result<Answer, Error> {
        let Call::LookUp(asked) = call else { return Err(astray()) };
        let views = look_up(asked.viewer.as_ref(), &asked.users).await?;
        Ok(responses::look_up(&asked, &views).into())
    }

    async fn page(page: Page) -> Option<Result<Reply, Error>> {
        match page {
            Page::Healthz => Some(Ok(pages::healthz())),
            Page::Readyz => Some(canary().await.map(|()| pages::readyz())),
            Page::OpenApi => Some(Ok(openapi())),
            // Whoever runs the components counts what they do.
            Page::Metrics => None,
        }
    }
}

async fn look_up(viewer: Option<&UserId>, users: &[UserId]) -> Result<Vec<Result<Option<View>, Error>>, Error> {
    answers_in(wit::look_up(viewer_out(viewer), names_out(users)).await, |presence| Ok(view_in(presence.view)))
}

/// Goes through the function, the store and the archive without changing anything.
async fn canary() -> Result<(), Error> {
    only(look_up(None, &[UserId::parse(CANARY)?]).await?).map(|_| ())
}
