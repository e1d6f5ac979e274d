//! Captures what a test's thread logs at warning level and above, to check that it is logged, and once. Only for tests
//! with a single-threaded runtime: what other threads log is not captured.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

type Lines = Arc<Mutex<Vec<String>>>;

thread_local! {
    /// Receives this thread's lines.
    static OPEN: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

pub(crate) struct LogCapture {
    lines: Lines,
}

impl LogCapture {
    /// Starts to capture what this thread logs.
    pub(crate) fn open() -> Self {
        static INSTALLED: Once = Once::new();
        // One subscriber for all threads. With one per thread, a callsite that first logs on a thread without a
        // subscriber would be cached as disabled.
        INSTALLED.call_once(|| {
            tracing::subscriber::set_global_default(Writer).expect("no other global subscriber");
            tracing::callsite::rebuild_interest_cache();
        });
        let lines = Lines::default();
        OPEN.set(Some(Arc::clone(&lines)));
        Self { lines }
    }

    /// How many lines contain this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.lines.lock().iter().filter(|line| line.contains(text)).count()
    }
}

impl fmt::Debug for LogCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines.lock().iter()).finish()
    }
}

struct Writer;

impl Subscriber for Writer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        OPEN.with_borrow(|open| {
            if let Some(lines) = open {
                lines.lock().push(line.0);
            }
        });
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}
