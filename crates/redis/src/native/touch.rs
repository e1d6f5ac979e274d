//! Touches: the hot path, and what now and then comes after it.
//!
//! A beat takes its deadline to stand if this process left the person due a moment ago. What it finds says whether that
//! was right; who turns out not to be due is left so before the touch is answered.

use crate::keyspace::{Deadline, Finding, Garbled, Sent, Touching, decode_found};
use redis::Value;
use rollcall_core::{Error, Time};
use rollcall_functions::capabilities::{Touched, Touches, Trace};

use super::batch::{Batch, piece};
use super::{Inner, bounded};

/// One touch on its way.
struct Touch<'a> {
    user: &'a str,
    device: &'a str,
    /// When what it leaves is over; none: its script sees to the deadline.
    ends: Option<Time>,
    sent: Sent,
}

/// What has to be done after the touches that brought it up.
#[derive(Default)]
struct After<'a> {
    /// Devices that may have joined others.
    came: Vec<(&'a str, &'a str)>,
    /// People who were taken to be due and are not: the place of the touch, who, and when they must be.
    undue: Vec<(usize, &'a str, Time)>,
    /// Whether somebody was gone who cannot have been dropped.
    lost: bool,
}

impl Inner {
    pub(super) async fn touch(&self, touches: &Touches) -> Result<Touched, Error> {
        bounded(&touches.traces)?;
        let now_us = self.around.time.now_us();
        let now = Time(now_us / 1000);
        let mut batch = Batch::with_capacity(touches.traces.len(), touches.traces.len() * 3);
        let mut sent = Vec::with_capacity(touches.traces.len());
        for (user, device, trace) in touches.iter() {
            let at = self.stamped(now_us);
            let deadline = if self.around.dues.holds(user, now) { Deadline::Trusted } else { Deadline::Set };
            let touching = Touching { user, device, trace };
            let ends = match trace {
                Trace::Beat { alive_for, .. } => Some(now + alive_for),
                Trace::Dropped(_) | Trace::Logout => None,
            };
            let add = |to: &mut _| self.keys.touch(to, touching, at, deadline);
            let sent_as = batch.add(user, self.keys.shard_of(user), add);
            sent.push(Touch { user, device, ends, sent: sent_as });
        }
        let replies = self.run(&batch).await;
        let mut found = Vec::with_capacity(sent.len());
        let mut after = After::default();
        for (place, (item, touch)) in replies.items().zip(&sent).enumerate() {
            found.push(item.and_then(|values| {
                let finding = read(touch, values).map_err(|error| self.garbled(&error))?;
                after.take(place, touch, values, &finding);
                Ok(finding.found)
            }));
        }
        if after.lost {
            self.around.dues.forget(self.around.time.now());
        }
        for (place, error) in self.leave_due(&after.undue).await {
            if let Some(found) = found.get_mut(place) {
                *found = Err(error);
            }
        }
        for (touch, found) in sent.iter().zip(&found) {
            if touch.ends.is_some() && found.is_ok() {
                self.around.dues.note(touch.user, now);
            }
        }
        self.trim(&after.came).await;
        Ok(Touched { now, found })
    }

    /// Leaves people due who were taken to be so already. Answers with the places of those for whom that failed: they
    /// are told that their touch did.
    async fn leave_due(&self, undue: &[(usize, &str, Time)]) -> Vec<(usize, Error)> {
        if undue.is_empty() {
            return Vec::new();
        }
        let mut batch = Batch::with_capacity(undue.len(), undue.len());
        for (_, user, by) in undue {
            batch.add(user, self.keys.shard_of(user), |to| self.keys.leave_due(to, user, *by));
        }
        let replies = self.run(&batch).await;
        replies.items().zip(undue).filter_map(|(item, (place, ..))| Some((*place, item.err()?))).collect()
    }

    /// Keeps people's devices within their bound, after these came. That it failed is nothing that the toucher could do
    /// about: the next device that comes does it.
    async fn trim(&self, came: &[(&str, &str)]) {
        if came.is_empty() {
            return;
        }
        let dead_by = self.moment().surely_dead_by();
        let mut batch = Batch::default();
        for (index, (user, _)) in came.iter().enumerate() {
            if came.iter().take(index).all(|(earlier, _)| earlier != user) {
                let devices = came.iter().filter(|(one, _)| one == user).map(|(_, device)| *device);
                batch.add(user, self.keys.shard_of(user), |to| self.keys.trim(to, user, dead_by, devices));
            }
        }
        self.run(&batch).await;
    }
}

fn read(touch: &Touch<'_>, values: &[Value]) -> Result<Finding, Garbled> {
    values.get(touch.sent.found_at()).map_or(Err(Garbled("a reply")), |value| decode_found(piece(value)))
}

impl<'a> After<'a> {
    fn take(&mut self, place: usize, touch: &Touch<'a>, values: &[Value], finding: &Finding) {
        let Sent::Beat { deadline, .. } = touch.sent else { return };
        let written = touch.sent.written_at().and_then(|at| values.get(at)).map(piece);
        if written.is_some_and(|written| touch.sent.may_crowd(written)) {
            self.came.push((touch.user, touch.device));
        }
        if let (Deadline::Trusted, Some(ends)) = (deadline, touch.ends)
            && finding.due_by.is_none_or(|due_by| due_by > ends)
        {
            self.undue.push((place, touch.user, ends));
            self.lost |= written.is_some_and(|written| touch.sent.is_first(written));
        }
    }
}
