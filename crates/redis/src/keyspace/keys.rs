//! The names of keys, one function each. The shard is the hash tag, so everything about a user is on one master of a
//! Cluster and a script can change it atomically.

use std::fmt;
use std::sync::OnceLock;

use thiserror::Error as ThisError;

use crate::keyspace::command::Commands;
use crate::keyspace::script::{Digests, Script};
use rollcall_core::shard_of;

/// Every key and channel, as `docs/KEYSPACE.md` lists them, with the default prefix.
pub const KEYS: [&str; 21] = [
    "rc:{n}:user:<user>",
    "rc:{n}:alive:<user>",
    "rc:{n}:t:<user>",
    "rc:{n}:watchers:<user>",
    "rc:{n}:typing:<conversation>",
    "rc:{n}:c:<conversation>",
    "rc:{n}:due",
    "rc:{n}:archive",
    "rc:{n}:evicted",
    "rc:{n}:last_seen",
    "rc:{0}:outage_grace",
    "rc:{0}:epoch",
    "rc:{0}:hosts",
    "rc:{0}:probed",
    "rc:{g}:policy:<bucket>",
    "rc:{g}:numbers:<page>",
    "rc:{g}:operand",
    "rc:{g}:pages",
    "rc:{g}:log",
    "rc:{g}:replicated",
    "rc:{g}:policy",
];

/// The prefix that every host uses.
const PREFIX: &str = "rc";
const ALIVE: &str = "alive:";
const TOPIC: &str = "t:";
const CONVERSATION: &str = "c:";
const POLICY: &str = "policy";

/// The prefix is part of every key, so a long one costs memory for every user.
const MAX_PREFIX_BYTES: usize = 32;

/// The prefix and the number of shards. The stored data depend on both.
#[derive(Debug, Clone)]
pub struct Keyspace {
    prefix: String,
    /// `rc:{n}:` for each shard, built when it is first used: on a platform with an instance for each request few are.
    heads: Box<[OnceLock<String>]>,
    digests: Digests,
}

/// The name of a key.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    head: &'a str,
    kind: &'static str,
    name: &'a str,
    number: Option<u32>,
}

/// What a channel carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Published records of a user: [`decode_payload`](crate::keyspace::decode_payload).
    Person,
    /// Typing in a conversation: [`decode_typed`](crate::keyspace::decode_typed).
    Conversation,
    /// That policy changed: the new end of the group's log.
    Policy,
}

/// An invalid prefix.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("`{0}` is not a key prefix: it must have 1 to 32 letters, digits, `-`, `_` or `.`")]
pub struct BadPrefix(pub String);

impl Keyspace {
    /// Keys with this prefix and this many shards; zero counts as one.
    pub fn new(prefix: &str, shards: u32) -> Result<Self, BadPrefix> {
        // Braces would be taken for the hash tag; `*` and the like would be a pattern in an ACL or a `SCAN`.
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.bytes().all(fits) {
            return Err(BadPrefix(prefix.to_owned()));
        }
        Ok(Self::under(prefix, shards))
    }

    /// Keys with the prefix that hosts use and this many shards; zero counts as one.
    pub fn of_hosts(shards: u32) -> Self {
        Self::under(PREFIX, shards)
    }

    fn under(prefix: &str, shards: u32) -> Self {
        let heads = (0..shards.max(1)).map(|_| OnceLock::new()).collect();
        Self { prefix: prefix.to_owned(), heads, digests: Digests::default() }
    }

    /// How many shards there are.
    pub fn shards(&self) -> u32 {
        self.heads.len() as u32
    }

    /// The user's shard.
    pub fn shard_of(&self, user: &str) -> u32 {
        shard_of(user, self.shards())
    }

    /// The hash of everything about a user except the deadline.
    pub fn user<'a>(&'a self, user: &'a str) -> Key<'a> {
        self.personal("user:", user)
    }

    /// The string that expires at the user's deadline, for the expiry notification.
    pub fn alive<'a>(&'a self, user: &'a str) -> Key<'a> {
        self.personal(ALIVE, user)
    }

    /// The channel of the user's published records.
    pub fn topic<'a>(&'a self, user: &'a str) -> Key<'a> {
        self.personal(TOPIC, user)
    }

    /// The hash of watcher counts of a user, by worker.
    pub fn watchers<'a>(&'a self, user: &'a str) -> Key<'a> {
        self.personal("watchers:", user)
    }

