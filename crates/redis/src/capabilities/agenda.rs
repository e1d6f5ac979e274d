//! Who is due and who is to be evicted.

use crate::keyspace::{Agenda, Overdue};
use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::Shards;

use super::batch::{Batch, pieces};
use super::{Platform, Wire};

impl<W: Wire> Platform<W> {
    /// People of these shards whose time has come, longest overdue first.
    pub(crate) async fn overdue(&self, agenda: Agenda, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        let by = self.now().await?.time();
        let mut overdue = Overdue::new(&self.keys, agenda, shards, by, limit);
        loop {
            let questions: Vec<_> = overdue.questions().collect();
            if questions.is_empty() {
                return Ok(overdue.found());
            }
            let mut batch = Batch::with_capacity(questions.len(), questions.len());
            for question in &questions {
                batch.add("", |to| question.ask(&self.keys, to));
            }
            self.look_on_the_way(&mut batch, self.now().await?);
            let replies = self.run(&batch).await;
            let answers = replies.items().collect::<Result<Vec<_>, _>>()?;
            self.read(overdue.answer(answers.iter().map(|answer| Some(answer.iter().flat_map(pieces)))))?;
        }
    }
}
