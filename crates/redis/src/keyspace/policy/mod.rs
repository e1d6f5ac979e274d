//! Policy: restrictions, blocks, contacts and privacy settings.
//!
//! Users are hashed into buckets, each one Redis hash with all settings of its users, and buckets into groups, each
//! with its own log: enough groups that the masters of a Cluster share the work, and few enough that a reader follows
//! all of them in one round trip. Restricted numeric accounts are bits, 65,536 per page, because there may be
//! millions.
//!
//! Why not a key per user: a snapshot would have to scan for the keys. Why a log: a reader that holds all policy in
//! memory has to learn every change, including those made while it was not subscribed.

mod change;
mod log;
mod part;
mod relation;

use rollcall_core::UserId;
use rollcall_core::policy::{Audience, PolicyChange, Privacy};
use rollcall_functions::capabilities::OwnSettings;

use crate::keyspace::command::Commands;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};
use rollcall_core::shard_of;

pub use change::{ChangeKey, Changed, Logging, decode_changed};
pub use log::{Entry, Read, changes_of, decode_end, decode_log, pages_of};
pub use part::{Part, Slice, decode_numbers, decode_pages};
pub use relation::{decode_blocks, decode_restricted, decode_subject_side};

/// Every field of a bucket, as `docs/KEYSPACE.md` lists them.
pub const POLICY_FIELDS: [&str; 6] =
    [r"<user>\nb<other>", r"<user>\nc<other>", r"<user>\np", r"<user>\nr", r"<user>\n#b", r"<user>\n#c"];

/// The number of buckets. A million users with a hundred contacts each are 25,000 fields per bucket, which are read in
/// a few milliseconds. The stored data depend on it.
pub const BUCKETS: u32 = 4096;

/// The most groups. The stored data depend on it.
const MAX_GROUPS: u32 = 16;

/// The value of a field whose presence is all that counts.
const PRESENT: &str = "1";

/// What a field is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block,
    Contact,
    Privacy,
    Restricted,
}

impl Kind {
    fn letter(self) -> char {
        match self {
            Self::Block => 'b',
            Self::Contact => 'c',
            Self::Privacy => 'p',
            Self::Restricted => 'r',
        }
    }

    fn of(letter: char) -> Option<Self> {
        [Self::Block, Self::Contact, Self::Privacy, Self::Restricted].into_iter().find(|kind| kind.letter() == letter)
    }
}

impl Keyspace {
    /// The number of groups, each with a log.
    pub fn groups(&self) -> u32 {
        self.shards().min(MAX_GROUPS)
    }

    /// The user's bucket.
    pub fn bucket_of(&self, user: &str) -> u32 {
        shard_of(user, BUCKETS)
    }

    /// The group of a bucket: the shard whose server has its keys.
    pub fn group_of_bucket(&self, bucket: u32) -> u32 {
        bucket % self.groups()
    }

    /// The group of a page of numbers.
    pub fn group_of_page(&self, page: u32) -> u32 {
        page % self.groups()
    }

    /// Adds the command that reads a whole bucket: [`decode_bucket`], [`decode_settings`].
    pub fn bucket(&self, to: &mut Commands, bucket: u32) {
        to.begin("HGETALL").key(self.policy(bucket));
    }

    /// Adds the write before a `WAIT`. Replicas receive all writes in one order, whatever connection they came on, so a
    /// replica that has this write has all before it.
    pub fn write_replicated(&self, to: &mut Commands, group: u32, now_us: u64) {
        to.begin("SET").key(self.replicated(group)).number(now_us);
    }
}

/// Adds a field name as an argument.
fn field<'c>(to: &'c mut Commands, owner: &str, kind: Kind, other: &str) -> &'c mut Commands {
    to.format(format_args!("{owner}\n{}{other}", kind.letter()))
}

/// The settings of a bucket, as the changes that produce them. Unknown fields of a later version and invalid user ids
/// are skipped.
pub fn decode_bucket<'a>(reply: impl Iterator<Item = Piece<'a>>) -> Result<Vec<PolicyChange>, BadReply> {
    decode_some(reply, |_| true)
}

/// The settings of one slice of a bucket; the reply is the whole bucket.
pub fn decode_slice<'a>(reply: impl Iterator<Item = Piece<'a>>, slice: Slice) -> Result<Vec<PolicyChange>, BadReply> {
    decode_some(reply, |field| slice.has(field))
}

fn decode_some<'a>(
    mut reply: impl Iterator<Item = Piece<'a>>,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<PolicyChange>, BadReply> {
    let mut changes = Vec::new();
    let mut wanted = Vec::new();
    while let Some(name) = reply.next() {
        let value = reply.next();
        if !matches!(name, Piece::Bytes(field) if !is_wanted(field)) {
            wanted.extend([Some(name), value]);
        }
    }
    let reply = wanted.into_iter().flatten();
    each_field(reply, |owner, kind, other, value| {
        let Ok(owner) = UserId::parse(owner) else { return Ok(()) };
        changes.extend(match kind {
            Kind::Block => UserId::parse(other).ok().map(|other| PolicyChange::Block(owner, other)),
            Kind::Contact => UserId::parse(other).ok().map(|other| PolicyChange::AddContact(owner, other)),
            Kind::Privacy => Some(PolicyChange::SetPrivacy(owner, privacy_of(value)?)),
            Kind::Restricted => Some(PolicyChange::Restrict(owner)),
        });
        Ok(())
    })?;
    Ok(changes)
}

