//! Users who are due, and users who can be evicted.

use rollcall_core::{Error, Span, Time, UserId};
use rollcall_functions::capabilities::Shards;

use super::RedisStore;
use crate::keyspace::{DueScan, Queue};
use crate::transport::{Batch, RETRY_MS, Transport, pieces};

impl<T: Transport> RedisStore<T> {
    /// Users of these shards whose instant passed at least `at_least` ago, the earliest first. Users on masters that
    /// do not answer are left out.
    pub(crate) async fn scan_queue(
        &self,
        queue: Queue,
        shards: Shards,
        limit: u32,
        at_least: Span,
    ) -> Result<Vec<UserId>, Error> {
        let by = Time(self.transport.now().await?.time().0.saturating_sub(at_least.0));
        let mut scan = DueScan::new(self.keys(), queue, shards, by, limit);
        let (mut is_answered, mut failure) = (scan.requests().next().is_none(), None);
        loop {
            let requests: Vec<_> = scan.requests().collect();
            if requests.is_empty() {
                break;
            }
            let now = self.transport.now().await?;
            let mut batch = Batch::decided_at(now, requests.len(), requests.len());
            for request in &requests {
                batch.add("", request.shard(), |to| request.ask(self.keys(), to));
            }
            let replies = self.transport.run(batch).await;
            let mut answers = Vec::with_capacity(replies.items.len());
            for item in replies.items() {
                answers.push(item.map_err(|error| failure = Some(error)).ok());
            }
            is_answered |= answers.iter().any(Option::is_some);
            self.read(scan.answer(answers.into_iter().map(|answer| answer.map(pieces))))?;
        }
        if is_answered { Ok(scan.found()) } else { Err(failure.unwrap_or(Error::Unavailable(RETRY_MS))) }
    }
}
