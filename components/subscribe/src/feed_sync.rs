//! A feed that is pulled: it runs only while `next` is called.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use rollcall_contract::guest::convert::each;
use rollcall_contract::guest::exports::subscribe::subscribe as export;
use rollcall_contract::guest::wit::types as wit;
use rollcall_contract::guest::{
    PlatformArchive, PlatformChanges, PlatformRestrictionCheck, PlatformSessions, poll_for,
};
use rollcall_functions::subscribe::{self, Closed, UpdateSink};

/// A feed over the platform.
type Feed = subscribe::Feed<'static, PlatformSessions, PlatformArchive, PlatformRestrictionCheck, PlatformChanges>;

/// The handle of a feed.
pub(crate) type Updates = export::UpdateStream;

/// Starts a feed. It runs while its reader asks for updates.
pub(crate) fn start(feed: Feed) -> Updates {
    let collected = Rc::new(RefCell::new(Vec::new()));
    let mut collector = Collector(Rc::clone(&collected));
    let running = async move { feed.run(&mut collector).await.map_err(Into::into) };
    Updates::new(UpdateStream { collected, state: RefCell::new(State::Running(Box::pin(running))) })
}

/// A feed, and the updates that its reader has not taken yet.
pub(crate) struct UpdateStream {
    collected: Rc<RefCell<Vec<wit::Update>>>,
    state: RefCell<State>,
}

enum State {
    Running(Pin<Box<dyn Future<Output = Result<(), wit::Error>>>>),
    Ended(wit::Error),
}

impl export::GuestUpdateStream for UpdateStream {
    fn next(&self, wait_ms: u32) -> Result<Vec<wit::Update>, wit::Error> {
        let mut state = self.state.borrow_mut();
        if let State::Running(running) = &mut *state
            && let Poll::Ready(ended) = poll_for(wait_ms, running.as_mut())
        {
            // The sink never closes, so a feed without an error ended because the platform ended the changes.
            *state = State::Ended(ended.err().unwrap_or(wit::Error::Unavailable(0)));
        }
        let updates = self.collected.take();
        match &*state {
            State::Ended(error) if updates.is_empty() => Err(error.clone()),
            _ => Ok(updates),
        }
    }
}

/// Collects the updates of one call.
struct Collector(Rc<RefCell<Vec<wit::Update>>>);

impl UpdateSink for Collector {
    async fn ready(&mut self) -> Result<(), Closed> {
        // Until the updates are taken the platform holds the newest change of each user.
        poll_fn(|_| if self.0.borrow().is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }).await
    }

    async fn send(&mut self, updates: Vec<subscribe::Update>) -> Result<(), Closed> {
        self.0.borrow_mut().extend(each::<_, wit::Update>(updates));
        Ok(())
    }
}
