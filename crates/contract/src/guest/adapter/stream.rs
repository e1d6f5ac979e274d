//! Changes as a stream of the component model, at the reader's pace.

use rollcall_functions::capabilities::PresenceChange;
use wit_bindgen::{FutureReader, StreamReader, StreamResult, StreamWriter};

use super::super::exports::topics::{wit_future, wit_stream};
use super::super::wit::types;
use super::TopicsAdapter;
use super::watch::{ChangeSink, Closed, stream_changes};

/// Changes, and why they ended.
pub(super) type Changes = (StreamReader<types::PresenceChange>, FutureReader<Result<(), types::Error>>);

/// Streams the changes of a source until the reader goes away.
pub(super) fn start<A: TopicsAdapter>(source: A::Source) -> Changes {
    let (changes, reader) = wit_stream::new();
    let (end, why) = wit_future::new(|| Ok(()));
    A::spawn(async move {
        let mut writer = ChangeWriter(changes);
        let ended = stream_changes(source, &mut writer).await.map_err(Into::into);
        drop(writer);
        // A reader that went away does not need the reason.
        let _ = end.write(ended).await;
    });
    (reader, why)
}

/// Writes changes to the stream that leaves the instance.
struct ChangeWriter(StreamWriter<types::PresenceChange>);

impl ChangeSink for ChangeWriter {
    async fn ready(&mut self) -> Result<(), Closed> {
        // Writing nothing waits for a reader.
        match self.0.write(Vec::new()).await.0 {
            StreamResult::Complete(_) | StreamResult::Cancelled => Ok(()),
            StreamResult::Dropped => Err(Closed),
        }
    }

    async fn send(&mut self, change: PresenceChange) -> Result<(), Closed> {
        self.0.write_one(change.into()).await.map_or(Ok(()), |_| Err(Closed))
    }
}
