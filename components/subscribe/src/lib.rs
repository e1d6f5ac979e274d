//! The `subscribe` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_contract::guest::convert::each;
use rollcall_contract::guest::exports::subscribe::{subscribe as export, wit_future, wit_stream};
use rollcall_contract::guest::wit::types as wit;
use rollcall_contract::guest::{PlatformArchive, PlatformRestrictionCheck, PlatformSessions, PlatformTopics, rules};
use rollcall_core::{Error, UserId};
use rollcall_functions::subscribe::{self, Closed, UpdateSink};
use wit_bindgen::{FutureReader, StreamReader, StreamResult, StreamWriter, spawn_local};

/// What a query needs.
const READING: (&PlatformSessions, &PlatformArchive, &PlatformRestrictionCheck) =
    (&PlatformSessions, &PlatformArchive, &PlatformRestrictionCheck);

/// A stream of updates, and why it ended.
type Feed = (StreamReader<wit::Update>, FutureReader<Result<(), wit::Error>>);

struct Component;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Component;
    rollcall_contract::guest::exports::subscribe::export_subscribe!(Component);
}

impl export::Guest for Component {
    async fn open(
        viewer: Option<String>,
        watching: u32,
        users: Vec<String>,
    ) -> Result<Vec<Result<wit::InitialPresence, wit::Error>>, wit::Error> {
        let viewer = viewer.map(UserId::parse).transpose()?;
        let asked: Vec<_> = users.into_iter().map(|user| UserId::parse(user).map_err(Error::from)).collect();
        let opened = subscribe::open(READING, &rules(), viewer, watching, asked.clone()).await?;
        let answers = asked.into_iter().zip(opened);
        Ok(answers.map(|(user, initial)| Ok((user?, initial?).into())).collect())
    }

    async fn feed(viewer: Option<String>, users: Vec<String>, since: Option<u64>) -> Result<Feed, wit::Error> {
        let viewer = viewer.map(UserId::parse).transpose()?;
        let users = users.into_iter().map(UserId::parse).collect::<Result<_, _>>()?;
        let feed = subscribe::feed(READING, &PlatformTopics, &rules(), viewer, users, since).await?;
        let (updates, reader) = wit_stream::new();
        let (end, why) = wit_future::new(|| Ok(()));
        spawn_local(async move {
            let mut writer = UpdateWriter(updates);
            let ended = feed.run(&mut writer).await.map_err(Into::into);
            drop(writer);
            // A reader that went away does not need the reason.
            let _ = end.write(ended).await;
        });
        Ok((reader, why))
    }
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
