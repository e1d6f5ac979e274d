//! Policy: settings, changes, verdicts and the policy cache.

use rollcall_core::policy::{Audience, Invalidation, Numbers, PolicyChange, Privacy, Relation, Ruling, Verdict};
use rollcall_core::{Invalid, UserId};
use rollcall_functions::capabilities::{ChangesSince, OwnSettings, PolicyPage, Visibility};
use rollcall_functions::restrictions::{CacheState, Freshness};

use super::wit::policy_types as wit;
use super::{all, each};

same_cases!(wit::Audience, Audience, [Everyone, Contacts, Nobody]);
same_cases!(wit::Ruling, Ruling, [Allowed, Restricted, Blocked, Private]);
same_cases!(wit::CacheState, CacheState, [Cold, Loading, Warm, TooLarge]);

impl From<wit::Privacy> for Privacy {
    fn from(privacy: wit::Privacy) -> Self {
        Self { presence: privacy.presence.into(), last_seen: privacy.last_seen.into() }
    }
}

impl From<Privacy> for wit::Privacy {
    fn from(privacy: Privacy) -> Self {
        Self { presence: privacy.presence.into(), last_seen: privacy.last_seen.into() }
    }
}

impl From<wit::Relation> for Relation {
    fn from(relation: wit::Relation) -> Self {
        let wit::Relation { restricted, blocked, contact, privacy } = relation;
        Self { restricted, blocked, contact, privacy: privacy.into() }
    }
}

impl From<Relation> for wit::Relation {
    fn from(relation: Relation) -> Self {
        let Relation { restricted, blocked, contact, privacy } = relation;
        Self { restricted, blocked, contact, privacy: privacy.into() }
    }
}

impl TryFrom<wit::OwnSettings> for OwnSettings {
    type Error = Invalid;

    fn try_from(own: wit::OwnSettings) -> Result<Self, Invalid> {
        let users = |users: Vec<String>| users.into_iter().map(UserId::parse).collect::<Result<_, _>>();
        Ok(Self { privacy: own.privacy.into(), contacts: users(own.contacts)?, blocks: users(own.blocks)? })
    }
}

impl From<OwnSettings> for wit::OwnSettings {
    fn from(own: OwnSettings) -> Self {
        let texts = |users: Vec<UserId>| users.into_iter().map(UserId::into_string).collect();
        Self { privacy: own.privacy.into(), contacts: texts(own.contacts), blocks: texts(own.blocks) }
    }
}

impl TryFrom<wit::Numbers> for Numbers {
    type Error = Invalid;

    fn try_from(numbers: wit::Numbers) -> Result<Self, Invalid> {
        Self::new(numbers.page, numbers.bits)
    }
}

impl From<Numbers> for wit::Numbers {
    fn from(numbers: Numbers) -> Self {
        Self { page: numbers.page(), bits: numbers.into_bits() }
    }
}

impl TryFrom<wit::PolicyChange> for PolicyChange {
    type Error = Invalid;

    fn try_from(change: wit::PolicyChange) -> Result<Self, Invalid> {
        let user = |id: String| UserId::parse(id);
        Ok(match change {
            wit::PolicyChange::Restrict(id) => Self::Restrict(user(id)?),
            wit::PolicyChange::Unrestrict(id) => Self::Unrestrict(user(id)?),
            wit::PolicyChange::RestrictMany(numbers) => Self::RestrictMany(numbers.try_into()?),
            wit::PolicyChange::UnrestrictMany(numbers) => Self::UnrestrictMany(numbers.try_into()?),
            wit::PolicyChange::Block((owner, other)) => Self::Block(user(owner)?, user(other)?),
            wit::PolicyChange::Unblock((owner, other)) => Self::Unblock(user(owner)?, user(other)?),
            wit::PolicyChange::AddContact((owner, other)) => Self::AddContact(user(owner)?, user(other)?),
            wit::PolicyChange::RemoveContact((owner, other)) => Self::RemoveContact(user(owner)?, user(other)?),
            wit::PolicyChange::SetPrivacy((id, privacy)) => Self::SetPrivacy(user(id)?, privacy.into()),
        })
    }
}

