//! Nothing is lost or swapped between the contract and the core types. Compiled, and run, for every set of bindings.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rollcall_core::heartbeat::{Beat, Beats, Departure, DepartureReason, PriorState};
use rollcall_core::policy::{Audience, Numbers, PolicyChange, Privacy, Ruling, Verdict};
use rollcall_core::{ConversationId, DeviceId, DeviceKind, Ids, Stance, State, Time, UserId};
use rollcall_functions::capabilities::{OwnSettings, Touched, Typist, Visibility};
use rollcall_functions::query::View;
use rollcall_functions::subscribe::Update;
use rollcall_functions::typing::TypingUpdate;

use super::wit::{policy_types, session_types, types};
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
fn errors_survive_the_round_trip() {
    for error in [
        Invalid::new("user", "is empty").into(),
        Error::TooMany(7),
        Error::Unavailable(8),
        Error::Denied,
        Error::Other("x".to_owned()),
    ] {
        assert_eq!(Error::from(types::Error::from(error.clone())), error);
    }
}

#[test]
fn item_of_a_batch_fails_alone() {
    let typist = |name: &str| types::Typist { user: name.to_owned(), until: 5 };
    let decoded = checked_answers(Ok(vec![Ok(typist("bob")), Err(types::Error::Denied), Ok(typist(""))])).unwrap();
    assert_eq!(decoded.first(), Some(&Ok(Typist { user: user("bob"), until: Time(5) })));
    assert_eq!(decoded.get(1), Some(&Err(Error::Denied)));
    assert!(matches!(decoded.get(2), Some(Err(Error::Invalid(_)))), "foreign ids are checked");
    let whole = checked_answers::<types::Typist, Typist>(Err(types::Error::Unavailable(5)));
    assert_eq!(whole, Err(Error::Unavailable(5)));
}

#[test]
fn packed_ids_fail_with_the_first_invalid_one() {
    let packed = |ids: &[&str]| types::Ids {
        text: ids.concat(),
        lengths: ids.iter().map(|id| u8::try_from(id.len()).unwrap()).collect(),
    };
    let ids: Ids<UserId> = packed(&["bob", "é"]).try_into().unwrap();
    assert_eq!(ids.iter().collect::<Vec<_>>(), ["bob", "é"]);
    let invalid: Result<Ids<UserId>, _> = packed(&["bob", "a\nb", ""]).try_into();
    assert_eq!(invalid.unwrap_err(), Invalid::new("user", "contains a control character"));
    let cut: Result<Ids<UserId>, _> = types::Ids { text: "é".to_owned(), lengths: vec![1, 1] }.try_into();
    assert_eq!(cut.unwrap_err().field, "lengths");
}

#[test]
fn beats_are_packed_column_by_column() {
    let beat =
        |name: &str, kind, active| Beat { user: user(name), device: DeviceId::parse("d").unwrap(), kind, active };
    let beats: Beats =
        [beat("bob", DeviceKind::Web, true), beat("eva", DeviceKind::Mobile, false)].into_iter().collect();
    let beats = types::Beats::from(beats);
    assert_eq!((beats.users.text.as_str(), beats.users.lengths), ("bobeva", vec![3, 3]));
    assert_eq!((beats.devices.text.as_str(), beats.devices.lengths), ("dd", vec![1, 1]));
    let details: Vec<_> = beats.details.into_iter().map(|details| (details.kind, details.active)).collect();
    assert!(matches!(details.as_slice(), [(types::DeviceKind::Web, true), (types::DeviceKind::Mobile, false)]));
}

#[test]
fn departure_survives_the_round_trip() {
    let device = DeviceId::parse("web-1").unwrap();
    let departure = Departure { user: user("bob"), device, reason: DepartureReason::Dropped };
    assert_eq!(Departure::try_from(types::Departure::from(departure.clone())), Ok(departure));
}

