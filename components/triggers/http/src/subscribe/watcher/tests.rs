//! What is told to whom, and what is not told twice.

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

fn begun(everybody: Vec<Update>, since: Option<u64>) -> (Watcher, String) {
    let since = since.map(|version| EventId { version, digest: None });
    Watcher::new(everybody, [], since, &Rules::STANDARD)
}

/// The id that stands on what was told up to this time.
fn id(heard_ms: u64) -> String {
    format!("id: {}\n", (heard_ms - SURELY_PUBLISHED.0) * 1000)
}

#[test]
fn a_stream_begins_with_everybody_and_with_whoever_types() {
    let everybody = vec![update("bob", Some(published(State::Online, 7)), NOW_MS * 1000), update("eve", None, 5)];
    let rooms = [(room("c1"), vec![typist("eve", 9)])];
    let (_, text) = Watcher::new(everybody, rooms, None, &Rules::STANDARD);
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
fn a_stream_of_nobody_resumes_from_the_very_beginning() {
    let (_, text) = begun(Vec::new(), None);
    assert_eq!(text, "event: snapshot\nid: 0\ndata: {\"presences\":[],\"typing\":[],\"resumed\":false}\n\n");
}

#[test]
fn who_resumes_is_told_what_may_have_changed_since_and_no_more() {
    let since = (NOW_MS - 5000) * 1000;
    let everybody = vec![
        update("newer", Some(published(State::Online, since)), NOW_MS * 1000),
        update("older", Some(published(State::Online, since - 1)), NOW_MS * 1000),
        update("hidden", None, NOW_MS * 1000),
        update("long-gone", Some(published(State::Offline, 0)), NOW_MS * 1000),
        update("left", Some(Published { since: None, last_seen: None, ..published(State::Offline, 0) }), NOW_MS * 1000),
    ];
    let (mut watcher, text) = begun(everybody, Some(since));
    assert!(text.contains(r#""resumed":true"#));
    for (name, told) in [("newer", true), ("older", false), ("hidden", true), ("long-gone", false), ("left", true)] {
        assert_eq!(text.contains(&format!(r#""user":"{name}""#)), told, "{name} in {text}");
    }
    // Whoever was not told of is known all the same.
    assert_eq!(watcher.changed(vec![update("older", Some(published(State::Online, since)), NOW_MS * 1000)]), "");
}

#[test]
fn a_change_is_told_once_with_from_where_to_resume() {
    let (mut watcher, _) = begun(vec![update("bob", Some(published(State::Online, 7)), NOW_MS * 1000)], None);
    let away = update("bob", Some(published(State::Away, (NOW_MS + 20_000) * 1000)), (NOW_MS + 20_000) * 1000);
    let text = watcher.changed(vec![away.clone()]);
    assert!(
        text.starts_with(&format!(
            "event: presence\n{}data: {{\"user\":\"bob\",\"state\":\"away\"",
            id(NOW_MS + 20_000)
        ))
    );
    assert_eq!(watcher.changed(vec![away]), "", "a feed that was begun again tells it again");
    let beat = Published { last_seen: Some(Time(99)), ..published(State::Away, 5) };
    assert_eq!(watcher.changed(vec![update("bob", Some(beat), 5)]), "", "a beat of somebody who is here is no news");
    let hidden = watcher.changed(vec![update("bob", None, 6)]);
    assert!(hidden.contains(r#""user":"bob","state":null"#), "{hidden}");
    assert!(hidden.contains(&id(NOW_MS + 20_000)), "the place never goes back: {hidden}");
    assert_eq!(watcher.changed(vec![update("bob", None, 7)]), "");
}

#[test]
fn what_one_chose_is_news_to_oneself() {
    let (mut watcher, _) = begun(vec![update("bob", Some(published(State::Online, 7)), 8)], None);
    let mut chosen = update("bob", Some(published(State::Online, 7)), 9);
    if let Some(view) = &mut chosen.presence.view {
        view.choice = Some(Choice { stance: Stance::Busy, at: Time(1), until: None, note: None });
    }
    assert!(watcher.changed(vec![chosen]).contains(r#""choice":{"choice":"busy""#));
}

#[test]
fn typing_is_told_where_it_begins_goes_on_and_ends() {
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
fn a_conversation_that_could_not_be_read_is_as_it_was() {
    let (mut watcher, _) = begun(Vec::new(), None);
    let typing = |until| vec![(room("c1"), Ok(vec![typist("bob", until)]))];
    assert!(!watcher.typing(typing(5)).is_empty());
    assert_eq!(watcher.typing(vec![(room("c1"), Err(Error::Unavailable(1)))]), "");
    assert_eq!(watcher.typing(typing(5)), "");
}
