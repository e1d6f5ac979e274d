//! Touches: the hot path, and the rare follow-ups.
//!
//! A beat skips its `ZADD` if the transport's deadline cache says that this process set the user's deadline recently.
//! The reply to the beat says whether that was right; if the user is not due, the deadline is set before the touch is
//! answered. See `docs/adr/0011-deadline-cache.md`.

use rollcall_core::{Error, Time};
use rollcall_functions::capabilities::{DeviceEvent, Touched, Touches};

use super::{RedisStore, bounded};
use crate::keyspace::{BadReply, Deadline, Finding, Sent, Touching, decode_found};
use crate::transport::{Batch, Now, Reply, Transport};

/// A touch that was sent.
struct Touch<'a> {
    user: &'a str,
    device: &'a str,
    /// When its beat expires; `None`: a departure, whose script sets the deadline.
    ends: Option<Time>,
    sent: Sent,
}

/// Follow-ups of a batch of touches.
#[derive(Default)]
struct After<'a> {
    /// Devices that may be new to a user with others.
    came: Vec<(&'a str, &'a str)>,
    /// Users the deadline cache wrongly took to be due: the index of the touch, the user, and the deadline.
    undue: Vec<(usize, &'a str, Time)>,
    /// A session was gone that cannot have been evicted yet, so the server lost data.
    lost: bool,
}

impl<T: Transport> RedisStore<T> {
    pub(crate) async fn touch(&self, touches: &Touches) -> Result<Touched, Error> {
        bounded(&touches.events)?;
        let now = self.transport.now().await?;
        let (batch, sent) = self.touch_batch(touches, now);
        let replies = self.transport.run(batch).await;
        let mut found = Vec::with_capacity(sent.len());
        let mut after = After::default();
        for (place, (item, touch)) in replies.items().zip(&sent).enumerate() {
            found.push(item.and_then(|values| {
                let finding = self.read(read(touch, values))?;
                after.take(place, touch, values, &finding);
                Ok(finding.found)
            }));
        }
        if after.lost {
            self.transport.forget_deadlines();
        }
        for (place, error) in self.set_deadlines(&after.undue).await {
            if let Some(found) = found.get_mut(place) {
                *found = Err(error);
            }
        }
        for (touch, found) in sent.iter().zip(&found) {
            if touch.ends.is_some() && found.is_ok() {
                self.transport.note_deadline(touch.user, now.time());
            }
        }
        self.trim(&after.came, now.time()).await;
        Ok(Touched { now: now.time(), found })
    }

    fn touch_batch<'a>(&self, touches: &'a Touches, now: Now) -> (Batch<'a>, Vec<Touch<'a>>) {
        let (keys, time, count) = (self.keys(), now.time(), touches.events.len());
        let mut batch = Batch::decided_at(now, count, count * 3);
        let mut sent = Vec::with_capacity(count);
        for (user, device, event) in touches.iter() {
            let at = self.stamped(now.us);
            let known = self.transport.knows_deadline(user, time);
            let deadline = if known { Deadline::Trusted } else { Deadline::Set };
            let touching = Touching { user, device, event };
            let ends = match event {
                DeviceEvent::Beat { alive_for, .. } => Some(time + alive_for),
                DeviceEvent::Dropped(_) | DeviceEvent::Logout => None,
            };
            let sent_as = batch.add(user, keys.shard_of(user), |to| keys.touch(to, touching, at, deadline));
            sent.push(Touch { user, device, ends, sent: sent_as });
        }
        (batch, sent)
    }

    /// Sets the deadlines of users who were wrongly taken to be due. Returns where that failed: those touches failed
    /// too.
    async fn set_deadlines(&self, undue: &[(usize, &str, Time)]) -> Vec<(usize, Error)> {
        if undue.is_empty() {
            return Vec::new();
        }
        let keys = self.keys();
        let mut batch = Batch::with_capacity(undue.len(), undue.len());
        for (_, user, by) in undue {
            batch.add(user, keys.shard_of(user), |to| keys.leave_due(to, user, *by));
        }
        let replies = self.transport.run(batch).await;
        replies.items().zip(undue).filter_map(|(item, (place, ..))| Some((*place, item.err()?))).collect()
    }

    /// Keeps users' devices within the bound after new ones. A failure is not reported: the next new device trims
    /// again.
    async fn trim(&self, came: &[(&str, &str)], now: Time) {
        if came.is_empty() {
            return;
        }
        let keys = self.keys();
        let dead_by = self.transport.moment_at(now).surely_dead_by();
        let mut batch = Batch::default();
        for (index, (user, _)) in came.iter().enumerate() {
            if came.iter().take(index).all(|(earlier, _)| earlier != user) {
                let devices = came.iter().filter(|(one, _)| one == user).map(|(_, device)| *device);
                batch.add(user, keys.shard_of(user), |to| keys.trim(to, user, dead_by, devices));
            }
        }
        self.transport.run(batch).await;
    }
}

fn read<R: Reply>(touch: &Touch<'_>, values: &[R]) -> Result<Finding, BadReply> {
    values.get(touch.sent.found_at()).map_or(Err(BadReply("a reply")), |value| decode_found(value.piece()))
}

impl<'a> After<'a> {
    fn take<R: Reply>(&mut self, place: usize, touch: &Touch<'a>, values: &[R], finding: &Finding) {
        let Sent::Beat { deadline, .. } = touch.sent else { return };
        let written = touch.sent.written_at().and_then(|at| values.get(at)).map(Reply::piece);
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
