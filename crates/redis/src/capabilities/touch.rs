//! Touches: the hot path, and what now and then comes after it.
//!
//! Every beat says when it ends. The host leaves that out where it left the person due a moment ago
//! (`docs/adr/0011-a-deadline-known-to-stand.md`); an instance lives too short to meet the same person often enough.

use crate::keyspace::{Deadline, Sent, Touching, decode_found};
use rollcall_core::{Error, Time};
use rollcall_functions::capabilities::{Touched, Touches};

use super::batch::{Batch, Value, piece};
use super::{Platform, Wire, bounded};

/// One touch on its way.
struct Touch<'a> {
    user: &'a str,
    device: &'a str,
    sent: Sent,
}

impl Touch<'_> {
    /// Whether its device may have joined others.
    fn may_crowd(&self, values: &[Value]) -> bool {
        let written = self.sent.written_at().and_then(|at| values.get(at..));
        written.is_some_and(|written| self.sent.may_crowd(piece(written)))
    }
}

impl<W: Wire> Platform<W> {
    pub(crate) async fn touch(&self, touches: &Touches) -> Result<Touched, Error> {
        bounded(&touches.traces)?;
        let now = self.now().await?;
        let mut batch = Batch::with_capacity(touches.traces.len(), touches.traces.len() * 3);
        let mut sent = Vec::with_capacity(touches.traces.len());
        for (user, device, trace) in touches.iter() {
            let (touching, at) = (Touching { user, device, trace }, self.stamped(now.us));
            let sent_as = batch.add(user, |to| self.keys.touch(to, touching, at, Deadline::Set));
            sent.push(Touch { user, device, sent: sent_as });
        }
        self.look_on_the_way(&mut batch, now);
        let replies = self.run(&batch).await;
        let mut found = Vec::with_capacity(sent.len());
        let mut came = Vec::new();
        for (item, touch) in replies.items().zip(&sent) {
            found.push(item.and_then(|values| {
                if touch.may_crowd(values) {
                    came.push((touch.user, touch.device));
                }
                let answer = values.get(touch.sent.found_at()..).unwrap_or_default();
                self.read(decode_found(piece(answer))).map(|finding| finding.found)
            }));
        }
        self.trim(&came, now.time()).await;
        Ok(Touched { now: now.time(), found })
    }

    /// Keeps people's devices within their bound, after these came. That it failed is nothing that the toucher could do
    /// about: the next device that comes does it.
    async fn trim(&self, came: &[(&str, &str)], now: Time) {
        if came.is_empty() {
            return;
        }
        let dead_by = self.time.moment_at(now).surely_dead_by();
        let mut batch = Batch::default();
        for (index, (user, _)) in came.iter().enumerate() {
            if came.iter().take(index).all(|(earlier, _)| earlier != user) {
                let devices = came.iter().filter(|(one, _)| one == user).map(|(_, device)| *device);
                batch.add(user, |to| self.keys.trim(to, user, dead_by, devices));
            }
        }
        self.run(&batch).await;
    }
}
