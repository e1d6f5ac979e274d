//! Typing: who is told what, and when.

use rollcall_core::typing::MAX_TYPISTS;
use rollcall_core::{Error, Span};

use super::{Heard, Subject, conversation, heard, place, sign};

pub(crate) async fn typing_start_is_published_and_expires(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    subject.revision(&*subject.elsewhere, sign("c", "bob", 5000)).await;
    assert_eq!(heard(&subscription).await.told(), [("c", "bob", Some(5000))]);
    assert_eq!(subject.typists("c").await, [("bob".to_owned(), 5000)]);
    subject.clock.advance(Span(4999));
    assert_eq!(subject.typists("c").await.len(), 1);
    subject.clock.advance(Span(1));
    assert_eq!(subject.typists("c").await, []);
    subject.is_silent(&subscription).await;
    subject.revision(&*subject.topics, sign("c", "bob", 5000)).await;
    assert_eq!(heard(&subscription).await.typed.len(), 1, "and may begin again");
}

pub(crate) async fn refresh_is_published_after_one_second(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    subject.revision(&*subject.topics, sign("c", "bob", 5000)).await;
    assert_eq!(heard(&subscription).await.told(), [("c", "bob", Some(5000))]);
    subject.clock.advance(Span(400));
    subject.revision(&*subject.elsewhere, sign("c", "bob", 5000)).await;
    assert_eq!(subject.typists("c").await, [("bob".to_owned(), 5400)], "it counts although it is not told");
    subject.is_silent(&subscription).await;
    subject.clock.advance(Span(600));
    assert_eq!(heard(&subscription).await.told(), [("c", "bob", Some(5400))]);
    subject.clock.advance(Span(1000));
    subject.revision(&*subject.topics, sign("c", "bob", 5000)).await;
    // The fence of the silence above took one millisecond.
    assert_eq!(heard(&subscription).await.told(), [("c", "bob", Some(7001))], "a slow one at once");
}

pub(crate) async fn only_effective_stops_are_published(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    subject.revision(&*subject.topics, sign("c", "bob", 0)).await;
    subject.is_silent(&subscription).await;
    subject.revision(&*subject.topics, sign("c", "bob", 5000)).await;
    assert_eq!(heard(&subscription).await.typed.len(), 1);
    subject.clock.advance(Span(2000));
    subject.revision(&*subject.elsewhere, sign("c", "bob", 0)).await;
    assert_eq!(heard(&subscription).await.told(), [("c", "bob", None)]);
    assert_eq!(subject.typists("c").await, []);
    subject.clock.advance(Span(2000));
    subject.revision(&*subject.topics, sign("c", "bob", 0)).await;
    subject.is_silent(&subscription).await;
}

pub(crate) async fn last_of_many_signals_is_published(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c"), conversation("d")]).await.unwrap();
    for _ in 0..20 {
        let signs = vec![sign("c", "bob", 5000), sign("c", "bob", 0), sign("d", "bob", 0), sign("d", "bob", 5000)];
        assert!(subject.topics.set_typing(signs).await.unwrap().iter().all(Result::is_ok));
    }
    subject.clock.advance(Span(1000));
    let stopped = |heard: &Heard| heard.told().contains(&("c", "bob", None));
    let heard = Heard::default().until(&subscription, stopped).await;
    assert!(heard.told().len() <= 3, "{:?}", heard.told());
    let of_d: Vec<_> = heard.told().into_iter().filter(|told| told.0 == "d").collect();
    assert!(of_d.is_empty() || of_d == [("d", "bob", Some(5000))], "the same truth is not told twice: {of_d:?}");
    subject.is_silent(&subscription).await;
    assert_eq!(subject.typists("c").await, []);
    assert_eq!(subject.typists("d").await, [("bob".to_owned(), 5000)]);
}

pub(crate) async fn conversations_and_users_are_kept_apart(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    let signs = vec![sign("c", "eve", 5000), sign("d", "bob", 4000), sign("c", "bob", 3000)];
    assert_eq!(subject.topics.set_typing(signs).await.unwrap(), [Ok(()), Ok(()), Ok(())]);
    let heard = Heard::default().until(&subscription, |heard| heard.typed.len() == 2).await;
    let mut told = heard.told();
    told.sort_unstable();
    assert_eq!(told, [("c", "bob", Some(3000)), ("c", "eve", Some(5000))]);
    let asked = ["d", "none", "c", "d"].map(place).to_vec();
    let answers = subject.elsewhere.typists(asked).await.unwrap();
    let names = |index: usize| {
        let typists = answers[index].clone().unwrap().into_iter();
        typists.map(|typist| typist.user.into_string()).collect::<Vec<_>>()
    };
    assert_eq!([names(0), names(1), names(2), names(3)], [vec!["bob"], vec![], vec!["bob", "eve"], vec!["bob"]]);
}

pub(crate) async fn typists_are_bounded(subject: Subject) {
    let crowd =
        |from: usize| (from..from + MAX_TYPISTS).map(|index| sign("c", &format!("user-{index}"), 5000)).collect();
    for from in [0, 100] {
        assert!(subject.topics.set_typing(crowd(from)).await.unwrap().iter().all(Result::is_ok), "nobody is refused");
    }
    let typists = subject.typists("c").await;
    assert_eq!(typists.len(), MAX_TYPISTS);
    assert!(!typists.iter().any(|(name, _)| *name == format!("user-{}", MAX_TYPISTS + 50)), "the first stay");
    subject.clock.advance(Span(5000));
    subject.revision(&*subject.topics, sign("c", "late", 5000)).await;
    assert_eq!(subject.typists("c").await, [("late".to_owned(), 10_000)], "and make room when they are done");
}

pub(crate) async fn oversized_batches_are_refused(subject: Subject) {
    let signs = (0..1025).map(|index| sign("c", &format!("user-{index}"), 5000)).collect();
    assert_eq!(subject.topics.set_typing(signs).await, Err(Error::TooMany(1024)));
    let places = (0..1025).map(|index| place(&format!("c-{index}"))).collect();
    assert_eq!(subject.topics.typists(places).await, Err(Error::TooMany(1024)));
    assert_eq!(subject.topics.set_typing(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(subject.topics.typists(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(subject.typists("c").await, []);
    assert!(subject.topics.now() >= super::START);
}
