//! The watched users' states, shown as JSON events, as a line per change, or as a table that is redrawn in place.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use rollcall_api::events;
use serde::Deserialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::WatchArgs;
use crate::cli::clock::{now_ms, span, utc};
use crate::cli::terminal::{Line, Screen, Style, escape_controls, is_interactive};

/// The most columns of an id: a UUID has 36, and the state still fits on most screens.
const WIDEST: usize = 64;

/// A presence event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Presence {
    user: String,
    /// `None` if hidden.
    state: Option<String>,
    since: Option<u64>,
    last_seen: Option<u64>,
    note: Option<Note>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Note {
    text: String,
    emoji: String,
}

#[derive(Debug, Deserialize)]
struct Snapshot {
    presences: Vec<Presence>,
    typing: Vec<Typing>,
    resumed: bool,
}

/// A typing event.
#[derive(Debug, Clone, Deserialize)]
struct Typing {
    conversation: String,
    user: String,
    typing: bool,
}

/// The form of the output.
#[derive(Debug)]
enum Output {
    /// JSON events as received.
    Events,
    /// A line for each change.
    Lines,
    /// A table on the alternate screen.
    Table(Screen),
}

/// The watched users' states.
#[derive(Debug)]
pub(super) struct View {
    output: Output,
    host: String,
    /// In the order of the arguments.
    users: Vec<String>,
    presences: BTreeMap<String, Presence>,
    /// Who types, by conversation.
    typists: BTreeMap<String, BTreeSet<String>>,
    /// Why the connection is lost, while it is.
    lost: Option<String>,
    heard: bool,
}

impl View {
    pub(super) fn open(args: &WatchArgs) -> io::Result<Self> {
        let output = match args.json {
            true => Output::Events,
            false if is_interactive() => Output::Table(Screen::open()?),
            false => Output::Lines,
        };
        let users = args.users.iter().map(|user| user.as_str().to_owned()).collect();
        let typists = args.typing.iter().map(|place| (place.as_str().to_owned(), BTreeSet::new())).collect();
        let host = args.remote.url.as_str().to_owned();
        Ok(Self { output, host, users, presences: BTreeMap::new(), typists, lost: None, heard: false })
    }

    /// Handles an event and shows what is new.
    pub(super) fn take(&mut self, name: &str, event: Value) -> io::Result<()> {
        (self.lost, self.heard) = (None, true);
        if let Output::Events = self.output {
            return say(&event.to_string());
        }
        let (presences, signals) = self.parse(name, event);
        let mut lines: Vec<Line> = Vec::new();
        for presence in presences {
            // A snapshot after a reconnect may repeat known states.
            if self.presences.get(&presence.user) != Some(&presence) {
                lines.push(change(&presence));
                self.presences.insert(presence.user.clone(), presence);
            }
        }
        for Typing { conversation, user, typing } in signals {
            let typists = self.typists.entry(conversation.clone()).or_default();
            let is_new = if typing { typists.insert(user.clone()) } else { typists.remove(&user) };
            if is_new {
                let does = if typing { "types in" } else { "stopped typing in" };
                lines.push(Line::new().text(Style::Plain, format!("{user}  {does} {conversation}")));
            }
        }
        if let Output::Lines = self.output {
            let at = utc(now_ms());
            return lines.iter().try_for_each(|line| say(&format!("{at}  {}", line.plain())));
        }
        self.draw()
    }

    /// Parses an event. An unknown one is empty.
    fn parse(&mut self, name: &str, event: Value) -> (Vec<Presence>, Vec<Typing>) {
        match name {
            events::SNAPSHOT => {
                let Ok(snapshot) = serde_json::from_value::<Snapshot>(event) else { return Default::default() };
                let mut signals = snapshot.typing;
                if !snapshot.resumed {
                    // Typists who are not in it have stopped.
                    signals.splice(0..0, self.ended());
                }
                (snapshot.presences, signals)
            }
            events::PRESENCE => (serde_json::from_value(event).into_iter().collect(), Vec::new()),
            events::TYPING => (Vec::new(), serde_json::from_value(event).into_iter().collect()),
            _ => Default::default(),
        }
    }