/// The settings of one user of a bucket.
pub fn decode_settings<'a>(reply: impl Iterator<Item = Piece<'a>>, user: &str) -> Result<OwnSettings, BadReply> {
    let mut settings = OwnSettings::default();
    each_field(reply, |owner, kind, other, value| {
        if owner != user {
            return Ok(());
        }
        match kind {
            Kind::Block => settings.blocks.extend(UserId::parse(other)),
            Kind::Contact => settings.contacts.extend(UserId::parse(other)),
            Kind::Privacy => settings.privacy = privacy_of(value)?,
            // Set by an administrator, not by the user.
            Kind::Restricted => {}
        }
        Ok(())
    })?;
    Ok(settings)
}

/// The fields of a bucket: the owner, the kind, the other user, and the value.
fn each_field<'a>(
    mut reply: impl Iterator<Item = Piece<'a>>,
    mut take: impl FnMut(&'a str, Kind, &'a str, &'a str) -> Result<(), BadReply>,
) -> Result<(), BadReply> {
    const WHAT: &str = "a field of policy";
    while let Some(name) = reply.next() {
        // The reply to a read of a missing key may be a single null.
        let Some(name) = name.text(WHAT)? else { continue };
        let value = reply.next().unwrap_or(Piece::Nil).text(WHAT)?.ok_or(BadReply(WHAT))?;
        let (owner, rest) = name.split_once('\n').ok_or(BadReply(WHAT))?;
        let mut rest = rest.chars();
        // Counts (`#b`, `#c`) are not settings.
        if let Some(kind) = rest.next().and_then(Kind::of) {
            take(owner, kind, rest.as_str(), value)?;
        }
    }
    Ok(())
}

/// A privacy setting as two letters; empty for the default.
fn privacy_text(privacy: Privacy) -> String {
    if privacy == Privacy::default() {
        return String::new();
    }
    [privacy.presence, privacy.last_seen].into_iter().map(audience_letter).collect()
}

/// The reverse of [`privacy_text`].
fn privacy_of(text: &str) -> Result<Privacy, BadReply> {
    let mut letters = text.chars().map(audience_of);
    match (letters.next(), letters.next(), letters.next()) {
        (None, None, None) => Ok(Privacy::default()),
        (Some(Some(presence)), Some(Some(last_seen)), None) => Ok(Privacy { presence, last_seen }),
        _ => Err(BadReply("a privacy setting")),
    }
}

fn audience_letter(audience: Audience) -> char {
    match audience {
        Audience::Everyone => 'e',
        Audience::Contacts => 'c',
        Audience::Nobody => 'n',
    }
}

fn audience_of(letter: char) -> Option<Audience> {
    let all = [Audience::Everyone, Audience::Contacts, Audience::Nobody];
    all.into_iter().find(|audience| audience_letter(*audience) == letter)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn pieces<'a>(texts: &'a [&'a str]) -> impl Iterator<Item = Piece<'a>> {
        texts.iter().map(|text| Piece::Bytes(text.as_bytes()))
    }

    const BUCKET: [&str; 18] = [
        "bob\nbeve",
        "1",
        "bob\n#b",
        "1",
        "eve\ncbob",
        "1",
        "eve\n#c",
        "1",
        "bob\np",
        "nc",
        "bob\nr",
        "1",
        "bob\nzlater",
        "1",
        "\nbx",
        "1",
        "bob\nc",
        "1",
    ];

    #[test]
    fn bucket_decodes_to_its_settings() {
        let privacy = Privacy { presence: Audience::Nobody, last_seen: Audience::Contacts };
        let expected = [
            PolicyChange::Block(user("bob"), user("eve")),
            PolicyChange::AddContact(user("eve"), user("bob")),
            PolicyChange::SetPrivacy(user("bob"), privacy),
            PolicyChange::Restrict(user("bob")),
        ];
        assert_eq!(decode_bucket(pieces(&BUCKET)).unwrap(), expected);
        let bobs = OwnSettings { privacy, contacts: Vec::new(), blocks: vec![user("eve")] };
        assert_eq!(decode_settings(pieces(&BUCKET), "bob").unwrap(), bobs);
        assert_eq!(decode_settings(pieces(&BUCKET), "bo").unwrap(), OwnSettings::default());
        assert_eq!(decode_bucket([Piece::Nil].into_iter()), Ok(Vec::new()));
        for bad in [["bob", "1"], ["bob\np", "x"], ["bob\np", "een"]] {
            assert!(decode_bucket(pieces(&bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn default_privacy_is_empty_others_two_letters() {
        let all = [Audience::Everyone, Audience::Contacts, Audience::Nobody];
        for (presence, last_seen) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other))) {
            let privacy = Privacy { presence, last_seen };
            let text = privacy_text(privacy);
            assert_eq!(privacy_of(&text), Ok(privacy));
            assert_eq!(text.is_empty(), privacy == Privacy::default());
        }
        assert_eq!(privacy_of("ee"), Ok(Privacy::default()));
    }

    /// Data are stored under these numbers: if this test fails, the function is wrong, not the test.
    #[test]
    fn buckets_of_users_never_change() {
        let keys = Keyspace::new("rc", 256).unwrap();
        let buckets = ["a", "bob", "user-12345"].map(|name| keys.bucket_of(name));
        assert_eq!(buckets.map(|bucket| bucket % 256), ["a", "bob", "user-12345"].map(|name| keys.shard_of(name)));
        assert_eq!(
            keys.policy(keys.bucket_of("bob")).to_string(),
            format!("rc:{{15}}:policy:{}", keys.bucket_of("bob"))
        );
        assert_eq!((keys.groups(), Keyspace::new("rc", 3).unwrap().groups()), (16, 3));
    }
}
