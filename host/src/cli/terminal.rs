//! Terminal output: lines of styled pieces, cut to the terminal's width, and a screen that is redrawn in place.
//!
//! Foreign text goes through [`Line::text`], which replaces control characters.

use std::io::{self, IsTerminal, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The style of a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
}

impl Style {
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
pub(super) struct Line(Vec<(Style, String)>);

impl Line {
    /// An empty line.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds a text, with control characters replaced.
    pub(super) fn text(mut self, style: Style, text: impl AsRef<str>) -> Self {
        self.0.push((style, escape_controls(text.as_ref())));
        self
    }

    /// Adds a text, padded or cut to a width, and a space.
    pub(super) fn column(self, style: Style, text: impl AsRef<str>, width: usize) -> Self {
        let text = cut(&escape_controls(text.as_ref()), width);
        let gap = " ".repeat(width.saturating_sub(text.width()) + 1);
        self.text(style, text + &gap)
    }

    /// The same, aligned to the right.
    pub(super) fn number(self, style: Style, text: impl AsRef<str>, width: usize) -> Self {
        let text = escape_controls(text.as_ref());
        let gap = " ".repeat(width.saturating_sub(text.width()));
        self.text(style, gap + &text + " ")
    }

    /// The whole line without styles.
    pub(super) fn plain(&self) -> String {
        let text: String = self.0.iter().map(|(_, text)| text.as_str()).collect();
        text.trim_end().to_owned()
    }

    /// The line with styles, cut to a width.
    fn styled(&self, width: usize) -> String {
        let mut line = String::new();
        let mut left = width;
        for (style, text) in &self.0 {
            let text = cut(text, left);
            left -= text.width().min(left);
            match style {
                Style::Plain => line.push_str(&text),
                _ => line.extend([style.code(), &text, "\x1b[0m"]),
            }
        }
        line
    }
}

/// The text with control characters and line ends replaced.
pub(super) fn escape_controls(text: &str) -> String {
    // Also characters that change the direction of the following text.
    let is_control = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_control(c) { '\u{fffd}' } else { c }).collect()
}

/// The longest prefix that is not wider than this.
fn cut(text: &str, width: usize) -> String {
    let mut taken = 0;
    let fits = |c: &char| {
        taken += c.width().unwrap_or_default();
        taken <= width
    };
    text.chars().take_while(fits).collect()
}

/// Whether to draw: standard output is a terminal with colours, and NO_COLOR is not set.
pub(super) fn is_interactive() -> bool {
    let asked_for_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !asked_for_none && !is_dumb
}

/// The alternate screen. Dropping it restores the terminal.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    /// Switches to the alternate screen and hides the cursor.
    pub(super) fn open() -> io::Result<Self> {
        write!(io::stdout(), "\x1b[?1049h\x1b[?25l")?;
        Ok(Self(()))
    }

    /// Draws as many of these lines as fit, over the previous ones.
    pub(super) fn draw(&self, lines: &[Line]) -> io::Result<()> {
        let size = terminal_size::terminal_size();
        let (width, height) = size.map_or((80, 24), |(width, height)| (usize::from(width.0), usize::from(height.0)));
        let mut frame = String::from("\x1b[H");
        for (index, line) in lines.iter().take(height).enumerate() {
            if index > 0 {
                frame.push_str("\r\n");
            }
            frame.push_str(&line.styled(width));
            // Clears the rest of the previous line.
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
        // The terminal may be closed.
        let _ = write!(out, "\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        let line = Line::new().text(Style::Plain, "a\x1b[2Jb\nc\u{202e}d\u{9b}e");
        assert_eq!(line.plain(), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}e");
    }

    #[test]
    fn columns_are_aligned() {
        for name in ["bob", "名前", "a name that is much too long", ""] {
            let line = Line::new().column(Style::Bold, name, 8).text(Style::Plain, "|");
            assert_eq!(line.plain().split('|').next().map(UnicodeWidthStr::width), Some(9), "{name}");
        }
        assert_eq!(Line::new().number(Style::Plain, "1,234", 8).text(Style::Plain, "x").plain(), "   1,234 x");
    }

    #[test]
    fn styled_line_is_cut_to_the_width() {
        let line = Line::new().text(Style::Green, "●").text(Style::Plain, " bob").text(Style::Red, "名前");
        assert_eq!(line.styled(80), "\x1b[32m●\x1b[0m bob\x1b[31m名前\x1b[0m");
        assert_eq!(line.styled(3), "\x1b[32m●\x1b[0m b\x1b[31m\x1b[0m");
        assert_eq!(line.styled(6), "\x1b[32m●\x1b[0m bob\x1b[31m\x1b[0m", "half of a wide character is cut");
    }
}
