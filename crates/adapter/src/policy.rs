//! The contract's `policy`, over whatever an adapter brings.

use rollcall_core::policy::{Audience, Change, Numbers, Privacy, Relation};
use rollcall_core::{Invalid, UserId};
use rollcall_functions::capabilities::{ChangesSince, MAX_BATCH, OwnSettings, Page, Policy};

use crate::bindings::exports::rollcall::presence::policy as wit;
use crate::codec::{answers_out, bounded, error_out, fit, ids_in, user_in};
use crate::settings::{Adapter, Exports, platform_of};
use crate::wit::types;

/// The most subjects in one question: the bound of the contract.
const MAX_SUBJECTS: usize = 10_000;

impl<A: Adapter> wit::Guest for Exports<A> {
    async fn relations(viewer: Option<String>, subjects: types::Ids) -> Result<Vec<wit::Relation>, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        bounded(subjects.lengths.len(), MAX_SUBJECTS).map_err(error_out)?;
        let viewer = viewer.map(user_in).transpose().map_err(refusal)?;
        let subjects = ids_in(subjects).map_err(refusal)?;
        let relations = ready.platform.relations(viewer, subjects).await.map_err(error_out)?;
        Ok(relations.into_iter().map(relation_out).collect())
    }

    async fn settings_of(user: String) -> Result<wit::OwnSettings, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        let user = user_in(user).map_err(refusal)?;
        Ok(own_settings_out(ready.platform.settings_of(user).await.map_err(error_out)?))
    }

    async fn snapshot(page: u32) -> Result<wit::Page, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        let Page { changes, next, cursor, salt } = ready.platform.snapshot(page).await.map_err(error_out)?;
        Ok(wit::Page { changes: changes.into_iter().map(change_out).collect(), next, cursor, salt })
    }

    async fn since(cursor: Vec<u64>, limit: u32) -> Result<wit::Followed, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        Ok(match ready.platform.since(cursor, limit).await.map_err(error_out)? {
            ChangesSince::Changes(changes, cursor) => {
                wit::Followed::Changes((changes.into_iter().map(change_out).collect(), cursor))
            }
            ChangesSince::Gap => wit::Followed::Gap,
        })
    }

    async fn apply_many(changes: Vec<wit::Change>) -> Result<Vec<Result<(), types::Error>>, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        bounded(changes.len(), MAX_BATCH).map_err(error_out)?;
        let (changes, refused) = fit(changes, change_in);
        let outcomes = ready.platform.apply_many(changes).await.map_err(error_out)?;
        Ok(answers_out(refused.among(outcomes), |()| ()))
    }
}

fn refusal(invalid: Invalid) -> types::Error {
    error_out(invalid.into())
}

fn relation_out(relation: Relation) -> wit::Relation {
    let Relation { restricted, blocked, contact, privacy } = relation;
    wit::Relation { restricted, blocked, contact, privacy: privacy_out(privacy) }
}

fn own_settings_out(own: OwnSettings) -> wit::OwnSettings {
    let texts = |users: Vec<UserId>| users.into_iter().map(UserId::into_string).collect();
    wit::OwnSettings { privacy: privacy_out(own.privacy), contacts: texts(own.contacts), blocks: texts(own.blocks) }
}

fn change_in(change: wit::Change) -> Result<Change, Invalid> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn a_change_comes_out_as_it_went_in() {
        let user = |id: &str| UserId::parse(id).unwrap();
        let privacy = Privacy { presence: Audience::Contacts, last_seen: Audience::Nobody };
        let numbers = || Numbers::new(3, vec![0x80, 1]).unwrap();
        let changes = [
            Change::Restrict(user("a")),
            Change::Unrestrict(user("a")),
            Change::RestrictMany(numbers()),
            Change::UnrestrictMany(numbers()),
            Change::Block(user("a"), user("b")),
            Change::Unblock(user("a"), user("b")),
            Change::AddContact(user("a"), user("b")),
            Change::RemoveContact(user("a"), user("b")),
            Change::SetPrivacy(user("a"), privacy),
        ];
        for change in changes {
            assert_eq!(change_in(change_out(change.clone())), Ok(change));
        }
        assert!(change_in(wit::Change::Block(("a".to_owned(), String::new()))).is_err());
    }
}
