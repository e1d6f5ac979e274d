//! The `subscribe` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.

use rollcall_core::{Error, UserId};
use rollcall_functions::subscribe::{self, Closed, InitialPresence, UpdateSink};
use rollcall_guest::{
    PlatformArchive, PlatformRestrictionCheck, PlatformSessions, PlatformTopics, error_out, presence_out, rules,
};
use wit_bindgen::{FutureReader, StreamReader, StreamResult, StreamWriter, spawn_local};

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "subscribe-function",
        with: {
            "rollcall:presence/types@0.1.0": rollcall_guest::wit::types,
            "rollcall:presence/settings@0.1.0": rollcall_guest::wit::settings,
            "rollcall:presence/sessions@0.1.0": rollcall_guest::wit::sessions,
            "rollcall:presence/archive@0.1.0": rollcall_guest::wit::archive,
            "rollcall:presence/topics@0.1.0": rollcall_guest::wit::topics,
            "rollcall:presence/restriction-check@0.1.0": rollcall_guest::wit::restriction_check,
        },
    });
    use super::Component;
    export!(Component);
}

use bindings::exports::rollcall::presence::subscribe as wit;
use bindings::{wit_future, wit_stream};

/// What a query needs.
const READING: (&PlatformSessions, &PlatformArchive, &PlatformRestrictionCheck) =
    (&PlatformSessions, &PlatformArchive, &PlatformRestrictionCheck);

/// A stream of updates, and why it ended.
type Fed = (StreamReader<wit::Update>, FutureReader<Result<(), wit::Error>>);

struct Component;

impl wit::Guest for Component {
    async fn open(
        viewer: Option<String>,
        watching: u32,
        users: Vec<String>,
    ) -> Result<Vec<Result<wit::Place, wit::Error>>, wit::Error> {
        let viewer = viewer_in(viewer)?;
        let asked = users.iter().map(|user| UserId::parse(user.as_str()).map_err(Error::from)).collect();
        let places = subscribe::open(READING, &rules(), viewer, watching, asked).await.map_err(error_out)?;
        let answers = users.into_iter().zip(places);
        Ok(answers.map(|(user, place)| place.map(|place| place_out(user, place)).map_err(error_out)).collect())
    }

    async fn feed(viewer: Option<String>, users: Vec<String>, since: Option<u64>) -> Result<Fed, wit::Error> {
        let viewer = viewer_in(viewer)?;
        let users = users.into_iter().map(UserId::parse).collect::<Result<_, _>>();
        let users = users.map_err(|invalid| error_out(invalid.into()))?;
        let feed =
            subscribe::feed(READING, &PlatformTopics, &rules(), viewer, users, since).await.map_err(error_out)?;
        let (updates, reader) = wit_stream::new();
        let (end, why) = wit_future::new(|| Ok(()));
        spawn_local(async move {
            let mut sink = StreamSink(updates);
            let ended = feed.run(&mut sink).await.map_err(error_out);
            drop(sink);
            // A reader that closed the stream may have dropped the future too.
            let _ = end.write(ended).await;
        });
        Ok((reader, why))
    }
}

/// Writes updates to the stream.
struct StreamSink(StreamWriter<wit::Update>);

impl UpdateSink for StreamSink {
    async fn ready(&mut self) -> Result<(), Closed> {
        // An empty write completes when the reader reads.
        match self.0.write(Vec::new()).await.0 {
            StreamResult::Complete(_) | StreamResult::Cancelled => Ok(()),
            StreamResult::Dropped => Err(Closed),
        }
    }

    async fn send(&mut self, updates: Vec<subscribe::Update>) -> Result<(), Closed> {
        let unread = self.0.write_all(updates.into_iter().map(update_out).collect()).await;
        if unread.is_empty() { Ok(()) } else { Err(Closed) }
    }
}

fn viewer_in(viewer: Option<String>) -> Result<Option<UserId>, wit::Error> {
    viewer.map(UserId::parse).transpose().map_err(|invalid| error_out(invalid.into()))
}

fn place_out(user: String, place: InitialPresence) -> wit::Place {
    let visibility = wit::Visibility { presence: place.visibility.presence, last_seen: place.visibility.last_seen };
    wit::Place { presence: presence_out(user, place.view), visibility, settled: place.settled }
}

fn update_out(update: subscribe::Update) -> wit::Update {
    let presence = presence_out(update.presence.user.into_string(), update.presence.view);
    wit::Update { presence, version: update.version }
}
