//! The policy logs: changes in order, with a check for missing ones.

use std::collections::BTreeSet;

use rollcall_core::UserId;
use rollcall_core::policy::{Numbers, PAGE_BYTES, PAGE_NUMBERS, PolicyChange};

use super::{privacy_of, privacy_text};
use crate::keyspace::command::Commands;
use crate::keyspace::fields::number_of;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};

const WHAT: &str = "an entry of a log of changes";

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// This change was made.
    Change(PolicyChange),
    /// Some accounts of this page of numbers changed: the page has to be read. Logging its bits would make the log
    /// large.
    Page(u32),
}

/// What was read of a log after a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The entries after the cursor, in order, and where they end.
    Entries(Vec<Entry>, u64),
    /// The log does not reach back to the cursor, or entries are missing.
    Gap,
}

impl Keyspace {
    /// Adds the command that reads where a log ends; see [`decode_end`].
    pub fn log_end(&self, to: &mut Commands, group: u32) {
        to.begin("ZRANGE").key(self.log(group)).text("-1").text("-1");
    }

    /// Adds the command that reads up to `limit` entries of a log after a cursor; see [`decode_log`].
    pub fn read_log(&self, to: &mut Commands, group: u32, cursor: u64, limit: u32) {
        // The cursor's own entry is read too: its presence proves that nothing is missing.
        to.begin("ZRANGEBYSCORE").key(self.log(group)).number(cursor).text("+inf");
        to.text("LIMIT").number(0).number(u64::from(limit) + 1);
    }
}

/// A change as a log entry.
pub(super) fn entry_text(change: &PolicyChange) -> String {
    match change {
        PolicyChange::Restrict(user) => format!("R\n{user}"),
        PolicyChange::Unrestrict(user) => format!("r\n{user}"),
        PolicyChange::RestrictMany(numbers) | PolicyChange::UnrestrictMany(numbers) => page_text(numbers.page()),
        PolicyChange::Block(one, other) => format!("B\n{one}\n{other}"),
        PolicyChange::Unblock(one, other) => format!("b\n{one}\n{other}"),
        PolicyChange::AddContact(one, other) => format!("C\n{one}\n{other}"),
        PolicyChange::RemoveContact(one, other) => format!("c\n{one}\n{other}"),
        PolicyChange::SetPrivacy(user, privacy) => format!("P\n{user}\n{}", privacy_text(*privacy)),
    }
}

/// A changed page of numbers as a log entry.
pub(super) fn page_text(page: u32) -> String {
    format!("N\n{page}")
}

/// The reverse of [`entry_text`].
fn entry_of(text: &str) -> Result<Entry, BadReply> {
    let user = |name: &str| UserId::parse(name).map_err(|_| BadReply(WHAT));
    let mut parts = text.split('\n');
    let change = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("R"), Some(name), None, None) => PolicyChange::Restrict(user(name)?),
        (Some("r"), Some(name), None, None) => PolicyChange::Unrestrict(user(name)?),
        (Some("B"), Some(one), Some(other), None) => PolicyChange::Block(user(one)?, user(other)?),
        (Some("b"), Some(one), Some(other), None) => PolicyChange::Unblock(user(one)?, user(other)?),
        (Some("C"), Some(one), Some(other), None) => PolicyChange::AddContact(user(one)?, user(other)?),
        (Some("c"), Some(one), Some(other), None) => PolicyChange::RemoveContact(user(one)?, user(other)?),
        (Some("P"), Some(name), Some(privacy), None) => PolicyChange::SetPrivacy(user(name)?, privacy_of(privacy)?),
        (Some("N"), Some(page), None, None) => {
            let page = page.parse().ok().filter(|page| *page < PAGE_NUMBERS);
            return page.map(Entry::Page).ok_or(BadReply(WHAT));
        }
        _ => return Err(BadReply(WHAT)),
    };
    Ok(Entry::Change(change))
}

/// A member of a log: the number of the previous entry, its own number, and the change.
fn member_of(text: &str) -> Result<(u64, u64, &str), BadReply> {
    let mut parts = text.splitn(3, ' ');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(before), Some(number), Some(entry)) => Ok((number_of(before)?, number_of(number)?, entry)),
        _ => Err(BadReply(WHAT)),
    }
}

/// Where a log ends: the cursor of a reader that has read all of it; 0 if it is empty.
pub fn decode_end<'a>(mut reply: impl Iterator<Item = Piece<'a>>) -> Result<u64, BadReply> {
    match reply.next().unwrap_or(Piece::Nil).text(WHAT)? {
        Some(member) => Ok(member_of(member)?.1),
        None => Ok(0),
    }
}

/// The entries after this cursor. Every entry names the previous one, so a log that was trimmed too far, was emptied,
/// or lost its newest entries in a failover does not continue at the cursor.
pub fn decode_log<'a>(reply: impl Iterator<Item = Piece<'a>>, cursor: u64) -> Result<Read, BadReply> {
    let (mut entries, mut end) = (Vec::new(), 0);
    let mut is_found = cursor == 0;
    for piece in reply {
        let Some(member) = piece.text(WHAT)? else { continue };
        let (before, number, entry) = member_of(member)?;
        if !is_found && number == cursor {
            is_found = true;
        } else if is_found && before == end {
            entries.push(entry_of(entry)?);
        } else {
            return Ok(Read::Gap);
        }
        end = number;
    }
    Ok(if is_found { Read::Entries(entries, end) } else { Read::Gap })
}

/// The pages of numbers that these entries need.
pub fn pages_of<'a>(entries: impl Iterator<Item = &'a Entry>) -> BTreeSet<u32> {
    let page = |entry: &Entry| match entry {
        Entry::Page(page) => Some(*page),
        Entry::Change(_) => None,
    };
    entries.filter_map(page).collect()
}