    /// The hash of the users who type in a conversation.
    pub fn typing<'a>(&'a self, conversation: &'a str) -> Key<'a> {
        self.personal("typing:", conversation)
    }

    /// The channel of typing in a conversation.
    pub fn conversation<'a>(&'a self, conversation: &'a str) -> Key<'a> {
        self.personal(CONVERSATION, conversation)
    }

    /// The due queue: users by deadline.
    pub fn due(&self, shard: u32) -> Key<'_> {
        self.shared(shard, "due")
    }

    /// The archive queue: users by when they can be evicted.
    pub fn archive_queue(&self, shard: u32) -> Key<'_> {
        self.shared(shard, "archive")
    }

    /// The newest version among the evicted sessions of the shard.
    pub fn evicted(&self, shard: u32) -> Key<'_> {
        self.shared(shard, "evicted")
    }

    /// The sorted set of last seen by user, where Redis is also the archive.
    pub fn last_seen(&self, shard: u32) -> Key<'_> {
        self.shared(shard, "last_seen")
    }

    /// The outage grace in force.
    pub fn outage_grace(&self) -> Key<'_> {
        self.shared(0, "outage_grace")
    }

    /// Distinguishes a server that lost its data from one that was unreachable.
    pub fn epoch(&self) -> Key<'_> {
        self.shared(0, "epoch")
    }

    /// The sorted set of hosts, by when each last wrote itself.
    pub fn hosts(&self) -> Key<'_> {
        self.shared(0, "hosts")
    }

    /// When the time probe last reached the server.
    pub fn probed(&self) -> Key<'_> {
        self.shared(0, "probed")
    }

    /// The hash of the settings of a bucket's users.
    pub fn policy(&self, bucket: u32) -> Key<'_> {
        Key { number: Some(bucket), ..self.shared(self.group_of_bucket(bucket), "policy:") }
    }

    /// The bits of the restricted accounts of a page of numbers.
    pub fn numbers(&self, page: u32) -> Key<'_> {
        Key { number: Some(page), ..self.shared(self.group_of_page(page), "numbers:") }
    }

    /// Temporary: what a page of numbers is combined with.
    pub fn operand(&self, group: u32) -> Key<'_> {
        self.shared(group, "operand")
    }

    /// The set of a group's pages of numbers.
    pub fn pages(&self, group: u32) -> Key<'_> {
        self.shared(group, "pages")
    }

    /// The sorted set of a group's newest policy changes.
    pub fn log(&self, group: u32) -> Key<'_> {
        self.shared(group, "log")
    }

    /// Written before waiting for a replica.
    pub fn replicated(&self, group: u32) -> Key<'_> {
        self.shared(group, "replicated")
    }

    /// The channel of a group's policy changes.
    pub fn invalidation(&self, group: u32) -> Key<'_> {
        self.shared(group, POLICY)
    }

    /// The user of an `alive` key; `None` for any other key.
    pub fn user_of_alive_key<'a>(&self, key: &'a str) -> Option<&'a str> {
        let rest = key.strip_prefix(self.prefix.as_str())?.strip_prefix(":{")?;
        let (shard, rest) = rest.split_once("}:")?;
        let user = rest.strip_prefix(ALIVE)?;
        (shard.parse() == Ok(self.shard_of(user))).then_some(user)
    }

    /// What this channel carries; `None` if it is not one of ours.
    pub fn channel(&self, name: &str) -> Option<Channel> {
        let rest = name.strip_prefix(self.prefix.as_str())?.strip_prefix(":{")?;
        let (_, rest) = rest.split_once("}:")?;
        match rest {
            _ if rest.starts_with(TOPIC) => Some(Channel::Person),
            _ if rest.starts_with(CONVERSATION) => Some(Channel::Conversation),
            POLICY => Some(Channel::Policy),
            _ => None,
        }
    }

    /// Begins the call of a script with this many keys.
    pub(crate) fn evalsha<'c>(&self, to: &'c mut Commands, script: Script, keys: u64) -> &'c mut Commands {
        to.begin("EVALSHA").text(self.digests.of(script)).number(keys)
    }

    /// A key of a user or a conversation, in the shard of its name.
    fn personal<'a>(&'a self, kind: &'static str, name: &'a str) -> Key<'a> {
        Key { name, ..self.shared(self.shard_of(name), kind) }
    }

    fn shared(&self, shard: u32, kind: &'static str) -> Key<'_> {
        let build = || format!("{}:{{{shard}}}:", self.prefix);
        let head = self.heads.get(shard as usize).map_or("", |head| head.get_or_init(build));
        Key { head, kind, name: "", number: None }
    }
}

