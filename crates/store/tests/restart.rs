//! The embedded store across restarts: what a graceful shutdown keeps, and what survives a kill.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod folder;

use std::sync::Arc;

use rollcall_core::choose::{NewChoice, NoteContent};
use rollcall_core::{DeviceId, DeviceKind, Revision, Rules, Session, Span, Stance, State, Time, UserId, visibility};
use rollcall_functions::capabilities::{DeviceEvent, Shards, Touch};
use rollcall_functions::heartbeat::{Beat, ChoiceRequest, beat_many, choose_many};
use rollcall_functions::sweep::{archive as archive_offline, sweep};
use rollcall_store::memory::{Memory, Options};
use rollcall_store::{
    ArchiveStore, ChoiceStore, Clock, NativeArchive, NativeSessions, SavedSessions, SessionStore, SqliteArchive,
};

use folder::Folder;

const RULES: Rules = Rules::STANDARD;
const START: Time = Time(1_700_000_000_000);

/// A run of the program on a file.
struct Run {
    archive: Arc<SqliteArchive>,
    store: Arc<Memory>,
    clock: Clock,
    saved_at: Option<Time>,
}

impl Run {
    async fn start(folder: &Folder, now: Time) -> Self {
        let clock = Clock::manual(now);
        let archive = Arc::new(SqliteArchive::open(folder.path("rollcall.db")).unwrap());
        let saved = archive.load_saved(now).await.unwrap();
        let saved_at = saved.at;
        let choice_store = Some(Arc::clone(&archive) as Arc<dyn ChoiceStore>);
        let options = Options { clock: clock.clone(), choice_store, ..Options::default() };
        let store = Arc::new(Memory::restored(options, saved, RULES.alive_for()));
        archive.forget_saved().await.unwrap();
        Self { archive, store, clock, saved_at }
    }

    async fn end(self) {
        self.archive.save(self.store.now(), self.store.export()).await.unwrap();
    }

    fn native(&self) -> NativeSessions {
        NativeSessions(Arc::clone(&self.store) as Arc<dyn SessionStore>)
    }

    async fn beat(&self, name: &str) -> State {
        let device = DeviceId::parse("web-1").unwrap();
        let beat = Beat { user: user(name), device, kind: DeviceKind::Web, active: true };
        beat_many(&self.native(), &RULES, [beat].into_iter().collect()).await.unwrap().remove(0).unwrap().state
    }

    async fn choose(&self, name: &str, stance: Stance, lasts: Option<Span>, text: Option<&str>) {
        let note = text.map(|text| NoteContent::parse(text.to_owned(), String::new()).unwrap());
        let request = ChoiceRequest { user: user(name), choice: NewChoice { stance, lasts, note } };
        choose_many(&self.native(), &RULES, vec![Ok(request)]).await.unwrap().remove(0).unwrap();
    }

    async fn session(&self, name: &str) -> Session {
        self.store.load(&[user(name)]).unwrap().sessions.remove(0).unwrap()
    }

    /// What others see of this user now.
    async fn sees(&self, name: &str) -> State {
        let moment = self.store.load(&[]).unwrap().moment;
        visibility::derive_published(&self.session(name).await, &moment, &RULES).state
    }

