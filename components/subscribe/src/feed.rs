//! A feed as a stream of the component model.

use rollcall_contract::guest::convert::each;
use rollcall_contract::guest::exports::subscribe::{wit_future, wit_stream};
use rollcall_contract::guest::wit::types as wit;
use rollcall_contract::guest::{PlatformArchive, PlatformChanges, PlatformRestrictionCheck, PlatformSessions};
use rollcall_functions::subscribe::{self, Closed, UpdateSink};
use wit_bindgen::{FutureReader, StreamReader, StreamResult, StreamWriter, spawn_local};

/// A feed over the platform.
type Feed = subscribe::Feed<'static, PlatformSessions, PlatformArchive, PlatformRestrictionCheck, PlatformChanges>;

/// A stream of updates, and why it ended.
pub(crate) type Updates = (StreamReader<wit::Update>, FutureReader<Result<(), wit::Error>>);

/// Runs a feed until its reader goes away.
pub(crate) fn start(feed: Feed) -> Updates {
    let (updates, reader) = wit_stream::new();
    let (end, why) = wit_future::new(|| Ok(()));
    spawn_local(async move {
        let mut writer = UpdateWriter(updates);
        let ended = feed.run(&mut writer).await.map_err(Into::into);
        drop(writer);
        // A reader that went away does not need the reason.
        let _ = end.write(ended).await;
    });
    (reader, why)
}

/// The reader of the stream.
struct UpdateWriter(StreamWriter<wit::Update>);

impl UpdateSink for UpdateWriter {
    async fn ready(&mut self) -> Result<(), Closed> {
        // Writing nothing waits for a reader.
        match self.0.write(Vec::new()).await.0 {
            StreamResult::Complete(_) | StreamResult::Cancelled => Ok(()),
            StreamResult::Dropped => Err(Closed),
        }
    }

    async fn send(&mut self, updates: Vec<subscribe::Update>) -> Result<(), Closed> {
        let unread = self.0.write_all(each(updates)).await;
        if unread.is_empty() { Ok(()) } else { Err(Closed) }
    }
}