impl<'a> Key<'a> {
    /// The name in pieces.
    pub(crate) fn parts(&self) -> [&'a str; 3] {
        [self.head, self.kind, self.name]
    }

    /// The number at the end of the name, if there is one.
    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().iter().try_for_each(|part| f.write_str(part))?;
        self.number.map_or(Ok(()), |number| write!(f, "{number}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::keyspace::slot_of;

    #[test]
    fn key_names_match_the_list() {
        let keys = Keyspace::new("rc", 256).unwrap();
        let named = [
            keys.user("bob"),
            keys.alive("bob"),
            keys.topic("bob"),
            keys.watchers("bob"),
            keys.typing("bob"),
            keys.conversation("bob"),
            keys.due(111),
            keys.archive_queue(111),
            keys.evicted(111),
            keys.last_seen(111),
            keys.outage_grace(),
            keys.epoch(),
            keys.hosts(),
            keys.probed(),
            keys.policy(4095),
            keys.numbers(31),
            keys.operand(15),
            keys.pages(15),
            keys.log(15),
            keys.replicated(15),
            keys.invalidation(15),
        ];
        assert_eq!(named.len(), KEYS.len());
        let names = [("{n}", "{111}"), ("{g}", "{15}"), ("<bucket>", "4095"), ("<page>", "31")];
        let names = names.into_iter().chain([("<user>", "bob"), ("<conversation>", "bob")]);
        for (key, pattern) in named.iter().zip(KEYS) {
            let name = names.clone().fold(pattern.to_owned(), |name, (what, by)| name.replace(what, by));
            assert_eq!(key.to_string(), name);
        }
    }

    #[test]
    fn keys_of_a_user_share_one_slot() {
        let keys = Keyspace::new("rc", 256).unwrap();
        for user in ["bob", "b{o}b", "}{", "名前@例.jp"] {
            let shard = keys.shard_of(user);
            let slots = [keys.user(user), keys.alive(user), keys.topic(user), keys.due(shard), keys.evicted(shard)]
                .map(|key| slot_of(key.to_string().as_bytes()));
            assert_eq!(slots, [slot_of(shard.to_string().as_bytes()); 5], "{user}");
        }
    }

    #[test]
    fn only_alive_keys_name_a_user() {
        let keys = Keyspace::new("rc", 256).unwrap();
        for user in ["bob", "a:b", "b{o}b", "}:alive:x", "名前"] {
            assert_eq!(keys.user_of_alive_key(&keys.alive(user).to_string()), Some(user));
            assert_eq!(keys.user_of_alive_key(&keys.user(user).to_string()), None);
        }
        for other in ["", "rc", "rc:{111}:alive", "rc:{110}:alive:bob", "xx:{111}:alive:bob", "rc:{x}:alive:bob"] {
            assert_eq!(keys.user_of_alive_key(other), None, "{other}");
        }
    }

    #[test]
    fn channel_name_tells_its_kind() {
        let keys = Keyspace::new("rc", 256).unwrap();
        for name in ["bob", "c:bob", "}:t:x"] {
            assert_eq!(keys.channel(&keys.topic(name).to_string()), Some(Channel::Person));
            assert_eq!(keys.channel(&keys.conversation(name).to_string()), Some(Channel::Conversation));
            assert_eq!(keys.channel(&keys.user(name).to_string()), None);
        }
        assert_eq!(keys.channel(&keys.invalidation(3).to_string()), Some(Channel::Policy));
        assert_eq!(keys.channel(&keys.policy(3).to_string()), None);
        for other in ["", "rc:{1}", "xx:{111}:t:bob", "__keyevent@0__:expired"] {
            assert_eq!(keys.channel(other), None, "{other}");
        }
    }

    #[test]
    fn ambiguous_prefixes_are_refused() {
        for bad in ["", "a b", "a:b", "{x}", "*", "é", &"x".repeat(33)] {
            assert!(Keyspace::new(bad, 1).is_err(), "{bad}");
        }
        assert_eq!(Keyspace::new("test-1.a_B", 0).unwrap().shards(), 1);
    }

    #[test]
    fn hosts_use_the_default_prefix() {
        let (usual, keys) = (Keyspace::new("rc", 16).unwrap(), Keyspace::of_hosts(16));
        assert_eq!((usual.shards(), usual.user("bob").to_string()), (keys.shards(), keys.user("bob").to_string()));
    }
}
