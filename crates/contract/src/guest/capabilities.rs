//! The capabilities that a platform provides, as the functions use them: convert, call, convert.

use rollcall_core::policy::{PolicyChange, Relation};
use rollcall_core::{ConversationId, Error, Ids, Rules, Time, UserId};
use rollcall_functions::capabilities::{
    Archive, ChangesSince, Commit, Committed, Cursor, Eviction, LastSeenEntry, Loaded, OwnSettings, Policy, PolicyPage,
    Records, RestrictionCheck, Sessions, Shards, Touched, Touches, Typing, TypingSignal, Typist, Visibility, Watching,
};

use super::capability_bindings::wit::{archive, policy, sessions, settings, topics};
use super::changes::PlatformChanges;
use super::convert::{all, answers, each};
use super::wit::restriction_check;
use crate::{call, lent};

/// The rules in force for this call.
pub fn rules() -> Rules {
    settings::current().into()
}

/// The sessions of the platform.
pub struct PlatformSessions;

impl Sessions for PlatformSessions {
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error> {
        Ok(call!(sessions::touch_many(lent!(touches.into())))?.into())
    }

    async fn read_many(&self, users: Ids<UserId>) -> Result<Records, Error> {
        Ok(call!(sessions::read_many(lent!(users.into())))?.try_into()?)
    }

    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        Ok(call!(sessions::load_many(lent!(texts(users))))?.into())
    }

    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error> {
        answers(call!(sessions::commit_many(lent!(each(commits)))))
    }

    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        users(call!(sessions::due(shards.first, shards.end, limit))?)
    }

    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        users(call!(sessions::evictable(shards.first, shards.end, limit))?)
    }

    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error> {
        answers(call!(sessions::evict_many(lent!(each(evictions)))))
    }
}

/// The archive of the platform.
pub struct PlatformArchive;

impl Archive for PlatformArchive {
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        Ok(call!(archive::put_many(lent!(each(last_seen_entries))))?)
    }

    async fn get_many(&self, users: Ids<UserId>) -> Result<Vec<Option<Time>>, Error> {
        let times = call!(archive::get_many(lent!(users.into())))?;
        Ok(times.into_iter().map(|time| time.map(Time)).collect())
    }
}

/// The policy of the platform.
pub struct PlatformPolicy;

impl Policy for PlatformPolicy {
    async fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Relation>, Error> {
        Ok(each(call!(policy::relations(lent!(text: viewer.map(UserId::into_string)), lent!(subjects.into())))?))
    }

    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error> {
        Ok(call!(policy::settings_of(lent!(user.into_string())))?.try_into()?)
    }

    async fn snapshot(&self, page: u32) -> Result<PolicyPage, Error> {
        Ok(call!(policy::snapshot(page))?.try_into()?)
    }

    async fn since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        Ok(call!(policy::since(lent!(cursor), limit))?.try_into()?)
    }

    async fn apply_many(&self, changes: Vec<PolicyChange>) -> Result<Vec<Result<(), Error>>, Error> {
        answers(call!(policy::apply_many(lent!(each(changes)))))
    }
}

/// Whatever component provides `restriction-check`.
pub struct PlatformRestrictionCheck;

impl RestrictionCheck for PlatformRestrictionCheck {
    async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error> {
        Ok(each(call!(restriction_check::check(lent!(text: viewer.map(UserId::into_string)), lent!(subjects.into())))?))
    }
}

/// The topics of the platform.
pub struct PlatformTopics;

impl Typing for PlatformTopics {
    async fn set_typing(&self, signals: Vec<TypingSignal>) -> Result<Vec<Result<(), Error>>, Error> {
        answers(call!(topics::set_typing(lent!(each(signals)))))
    }

    async fn typists(&self, conversations: Vec<ConversationId>) -> Result<Vec<Result<Vec<Typist>, Error>>, Error> {
        let conversations: Vec<_> = conversations.into_iter().map(ConversationId::into_string).collect();
        let found = call!(topics::typists(lent!(conversations)))?;
        Ok(found.into_iter().map(|typists| Ok(all(typists?)?)).collect())
    }
}

impl Watching for PlatformTopics {
    type Changes = PlatformChanges;

    async fn watch(&self, users: Vec<UserId>) -> Result<PlatformChanges, Error> {
        PlatformChanges::watch(texts(users)).await
    }
}

fn texts(users: Vec<UserId>) -> Vec<String> {
    users.into_iter().map(UserId::into_string).collect()
}

fn users(users: Vec<String>) -> Result<Vec<UserId>, Error> {
    Ok(users.into_iter().map(UserId::parse).collect::<Result<_, _>>()?)
}
