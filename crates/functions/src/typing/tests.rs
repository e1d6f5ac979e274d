//! Typing, over a platform that notes what it is told.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::cell::RefCell;

use rollcall_core::{Choice, Ids, Moment, Session, Time};

use super::*;
use crate::at_once::now;
use crate::capabilities::{Commit, Committed, Eviction, Loaded, MAX_BATCH, Shards, Touched, Touches, Visibility};

const RULES: Rules = Rules::STANDARD;
const SOON: Time = Time(5_000);

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn conversation(name: &str) -> Result<ConversationId, Error> {
    ConversationId::parse(name).map_err(Error::from)
}

fn typing_update(name: &str, typing: bool) -> Result<TypingUpdate, Error> {
    Ok(TypingUpdate { user: UserId::parse(name)?, conversation: conversation("lunch")?, typing })
}

/// In every conversation the same people type.
#[derive(Default)]
struct Room {
    typing: Vec<&'static str>,
    hidden: Vec<&'static str>,
    invisible: Vec<&'static str>,
    marked: RefCell<Vec<TypingSignal>>,
    asked: RefCell<Vec<UserId>>,
}

impl Typing for Room {
    async fn set_typing(&self, signs: Vec<TypingSignal>) -> Answers<()> {
        let answers =
            signs.iter().map(|sign| if sign.user.as_str() == "away" { Err(Error::Unavailable(9)) } else { Ok(()) });
        let answers = answers.collect();
        self.marked.borrow_mut().extend(signs);
        Ok(answers)
    }
    async fn typists(&self, conversations: Vec<ConversationId>) -> Answers<Vec<Typist>> {
        let typists = || self.typing.iter().map(|name| Typist { user: user(name), until: SOON }).collect();
        let away = |conversation: &ConversationId| conversation.as_str() == "away";
        Ok(conversations.iter().map(|c| if away(c) { Err(Error::Unavailable(9)) } else { Ok(typists()) }).collect())
    }
}

/// Sessions that are only ever read.
impl Sessions for Room {
    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        let choice = |stance| Choice { stance, at: Time(0), until: None, note: None };
        let session = |user: &UserId| match user.as_str() {
            "lost" => Err(Error::Unavailable(7)),
            name if self.invisible.contains(&name) => {
                Ok(Session { choice: Some(choice(Stance::Invisible)), ..Session::default() })
            }
            _ => Ok(Session { choice: Some(choice(Stance::Busy)), ..Session::default() }),
        };
        Ok(Loaded { moment: Moment::at(Time(1)), sessions: users.iter().map(session).collect() })
    }
    async fn touch_many(&self, _: Touches) -> Result<Touched, Error> {
        Err(Error::Denied)
    }
    async fn commit_many(&self, _: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error> {
        Err(Error::Denied)
    }
    async fn due(&self, _: Shards, _: u32) -> Result<Vec<UserId>, Error> {
        Err(Error::Denied)
    }
    async fn evictable(&self, _: Shards, _: u32) -> Result<Vec<UserId>, Error> {
        Err(Error::Denied)
    }
    async fn evict_many(&self, _: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error> {
        Err(Error::Denied)
    }
}

impl RestrictionCheck for Room {
    async fn check(&self, _: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error> {
        let verdict = |subject: &str| Visibility { presence: !self.hidden.contains(&subject), last_seen: true };
        let verdicts = subjects.iter().map(verdict).collect();
        self.asked.borrow_mut().extend(subjects.iter().map(|subject| UserId::parse(subject).unwrap()));
        Ok(verdicts)
    }
}

#[test]
fn a_start_lasts_as_the_rules_say_and_a_stop_ends_it() {
    let room = Room::default();
    let typing_updates = vec![
        typing_update("bob", true),
        typing_update("", true),
        typing_update("away", true),
        typing_update("eve", false),
    ];
    let answers = now(type_many((&room, &room), &RULES, typing_updates)).unwrap();
    assert_eq!((&answers[0], &answers[2], &answers[3]), (&Ok(()), &Err(Error::Unavailable(9)), &Ok(())));
    assert!(matches!(&answers[1], Err(Error::Invalid(invalid)) if invalid.field == "user"));
    let marked = room.marked.borrow();
    let marked: Vec<_> = marked.iter().map(|sign| (sign.user.as_str(), sign.lasts)).collect();
    assert_eq!(marked, [("bob", RULES.typing_ttl), ("away", RULES.typing_ttl), ("eve", Span(0))]);
}

#[test]
fn the_invisible_are_not_seen_typing_and_are_answered_like_anybody() {
    let room = Room { invisible: vec!["ghost"], ..Room::default() };
    let typing_updates = vec![
        typing_update("ghost", true),
        typing_update("bob", true),
        typing_update("lost", true),
        typing_update("ghost", false),
    ];
    let answers = now(type_many((&room, &room), &RULES, typing_updates)).unwrap();
    assert_eq!(answers, [Ok(()), Ok(()), Err(Error::Unavailable(7)), Ok(())]);
    let marked = room.marked.borrow();
    let marked: Vec<_> = marked.iter().map(|sign| (sign.user.as_str(), sign.lasts)).collect();
    assert_eq!(marked, [("ghost", Span(0)), ("bob", RULES.typing_ttl), ("ghost", Span(0))]);
}

#[test]
fn a_batch_is_bounded() {
    let room = Room::default();
    let limit = Error::TooMany(MAX_BATCH as u32);
    assert_eq!(
        now(type_many((&room, &room), &RULES, vec![typing_update("bob", true); MAX_BATCH + 1])),
        Err(limit.clone())
    );
    let conversations = vec![conversation("lunch"); MAX_BATCH + 1];
    assert_eq!(now(typists((&room, &room), None, conversations)), Err(limit));
    assert_eq!(now(type_many((&room, &room), &RULES, Vec::new())), Ok(Vec::new()));
}

#[test]
fn a_viewer_sees_those_typing_whom_they_may_see_and_never_themselves() {
    let room = Room { typing: vec!["bob", "alice", "eve"], hidden: vec!["eve"], ..Room::default() };
    let conversations = vec![conversation("lunch"), conversation(""), conversation("away"), conversation("dinner")];
    let answers = now(typists((&room, &room), Some(user("alice")), conversations)).unwrap();
    let bob = Ok(vec![Typist { user: user("bob"), until: SOON }]);
    assert_eq!((&answers[0], &answers[2], &answers[3]), (&bob, &Err(Error::Unavailable(9)), &bob));
    assert!(matches!(&answers[1], Err(Error::Invalid(_))));
    assert_eq!(*room.asked.borrow(), [user("bob"), user("eve")], "each is asked about once");
}

#[test]
fn a_service_sees_everybody_typing() {
    let room = Room { typing: vec!["bob", "alice"], ..Room::default() };
    let answers = now(typists((&room, &room), None, vec![conversation("lunch")])).unwrap();
    assert_eq!(answers[0].as_ref().map(Vec::len), Ok(2));
}