    async fn sweep(&self) {
        let shards = Shards { first: 0, end: self.store.shards() };
        sweep(&self.native(), &RULES, shards, 100).await.unwrap();
        let archive = NativeArchive(Arc::clone(&self.archive) as Arc<dyn ArchiveStore>);
        archive_offline(&self.native(), &archive, &RULES, shards, 100).await.unwrap();
    }
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

#[tokio::test]
async fn graceful_restart_keeps_users_online() {
    let folder = Folder::new();
    let run = Run::start(&folder, START).await;
    assert_eq!((run.saved_at, run.store.sessions()), (None, 0), "a new file");
    assert_eq!(run.beat("bob").await, State::Online);
    run.choose("bob", Stance::Busy, None, Some("writing")).await;
    let before = run.session("bob").await;
    run.end().await;

    let late = START + Span::seconds(7200);
    let run = Run::start(&folder, late).await;
    assert_eq!(run.saved_at, Some(START));
    assert_eq!(Session { revision: before.revision, ..run.session("bob").await }, before);
    run.sweep().await;
    assert_eq!(run.sees("bob").await, State::Busy, "outage grace keeps the device alive");
    run.clock.advance(RULES.alive_for());
    run.sweep().await;
    assert_eq!(run.sees("bob").await, State::Offline);
    assert_eq!(run.session("bob").await.published.unwrap().last_seen, Some(START), "the last beat before the restart");
}

#[tokio::test]
async fn kill_makes_no_invisible_user_visible() {
    let folder = Folder::new();
    let run = Run::start(&folder, START).await;
    run.beat("ann").await;
    run.choose("ann", Stance::Invisible, None, None).await;
    run.beat("bob").await;
    run.choose("bob", Stance::Invisible, Some(Span::seconds(60)), None).await;
    run.beat("cid").await;
    run.choose("cid", Stance::Invisible, None, None).await;
    run.choose("cid", Stance::Auto, None, None).await;
    drop(run);

    let run = Run::start(&folder, START + Span::seconds(100)).await;
    assert_eq!(run.saved_at, None, "it did not shut down gracefully");
    run.sweep().await;
    assert_eq!(run.beat("ann").await, State::Offline, "still invisible");
    assert_eq!(run.beat("bob").await, State::Online, "that choice has ended");
    assert_eq!(run.beat("cid").await, State::Online, "that choice was replaced");
}

#[tokio::test]
async fn saved_sessions_serve_exactly_one_run() {
    let folder = Folder::new();
    let run = Run::start(&folder, START).await;
    run.beat("bob").await;
    run.end().await;
    let archive = SqliteArchive::open(folder.path("rollcall.db")).unwrap();
    let first = archive.load_saved(START).await.unwrap();
    assert_eq!(first.at, Some(START));
    assert_eq!(archive.load_saved(START).await.unwrap(), first, "a failed start does not use it up");
    drop(archive);
    let run = Run::start(&folder, START).await;
    assert_eq!(run.store.sessions(), 1);
    drop(run);
    let run = Run::start(&folder, START).await;
    assert_eq!((run.saved_at, run.store.sessions()), (None, 0), "the previous run used them up");
}

#[tokio::test]
async fn note_survives_a_kill() {
    let folder = Folder::new();
    let run = Run::start(&folder, START).await;
    run.choose("bob", Stance::Auto, None, Some("back on Monday")).await;
    drop(run);
    let run = Run::start(&folder, START + Span::seconds(5)).await;
    run.sweep().await;
    let published = run.session("bob").await.published.unwrap();
    assert_eq!((published.state, published.note.unwrap().text), (State::Offline, "back on Monday".to_owned()));
}

#[tokio::test]
async fn ended_choices_are_deleted() {
    let folder = Folder::new();
    let run = Run::start(&folder, START).await;
    run.choose("bob", Stance::Busy, Some(Span::seconds(60)), None).await;
    run.choose("eve", Stance::Busy, None, None).await;
    drop(run);
    let archive = SqliteArchive::open(folder.path("rollcall.db")).unwrap();
    let saved = |now| archive.load_saved(now);
    assert_eq!(saved(START).await.unwrap().sessions.len(), 2);
    assert_eq!(saved(START + Span::seconds(60)).await.unwrap().sessions.len(), 1);
    assert_eq!(saved(START).await.unwrap().sessions.len(), 1, "it was deleted");
}

#[tokio::test]
async fn sessions_survive_the_file_unchanged() {
    let archive = SqliteArchive::in_memory().unwrap();
    let store = Arc::new(Memory::new(Options { clock: Clock::manual(START), ..Options::default() }));
    let kinds = [DeviceKind::Web, DeviceKind::Mobile, DeviceKind::Desktop, DeviceKind::Other];
    let stances = [Stance::Auto, Stance::Away, Stance::Busy, Stance::Invisible];
    for (index, (kind, stance)) in kinds.into_iter().zip(stances).enumerate() {
        for active in [true, false] {
            let event = DeviceEvent::Beat { kind, active, alive_for: Span(70) };
            let device = DeviceId::parse(format!("\"{active}\" \u{1f4bb}")).unwrap();
            let user = user(&format!("user-{index} 名"));
            store.touch(&[Touch { user, device, event }].into_iter().collect()).unwrap();
        }
        let note = NoteContent::parse("it's \"quoted\"; -- ☕".to_owned(), "☕".to_owned()).unwrap();
        let choice = NewChoice { stance, lasts: Some(Span::seconds(60)), note: Some(note) };
        let request = ChoiceRequest { user: user(&format!("user-{index} 名")), choice };
        let native = NativeSessions(Arc::clone(&store) as Arc<dyn SessionStore>);
        choose_many(&native, &RULES, vec![Ok(request)]).await.unwrap().remove(0).unwrap();
    }
    let sorted = |mut saved: SavedSessions| {
        saved.sessions.sort_by(|(one, _), (other, _)| one.cmp(other));
        saved.sessions.iter_mut().for_each(|(_, session)| session.revision = Revision::default());
        saved
    };
    let expected = SavedSessions { at: Some(START), sessions: store.export() };
    archive.save(START, store.export()).await.unwrap();
    assert_eq!(sorted(archive.load_saved(START).await.unwrap()), sorted(expected));
}
