//! The capabilities that a platform provides, as the functions use them: convert, call, convert.

use rollcall_core::policy::{PolicyChange, Relation};
use rollcall_core::{ConversationId, Error, Ids, Rules, Time, UserId};
use rollcall_functions::capabilities::{
    Archive, ChangesSince, Commit, Committed, Cursor, Eviction, LastSeenEntry, Loaded, OwnSettings, Policy, PolicyPage,
    PresenceChange, PresenceChanges, RestrictionCheck, Sessions, Shards, Touched, Touches, Typing, TypingSignal,
    Typist, Visibility, Watching,
};
use wit_bindgen::{FutureReader, StreamReader};

use super::capability_bindings::rollcall::presence::{archive, policy, sessions, settings, topics};
use super::convert::{all, answers, each};
use super::wit::{self, restriction_check};

/// The rules in force for this call.
pub fn rules() -> Rules {
    settings::current().into()
}

/// The sessions of the platform.
pub struct PlatformSessions;

impl Sessions for PlatformSessions {
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error> {
        Ok(sessions::touch_many(touches.into()).await?.into())
    }

    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        Ok(sessions::load_many(texts(users)).await?.into())
    }

    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error> {
        answers(sessions::commit_many(each(commits)).await)
    }

    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        users(sessions::due(shards.first, shards.end, limit).await?)
    }

    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        users(sessions::evictable(shards.first, shards.end, limit).await?)
    }

    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error> {
        answers(sessions::evict_many(each(evictions)).await)
    }
}

/// The archive of the platform.
pub struct PlatformArchive;

impl Archive for PlatformArchive {
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        Ok(archive::put_many(each(last_seen_entries)).await?)
    }

    async fn get_many(&self, users: Vec<UserId>) -> Result<Vec<Option<Time>>, Error> {
        let times = archive::get_many(texts(users)).await?;
        Ok(times.into_iter().map(|time| time.map(Time)).collect())
    }
}

/// The policy of the platform.
pub struct PlatformPolicy;

impl Policy for PlatformPolicy {
    async fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Relation>, Error> {
        Ok(each(policy::relations(viewer.map(UserId::into_string), subjects.into()).await?))
    }

    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error> {
        Ok(policy::settings_of(user.into_string()).await?.try_into()?)
    }

    async fn snapshot(&self, page: u32) -> Result<PolicyPage, Error> {
        Ok(policy::snapshot(page).await?.try_into()?)
    }

    async fn since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        Ok(policy::since(cursor, limit).await?.try_into()?)
    }

    async fn apply_many(&self, changes: Vec<PolicyChange>) -> Result<Vec<Result<(), Error>>, Error> {
        answers(policy::apply_many(each(changes)).await)
    }
}

/// Whatever component provides `restriction-check`.
pub struct PlatformRestrictionCheck;

impl RestrictionCheck for PlatformRestrictionCheck {
    async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error> {
        Ok(each(restriction_check::check(viewer.map(UserId::into_string), subjects.into()).await?))
    }
}

/// The topics of the platform.
pub struct PlatformTopics;

impl Typing for PlatformTopics {
    async fn set_typing(&self, signals: Vec<TypingSignal>) -> Result<Vec<Result<(), Error>>, Error> {
        answers(topics::set_typing(each(signals)).await)
    }

    async fn typists(&self, conversations: Vec<ConversationId>) -> Result<Vec<Result<Vec<Typist>, Error>>, Error> {
        let found = topics::typists(conversations.into_iter().map(ConversationId::into_string).collect()).await?;
        Ok(found.into_iter().map(|typists| Ok(all(typists?)?)).collect())
    }
}

impl Watching for PlatformTopics {
    type Changes = PlatformChanges;

    async fn watch(&self, users: Vec<UserId>) -> Result<PlatformChanges, Error> {
        let (changes, end) = topics::watch(texts(users)).await?;
        Ok(PlatformChanges { changes, end })
    }
}

/// A stream of changes from the platform.
pub struct PlatformChanges {
    changes: StreamReader<wit::types::PresenceChange>,
    end: FutureReader<Result<(), wit::types::Error>>,
}

impl PresenceChanges for PlatformChanges {
    async fn next(&mut self) -> Option<PresenceChange> {
        loop {
            // A change with an invalid id is about none of the watched users.
            if let Ok(change) = self.changes.next().await?.try_into() {
                return Some(change);
            }
        }
    }

    async fn end(self) -> Result<(), Error> {
        Ok(self.end.await?)
    }
}

fn texts(users: Vec<UserId>) -> Vec<String> {
    users.into_iter().map(UserId::into_string).collect()
}

fn users(users: Vec<String>) -> Result<Vec<UserId>, Error> {
    Ok(users.into_iter().map(UserId::parse).collect::<Result<_, _>>()?)
}
