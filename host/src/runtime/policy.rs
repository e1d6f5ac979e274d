//! The contract's `policy`, over the store chosen at start.

use rollcall_contract::host::convert::{all, each, replies};
use rollcall_contract::host::wit;
use rollcall_core::UserId;
use rollcall_functions::capabilities::MAX_BATCH;

use super::platform::{Access, Capabilities, StoreData, platform, timed};

impl wit::policy::Host for StoreData {}

impl<T> wit::policy::HostWithStore<T> for Capabilities {
    async fn relations(
        accessor: &Access<T>,
        viewer: Option<String>,
        subjects: wit::types::Ids,
    ) -> Result<Vec<wit::policy_types::Relation>, wit::types::Error> {
        let platform = platform(accessor);
        let (viewer, subjects) = (viewer.map(UserId::parse).transpose()?, subjects.try_into()?);
        Ok(each(timed(&platform, "relations", platform.policies.relations(viewer, subjects)).await?))
    }

    async fn settings_of(
        accessor: &Access<T>,
        user: String,
    ) -> Result<wit::policy_types::OwnSettings, wit::types::Error> {
        let platform = platform(accessor);
        Ok(timed(&platform, "settings", platform.policies.settings_of(UserId::parse(user)?)).await?.into())
    }

    async fn snapshot(accessor: &Access<T>, page: u32) -> Result<wit::policy_types::PolicyPage, wit::types::Error> {
        let platform = platform(accessor);
        Ok(timed(&platform, "policy_page", platform.policies.snapshot(page)).await?.into())
    }

    async fn since(
        accessor: &Access<T>,
        cursor: Vec<u64>,
        limit: u32,
    ) -> Result<wit::policy_types::ChangesSince, wit::types::Error> {
        let platform = platform(accessor);
        Ok(timed(&platform, "policy_since", platform.policies.since(cursor, limit)).await?.into())
    }

    async fn apply_many(
        accessor: &Access<T>,
        changes: Vec<wit::policy_types::PolicyChange>,
    ) -> Result<Vec<Result<(), wit::types::Error>>, wit::types::Error> {
        if changes.len() > MAX_BATCH {
            return Err(wit::types::Error::TooMany(MAX_BATCH as u32));
        }
        let platform = platform(accessor);
        Ok(replies(timed(&platform, "policy_apply", platform.policies.apply_many(all(changes)?)).await?))
    }
}