    /// An end for every known typist.
    fn ended(&self) -> Vec<Typing> {
        let ended = |conversation: &String, user: &String| Typing {
            conversation: conversation.clone(),
            user: user.clone(),
            typing: false,
        };
        self.typists.iter().flat_map(|(place, users)| users.iter().map(move |user| ended(place, user))).collect()
    }

    /// The connection is lost.
    pub(super) fn lost(&mut self, reason: &str) {
        // Reported once per loss.
        if self.lost.is_none() && !matches!(self.output, Output::Table(_)) {
            let _ = writeln!(io::stderr(), "rollcall: {}; retrying", escape_controls(reason));
        }
        self.lost = Some(reason.to_owned());
    }

    /// Draws the table, if there is one.
    pub(super) fn draw(&self) -> io::Result<()> {
        match &self.output {
            Output::Table(screen) => screen.draw(&self.table()),
            Output::Events | Output::Lines => Ok(()),
        }
    }

    /// Restores the terminal and prints the table.
    pub(super) fn close(self) -> io::Result<()> {
        let rows = if self.heard { self.rows() } else { Vec::new() };
        match self.output {
            Output::Table(screen) => {
                drop(screen);
                rows.iter().try_for_each(|row| say(&row.plain()))
            }
            Output::Events | Output::Lines => Ok(()),
        }
    }

    fn table(&self) -> Vec<Line> {
        let head = Line::new().text(Style::Bold, "rollcall watch").text(Style::Dim, format!("  {}", self.host));
        let head = match (&self.lost, self.heard) {
            (Some(reason), _) => head.text(Style::Red, format!("  {reason}; retrying")),
            (None, false) => head.text(Style::Dim, "  connecting"),
            (None, true) => head,
        };
        let mut lines = vec![head, Line::new()];
        lines.extend(self.rows());
        lines
    }

    fn rows(&self) -> Vec<Line> {
        let width = self.users.iter().map(|user| user.width()).max().unwrap_or_default().clamp(8, WIDEST);
        let row = |user: &String| row(user, self.presences.get(user), width);
        let mut rows: Vec<Line> = self.users.iter().map(row).collect();
        for (conversation, typists) in &self.typists {
            let typing: Vec<&str> = typists.iter().map(String::as_str).collect();
            let line = Line::new().text(Style::Dim, "… ").column(Style::Plain, conversation, width);
            rows.push(match typing.as_slice() {
                [] => line.text(Style::Dim, "nobody types"),
                typing => line.text(Style::Plain, format!("{} types", typing.join(", "))),
            });
        }
        rows
    }
}

/// A row of the table: dot, id, state, since when, note.
fn row(user: &str, presence: Option<&Presence>, width: usize) -> Line {
    let Some(presence) = presence else {
        return Line::new().text(Style::Dim, "· ").column(Style::Dim, user, width);
    };
    let state = presence.state.as_deref();
    let (style, dot) = look(state);
    let ago = |at: u64| span(now_ms().saturating_sub(at));
    let when = match (state, presence.since, presence.last_seen) {
        (Some("offline"), _, Some(seen)) => format!("last seen {} ago", ago(seen)),
        (Some("offline") | None, ..) => String::new(),
        (Some(_), Some(since), _) => format!("for {}", ago(since)),
        (Some(_), None, _) => String::new(),
    };
    let line = Line::new().text(style, dot).column(Style::Bold, user, width);
    let line = line.column(style, state.unwrap_or("hidden"), 8).column(Style::Dim, when, 26);
    line.text(Style::Plain, presence.note.as_ref().map(note).unwrap_or_default())
}

/// A change as a line: id, state, note, last seen.
fn change(presence: &Presence) -> Line {
    let mut text = format!("{}  {}", presence.user, presence.state.as_deref().unwrap_or("hidden"));
    if let Some(words) = &presence.note {
        text += &format!("  {}", note(words));
    }
    if let Some(seen) = presence.last_seen {
        text += &format!("  last seen {}", utc(seen));
    }
    Line::new().text(Style::Plain, text)
}

