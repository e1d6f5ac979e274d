//! Typing: which updates are published, and when.

use rollcall_core::typing::MAX_TYPISTS;
use rollcall_core::{Error, Span};

use super::{Received, Subject, conversation, conversation_id, receive, signal};

pub(crate) async fn typing_start_is_published_and_expires(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    subject.set_typing(&*subject.elsewhere, signal("c", "bob", 5000)).await;
    assert_eq!(receive(&subscription).await.typing(), [("c", "bob", Some(5000))]);
    assert_eq!(subject.typists("c").await, [("bob".to_owned(), 5000)]);
    subject.clock.advance(Span(4999));
    assert_eq!(subject.typists("c").await.len(), 1);
    subject.clock.advance(Span(1));
    assert_eq!(subject.typists("c").await, []);
    subject.assert_silent(&subscription).await;
    subject.set_typing(&*subject.topics, signal("c", "bob", 5000)).await;
    assert_eq!(receive(&subscription).await.typing.len(), 1, "typing can start again");
}

pub(crate) async fn refresh_is_published_after_one_second(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    subject.set_typing(&*subject.topics, signal("c", "bob", 5000)).await;
    assert_eq!(receive(&subscription).await.typing(), [("c", "bob", Some(5000))]);
    subject.clock.advance(Span(400));
    subject.set_typing(&*subject.elsewhere, signal("c", "bob", 5000)).await;
    assert_eq!(subject.typists("c").await, [("bob".to_owned(), 5400)], "it counts before it is published");
    subject.assert_silent(&subscription).await;
    subject.clock.advance(Span(600));
    assert_eq!(receive(&subscription).await.typing(), [("c", "bob", Some(5400))]);
    subject.clock.advance(Span(1000));
    subject.set_typing(&*subject.topics, signal("c", "bob", 5000)).await;
    // `assert_silent` above advanced the clock by one millisecond.
    assert_eq!(
        receive(&subscription).await.typing(),
        [("c", "bob", Some(7001))],
        "after the interval, published at once"
    );
}

pub(crate) async fn only_effective_stops_are_published(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    subject.set_typing(&*subject.topics, signal("c", "bob", 0)).await;
    subject.assert_silent(&subscription).await;
    subject.set_typing(&*subject.topics, signal("c", "bob", 5000)).await;
    assert_eq!(receive(&subscription).await.typing.len(), 1);
    subject.clock.advance(Span(2000));
    subject.set_typing(&*subject.elsewhere, signal("c", "bob", 0)).await;
    assert_eq!(receive(&subscription).await.typing(), [("c", "bob", None)]);
    assert_eq!(subject.typists("c").await, []);
    subject.clock.advance(Span(2000));
    subject.set_typing(&*subject.topics, signal("c", "bob", 0)).await;
    subject.assert_silent(&subscription).await;
}

pub(crate) async fn last_of_many_signals_is_published(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c"), conversation("d")]).await.unwrap();
    for _ in 0..20 {
        let signals =
            vec![signal("c", "bob", 5000), signal("c", "bob", 0), signal("d", "bob", 0), signal("d", "bob", 5000)];
        assert!(subject.topics.set_typing(signals).await.unwrap().iter().all(Result::is_ok));
    }
    subject.clock.advance(Span(1000));
    let stopped = |received: &Received| received.typing().contains(&("c", "bob", None));
    let received = Received::default().until(&subscription, stopped).await;
    assert!(received.typing().len() <= 3, "{:?}", received.typing());
    let of_d: Vec<_> = received.typing().into_iter().filter(|update| update.0 == "d").collect();
    assert!(of_d.is_empty() || of_d == [("d", "bob", Some(5000))], "the same update is not published twice: {of_d:?}");
    subject.assert_silent(&subscription).await;
    assert_eq!(subject.typists("c").await, []);
    assert_eq!(subject.typists("d").await, [("bob".to_owned(), 5000)]);
}

pub(crate) async fn conversations_and_users_are_kept_apart(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    let signals = vec![signal("c", "eve", 5000), signal("d", "bob", 4000), signal("c", "bob", 3000)];
    assert_eq!(subject.topics.set_typing(signals).await.unwrap(), [Ok(()), Ok(()), Ok(())]);
    let received = Received::default().until(&subscription, |received| received.typing.len() == 2).await;
    let mut updates = received.typing();
    updates.sort_unstable();
    assert_eq!(updates, [("c", "bob", Some(3000)), ("c", "eve", Some(5000))]);
    let asked = ["d", "none", "c", "d"].map(conversation_id).to_vec();
    let answers = subject.elsewhere.typists(asked).await.unwrap();
    let names = |index: usize| {
        let typists = answers[index].clone().unwrap().into_iter();
        typists.map(|typist| typist.user.into_string()).collect::<Vec<_>>()
    };
    assert_eq!([names(0), names(1), names(2), names(3)], [vec!["bob"], vec![], vec!["bob", "eve"], vec!["bob"]]);
}

pub(crate) async fn typists_are_bounded(subject: Subject) {
    let crowd =
        |from: usize| (from..from + MAX_TYPISTS).map(|index| signal("c", &format!("user-{index}"), 5000)).collect();
    for from in [0, 100] {
        assert!(
            subject.topics.set_typing(crowd(from)).await.unwrap().iter().all(Result::is_ok),
            "no signal is refused"
        );
    }
    let typists = subject.typists("c").await;
    assert_eq!(typists.len(), MAX_TYPISTS);
    assert!(!typists.iter().any(|(name, _)| *name == format!("user-{}", MAX_TYPISTS + 50)), "the first typists stay");
    subject.clock.advance(Span(5000));
    subject.set_typing(&*subject.topics, signal("c", "late", 5000)).await;
    assert_eq!(subject.typists("c").await, [("late".to_owned(), 10_000)], "typists who stopped make room");
}

pub(crate) async fn oversized_batches_are_refused(subject: Subject) {
    let signals = (0..1025).map(|index| signal("c", &format!("user-{index}"), 5000)).collect();
    assert_eq!(subject.topics.set_typing(signals).await, Err(Error::TooMany(1024)));
    let conversations = (0..1025).map(|index| conversation_id(&format!("c-{index}"))).collect();
    assert_eq!(subject.topics.typists(conversations).await, Err(Error::TooMany(1024)));
    assert_eq!(subject.topics.set_typing(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(subject.topics.typists(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(subject.typists("c").await, []);
    assert!(subject.topics.now() >= super::START);
}
