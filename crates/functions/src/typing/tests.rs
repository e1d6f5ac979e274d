//! Typing over a fake host that records the signals.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::cell::RefCell;

use rollcall_core::{Choice, DeadlineState, Moment, Record, Session, Stance, Time};

use super::*;
use crate::capabilities::{
    Commit, Committed, Eviction, Loaded, MAX_BATCH, Records, Shards, Touched, Touches, Visibility,
};
use crate::poll_once::poll_once;

const RULES: Rules = Rules::STANDARD;
const SOON: Time = Time(5_000);

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn conversation(name: &str) -> Result<ConversationId, Error> {
    ConversationId::parse(name).map_err(Error::from)
}

fn update(name: &str, typing: bool) -> Result<TypingUpdate, Error> {
    Ok(TypingUpdate { user: UserId::parse(name)?, conversation: conversation("lunch")?, typing })
}

/// A fake host: the same users type in every conversation.
#[derive(Default)]
struct FakeHost {
    typing: Vec<&'static str>,
    hidden: Vec<&'static str>,
    invisible: Vec<&'static str>,
    signals: RefCell<Vec<TypingSignal>>,
    asked: RefCell<Vec<UserId>>,
}

impl Typing for FakeHost {
    async fn set_typing(&self, signals: Vec<TypingSignal>) -> Answers<()> {
        let answers = signals
            .iter()
            .map(|signal| if signal.user.as_str() == "failing" { Err(Error::Unavailable(9)) } else { Ok(()) });
        let answers = answers.collect();
        self.signals.borrow_mut().extend(signals);
        Ok(answers)
    }
    async fn typists(&self, conversations: Vec<ConversationId>) -> Answers<Vec<Typist>> {
        let typists = || self.typing.iter().map(|name| Typist { user: user(name), until: SOON }).collect();
        let fails = |conversation: &ConversationId| conversation.as_str() == "failing";
        Ok(conversations.iter().map(|c| if fails(c) { Err(Error::Unavailable(9)) } else { Ok(typists()) }).collect())
    }
}

/// Sessions that can only be read.
impl Sessions for FakeHost {
    async fn read_many(&self, users: Ids<UserId>) -> Result<Records, Error> {
        let record = |invisible| Record { invisible, ..Record::NOTHING };
        let read = |user: &str| match user {
            "lost" => Err(Error::Unavailable(7)),
            "ending" => Ok(Record { deadline: DeadlineState::Passed, ..record(true) }),
            name => Ok(record(self.invisible.contains(&name))),
        };
        Ok(Records { now: Time(1), records: users.iter().map(read).collect() })
    }
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

impl RestrictionCheck for FakeHost {
    async fn check(&self, _: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error> {
        let verdict = |subject: &str| Visibility { presence: !self.hidden.contains(&subject), last_seen: true };
        let verdicts = subjects.iter().map(verdict).collect();
        self.asked.borrow_mut().extend(subjects.iter().map(|subject| UserId::parse(subject).unwrap()));
        Ok(verdicts)
    }
}

#[test]
fn start_lasts_typing_ttl_and_stop_ends_it() {
    let host = FakeHost::default();
    let updates = vec![update("bob", true), update("", true), update("failing", true), update("eve", false)];
    let answers = poll_once(type_many((&host, &host), &RULES, updates)).unwrap();
    assert_eq!((&answers[0], &answers[2], &answers[3]), (&Ok(()), &Err(Error::Unavailable(9)), &Ok(())));
    assert!(matches!(&answers[1], Err(Error::Invalid(invalid)) if invalid.field == "user"));
    let signals = host.signals.borrow();
    let signals: Vec<_> = signals.iter().map(|signal| (signal.user.as_str(), signal.lasts)).collect();
    assert_eq!(signals, [("bob", RULES.typing_ttl), ("failing", RULES.typing_ttl), ("eve", Span(0))]);
}

#[test]
fn invisible_users_are_not_seen_typing() {
    let host = FakeHost { invisible: vec!["ghost"], ..FakeHost::default() };
    let updates = [("ghost", true), ("bob", true), ("lost", true), ("ghost", false), ("ending", true)];
    let updates = updates.map(|(name, typing)| update(name, typing)).to_vec();
    let answers = poll_once(type_many((&host, &host), &RULES, updates)).unwrap();
    assert_eq!(answers, [Ok(()), Ok(()), Err(Error::Unavailable(7)), Ok(()), Ok(())]);
    let signals = host.signals.borrow();
    let signals: Vec<_> = signals.iter().map(|signal| (signal.user.as_str(), signal.lasts)).collect();
    assert_eq!(
        signals,
        [("ghost", Span(0)), ("bob", RULES.typing_ttl), ("ghost", Span(0)), ("ending", RULES.typing_ttl)]
    );
}

#[test]
fn batches_are_bounded() {
    let host = FakeHost::default();
    let limit = Error::TooMany(MAX_BATCH as u32);
    assert_eq!(
        poll_once(type_many((&host, &host), &RULES, vec![update("bob", true); MAX_BATCH + 1])),
        Err(limit.clone())
    );
    let conversations = vec![conversation("lunch"); MAX_BATCH + 1];
    assert_eq!(poll_once(typists((&host, &host), None, conversations)), Err(limit));
    assert_eq!(poll_once(type_many((&host, &host), &RULES, Vec::new())), Ok(Vec::new()));
}

#[test]
fn viewer_sees_visible_typists_except_themselves() {
    let host = FakeHost { typing: vec!["bob", "alice", "eve"], hidden: vec!["eve"], ..FakeHost::default() };
    let conversations = vec![conversation("lunch"), conversation(""), conversation("failing"), conversation("dinner")];
    let answers = poll_once(typists((&host, &host), Some(user("alice")), conversations)).unwrap();
    let bob = Ok(vec![Typist { user: user("bob"), until: SOON }]);
    assert_eq!((&answers[0], &answers[2], &answers[3]), (&bob, &Err(Error::Unavailable(9)), &bob));
    assert!(matches!(&answers[1], Err(Error::Invalid(_))));
    assert_eq!(*host.asked.borrow(), [user("bob"), user("eve")], "each user is checked once");
}

#[test]
fn service_sees_all_typists() {
    let host = FakeHost { typing: vec!["bob", "alice"], ..FakeHost::default() };
    let answers = poll_once(typists((&host, &host), None, vec![conversation("lunch")])).unwrap();
    assert_eq!(answers[0].as_ref().map(Vec::len), Ok(2));
}