fn note(note: &Note) -> String {
    match (note.emoji.as_str(), note.text.as_str()) {
        ("", text) => format!("“{text}”"),
        (emoji, "") => emoji.to_owned(),
        (emoji, text) => format!("{emoji} “{text}”"),
    }
}

fn look(state: Option<&str>) -> (Style, &'static str) {
    match state {
        Some("online") => (Style::Green, "● "),
        Some("away") => (Style::Yellow, "◐ "),
        Some("busy") => (Style::Red, "⊖ "),
        _ => (Style::Dim, "○ "),
    }
}

/// Prints a line at once, without the panic of `println!` when the reader has gone.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(users: &[&str]) -> View {
        View {
            output: Output::Lines,
            host: "http://127.0.0.1:8080".to_owned(),
            users: users.iter().map(|user| (*user).to_owned()).collect(),
            presences: BTreeMap::new(),
            typists: BTreeMap::new(),
            lost: None,
            heard: false,
        }
    }

    fn presence(user: &str, state: Option<&str>) -> Value {
        let note = json!({ "text": "in a meeting", "emoji": "📅", "until": null });
        json!({ "user": user, "state": state, "since": 5, "last_seen": 7, "version": 9, "note": note })
    }

    #[test]
    fn row_has_state_duration_and_note() {
        let mut view = view(&["bob", "eve", "zoe"]);
        let snapshot = json!({ "presences": [presence("bob", Some("busy"))], "typing": [], "resumed": false });
        view.take(events::SNAPSHOT, snapshot).unwrap();
        view.take(
            events::PRESENCE,
            json!({ "user": "eve", "state": null, "since": null, "last_seen": null, "note": null }),
        )
        .unwrap();
        let rows: Vec<String> = view.rows().iter().map(Line::plain).collect();
        assert!(rows[0].starts_with("⊖ bob      busy     for ") && rows[0].ends_with("📅 “in a meeting”"), "{rows:?}");
        assert_eq!((rows[1].as_str(), rows[2].as_str()), ("○ eve      hidden", "· zoe"), "unknown is not hidden");
    }

    #[test]
    fn long_ids_are_whole_and_aligned() {
        let uuid = "0f8fad5b-d9cb-469f-a165-70867728950e";
        let mut view = view(&[uuid, "名前"]);
        let presences = [presence(uuid, None), presence("名前", None)];
        view.take(events::SNAPSHOT, json!({ "presences": presences, "typing": [], "resumed": false })).unwrap();
        let rows: Vec<String> = view.rows().iter().map(Line::plain).collect();
        assert!(rows[0].starts_with(&format!("○ {uuid} hidden")), "{rows:?}");
        let column = |row: &String| row.split("hidden").next().map(UnicodeWidthStr::width);
        assert_eq!(column(&rows[0]), column(&rows[1]), "{rows:?}");
    }

    #[test]
    fn change_is_one_line() {
        let bob: Presence = serde_json::from_value(presence("bob", Some("busy"))).unwrap();
        let text = "bob  busy  📅 “in a meeting”  last seen 1970-01-01T00:00:00Z";
        assert_eq!(change(&bob).plain(), text);
        let hidden = Presence { state: None, last_seen: None, note: None, ..bob };
        assert_eq!(change(&hidden).plain(), "bob  hidden");
    }

    #[test]
    fn fresh_snapshot_ends_other_typists() {
        let mut view = view(&[]);
        let signal = |user, typing| json!({ "conversation": "c1", "user": user, "typing": typing, "until": 5 });
        view.take(events::TYPING, signal("bob", true)).unwrap();
        view.take(events::TYPING, signal("eve", true)).unwrap();
        let fresh = |resumed| json!({ "presences": [], "typing": [signal("eve", true)], "resumed": resumed });
        view.take(events::SNAPSHOT, fresh(true)).unwrap();
        assert_eq!(view.typists["c1"].len(), 2, "a resumed snapshot ends none");
        view.take(events::SNAPSHOT, fresh(false)).unwrap();
        assert_eq!(view.rows()[0].plain(), "… c1       eve types");
        view.take(events::TYPING, signal("eve", false)).unwrap();
        assert_eq!(view.rows()[0].plain(), "… c1       nobody types");
    }
}
