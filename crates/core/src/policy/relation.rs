//! The relation between a viewer and a subject, and the verdict that follows from it.

use crate::UserId;
use crate::visibility::Visibility;

/// Who may see something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Audience {
    /// Everyone who is not blocked.
    #[default]
    Everyone,
    /// The user's contacts.
    Contacts,
    /// Only the user.
    Nobody,
}

impl Audience {
    fn includes(self, contact: bool) -> bool {
        match self {
            Self::Everyone => true,
            Self::Contacts => contact,
            Self::Nobody => false,
        }
    }
}

/// Which audiences may see a user. The default shows both to everyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Privacy {
    /// The state and the note.
    pub presence: Audience,
    /// The last seen time.
    pub last_seen: Audience,
}

/// All that a verdict about a viewer and a subject depends on. The default is that of two users without any settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Relation {
    /// An administrator restricted the subject's account.
    pub restricted: bool,
    /// The viewer blocked the subject, or the subject the viewer.
    pub blocked: bool,
    /// The subject listed the viewer as a contact.
    pub contact: bool,
    /// The subject's privacy.
    pub privacy: Privacy,
}

/// Whether a viewer may see a subject, and the reason if not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// The viewer may see.
    Allowed,
    /// The subject's account is restricted.
    Restricted,
    /// One of the two blocked the other.
    Blocked,
    /// The subject's own setting excludes the viewer.
    Private,
}

/// What a viewer may see, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The state and the note.
    pub presence: Ruling,
    /// The last seen time.
    pub last_seen: bool,
}

impl Verdict {
    /// Everything may be seen.
    pub const OPEN: Self = Self { presence: Ruling::Allowed, last_seen: true };

    /// The verdict without its reason, which viewers do not learn.
    pub fn visibility(self) -> Visibility {
        Visibility { presence: self.presence == Ruling::Allowed, last_seen: self.last_seen }
    }
}

impl Relation {
    /// The rule, for a viewer who is not the subject. The strongest reason wins.
    pub fn verdict(self) -> Verdict {
        let hidden = |presence| Verdict { presence, last_seen: false };
        if self.restricted {
            return hidden(Ruling::Restricted);
        }
        if self.blocked {
            return hidden(Ruling::Blocked);
        }
        if !self.privacy.presence.includes(self.contact) {
            return hidden(Ruling::Private);
        }
        Verdict { presence: Ruling::Allowed, last_seen: self.privacy.last_seen.includes(self.contact) }
    }

    /// The rule for any viewer: users see themselves, and no viewer means a service.
    pub fn verdict_for(self, viewer: Option<&str>, subject: &str) -> Verdict {
        match viewer {
            None => self.verdict_for_service(),
            Some(viewer) if viewer == subject => Verdict::OPEN,
            Some(_) => self.verdict(),
        }
    }

    /// The rule for a service, which sees everyone who is not restricted.
    pub fn verdict_for_service(self) -> Verdict {
        Relation { restricted: self.restricted, ..Relation::default() }.verdict()
    }
}

/// A user's own policy settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnSettings {
    /// Which audiences see presence and last seen.
    pub privacy: Privacy,
    /// The user's contacts, in no particular order.
    pub contacts: Vec<UserId>,
    /// The users that this user blocked, in no particular order.
    pub blocks: Vec<UserId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strongest_reason_is_reported() {
        let all = Relation {
            restricted: true,
            blocked: true,
            contact: false,
            privacy: Privacy { presence: Audience::Nobody, last_seen: Audience::Nobody },
        };
        assert_eq!(all.verdict().presence, Ruling::Restricted);
        assert_eq!(Relation { restricted: false, ..all }.verdict().presence, Ruling::Blocked);
        assert_eq!(Relation { restricted: false, blocked: false, ..all }.verdict().presence, Ruling::Private);
        assert_eq!(Relation::default().verdict(), Verdict::OPEN);
        assert_eq!(all.verdict_for_service().presence, Ruling::Restricted);
        assert_eq!(Relation { restricted: false, ..all }.verdict_for_service(), Verdict::OPEN);
        assert_eq!(all.verdict_for(Some("bob"), "bob"), Verdict::OPEN, "users see themselves");
        assert_eq!(all.verdict_for(Some("ann"), "bob"), all.verdict());
        assert_eq!(all.verdict_for(None, "bob"), all.verdict_for_service());
    }

    #[test]
    fn presence_and_last_seen_have_separate_audiences() {
        let verdict = |presence, last_seen, contact| {
            let verdict =
                Relation { contact, privacy: Privacy { presence, last_seen }, ..Relation::default() }.verdict();
            (verdict.visibility().presence, verdict.last_seen)
        };
        assert_eq!(verdict(Audience::Everyone, Audience::Contacts, false), (true, false));
        assert_eq!(verdict(Audience::Everyone, Audience::Contacts, true), (true, true));
        assert_eq!(verdict(Audience::Contacts, Audience::Everyone, true), (true, true));
        assert_eq!(
            verdict(Audience::Contacts, Audience::Everyone, false),
            (false, false),
            "hidden presence hides last seen"
        );
        assert_eq!(verdict(Audience::Nobody, Audience::Everyone, true), (false, false));
        assert_eq!(verdict(Audience::Everyone, Audience::Nobody, true), (true, false));
    }
}
