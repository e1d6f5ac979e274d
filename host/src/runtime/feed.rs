//! A feed of `subscribe`: carries the component's stream out of its instance.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::channel::{mpsc, oneshot};
use rollcall_contract::host::wit::types;
use rollcall_core::Error;
use rollcall_functions::subscribe::Update;
use wasmtime::component::{Accessor, FutureConsumer, FutureReader, Source, StreamConsumer, StreamReader, StreamResult};
use wasmtime::{Result, StoreContextMut};

use super::platform::StoreData;

/// The retry hint after the instance was lost. Replacing it takes a millisecond.
const RETRY_MS: u32 = 1000;

/// A viewer's updates. Dropping it ends the feed with the next change.
#[derive(Debug)]
pub struct Feed {
    updates: mpsc::Receiver<Update>,
    end: oneshot::Receiver<Result<(), Error>>,
}

impl Feed {
    /// The next update, or `None` when the feed ended; [`Feed::end`] tells why.
    pub async fn next(&mut self) -> Option<Update> {
        self.updates.next().await
    }

    /// Stops reading, and waits for the reason of the end.
    pub async fn end(self) -> Result<(), Error> {
        drop(self.updates);
        self.end.await.unwrap_or(Err(Error::Unavailable(RETRY_MS)))
    }
}

/// Carries a component's stream out of its instance. One update waits to be read; the rest stay in the conflating mailbox.
pub(crate) fn open_feed(
    accessor: &Accessor<StoreData>,
    updates: StreamReader<types::Update>,
    end: FutureReader<Result<(), types::Error>>,
) -> Result<Feed> {
    let (sender, receiver) = mpsc::channel(0);
    let (why, reason) = oneshot::channel();
    accessor.with(|mut access| {
        updates.pipe(&mut access, UpdateConsumer(sender))?;
        end.pipe(&mut access, EndConsumer(Some(why)))
    })?;
    Ok(Feed { updates: receiver, end: reason })
}

/// Takes updates out of the instance.
struct UpdateConsumer(mpsc::Sender<Update>);

impl<D: 'static> StreamConsumer<D> for UpdateConsumer {
    type Item = types::Update;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut store: StoreContextMut<D>,
        mut source: Source<'_, Self::Item>,
        finish: bool,
    ) -> Poll<Result<StreamResult>> {
        match self.0.poll_ready(context) {
            Poll::Pending if finish => return Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(_)) => return Poll::Ready(Ok(StreamResult::Dropped)),
            Poll::Ready(Ok(())) => {}
        }
        // A write of zero items only asks whether there is room.
        let mut update = None;
        if source.remaining(&mut store) > 0 {
            source.read(&mut store, &mut update)?;
        }
        let taken = update.map(Update::try_from).transpose();
        // An invalid id ends the feed: the component is faulty.
        let Ok(taken) = taken else { return Poll::Ready(Ok(StreamResult::Dropped)) };
        match taken.map(|update| self.0.start_send(update)) {
            Some(Err(_)) => Poll::Ready(Ok(StreamResult::Dropped)),
            Some(Ok(())) | None => Poll::Ready(Ok(StreamResult::Completed)),
        }
    }
}

/// Takes the reason of the end out of the instance.
struct EndConsumer(Option<oneshot::Sender<Result<(), Error>>>);

impl<D: 'static> FutureConsumer<D> for EndConsumer {
    type Item = Result<(), types::Error>;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        store: StoreContextMut<D>,
        mut source: Source<'_, Self::Item>,
        _: bool,
    ) -> Poll<Result<()>> {
        let mut reason = None;
        source.read(store, &mut reason)?;
        if let (Some(reason), Some(end)) = (reason, self.0.take()) {
            let _ = end.send(reason.map_err(Error::from));
        }
        Poll::Ready(Ok(()))
    }
}
