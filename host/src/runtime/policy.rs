//! The contract's `policy`, over the store chosen at start.

use rollcall_core::policy::{Audience, Change, Numbers, Privacy, Relation};
use rollcall_core::{Invalid, UserId};
use rollcall_functions::capabilities::{ChangesSince, MAX_BATCH, OwnSettings, Page};

use super::bindings::platform::rollcall::presence as wit;
use super::codec;
use super::platform::{Access, Capabilities, StoreData, platform, timed};

impl wit::policy::Host for StoreData {}

impl<T> wit::policy::HostWithStore<T> for Capabilities {
    async fn relations(
        accessor: &Access<T>,
        viewer: Option<String>,
        subjects: wit::types::Ids,
    ) -> Result<Vec<wit::policy::Relation>, wit::types::Error> {
        let platform = platform(accessor);
        let viewer = viewer.map(codec::user_in).transpose().map_err(|invalid| codec::error_out(invalid.into()))?;
        let subjects = codec::ids_in(subjects).map_err(|invalid| codec::error_out(invalid.into()))?;
        let relations = timed(&platform, "relations", platform.policies.relations(viewer, subjects)).await?;
        Ok(relations.into_iter().map(relation_out).collect())
    }

    async fn settings_of(accessor: &Access<T>, user: String) -> Result<wit::policy::OwnSettings, wit::types::Error> {
        let platform = platform(accessor);
        let user = codec::user_in(user).map_err(|invalid| codec::error_out(invalid.into()))?;
        let own = timed(&platform, "settings", platform.policies.settings_of(user)).await?;
        let texts = |users: Vec<UserId>| users.into_iter().map(UserId::into_string).collect();
        let (contacts, blocks) = (texts(own.contacts), texts(own.blocks));
        Ok(wit::policy::OwnSettings { privacy: privacy_out(own.privacy), contacts, blocks })
    }

    async fn snapshot(accessor: &Access<T>, page: u32) -> Result<wit::policy::Page, wit::types::Error> {
        let platform = platform(accessor);
        let Page { changes, next, cursor, salt } =
            timed(&platform, "policy_page", platform.policies.snapshot(page)).await?;
        Ok(wit::policy::Page { changes: changes.into_iter().map(change_out).collect(), next, cursor, salt })
    }

    async fn since(
        accessor: &Access<T>,
        cursor: Vec<u64>,
        limit: u32,
    ) -> Result<wit::policy::Followed, wit::types::Error> {
        let platform = platform(accessor);
        Ok(match timed(&platform, "policy_since", platform.policies.since(cursor, limit)).await? {
            ChangesSince::Changes(changes, cursor) => {
                wit::policy::Followed::Changes((changes.into_iter().map(change_out).collect(), cursor))
            }
            ChangesSince::Gap => wit::policy::Followed::Gap,
        })
    }

    async fn apply_many(
        accessor: &Access<T>,
        changes: Vec<wit::policy::Change>,
    ) -> Result<Vec<Result<(), wit::types::Error>>, wit::types::Error> {
        if changes.len() > MAX_BATCH {
            return Err(wit::types::Error::TooMany(MAX_BATCH as u32));
        }
        let platform = platform(accessor);
        let changes = codec::all(changes, change_in)?;
        let outcomes = timed(&platform, "policy_apply", platform.policies.apply_many(changes)).await?;
        Ok(outcomes.into_iter().map(|outcome| outcome.map_err(codec::error_out)).collect())
    }
}

fn relation_out(relation: Relation) -> wit::policy::Relation {
    let Relation { restricted, blocked, contact, privacy } = relation;
    wit::policy::Relation { restricted, blocked, contact, privacy: privacy_out(privacy) }
}

fn change_in(change: wit::policy::Change) -> Result<Change, Invalid> {
    use wit::policy::Change as Wire;
    let user = |id: String| UserId::parse(id);
    Ok(match change {
        Wire::Restrict(id) => Change::Restrict(user(id)?),
        Wire::Unrestrict(id) => Change::Unrestrict(user(id)?),
        Wire::RestrictMany(numbers) => Change::RestrictMany(Numbers::new(numbers.page, numbers.bits)?),
        Wire::UnrestrictMany(numbers) => Change::UnrestrictMany(Numbers::new(numbers.page, numbers.bits)?),
        Wire::Block((owner, other)) => Change::Block(user(owner)?, user(other)?),
        Wire::Unblock((owner, other)) => Change::Unblock(user(owner)?, user(other)?),
        Wire::AddContact((owner, other)) => Change::AddContact(user(owner)?, user(other)?),
        Wire::RemoveContact((owner, other)) => Change::RemoveContact(user(owner)?, user(other)?),
        Wire::SetPrivacy((id, privacy)) => Change::SetPrivacy(user(id)?, privacy_in(privacy)),
    })
}

pub(super) fn change_out(change: Change) -> wit::policy::Change {
    use wit::policy::Change as Wire;
    let pair = |owner: UserId, other: UserId| (owner.into_string(), other.into_string());
    match change {
        Change::Restrict(id) => Wire::Restrict(id.into_string()),
        Change::Unrestrict(id) => Wire::Unrestrict(id.into_string()),
        Change::RestrictMany(numbers) => Wire::RestrictMany(numbers_out(numbers)),
        Change::UnrestrictMany(numbers) => Wire::UnrestrictMany(numbers_out(numbers)),
        Change::Block(owner, other) => Wire::Block(pair(owner, other)),
        Change::Unblock(owner, other) => Wire::Unblock(pair(owner, other)),
        Change::AddContact(owner, other) => Wire::AddContact(pair(owner, other)),
        Change::RemoveContact(owner, other) => Wire::RemoveContact(pair(owner, other)),
        Change::SetPrivacy(id, privacy) => Wire::SetPrivacy((id.into_string(), privacy_out(privacy))),
    }
}

fn numbers_out(numbers: Numbers) -> wit::policy::Numbers {
    wit::policy::Numbers { page: numbers.page(), bits: numbers.into_bits() }
}

pub(super) fn own_settings_in(own: wit::policy::OwnSettings) -> Result<OwnSettings, Invalid> {
    let users = |users: Vec<String>| users.into_iter().map(UserId::parse).collect::<Result<_, _>>();
    Ok(OwnSettings { privacy: privacy_in(own.privacy), contacts: users(own.contacts)?, blocks: users(own.blocks)? })
}

fn privacy_in(privacy: wit::policy::Privacy) -> Privacy {
    Privacy { presence: audience_in(privacy.presence), last_seen: audience_in(privacy.last_seen) }
}

fn privacy_out(privacy: Privacy) -> wit::policy::Privacy {
    wit::policy::Privacy { presence: audience_out(privacy.presence), last_seen: audience_out(privacy.last_seen) }
}

fn audience_in(audience: wit::policy::Audience) -> Audience {
    match audience {
        wit::policy::Audience::Everyone => Audience::Everyone,
        wit::policy::Audience::Contacts => Audience::Contacts,
        wit::policy::Audience::Nobody => Audience::Nobody,
    }
}

fn audience_out(audience: Audience) -> wit::policy::Audience {
    match audience {
        Audience::Everyone => wit::policy::Audience::Everyone,
        Audience::Contacts => wit::policy::Audience::Contacts,
        Audience::Nobody => wit::policy::Audience::Nobody,
    }
}
