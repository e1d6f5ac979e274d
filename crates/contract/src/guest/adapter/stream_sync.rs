//! Changes that are pulled: they are received only while `next` is called.

use std::cell::RefCell;
use std::time::Duration;

use futures::future::FutureExt;
use rollcall_core::Error;
use rollcall_functions::capabilities::PresenceChange;
use rollcall_wasi::{block_on, within};

use super::super::convert::each;
use super::super::exports::topics::topics as wit;
use super::super::wit::types;
use super::TopicsAdapter;
use super::watch::ChangeSource;

/// The most changes in one answer.
const MAX_TAKEN: usize = 64;

/// The handle of a watch.
pub(super) type Changes = wit::PresenceChangeStream;

/// Hands out the changes of a source.
pub(super) fn start<A: TopicsAdapter>(source: A::Source) -> Changes {
    Changes::new(ChangeStream(RefCell::new(source)))
}

/// Users that are watched until the handle is dropped.
pub struct ChangeStream<S>(RefCell<S>);

impl<S: ChangeSource> wit::GuestPresenceChangeStream for ChangeStream<S> {
    fn next(&self, wait_ms: u32) -> Result<Vec<types::PresenceChange>, types::Error> {
        // One call at a time: a component without asynchronous calls is not entered again before it returned.
        let source = &mut *self.0.borrow_mut();
        let taken = block_on(within(Duration::from_millis(wait_ms.into()), take(source)));
        Ok(each(taken.unwrap_or(Ok(Vec::new()))?))
    }
}

/// Waits for a change; takes those that came with it.
async fn take(source: &mut impl ChangeSource) -> Result<Vec<PresenceChange>, Error> {
    let mut changes = Vec::new();
    while changes.is_empty() {
        changes.extend(source.next().await?);
    }
    while changes.len() < MAX_TAKEN
        && let Some(Ok(Some(change))) = source.next().now_or_never()
    {
        changes.push(change);
    }
    Ok(changes)
}
