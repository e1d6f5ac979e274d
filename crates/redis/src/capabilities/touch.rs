//! Touches: the hot path, and the rare follow-ups.
//!
//! A beat skips its `ZADD` if the transport's deadline cache says that this process set the user's deadline recently.
//! The reply to the beat says whether that was right; if the user is not due, the deadline is set before the touch is
//! answered. See `docs/adr/0011-deadline-cache.md`.

use rollcall_core::{Error, Time};
use rollcall_functions::capabilities::{DeviceEvent, Touched, Touches};

use super::{MAX_BATCH, RedisStore, bounded};
use crate::keyspace::{BadReply, Deadline, Sent, TouchReply, Touching, decode_prior};
use crate::transport::{Batch, Now, Reply, Transport};

/// A touch that was sent.
struct Touch<'a> {
    user: &'a str,
    device: &'a str,
    /// When its beat expires; `None` for a departure, whose script sets the deadline.
    ends: Option<Time>,
    sent: Sent,
}

/// Follow-ups of a batch of touches.
#[derive(Default)]
struct FollowUps<'a> {
    /// Devices that may be new to a user with others.
    new_devices: Vec<(&'a str, &'a str)>,
    /// Users the deadline cache wrongly took to be due: the index of the touch, the user, and the deadline.
    without_deadline: Vec<(usize, &'a str, Time)>,
    /// A session was gone that cannot have been evicted yet, so the server lost data.
    lost: bool,
}

impl<T: Transport> RedisStore<T> {
    pub(crate) async fn touch(&self, touches: &Touches) -> Result<Touched, Error> {
        bounded(touches.events.len(), MAX_BATCH)?;
        let now = self.transport.now().await?;
        let (batch, sent) = self.touch_batch(touches, now);
        let replies = self.transport.run(batch).await;
        let mut prior = Vec::with_capacity(sent.len());
        let mut follow_ups = FollowUps::default();
        for (place, (item, touch)) in replies.items().zip(&sent).enumerate() {
            prior.push(item.and_then(|values| {
                let reply = self.read(read(touch, values))?;
                follow_ups.take(place, touch, values, &reply);
                Ok(reply.prior)
            }));
        }
        if follow_ups.lost {
            self.transport.forget_deadlines();
        }
        for (place, error) in self.set_deadlines(&follow_ups.without_deadline).await {
            if let Some(prior) = prior.get_mut(place) {
                *prior = Err(error);
            }
        }
        for (touch, prior) in sent.iter().zip(&prior) {
            if touch.ends.is_some() && prior.is_ok() {
                self.transport.note_deadline(touch.user, now.time());
            }
        }
        self.trim(&follow_ups.new_devices, now.time()).await;
        Ok(Touched { now: now.time(), prior })
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
    async fn set_deadlines(&self, without_deadline: &[(usize, &str, Time)]) -> Vec<(usize, Error)> {
        if without_deadline.is_empty() {
            return Vec::new();
        }
        let keys = self.keys();
        let mut batch = Batch::with_capacity(without_deadline.len(), without_deadline.len());
        for (_, user, by) in without_deadline {
            batch.add(user, keys.shard_of(user), |to| keys.set_deadline_by(to, user, *by));
        }
        let replies = self.transport.run(batch).await;
        replies.items().zip(without_deadline).filter_map(|(item, (place, ..))| Some((*place, item.err()?))).collect()
    }

    /// Keeps users' devices within the bound after new ones. A failure is not reported: the next new device trims
    /// again.
    async fn trim(&self, new_devices: &[(&str, &str)], now: Time) {
        if new_devices.is_empty() {
            return;
        }
        let keys = self.keys();
        let expired_by = self.transport.moment_at(now).expired_for_certain_by();
        let mut batch = Batch::default();
        for (index, (user, _)) in new_devices.iter().enumerate() {
            if new_devices.iter().take(index).all(|(earlier, _)| earlier != user) {
                let devices = new_devices.iter().filter(|(one, _)| one == user).map(|(_, device)| *device);
                batch.add(user, keys.shard_of(user), |to| keys.trim(to, user, expired_by, devices));
            }
        }
        self.transport.run(batch).await;
    }
}

fn read<R: Reply>(touch: &Touch<'_>, values: &[R]) -> Result<TouchReply, BadReply> {
    values.get(touch.sent.prior_at()).map_or(Err(BadReply("a reply")), |value| decode_prior(value.piece()))
}

impl<'a> FollowUps<'a> {
    fn take<R: Reply>(&mut self, place: usize, touch: &Touch<'a>, values: &[R], reply: &TouchReply) {
        let Sent::Beat { deadline, .. } = touch.sent else { return };
        let written = touch.sent.written_at().and_then(|at| values.get(at)).map(Reply::piece);
        if written.is_some_and(|written| touch.sent.may_have_new_device(written)) {
            self.new_devices.push((touch.user, touch.device));
        }
        if let (Deadline::Trusted, Some(ends)) = (deadline, touch.ends)
            && reply.due_by.is_none_or(|due_by| due_by > ends)
        {
            self.without_deadline.push((place, touch.user, ends));
            self.lost |= written.is_some_and(|written| touch.sent.is_first(written));
        }
    }
}
