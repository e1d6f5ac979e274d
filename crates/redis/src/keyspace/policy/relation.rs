//! Relations between a viewer and subjects: each subject's settings, in the subject's bucket, and the viewer's blocks,
//! in the viewer's bucket.

use rollcall_core::policy::Relation;

use super::{Kind, field, privacy_of};
use crate::keyspace::command::Commands;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};

impl Keyspace {
    /// Adds the command that reads a subject's settings and restriction, as far as they concern this viewer; see
    /// [`decode_subject_side`].
    pub fn read_subject_side(&self, to: &mut Commands, viewer: Option<&str>, subject: &str) {
        to.begin("HMGET").key(self.policy(self.bucket_of(subject)));
        field(to, subject, Kind::Privacy, "");
        field(to, subject, Kind::Restricted, "");
        if let Some(viewer) = viewer {
            field(to, subject, Kind::Block, viewer);
            field(to, subject, Kind::Contact, viewer);
        }
    }

    /// Adds the command that reads whether a numeric account is restricted; see [`decode_restricted`].
    pub fn is_restricted(&self, to: &mut Commands, number: u32) {
        to.begin("GETBIT").key(self.numbers(number >> 16)).number(u64::from(number & 0xffff));
    }

    /// Adds the command that reads which of these subjects a viewer blocked; see [`decode_blocks`].
    pub fn which_blocked<'a>(&self, to: &mut Commands, viewer: &str, subjects: impl Iterator<Item = &'a str>) {
        to.begin("HMGET").key(self.policy(self.bucket_of(viewer)));
        subjects.for_each(|subject| {
            field(to, viewer, Kind::Block, subject);
        });
    }
}

/// The subject's side of a relation.
pub fn decode_subject_side<'a>(mut reply: impl Iterator<Item = Piece<'a>>) -> Result<Relation, BadReply> {
    let privacy = match reply.next().unwrap_or(Piece::Nil).text("a privacy setting")? {
        Some(text) => privacy_of(text)?,
        None => Default::default(),
    };
    let mut is_there = || reply.next().is_some_and(|piece| piece != Piece::Nil);
    Ok(Relation { privacy, restricted: is_there(), blocked: is_there(), contact: is_there() })
}

/// Whether a numeric account is restricted.
pub fn decode_restricted(reply: Piece<'_>) -> Result<bool, BadReply> {
    Ok(reply.number("a bit of a page of numbers")? == 1)
}

/// Which of the subjects are blocked, in the order asked.
pub fn decode_blocks<'a>(reply: impl Iterator<Item = Piece<'a>>) -> impl Iterator<Item = bool> {
    reply.map(|piece| piece != Piece::Nil)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::policy::{Audience, Privacy};

    #[test]
    fn relation_decodes_from_present_fields() {
        let so = Piece::Bytes(b"1");
        let read = |pieces: &[Piece<'static>]| decode_subject_side(pieces.iter().copied());
        assert_eq!(read(&[Piece::Nil, Piece::Nil]), Ok(Relation::default()));
        assert_eq!(read(&[Piece::Nil, so]), Ok(Relation { restricted: true, ..Relation::default() }));
        assert_eq!(
            read(&[Piece::Nil, Piece::Nil, so, Piece::Nil]),
            Ok(Relation { blocked: true, ..Relation::default() })
        );
        let privacy = Privacy { presence: Audience::Contacts, last_seen: Audience::Nobody };
        let friend = Relation { contact: true, privacy, ..Relation::default() };
        assert_eq!(read(&[Piece::Bytes(b"cn"), Piece::Nil, Piece::Nil, so]), Ok(friend));
        assert!(read(&[Piece::Bytes(b"x")]).is_err());
    }

    #[test]
    fn only_fields_of_the_user_are_read() {
        let keys = Keyspace::new("rc", 256).unwrap();
        let mut commands = Commands::default();
        keys.read_subject_side(&mut commands, Some("eve"), "bob");
        keys.read_subject_side(&mut commands, None, "bob");
        keys.which_blocked(&mut commands, "bob", ["eve", "*"].into_iter());
        let fields = commands.iter().map(|command| {
            command.args().skip(2).map(|arg| String::from_utf8(arg.to_vec()).unwrap()).collect::<Vec<_>>()
        });
        let expected = [
            vec!["bob\np", "bob\nr", "bob\nbeve", "bob\nceve"],
            vec!["bob\np", "bob\nr"],
            vec!["bob\nbeve", "bob\nb*"],
        ];
        assert_eq!(fields.collect::<Vec<_>>(), expected);
    }
}
