//! The platform's policy, as the functions know it.

use rollcall_core as core;
use rollcall_core::policy::{Audience, Change, Numbers, Privacy, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, OwnSettings, Page, Policy};

use crate::codec::{error_in, ids_out, refused};
use crate::wit::policy as wit;

/// The policy that the platform provides.
pub struct PlatformPolicy;

impl Policy for PlatformPolicy {
    async fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Relation>, Error> {
        let viewer = viewer.map(UserId::into_string);
        let relations = wit::relations(viewer, ids_out(subjects)).await.map_err(error_in)?;
        Ok(relations.into_iter().map(relation_in).collect())
    }

    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error> {
        let own = wit::settings_of(user.into_string()).await.map_err(error_in)?;
        let users = |users: Vec<String>| users.into_iter().map(UserId::parse).collect::<Result<_, _>>();
        Ok(OwnSettings {
            privacy: privacy_in(own.privacy),
            contacts: users(own.contacts).map_err(refused)?,
            blocks: users(own.blocks).map_err(refused)?,
        })
    }

    async fn snapshot(&self, page: u32) -> Result<Page, Error> {
        let wit::Page { changes, next, cursor, salt } = wit::snapshot(page).await.map_err(error_in)?;
        Ok(Page { changes: changes_in(changes)?, next, cursor, salt })
    }

    async fn since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        Ok(match wit::since(cursor, limit).await.map_err(error_in)? {
            wit::Followed::Changes((changes, cursor)) => ChangesSince::Changes(changes_in(changes)?, cursor),
            wit::Followed::Gap => ChangesSince::Gap,
        })
    }

    async fn apply_many(&self, changes: Vec<Change>) -> Result<Vec<Result<(), Error>>, Error> {
        let changes = changes.into_iter().map(change_out).collect();
        let outcomes = wit::apply_many(changes).await.map_err(error_in)?;
        Ok(outcomes.into_iter().map(|outcome| outcome.map_err(error_in)).collect())
    }
}

fn changes_in(changes: Vec<wit::Change>) -> Result<Vec<Change>, Error> {
    changes.into_iter().map(|change| change_in(change).map_err(refused)).collect()
}

fn relation_in(relation: wit::Relation) -> Relation {
    let wit::Relation { restricted, blocked, contact, privacy } = relation;
    Relation { restricted, blocked, contact, privacy: privacy_in(privacy) }
}

/// A change, from whoever makes it.
pub fn change_in(change: wit::Change) -> Result<Change, core::Invalid> {
    let user = |id: String| UserId::parse(id);
    Ok(match change {
        wit::Change::Restrict(id) => Change::Restrict(user(id)?),
        wit::Change::Unrestrict(id) => Change::Unrestrict(user(id)?),
        wit::Change::RestrictMany(numbers) => Change::RestrictMany(Numbers::new(numbers.page, numbers.bits)?),
        wit::Change::UnrestrictMany(numbers) => Change::UnrestrictMany(Numbers::new(numbers.page, numbers.bits)?),
        wit::Change::Block((owner, other)) => Change::Block(user(owner)?, user(other)?),
        wit::Change::Unblock((owner, other)) => Change::Unblock(user(owner)?, user(other)?),
        wit::Change::AddContact((owner, other)) => Change::AddContact(user(owner)?, user(other)?),
        wit::Change::RemoveContact((owner, other)) => Change::RemoveContact(user(owner)?, user(other)?),
        wit::Change::SetPrivacy((id, privacy)) => Change::SetPrivacy(user(id)?, privacy_in(privacy)),
    })
}

fn change_out(change: Change) -> wit::Change {
    let pair = |owner: UserId, other: UserId| (owner.into_string(), other.into_string());
    match change {
        Change::Restrict(id) => wit::Change::Restrict(id.into_string()),
        Change::Unrestrict(id) => wit::Change::Unrestrict(id.into_string()),
        Change::RestrictMany(numbers) => wit::Change::RestrictMany(numbers_out(numbers)),
        Change::UnrestrictMany(numbers) => wit::Change::UnrestrictMany(numbers_out(numbers)),
        Change::Block(owner, other) => wit::Change::Block(pair(owner, other)),
        Change::Unblock(owner, other) => wit::Change::Unblock(pair(owner, other)),
        Change::AddContact(owner, other) => wit::Change::AddContact(pair(owner, other)),
        Change::RemoveContact(owner, other) => wit::Change::RemoveContact(pair(owner, other)),
        Change::SetPrivacy(id, privacy) => wit::Change::SetPrivacy((id.into_string(), privacy_out(privacy))),
    }
}

fn numbers_out(numbers: Numbers) -> wit::Numbers {
    wit::Numbers { page: numbers.page(), bits: numbers.into_bits() }
}

fn privacy_in(privacy: wit::Privacy) -> Privacy {
    Privacy { presence: audience_in(privacy.presence), last_seen: audience_in(privacy.last_seen) }
}

fn privacy_out(privacy: Privacy) -> wit::Privacy {
    wit::Privacy { presence: audience_out(privacy.presence), last_seen: audience_out(privacy.last_seen) }
}

fn audience_in(audience: wit::Audience) -> Audience {
    match audience {
        wit::Audience::Everyone => Audience::Everyone,
        wit::Audience::Contacts => Audience::Contacts,
        wit::Audience::Nobody => Audience::Nobody,
    }
}

fn audience_out(audience: Audience) -> wit::Audience {
    match audience {
        Audience::Everyone => wit::Audience::Everyone,
        Audience::Contacts => wit::Audience::Contacts,
        Audience::Nobody => wit::Audience::Nobody,
    }
}

/// What a person set for themselves, for the caller.
pub fn own_settings_out(own: OwnSettings) -> wit::OwnSettings {
    let texts = |users: Vec<UserId>| users.into_iter().map(UserId::into_string).collect();
    wit::OwnSettings { privacy: privacy_out(own.privacy), contacts: texts(own.contacts), blocks: texts(own.blocks) }
}