impl From<PolicyChange> for wit::PolicyChange {
    fn from(change: PolicyChange) -> Self {
        let pair = |owner: UserId, other: UserId| (owner.into_string(), other.into_string());
        match change {
            PolicyChange::Restrict(id) => Self::Restrict(id.into_string()),
            PolicyChange::Unrestrict(id) => Self::Unrestrict(id.into_string()),
            PolicyChange::RestrictMany(numbers) => Self::RestrictMany(numbers.into()),
            PolicyChange::UnrestrictMany(numbers) => Self::UnrestrictMany(numbers.into()),
            PolicyChange::Block(owner, other) => Self::Block(pair(owner, other)),
            PolicyChange::Unblock(owner, other) => Self::Unblock(pair(owner, other)),
            PolicyChange::AddContact(owner, other) => Self::AddContact(pair(owner, other)),
            PolicyChange::RemoveContact(owner, other) => Self::RemoveContact(pair(owner, other)),
            PolicyChange::SetPrivacy(id, privacy) => Self::SetPrivacy((id.into_string(), privacy.into())),
        }
    }
}

impl TryFrom<wit::PolicyPage> for PolicyPage {
    type Error = Invalid;

    fn try_from(page: wit::PolicyPage) -> Result<Self, Invalid> {
        Ok(Self { changes: all(page.changes)?, next: page.next, cursor: page.cursor, salt: page.salt })
    }
}

impl From<PolicyPage> for wit::PolicyPage {
    fn from(page: PolicyPage) -> Self {
        Self { changes: each(page.changes), next: page.next, cursor: page.cursor, salt: page.salt }
    }
}

impl TryFrom<wit::ChangesSince> for ChangesSince {
    type Error = Invalid;

    fn try_from(since: wit::ChangesSince) -> Result<Self, Invalid> {
        Ok(match since {
            wit::ChangesSince::Changes((changes, cursor)) => Self::Changes(all(changes)?, cursor),
            wit::ChangesSince::Gap => Self::Gap,
        })
    }
}

impl From<ChangesSince> for wit::ChangesSince {
    fn from(since: ChangesSince) -> Self {
        match since {
            ChangesSince::Changes(changes, cursor) => Self::Changes((each(changes), cursor)),
            ChangesSince::Gap => Self::Gap,
        }
    }
}

impl From<wit::Verdict> for Verdict {
    fn from(verdict: wit::Verdict) -> Self {
        Self { presence: verdict.presence.into(), last_seen: verdict.last_seen }
    }
}

impl From<Verdict> for wit::Verdict {
    fn from(verdict: Verdict) -> Self {
        Self { presence: verdict.presence.into(), last_seen: verdict.last_seen }
    }
}

/// What a viewer is shown: the verdict without its reason.
impl From<wit::Verdict> for Visibility {
    fn from(verdict: wit::Verdict) -> Self {
        let presence = match verdict.presence {
            wit::Ruling::Allowed => true,
            wit::Ruling::Restricted | wit::Ruling::Blocked | wit::Ruling::Private => false,
        };
        Self { presence, last_seen: verdict.last_seen }
    }
}

impl TryFrom<wit::Invalidation> for Invalidation {
    type Error = Invalid;

    fn try_from(invalidation: wit::Invalidation) -> Result<Self, Invalid> {
        Ok(match invalidation {
            wit::Invalidation::Subject(user) => Self::Subject(UserId::parse(user)?),
            wit::Invalidation::Pair((one, other)) => Self::Pair(UserId::parse(one)?, UserId::parse(other)?),
            wit::Invalidation::Numbers(page) => Self::Numbers(page),
            wit::Invalidation::All => Self::All,
        })
    }
}

impl From<Invalidation> for wit::Invalidation {
    fn from(invalidation: Invalidation) -> Self {
        match invalidation {
            Invalidation::Subject(user) => Self::Subject(user.into_string()),
            Invalidation::Pair(one, other) => Self::Pair((one.into_string(), other.into_string())),
            Invalidation::Numbers(page) => Self::Numbers(page),
            Invalidation::All => Self::All,
        }
    }
}

impl TryFrom<wit::Freshness> for Freshness {
    type Error = Invalid;

    fn try_from(freshness: wit::Freshness) -> Result<Self, Invalid> {
        Ok(Self {
            state: freshness.state.into(),
            more: freshness.more,
            caught_up: freshness.caught_up,
            applied: freshness.applied,
            bytes: freshness.bytes,
            restricted: freshness.restricted,
            blocks: freshness.blocks,
            invalidated: all(freshness.invalidated)?,
        })
    }
}

impl From<Freshness> for wit::Freshness {
    fn from(freshness: Freshness) -> Self {
        Self {
            state: freshness.state.into(),
            more: freshness.more,
            caught_up: freshness.caught_up,
            applied: freshness.applied,
            bytes: freshness.bytes,
            restricted: freshness.restricted,
            blocks: freshness.blocks,
            invalidated: each(freshness.invalidated),
        }
    }
}
