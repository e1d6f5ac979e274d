//! What the hub does although no connection asks for it: takes what the topics tell, repairs what was lost, and counts
//! crowds.

use std::time::{Duration, Instant};

use rollcall_core::{Error, UserId};

use super::Hub;

/// People read again in one call.
pub(super) const PAGE: usize = 500;

/// Before what could not be read is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// When somebody is read again of whom something was shown that is not published yet: a settling is due within a second.
const RECHECK_UNPUBLISHED_AFTER: Duration = Duration::from_millis(1500);

/// How often crowds are counted. A count holds for three of these.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// On how many workers a crowd is noticed for certain: one spread over more may have on each of them fewer than are counted.
const WORKERS: u64 = 100;

impl Hub {
    /// Takes what the topics tell to whoever watches.
    pub(super) async fn listen(&self) {
        loop {
            let fanning_out = self.registry.borrow().is_fanning_out();
            tokio::select! {
                biased;
                news = self.tap.next() => {
                    let (now, time) = (Instant::now(), self.topics.now());
                    let metrics = &self.functions.platform.metrics.hub;
                    for change in &news.changes {
                        metrics.heard_after(time.0.saturating_sub(change.published.version / 1000));
                    }
                    {
                        let mut registry = self.registry.borrow_mut();
                        news.changes.iter().for_each(|change| registry.receive(change, now));
                        news.typed.iter().for_each(|typed| registry.receive_typing(typed));
                    }
                    metrics.heard(news.changes.len() + news.typed.len());
                    if news.missed {
                        metrics.missed();
                        self.missed.notify_one();
                    }
                }
                // A slice, then whoever else wants to run, then the next.
                () = tokio::task::yield_now(), if fanning_out => self.registry.borrow_mut().fan_out_chunk(),
                () = self.time_comes() => {}
                () = self.invalidated.notified() => {}
            }
        }
    }

    /// Waits for the next thing whose time comes, and does it.
    async fn time_comes(&self) {
        let typing = self.registry.borrow().typing_ends().map(|until| {
            // A millisecond more: a sign lasts until its end, that included.
            Instant::now() + Duration::from_millis((until.0 + 1).saturating_sub(self.topics.now().0))
        });
        let release = self.registry.borrow().next_release();
        let Some(first) = [typing, release].into_iter().flatten().min() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(first.into()).await;
        let mut registry = self.registry.borrow_mut();
        registry.expire_typing(self.topics.now());
        registry.release(Instant::now());
    }

    /// Somebody is to be read again in a moment.
    pub(super) fn recheck_soon(&self, user: UserId) {
        self.unpublished.borrow_mut().push_back((Instant::now() + RECHECK_UNPUBLISHED_AFTER, user));
        self.unpublished_added.notify_one();
    }

    /// Reads those again of whom something was shown that was not published yet.
    pub(super) async fn recheck_unpublished(&self) {
        loop {
            let Some(first) = self.unpublished.borrow().front().map(|(at, _)| *at) else {
                self.unpublished_added.notified().await;
                continue;
            };
            tokio::time::sleep_until(first.into()).await;
            let now = Instant::now();
            let mut users = Vec::new();
            while users.len() < PAGE && self.unpublished.borrow().front().is_some_and(|(at, _)| *at <= now) {
                users.extend(self.unpublished.borrow_mut().pop_front().map(|(_, user)| user));
            }
            let people = self.registry.borrow().watched_users(users.clone());
            // What fails here is found by the recheck.
            let _ = self.reread(people).await;
            let mut registry = self.registry.borrow_mut();
            users.iter().for_each(|user| registry.announce_again(user, now));
        }
    }

    /// Reads everybody again whenever something may have been lost.
    pub(super) async fn repair(&self) {
        loop {
            self.missed.notified().await;
            self.reread_everybody().await;
        }
    }

    /// Reads everybody who is watched, now, and tells what differs: something may have been lost. Whoever cannot be read is
    /// tried again, without keeping the others waiting.
    async fn reread_everybody(&self) {
        loop {
            let began = self.topics.now();
            let mut failed = None;
            let mut from = Some(0);
            while let Some(start) = from {
                let (people, next) = self.registry.borrow().page_of_users(start, PAGE);
                failed = self.reread(people).await.err().or(failed);
                from = next;
            }
            match failed {
                None => return self.sure_until.set(self.sure_until.get().max(began)),
                Some(Error::Unavailable(_)) => tokio::time::sleep(RETRY).await,
                Some(error) => return tracing::error!("people who are watched cannot be read: {error}"),
            }
        }
    }

    /// Reads everybody who is watched once in each interval, in case something was lost that nobody noticed.
    pub(super) async fn recheck(&self) {
        loop {
            let began = self.topics.now();
            let pause = self.options.recheck.div_f64(self.registry.borrow().page_count(PAGE) as f64);
            let mut failed = false;
            let mut from = Some(0);
            while let Some(start) = from {
                tokio::time::sleep(pause).await;
                let (people, next) = self.registry.borrow().page_of_users(start, PAGE);
                // What could not be read now is read in the next round.
                failed |= self.reread(people).await.is_err();
                from = next;
            }
            if !failed {
                self.sure_until.set(self.sure_until.get().max(began));
            }
        }
    }

    pub(super) async fn reread(&self, people: Vec<(UserId, u64)>) -> Result<(), Error> {
        if people.is_empty() {
            return Ok(());
        }
        let users = people.iter().map(|(user, _)| user.clone()).collect();
        let answers = self.functions.look_up(None, users).await?;
        let now = Instant::now();
        let mut repaired = 0;
        let mut away = None;
        for ((user, news), answer) in people.into_iter().zip(answers) {
            match answer {
                Ok(Some(view)) => {
                    repaired += usize::from(self.registry.borrow_mut().apply_read(&user, view.published, news, now));
                }
                // A service sees everybody who is not restricted; of those who are, nobody is told anything.
                Ok(None) => {}
                Err(error) => away = Some(error),
            }
        }
        if repaired > 0 {
            // Some may have to be told in slices, or later.
            self.invalidated.notify_one();
            self.functions.platform.metrics.hub.repaired(repaired);
        }
        away.map_or(Ok(()), Err)
    }

    /// Says how many watch whom, and learns how many do on all hosts.
    pub(super) async fn count(&self) {
        let station = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
        let counted_from = (self.options.crowd / WORKERS).clamp(1, 100) as usize;
        loop {
            tokio::time::sleep(COUNT_EVERY).await;
            self.registry.borrow_mut().clear_totals(counted_from);
            let popular = self.registry.borrow().popular(counted_from);
            for counts in popular.chunks(PAGE) {
                // Without an answer the last count stands; a crowd on this worker alone is seen without one.
                let Ok(totals) = self.topics.count_watchers(&station, counts.to_vec()).await else { continue };
                let mut registry = self.registry.borrow_mut();
                counts.iter().zip(totals).for_each(|((user, _), total)| registry.set_total(user, total));
            }
        }
    }
}
