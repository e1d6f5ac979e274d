//! Policy changes: one script each, and their outcomes.

use rollcall_core::UserId;
use rollcall_core::policy::{MAX_LISTED, Numbers, PolicyChange, number_of};

use super::log::{entry_text, page_text};
use super::{Kind, PRESENT, field, privacy_text};
use crate::keyspace::command::Commands;
use crate::keyspace::commit::Publishing;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

/// How a change is logged and published.
#[derive(Debug, Clone, Copy)]
pub struct Logging {
    /// The store's time in microseconds.
    pub now_us: u64,
    /// How many changes each log keeps.
    pub most: u32,
    /// Which command publishes it.
    pub publishing: Publishing,
}

/// What a change is about. Changes about the same thing keep their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKey<'a> {
    /// A user's settings, or an account restricted by name.
    User(&'a str),
    /// Restricted accounts of a page of numbers.
    Page(u32),
}

impl<'a> ChangeKey<'a> {
    /// What this change is about.
    pub fn of(change: &'a PolicyChange) -> Self {
        match change {
            PolicyChange::Restrict(user) | PolicyChange::Unrestrict(user) => match number_of(user.as_str()) {
                Some(number) => Self::Page(number >> 16),
                None => Self::User(user.as_str()),
            },
            PolicyChange::RestrictMany(numbers) | PolicyChange::UnrestrictMany(numbers) => Self::Page(numbers.page()),
            PolicyChange::Block(user, _)
            | PolicyChange::Unblock(user, _)
            | PolicyChange::AddContact(user, _)
            | PolicyChange::RemoveContact(user, _)
            | PolicyChange::SetPrivacy(user, _) => Self::User(user.as_str()),
        }
    }
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// It was applied.
    Applied,
    /// Nothing changed.
    Already,
    /// The user already has the most entries of this kind.
    TooMany,
}

/// The new value of a field.
struct Setting<'a> {
    owner: &'a str,
    kind: Kind,
    other: &'a str,
    /// Empty: the field is removed.
    value: &'a str,
}

impl Keyspace {
    /// The group of what a change is about.
    pub fn group_of(&self, key: ChangeKey<'_>) -> u32 {
        match key {
            ChangeKey::User(user) => self.group_of_bucket(self.bucket_of(user)),
            ChangeKey::Page(page) => self.group_of_page(page),
        }
    }

    /// Adds the command of one change; see [`decode_changed`].
    pub fn change(&self, to: &mut Commands, change: &PolicyChange, logging: Logging) {
        let listed = |to: &mut Commands, owner: &UserId, kind: Kind, other: &UserId, value: &str| {
            let setting = Setting { owner: owner.as_str(), kind, other: other.as_str(), value };
            self.setting(to, &setting, &entry_text(change), logging);
        };
        match change {
            PolicyChange::Restrict(user) => self.restriction(to, user, change, true, logging),
            PolicyChange::Unrestrict(user) => self.restriction(to, user, change, false, logging),
            PolicyChange::RestrictMany(numbers) => self.restrictions(to, numbers, true, logging),
            PolicyChange::UnrestrictMany(numbers) => self.restrictions(to, numbers, false, logging),
            PolicyChange::Block(owner, other) => listed(to, owner, Kind::Block, other, PRESENT),
            PolicyChange::Unblock(owner, other) => listed(to, owner, Kind::Block, other, ""),
            PolicyChange::AddContact(owner, other) => listed(to, owner, Kind::Contact, other, PRESENT),
            PolicyChange::RemoveContact(owner, other) => listed(to, owner, Kind::Contact, other, ""),
            PolicyChange::SetPrivacy(owner, privacy) => {
                let (owner, value) = (owner.as_str(), &privacy_text(*privacy));
                let setting = Setting { owner, kind: Kind::Privacy, other: "", value };
                self.setting(to, &setting, &entry_text(change), logging);
            }
        }
    }

    fn restriction(&self, to: &mut Commands, user: &UserId, change: &PolicyChange, is_so: bool, logging: Logging) {
        let entry = entry_text(change);
        let Some(number) = number_of(user.as_str()) else {
            let value = if is_so { PRESENT } else { "" };
            let setting = Setting { owner: user.as_str(), kind: Kind::Restricted, other: "", value };
            return self.setting(to, &setting, &entry, logging);
        };
        let page = number >> 16;
        let group = self.group_of_page(page);
        self.evalsha(to, Script::RestrictAccount, 4).key(self.numbers(page)).key(self.pages(group));
        to.key(self.log(group)).key(self.invalidation(group));
        to.number(u64::from(page)).number(u64::from(number & 0xffff)).number(u64::from(is_so));
        logged(to, logging).text(&entry);
    }

