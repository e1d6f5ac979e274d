//! What is written to a terminal: lines of coloured pieces, cut to its width, and a screen that is redrawn in place.
//!
//! Text that people wrote goes through [`Line::text`], which leaves nothing in it that a terminal would obey.

use std::io::{self, IsTerminal, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a piece of a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
        }
    }
}

/// A line, made of pieces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(Paint, String)>);

impl Line {
    /// An empty line.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds a text, of which whatever a terminal would obey is taken out.
    pub(super) fn text(mut self, paint: Paint, text: impl AsRef<str>) -> Self {
        self.0.push((paint, harmless(text.as_ref())));
        self
    }

    /// Adds a text and fills it up to a width, or cuts it there; the next piece begins after a space.
    pub(super) fn column(self, paint: Paint, text: impl AsRef<str>, width: usize) -> Self {
        let text = cut(&harmless(text.as_ref()), width);
        let gap = " ".repeat(width.saturating_sub(text.width()) + 1);
        self.text(paint, text + &gap)
    }

    /// The same, with the text at the right end of the column.
    pub(super) fn number(self, paint: Paint, text: impl AsRef<str>, width: usize) -> Self {
        let text = harmless(text.as_ref());
        let gap = " ".repeat(width.saturating_sub(text.width()));
        self.text(paint, gap + &text + " ")
    }

    /// Without colours, and whole.
    pub(super) fn plain(&self) -> String {
        let text: String = self.0.iter().map(|(_, text)| text.as_str()).collect();
        text.trim_end().to_owned()
    }

    /// With colours, cut to a width.
    fn painted(&self, width: usize) -> String {
        let mut line = String::new();
        let mut left = width;
        for (paint, text) in &self.0 {
            let text = cut(text, left);
            left -= text.width().min(left);
            match paint {
                Paint::Plain => line.push_str(&text),
                _ => line.extend([paint.code(), &text, "\x1b[0m"]),
            }
        }
        line
    }
}

/// Text in which nothing is left that a terminal would obey, nor a line's end.
pub(super) fn harmless(text: &str) -> String {
    // Beside the control characters, those that turn the direction of what follows.
    let is_obeyed = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_obeyed(c) { '\u{fffd}' } else { c }).collect()
}

/// As much of a text as is not wider than this.
fn cut(text: &str, width: usize) -> String {
    let mut taken = 0;
    let fits = |c: &char| {
        taken += c.width().unwrap_or_default();
        taken <= width
    };
    text.chars().take_while(fits).collect()
}

/// Whether to draw: on a terminal that shows colours, unless somebody asked for none.
pub(super) fn is_for_eyes() -> bool {
    let asked_for_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !asked_for_none && !is_dumb
}

/// A screen of its own, from which the terminal comes back as it was.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    /// Opens it: the other screen, without a cursor.
    pub(super) fn open() -> io::Result<Self> {
        write!(io::stdout(), "\x1b[?1049h\x1b[?25l")?;
        Ok(Self(()))
    }

    /// Draws these lines from the top, as many as there is room for, over what was there.
    pub(super) fn draw(&self, lines: &[Line]) -> io::Result<()> {
        let size = terminal_size::terminal_size();
        let (width, height) = size.map_or((80, 24), |(width, height)| (usize::from(width.0), usize::from(height.0)));
        let mut frame = String::from("\x1b[H");
        for (index, line) in lines.iter().take(height).enumerate() {
            if index > 0 {
                frame.push_str("\r\n");
            }
            frame.push_str(&line.painted(width));
            // The rest of the line is from before.
            frame.push_str("\x1b[K");
        }
        frame.push_str("\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        // Whoever was there to see it may have gone.
        let _ = write!(out, "\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_wrote_commands_no_terminal() {
        let line = Line::new().text(Paint::Plain, "a\x1b[2Jb\nc\u{202e}d\u{9b}e");
        assert_eq!(line.plain(), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}e");
    }

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        for name in ["bob", "名前", "a name that is much too long", ""] {
            let line = Line::new().column(Paint::Bold, name, 8).text(Paint::Plain, "|");
            assert_eq!(line.plain().split('|').next().map(UnicodeWidthStr::width), Some(9), "{name}");
        }
        assert_eq!(Line::new().number(Paint::Plain, "1,234", 8).text(Paint::Plain, "x").plain(), "   1,234 x");
    }

    #[test]
    fn a_line_is_cut_to_the_width_and_its_colours_end_with_it() {
        let line = Line::new().text(Paint::Green, "●").text(Paint::Plain, " bob").text(Paint::Red, "名前");
        assert_eq!(line.painted(80), "\x1b[32m●\x1b[0m bob\x1b[31m名前\x1b[0m");
        assert_eq!(line.painted(3), "\x1b[32m●\x1b[0m b\x1b[31m\x1b[0m");
        assert_eq!(line.painted(6), "\x1b[32m●\x1b[0m bob\x1b[31m\x1b[0m", "half a letter is none");
    }
}