/// The changes of these entries. `read` returns the present content of a page of numbers. It is used once, at the
/// page's last change: earlier changes of its accounts are older than what was read.
pub fn changes_of(entries: Vec<Entry>, mut read: impl FnMut(u32) -> Option<Numbers>) -> Vec<PolicyChange> {
    let mut told = BTreeSet::new();
    let mut changes = Vec::with_capacity(entries.len());
    for entry in entries.into_iter().rev() {
        match entry {
            Entry::Change(change) => changes.push(change),
            Entry::Page(page) if told.insert(page) => {
                let restricted = read(page);
                let lifted = without(page, restricted.as_ref().map_or(&[], Numbers::bits));
                // The list is built backwards.
                changes.extend(restricted.map(PolicyChange::RestrictMany));
                changes.extend(lifted.map(PolicyChange::UnrestrictMany));
            }
            Entry::Page(_) => {}
        }
    }
    changes.reverse();
    changes
}

/// All numbers of a page except these.
fn without(page: u32, bits: &[u8]) -> Option<Numbers> {
    let missing = PAGE_BYTES.saturating_sub(bits.len());
    let others = bits.iter().map(|byte| !byte).chain(std::iter::repeat_n(0xff, missing));
    Numbers::new(page, others.collect()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::policy::{Audience, Privacy};

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    #[test]
    fn log_entries_round_trip() {
        let (one, other) = (user("b o{b} 7"), user("名前\\n"));
        let privacy = Privacy { presence: Audience::Nobody, last_seen: Audience::Everyone };
        let changes = [
            PolicyChange::Restrict(one.clone()),
            PolicyChange::Unrestrict(user("7")),
            PolicyChange::Block(one.clone(), other.clone()),
            PolicyChange::Unblock(one.clone(), other.clone()),
            PolicyChange::AddContact(one.clone(), other.clone()),
            PolicyChange::RemoveContact(other, one.clone()),
            PolicyChange::SetPrivacy(one.clone(), privacy),
            PolicyChange::SetPrivacy(one, Privacy::default()),
        ];
        for change in changes {
            assert_eq!(entry_of(&entry_text(&change)), Ok(Entry::Change(change)));
        }
        let many = Numbers::new(65_535, vec![1]).unwrap();
        assert_eq!(entry_of(&entry_text(&PolicyChange::RestrictMany(many.clone()))), Ok(Entry::Page(65_535)));
        assert_eq!(entry_of(&entry_text(&PolicyChange::UnrestrictMany(many))), Ok(Entry::Page(65_535)));
        for bad in ["", "R", "R\n", "R\na\nb", "B\na", "B\na\nb\nc", "P\na\nx", "N\n65536", "N\nx", "Z\na"] {
            assert!(entry_of(bad).is_err(), "{bad:?}");
        }
    }

    fn read(members: &[&str], cursor: u64) -> Read {
        decode_log(members.iter().map(|text| Piece::Bytes(text.as_bytes())), cursor).unwrap()
    }

    #[test]
    fn log_that_skips_the_cursor_is_a_gap() {
        let of = |names: &[&str], end| {
            Read::Entries(names.iter().map(|name| Entry::Change(PolicyChange::Restrict(user(name)))).collect(), end)
        };
        assert_eq!(read(&[], 0), of(&[], 0));
        assert_eq!(read(&["0 5 R\na", "5 6 R\nb c"], 0), of(&["a", "b c"], 6));
        assert_eq!(read(&["0 5 R\na", "5 6 R\nb"], 5), of(&["b"], 6));
        assert_eq!(read(&["5 6 R\nb"], 6), of(&[], 6));
        for (members, cursor) in [
            // Trimmed; lost its newest entries, and continued or not; emptied, and continued or not.
            (&["5 6 R\nb"][..], 0),
            (&["5 6 R\nb"][..], 5),
            (&["4 7 R\nb"][..], 6),
            (&[][..], 6),
            (&["0 9 R\nb"][..], 6),
            (&["0 5 R\na", "5 6 R\nb", "7 8 R\nc"][..], 5),
        ] {
            assert_eq!(read(members, cursor), Read::Gap, "{members:?} from {cursor}");
        }
        assert!(decode_log([Piece::Bytes(b"5 x R\na")].into_iter(), 5).is_err());
        assert_eq!(decode_end([Piece::Bytes(b"5 6 R\na")].into_iter()), Ok(6));
        assert_eq!(decode_end([].into_iter()), Ok(0));
    }

    #[test]
    fn page_appears_once_at_its_last_change() {
        let change = |name: &str| Entry::Change(PolicyChange::Restrict(user(name)));
        let entries = vec![Entry::Page(3), change("a"), Entry::Page(3), change("b"), Entry::Page(4)];
        assert_eq!(pages_of(entries.iter()), [3, 4].into());
        let restricted = Numbers::new(3, vec![0x80]).unwrap();
        let changes = changes_of(entries, |page| (page == 3).then(|| restricted.clone()));
        let mut others = vec![0xff; PAGE_BYTES];
        let all = Numbers::new(4, others.clone()).unwrap();
        others.iter_mut().take(1).for_each(|byte| *byte = 0x7f);
        let others = Numbers::new(3, others).unwrap();
        let expected = [
            PolicyChange::Restrict(user("a")),
            PolicyChange::UnrestrictMany(others),
            PolicyChange::RestrictMany(restricted),
            PolicyChange::Restrict(user("b")),
            PolicyChange::UnrestrictMany(all),
        ];
        assert_eq!(changes, expected);
    }
}