#[cfg(feature = "api")]
#[test]
fn choice_request_goes_out_as_it_was_made() {
    let note = rollcall_core::choose::NoteContent::parse("out".to_owned(), String::new()).ok();
    let request =
        rollcall_api::call::ChoiceRequest { user: user("bob"), stance: Stance::Invisible, for_s: Some(60), note };
    let request = types::ChoiceRequest::from(request);
    assert!(matches!(request.stance, types::Stance::Invisible));
    assert_eq!((request.for_s, request.note.map(|note| note.text)), (Some(60), Some("out".to_owned())));
}

#[test]
fn view_comes_in_whole_and_hidden_is_none() {
    assert_eq!(Option::<View>::from(types::View::Hidden), None);
    for (state, expected) in [
        (types::State::Online, State::Online),
        (types::State::Away, State::Away),
        (types::State::Busy, State::Busy),
        (types::State::Offline, State::Offline),
    ] {
        let View { published, choice } = Option::<View>::from(shown(state)).unwrap();
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
fn update_keeps_its_user_and_where_to_resume() {
    let update = |name: &str| types::Update {
        presence: types::Presence { user: name.to_owned(), view: types::View::Hidden },
        version: 9,
    };
    let bob = Update::try_from(update("bob")).unwrap();
    assert_eq!((bob.presence.user, bob.presence.view, bob.version), (user("bob"), None, 9));
    assert!(Update::try_from(update("")).is_err());
}

#[test]
fn typing_update_comes_in() {
    let update = types::TypingUpdate { user: "bob".to_owned(), conversation: "c1".to_owned(), typing: true };
    let update = TypingUpdate::try_from(update).unwrap();
    assert_eq!(
        (update.user, update.conversation, update.typing),
        (user("bob"), ConversationId::parse("c1").unwrap(), true)
    );
}

#[test]
fn failed_touch_keeps_its_index() {
    let prior = PriorState { state: State::Away, version: 7, stance: Stance::Busy, stance_until: Some(Time(9)) };
    let touched = Touched { now: Time(5), prior: vec![Ok(prior), Err(Error::Denied), Ok(PriorState::NOTHING)] };
    let out = session_types::Touched::from(touched.clone());
    assert_eq!((out.versions.len(), out.states.len(), out.stance_ends.len(), out.failures.len()), (3, 3, 1, 1));
    assert_eq!(Touched::from(out), touched);
}

#[test]
fn verdicts_keep_their_reasons_and_visibility_drops_them() {
    for (ruling, visible) in
        [(Ruling::Allowed, true), (Ruling::Restricted, false), (Ruling::Blocked, false), (Ruling::Private, false)]
    {
        let verdict = Verdict { presence: ruling, last_seen: true };
        assert_eq!(Verdict::from(policy_types::Verdict::from(verdict)), verdict);
        let visibility = Visibility::from(policy_types::Verdict::from(verdict));
        assert_eq!((visibility.presence, visibility.last_seen), (visible, true));
    }
}

#[test]
fn policy_changes_survive_the_round_trip() {
    let privacy = Privacy { presence: Audience::Contacts, last_seen: Audience::Nobody };
    let numbers = || Numbers::new(3, vec![0x80, 1]).unwrap();
    let changes = [
        PolicyChange::Restrict(user("a")),
        PolicyChange::Unrestrict(user("a")),
        PolicyChange::RestrictMany(numbers()),
        PolicyChange::UnrestrictMany(numbers()),
        PolicyChange::Block(user("a"), user("b")),
        PolicyChange::Unblock(user("a"), user("b")),
        PolicyChange::AddContact(user("a"), user("b")),
        PolicyChange::RemoveContact(user("a"), user("b")),
        PolicyChange::SetPrivacy(user("a"), privacy),
    ];
    for change in changes {
        assert_eq!(PolicyChange::try_from(policy_types::PolicyChange::from(change.clone())), Ok(change));
    }
    let block = policy_types::PolicyChange::Block(("a".to_owned(), String::new()));
    assert!(PolicyChange::try_from(block).is_err());
    let own = OwnSettings { privacy, contacts: vec![user("b")], blocks: Vec::new() };
    assert_eq!(OwnSettings::try_from(policy_types::OwnSettings::from(own.clone())), Ok(own));
}
