//! Who is due and who is to be evicted.

use crate::keyspace::{Agenda, Overdue};
use rollcall_core::{Error, Span, Time, UserId};
use rollcall_functions::capabilities::Shards;

use super::Inner;
use super::batch::{Batch, RETRY_MS, pieces};

impl Inner {
    /// People of these shards whose time came at least so long ago, longest overdue first. On a Cluster whose masters are not
    /// all there, those of the others.
    pub(super) async fn overdue(
        &self,
        agenda: Agenda,
        shards: Shards,
        limit: u32,
        late_by: Span,
    ) -> Result<Vec<UserId>, Error> {
        let by = Time(self.around.time.now().0.saturating_sub(late_by.0));
        let mut overdue = Overdue::new(&self.keys, agenda, shards, by, limit);
        let mut is_answered = overdue.questions().next().is_none();
        loop {
            let questions: Vec<_> = overdue.questions().collect();
            if questions.is_empty() {
                break;
            }
            let mut batch = Batch::with_capacity(questions.len(), questions.len());
            for question in &questions {
                batch.add("", question.shard(), |to| question.ask(&self.keys, to));
            }
            let replies = self.run(&batch).await;
            let answers: Vec<_> = replies.items().map(|item| item.ok()?.first().map(pieces)).collect();
            is_answered |= answers.iter().any(Option::is_some);
            overdue.answer(answers.into_iter()).map_err(|garbled| self.garbled(&garbled))?;
        }
        if is_answered { Ok(overdue.found()) } else { Err(Error::Unavailable(RETRY_MS)) }
    }
}
