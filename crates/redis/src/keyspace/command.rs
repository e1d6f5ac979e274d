//! Commands as bytes in one buffer. A batch of a thousand beats is three thousand commands, and a list of lists of
//! bytes would spend more time on allocations than on everything else here.

use std::io::Write;

use crate::keyspace::keys::Key;

/// Commands in the order they are sent.
#[derive(Debug, Clone, Default)]
pub struct Commands {
    bytes: Vec<u8>,
    /// Where in `bytes` each argument ends.
    args: Vec<usize>,
    /// Where in `args` each command ends.
    ends: Vec<usize>,
}

/// One command: its name and its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    bytes: &'a [u8],
    /// Where in `bytes` each argument ends.
    args: &'a [usize],
    /// Where the first argument begins.
    start: usize,
}

impl Commands {
    /// An empty list with room for about this many commands.
    pub fn with_capacity(commands: usize) -> Self {
        // A beat's commands have four to eight arguments; the longest is a key with a UUID in it.
        let args = commands * 6;
        Self {
            bytes: Vec::with_capacity(args * 20),
            args: Vec::with_capacity(args),
            ends: Vec::with_capacity(commands),
        }
    }

    /// The number of commands.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no commands.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Begins a command; its arguments follow.
    pub fn begin(&mut self, name: &str) -> &mut Self {
        self.ends.push(self.args.len());
        self.arg(name.as_bytes())
    }

    /// Adds an argument to the command begun last.
    pub fn arg(&mut self, arg: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(arg);
        self.end_arg()
    }

    /// Adds text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.arg(text.as_bytes())
    }

    /// Adds a key.
    pub fn key(&mut self, key: Key<'_>) -> &mut Self {
        key.parts().iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
        match key.number() {
            Some(number) => self.format(format_args!("{number}")),
            None => self.end_arg(),
        }
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.format(format_args!("{number}"))
    }

    /// Adds formatted text.
    pub(crate) fn format(&mut self, text: std::fmt::Arguments<'_>) -> &mut Self {
        // Writing to memory cannot fail.
        let _ = self.bytes.write_fmt(text);
        self.end_arg()
    }

    /// Copies a command.
    pub fn push(&mut self, command: Command<'_>) {
        self.ends.push(self.args.len());
        for arg in command.args() {
            self.arg(arg);
        }
    }

    fn end_arg(&mut self) -> &mut Self {
        self.args.push(self.bytes.len());
        if let Some(end) = self.ends.last_mut() {
            *end = self.args.len();
        }
        self
    }

    /// The command at this place.
    pub fn get(&self, index: usize) -> Option<Command<'_>> {
        let end = *self.ends.get(index)?;
        let first = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let start = first.checked_sub(1).and_then(|before| self.args.get(before)).copied().unwrap_or(0);
        Some(Command { bytes: &self.bytes, args: self.args.get(first..end)?, start })
    }

    /// The commands in order.
    pub fn iter(&self) -> impl Iterator<Item = Command<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Command<'a> {
    /// The name and the arguments, in order.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let (bytes, mut start) = (self.bytes, self.start);
        self.args.iter().map(move |&end| {
            let arg = bytes.get(start..end).unwrap_or_default();
            start = end;
            arg
        })
    }

    /// The total size of the arguments in bytes.
    pub fn bytes(&self) -> usize {
        self.args.last().map_or(0, |end| end - self.start)
    }

    /// An owned copy.
    pub fn to_owned(&self) -> Vec<Vec<u8>> {
        self.args().map(<[u8]>::to_vec).collect()
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn commands_read_back_as_written() {
        let mut commands = Commands::with_capacity(2);
        assert!(commands.is_empty() && commands.get(0).is_none());
        commands.begin("PING");
        commands.begin("SET").text("").arg(b"\0\xff").number(u64::MAX);
        commands.begin("GET").text("x");
        let all: Vec<_> = commands.iter().map(|command| command.to_owned()).collect();
        let expected: [Vec<&[u8]>; 3] =
            [vec![b"PING"], vec![b"SET", b"", b"\0\xff", b"18446744073709551615"], vec![b"GET", b"x"]];
        assert_eq!(all, expected);
        assert_eq!(commands.iter().map(|command| command.bytes()).collect::<Vec<_>>(), [4, 25, 4]);
        let mut others = Commands::default();
        commands.iter().skip(1).for_each(|command| others.push(command));
        assert_eq!(others.iter().map(|command| command.to_owned()).collect::<Vec<_>>(), expected[1..]);
    }
}
