//! Sessions: loads, commits and evictions. Touches are in `touch.rs`, who is due is in `agenda.rs`.

use crate::keyspace::{Agenda, Garbled, Keyspace, Piece, Publishing, decode_outcome, decode_published, decode_session};
use rollcall_core::{Error, Published, UserId};
use rollcall_functions::capabilities::{Commit, Committed, Eviction, Loaded, Sessions, Shards, Touched, Touches};

use super::batch::{Batch, IN_ORDER, Now, Value, piece, pieces};
use super::{Platform, Wire, bounded};

type Outcomes = Vec<Result<Committed, Error>>;

impl<W: Wire> Sessions for Platform<W> {
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error> {
        self.touch(&touches).await
    }
    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        self.load(&users).await
    }
    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Outcomes, Error> {
        self.commit(&commits).await
    }
    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.overdue(Agenda::Settle, shards, limit).await
    }
    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.overdue(Agenda::Evict, shards, limit).await
    }
    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Outcomes, Error> {
        self.evict(&evictions).await
    }
}

impl<W: Wire> Platform<W> {
    /// What was last published about each of these people, in the order asked; none: nothing was, or they are no longer
    /// kept. For whoever cannot listen and has to look again and again. At most 1,024.
    pub async fn read_published(&self, users: &[UserId]) -> Result<Vec<Result<Option<Published>, Error>>, Error> {
        bounded(users)?;
        let mut batch = Batch::with_capacity(users.len(), users.len());
        for user in users.iter().map(UserId::as_str) {
            batch.add("", |to| self.keys.read_published(to, user));
        }
        let replies = self.run(&batch).await;
        let published = |values: &[Value]| decode_published(values.iter().flat_map(pieces));
        Ok(replies.items().map(|item| self.read(published(item?))).collect())
    }

    async fn load(&self, users: &[UserId]) -> Result<Loaded, Error> {
        bounded(users)?;
        let mut batch = Batch::with_capacity(users.len(), users.len() * Keyspace::LOAD_COMMANDS);
        // The time is taken first, so that nobody is judged by a time at which their newest beat was not yet read.
        self.look(&mut batch);
        for user in users.iter().map(UserId::as_str) {
            batch.add(IN_ORDER, |to| self.keys.load(to, user));
        }
        let replies = self.run(&batch).await;
        let moment = replies.looked()?.moment();
        let session = |values: &[Value]| match values {
            [hash, due, cold] => decode_session(pieces(hash), first(due), first(cold)),
            _ => Err(Garbled("a reply")),
        };
        let sessions = replies.items().map(|item| self.read(session(item?))).collect();
        Ok(Loaded { moment, sessions })
    }

    async fn commit(&self, commits: &[Commit]) -> Result<Outcomes, Error> {
        bounded(commits)?;
        let now = self.now().await?;
        let mut batch = Batch::with_capacity(commits.len(), commits.len());
        for commit in commits {
            let at = self.stamped(now.us);
            batch.add(commit.user.as_str(), |to| self.keys.commit(to, commit, at, Publishing::Plain));
        }
        Ok(self.outcomes(batch, now).await)
    }

    async fn evict(&self, evictions: &[Eviction]) -> Result<Outcomes, Error> {
        bounded(evictions)?;
        let now = self.now().await?;
        let mut batch = Batch::with_capacity(evictions.len(), evictions.len());
        for eviction in evictions {
            batch.add(eviction.user.as_str(), |to| self.keys.evict(to, eviction, now.us));
        }
        Ok(self.outcomes(batch, now).await)
    }

    async fn outcomes(&self, mut batch: Batch<'_>, now: Now) -> Outcomes {
        self.look_on_the_way(&mut batch, now);
        let replies = self.run(&batch).await;
        replies.items().map(|item| self.read(decode_outcome(piece(item?)))).collect()
    }
}

fn first(value: &Value) -> Piece<'_> {
    piece(std::slice::from_ref(value))
}
