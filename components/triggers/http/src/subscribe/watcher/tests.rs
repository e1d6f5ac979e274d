//! Which events a watcher gets, and that none is repeated.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rollcall_core::{Choice, Error, Published, Stance};

use super::*;

/// When the feed began, on the store's clock.
const NOW_MS: u64 = 1_700_000_000_000;

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn room(name: &str) -> ConversationId {
    ConversationId::parse(name).unwrap()
}

fn published(state: State, version: u64) -> Published {
    Published { state, note: None, since: Some(Time(1)), last_seen: Some(Time(2)), version }
}

fn update(name: &str, published: Option<Published>, version: u64) -> Update {
    let view = published.map(|published| View { published, choice: None });
    Update { presence: Presence { user: user(name), view }, version }
}

fn typist(name: &str, until: u64) -> Typist {
    Typist { user: user(name), until: Time(until) }
}

fn begun(updates: Vec<Update>, since: Option<u64>) -> (Watcher, String) {
    let since = since.map(|version| EventId { version, digest: None });
    Watcher::new(updates, [], since, &Rules::STANDARD)
}

/// The event id after updates up to this time.
fn id(received_ms: u64) -> String {
    format!("id: {}\n", (received_ms - MAX_PUBLISH_DELAY.0) * 1000)
}

#[test]
fn snapshot_has_all_users_and_typists() {
    let updates = vec![update("bob", Some(published(State::Online, 7)), NOW_MS * 1000), update("eve", None, 5)];
    let rooms = [(room("c1"), vec![typist("eve", 9)])];
    let (_, text) = Watcher::new(updates, rooms, None, &Rules::STANDARD);
    assert!(text.starts_with(&format!("event: snapshot\n{}data: ", id(NOW_MS))), "{text}");
    assert!(text.ends_with("\n\n"));
    for part in
        [r#""user":"bob","state":"online""#, r#""user":"eve","state":null"#, r#""conversation":"c1","user":"eve""#]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains(r#""resumed":false"#));
}

#[test]
fn empty_stream_has_event_id_zero() {
    let (_, text) = begun(Vec::new(), None);
    assert_eq!(text, "event: snapshot\nid: 0\ndata: {\"presences\":[],\"typing\":[],\"resumed\":false}\n\n");
}

#[test]
fn resumed_stream_gets_only_possible_changes() {
    let since = (NOW_MS - 5000) * 1000;
    let updates = vec![
        update("newer", Some(published(State::Online, since)), NOW_MS * 1000),
        update("older", Some(published(State::Online, since - 1)), NOW_MS * 1000),
        update("hidden", None, NOW_MS * 1000),
        update("long-gone", Some(published(State::Offline, 0)), NOW_MS * 1000),
        update("left", Some(Published { since: None, last_seen: None, ..published(State::Offline, 0) }), NOW_MS * 1000),
    ];
    let (mut watcher, text) = begun(updates, Some(since));
    assert!(text.contains(r#""resumed":true"#));
    for (name, is_sent) in [("newer", true), ("older", false), ("hidden", true), ("long-gone", false), ("left", true)] {
        assert_eq!(text.contains(&format!(r#""user":"{name}""#)), is_sent, "{name} in {text}");
    }
    // A user left out of the snapshot is known all the same.
    assert_eq!(watcher.changed(vec![update("older", Some(published(State::Online, since)), NOW_MS * 1000)]), "");
}

#[test]
fn change_is_sent_once_with_event_id() {
    let (mut watcher, _) = begun(vec![update("bob", Some(published(State::Online, 7)), NOW_MS * 1000)], None);
    let away = update("bob", Some(published(State::Away, (NOW_MS + 20_000) * 1000)), (NOW_MS + 20_000) * 1000);
    let text = watcher.changed(vec![away.clone()]);
    assert!(
        text.starts_with(&format!(
            "event: presence\n{}data: {{\"user\":\"bob\",\"state\":\"away\"",
            id(NOW_MS + 20_000)
        ))
    );
    assert_eq!(watcher.changed(vec![away]), "", "a restarted feed repeats it");
    let beat = Published { last_seen: Some(Time(99)), ..published(State::Away, 5) };
    assert_eq!(watcher.changed(vec![update("bob", Some(beat), 5)]), "", "a beat of an online user is not an event");
    let hidden = watcher.changed(vec![update("bob", None, 6)]);
    assert!(hidden.contains(r#""user":"bob","state":null"#), "{hidden}");
    assert!(hidden.contains(&id(NOW_MS + 20_000)), "the event id never goes back: {hidden}");
    assert_eq!(watcher.changed(vec![update("bob", None, 7)]), "");
}

#[test]
fn own_choice_is_sent_to_its_user() {
    let (mut watcher, _) = begun(vec![update("bob", Some(published(State::Online, 7)), 8)], None);
    let mut chosen = update("bob", Some(published(State::Online, 7)), 9);
    if let Some(view) = &mut chosen.presence.view {
        view.choice = Some(Choice { stance: Stance::Busy, at: Time(1), until: None, note: None });
    }
    assert!(watcher.changed(vec![chosen]).contains(r#""choice":{"choice":"busy""#));
}

#[test]
fn typing_start_renewal_and_stop_are_sent() {
    let (mut watcher, _) = begun(Vec::new(), None);
    let mut typed = |typists: &[(&str, u64)]| {
        let typists = typists.iter().map(|(name, until)| typist(name, *until)).collect();
        watcher.typing(vec![(room("c1"), Ok(typists))])
    };
    let begins = typed(&[("bob", 5)]);
    let expected = r#"data: {"conversation":"c1","user":"bob","typing":true,"until":5}"#;
    assert_eq!(begins, format!("event: typing\nid: 0\n{expected}\n\n"));
    assert_eq!(typed(&[("bob", 5)]), "");
    assert!(typed(&[("bob", 8), ("eve", 5)]).contains(r#""until":8"#));
    let ends = typed(&[("eve", 5)]);
    assert!(ends.contains(r#""user":"bob","typing":false,"until":null"#) && !ends.contains("\"eve\""), "{ends}");
}

#[test]
fn unreadable_conversation_keeps_its_typists() {
    let (mut watcher, _) = begun(Vec::new(), None);
    let typing = |until| vec![(room("c1"), Ok(vec![typist("bob", until)]))];
    assert!(!watcher.typing(typing(5)).is_empty());
    assert_eq!(watcher.typing(vec![(room("c1"), Err(Error::Unavailable(1)))]), "");
    assert_eq!(watcher.typing(typing(5)), "");
}
