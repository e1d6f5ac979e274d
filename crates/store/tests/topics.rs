//! Topics: the whole suite on the embedded store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod topics_suite;

use std::sync::Arc;

use rollcall_store::Clock;
use rollcall_store::memory::{self, LocalTopics, Memory};

use topics_suite::{START, Subject};

fn embedded() -> Subject {
    let clock = Clock::manual(START);
    let topics = LocalTopics::new(clock.clone());
    let options =
        memory::Options { clock: clock.clone(), on_publish: Some(topics.publish_hook()), ..memory::Options::default() };
    let elsewhere = Arc::new(topics.clone());
    Subject { store: Arc::new(Memory::new(options)), topics: Arc::new(topics), elsewhere, clock, subscribed: None }
}

topics_suite!(embedded());