    fn restrictions(&self, to: &mut Commands, numbers: &Numbers, is_so: bool, logging: Logging) {
        let page = numbers.page();
        let group = self.group_of_page(page);
        self.evalsha(to, Script::RestrictPage, 5)
            .key(self.numbers(page))
            .key(self.operand(group))
            .key(self.pages(group));
        to.key(self.log(group)).key(self.invalidation(group));
        // Zeros at the end would make the page longer without changing it.
        let bits = numbers.bits();
        let used = bits.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        to.number(u64::from(page)).arg(bits.get(..used).unwrap_or_default()).number(u64::from(is_so));
        logged(to, logging).text(&page_text(page));
    }

    fn setting(&self, to: &mut Commands, setting: &Setting<'_>, entry: &str, logging: Logging) {
        let &Setting { owner, kind, other, value } = setting;
        let bucket = self.bucket_of(owner);
        let group = self.group_of_bucket(bucket);
        self.evalsha(to, Script::SetPolicyField, 3)
            .key(self.policy(bucket))
            .key(self.log(group))
            .key(self.invalidation(group));
        field(to, owner, kind, other).text(value);
        match kind {
            Kind::Block | Kind::Contact => to.format(format_args!("{owner}\n#{}", kind.letter())),
            Kind::Privacy | Kind::Restricted => to.text(""),
        };
        to.number(MAX_LISTED as u64);
        logged(to, logging).text(entry);
    }
}

fn logged(to: &mut Commands, logging: Logging) -> &mut Commands {
    to.number(logging.now_us).number(u64::from(logging.most)).text(logging.publishing.command())
}

/// The outcome of a change.
pub fn decode_changed(reply: Piece<'_>) -> Result<Changed, BadReply> {
    match reply.number("a script's answer")? {
        1 => Ok(Changed::Applied),
        0 => Ok(Changed::Already),
        -1 => Ok(Changed::TooMany),
        _ => Err(BadReply("a script's answer")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::keyspace::slot_of;
    use rollcall_core::policy::Privacy;

    #[test]
    fn change_sends_every_argument_to_one_slot() {
        let keys = Keyspace::new("rc", 256).unwrap();
        let user = |name: &str| UserId::parse(name).unwrap();
        let numbers = Numbers::new(70, vec![0, 5, 0, 0]).unwrap();
        // The number of keys and arguments in the scripts' headers.
        let changes = [
            (PolicyChange::Restrict(user("b{o}b")), 3, 8),
            (PolicyChange::Unrestrict(user("70000")), 4, 7),
            (PolicyChange::RestrictMany(numbers.clone()), 5, 7),
            (PolicyChange::UnrestrictMany(numbers), 5, 7),
            (PolicyChange::Block(user("bob"), user("{eve}")), 3, 8),
            (PolicyChange::Unblock(user("bob"), user("eve")), 3, 8),
            (PolicyChange::AddContact(user("bob"), user("eve")), 3, 8),
            (PolicyChange::RemoveContact(user("bob"), user("eve")), 3, 8),
            (PolicyChange::SetPrivacy(user("bob"), Privacy::default()), 3, 8),
        ];
        let logging = Logging { now_us: 7, most: 50_000, publishing: Publishing::Sharded };
        for (change, key_count, arguments) in changes {
            let mut commands = Commands::default();
            keys.change(&mut commands, &change, logging);
            let args = commands.get(0).unwrap().to_owned();
            assert_eq!(args.len(), 3 + key_count + arguments, "{change:?}");
            let slot = slot_of(keys.log(keys.group_of(ChangeKey::of(&change))).to_string().as_bytes());
            assert!(args.iter().skip(3).take(key_count).all(|key| slot_of(key) == slot), "{change:?}");
        }
    }

    #[test]
    fn outcomes_are_applied_already_or_too_many() {
        assert_eq!(decode_changed(Piece::Int(1)), Ok(Changed::Applied));
        assert_eq!(decode_changed(Piece::Bytes(b"0")), Ok(Changed::Already));
        assert_eq!(decode_changed(Piece::Int(-1)), Ok(Changed::TooMany));
        assert!(decode_changed(Piece::Nil).is_err() && decode_changed(Piece::Int(2)).is_err());
    }
}
