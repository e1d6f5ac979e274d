//! Nothing is lost or turned around on the way between the contract and the API.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rollcall_core::{ConversationId, DeviceId, DeviceKind, Stance};

use super::*;

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn shown(state: types::State) -> types::View {
    let note = types::Note { text: "out".to_owned(), emoji: "🌴".to_owned(), until: Some(4) };
    types::View::Shown(types::Shown {
        published: types::Published { state, note: Some(note), since: Some(1), last_seen: Some(2), version: 3 },
        choice: Some(types::Choice { stance: types::Stance::Invisible, at: 5, until: None, note: None }),
    })
}

#[test]
fn errors_keep_what_the_caller_can_do() {
    let invalid = types::Invalid { field: "user".to_owned(), rule: "is empty".to_owned() };
    for (contract, error) in [
        (types::Error::Invalid(invalid), Invalid::new("user", "is empty").into()),
        (types::Error::TooMany(7), core::Error::TooMany(7)),
        (types::Error::Unavailable(8), core::Error::Unavailable(8)),
        (types::Error::Denied, core::Error::Denied),
        (types::Error::Other("x".to_owned()), core::Error::Other("x".to_owned())),
    ] {
        assert_eq!(error_in(contract), error);
    }
}

#[test]
fn an_item_of_a_batch_fails_alone() {
    let answers = Ok(vec![Ok("bob".to_owned()), Err(types::Error::Denied), Ok(String::new())]);
    let decoded = answers_in(answers, |name: String| UserId::parse(name)).unwrap();
    assert_eq!(decoded.first(), Some(&Ok(user("bob"))));
    assert_eq!(decoded.get(1), Some(&Err(core::Error::Denied)));
    assert!(matches!(decoded.get(2), Some(Err(core::Error::Invalid(_)))), "an id from outside is checked");
    let whole = answers_in(Err(types::Error::Unavailable(5)), |name: String| UserId::parse(name));
    assert_eq!(whole, Err(core::Error::Unavailable(5)));
}

#[test]
fn beats_are_packed_column_by_column() {
    let beat =
        |name: &str, kind, active| call::Beat { user: user(name), device: DeviceId::parse("d").unwrap(), kind, active };
    let beats = beats_out([beat("bob", DeviceKind::Web, true), beat("eva", DeviceKind::Mobile, false)]);
    assert_eq!((beats.users.text.as_str(), beats.users.lengths), ("bobeva", vec![3, 3]));
    assert_eq!((beats.devices.text.as_str(), beats.devices.lengths), ("dd", vec![1, 1]));
    let signs: Vec<_> = beats.signs.into_iter().map(|sign| (sign.kind, sign.active)).collect();
    assert!(matches!(signs.as_slice(), [(types::DeviceKind::Web, true), (types::DeviceKind::Mobile, false)]));
}

#[test]
fn a_departure_and_a_choice_go_out_as_they_were_made() {
    let device = DeviceId::parse("web-1").unwrap();
    let departure = call::Departure { user: user("bob"), device, reason: call::Reason::Dropped };
    let departure = departure_out(departure);
    assert_eq!((departure.user.as_str(), departure.device.as_str()), ("bob", "web-1"));
    assert!(matches!(departure.reason, heartbeat::Reason::Dropped));

    let note = NoteContent::parse("out".to_owned(), String::new()).ok();
    let choice_request = call::ChoiceRequest { user: user("bob"), stance: Stance::Invisible, for_s: Some(60), note };
    let choice_request = choice_request_out(choice_request);
    assert!(matches!(choice_request.stance, types::Stance::Invisible));
    assert_eq!((choice_request.for_s, choice_request.note.map(|words| words.text)), (Some(60), Some("out".to_owned())));
}

#[test]
fn a_view_comes_in_whole_and_hidden_is_nothing() {
    assert_eq!(view_in(types::View::Hidden), None);
    for (state, expected) in [
        (types::State::Online, core::State::Online),
        (types::State::Away, core::State::Away),
        (types::State::Busy, core::State::Busy),
        (types::State::Offline, core::State::Offline),
    ] {
        let call::View { published, choice } = view_in(shown(state)).unwrap();
        assert_eq!(
            (published.state, published.since, published.last_seen, published.version),
            (expected, Some(Time(1)), Some(Time(2)), 3)
        );
        let note = published.note.unwrap();
        assert_eq!((note.text.as_str(), note.emoji.as_str(), note.until), ("out", "🌴", Some(Time(4))));
        let choice = choice.unwrap();
        assert_eq!((choice.stance, choice.at, choice.until), (Stance::Invisible, Time(5), None));
    }
}

#[test]
fn an_update_names_whom_it_is_about_and_where_to_go_on() {
    let update = |name: &str| subscribe::Update {
        presence: types::Presence { user: name.to_owned(), view: types::View::Hidden },
        version: 9,
    };
    assert_eq!(update_in(update("bob")), Ok(Update { user: user("bob"), view: None, version: 9 }));
    assert!(update_in(update("")).is_err());
}

#[test]
fn typing_goes_out_and_typists_come_in() {
    let conversation = ConversationId::parse("c1").unwrap();
    let typing_update = typing_update_out(call::TypingUpdate { user: user("bob"), conversation, typing: true });
    assert_eq!(
        (typing_update.user.as_str(), typing_update.conversation.as_str(), typing_update.typing),
        ("bob", "c1", true)
    );
    let typists = typists_in(vec![types::Typist { user: "bob".to_owned(), until: 5 }]);
    assert_eq!(typists, Ok(vec![(user("bob"), Time(5))]));
}

#[test]
fn verdicts_come_in_with_their_reasons() {
    for (ruling, expected) in [
        (restriction_check::Ruling::Allowed, Ruling::Allowed),
        (restriction_check::Ruling::Restricted, Ruling::Restricted),
        (restriction_check::Ruling::Blocked, Ruling::Blocked),
        (restriction_check::Ruling::Private, Ruling::Private),
    ] {
        let verdict = verdict_in(restriction_check::Verdict { presence: ruling, last_seen: true });
        assert_eq!((verdict.presence, verdict.last_seen), (expected, true));
    }
}

#[test]
fn changes_go_out_with_the_two_in_their_order() {
    let pairs = [
        change_out(Change::Block(user("a"), user("b"))),
        change_out(Change::Unblock(user("a"), user("b"))),
        change_out(Change::AddContact(user("a"), user("b"))),
        change_out(Change::RemoveContact(user("a"), user("b"))),
    ];
    let expected = ("a".to_owned(), "b".to_owned());
    let [
        policy::Change::Block(block),
        policy::Change::Unblock(unblock),
        policy::Change::AddContact(add_contact),
        policy::Change::RemoveContact(remove_contact),
    ] = pairs
    else {
        unreachable!("each is what it was")
    };
    assert!([block, unblock, add_contact, remove_contact].iter().all(|pair| *pair == expected));
    let privacy = Privacy { presence: Audience::Contacts, last_seen: Audience::Nobody };
    let policy::Change::SetPrivacy((name, out)) = change_out(Change::SetPrivacy(user("a"), privacy)) else {
        unreachable!("it is what it was")
    };
    assert_eq!(name, "a");
    assert!(matches!((out.presence, out.last_seen), (policy::Audience::Contacts, policy::Audience::Nobody)));
    let own = own_in(policy::OwnSettings { privacy: out, contacts: vec!["b".to_owned()], blocks: Vec::new() });
    assert_eq!(own, Ok(Own { privacy, contacts: vec![user("b")], blocks: Vec::new() }));
}
