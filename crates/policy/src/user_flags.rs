//! A user's own policy in one byte: restricted or not, and privacy.

use rollcall_core::policy::{Audience, Privacy};

/// Presence in the lowest two bits, last seen in the next two, restricted in the fifth. Zero is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UserFlags(u8);

const RESTRICTED: u8 = 1 << 4;
const PRIVACY: u8 = RESTRICTED - 1;

impl UserFlags {
    pub(crate) fn is_default(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn restricted(self) -> bool {
        self.0 & RESTRICTED != 0
    }

    pub(crate) fn privacy(self) -> Privacy {
        Privacy { presence: audience(self.0), last_seen: audience(self.0 >> 2) }
    }

    pub(crate) fn with_restricted(self, restricted: bool) -> Self {
        Self(if restricted { self.0 | RESTRICTED } else { self.0 & !RESTRICTED })
    }

    pub(crate) fn with_privacy(self, privacy: Privacy) -> Self {
        Self(self.0 & !PRIVACY | bits(privacy.presence) | bits(privacy.last_seen) << 2)
    }
}

fn bits(audience: Audience) -> u8 {
    match audience {
        Audience::Everyone => 0,
        Audience::Contacts => 1,
        Audience::Nobody => 2,
    }
}

/// The inverse of `bits`, from the lowest two bits. The fourth value is never written; it would hide.
fn audience(bits: u8) -> Audience {
    match bits & 3 {
        0 => Audience::Everyone,
        1 => Audience::Contacts,
        2.. => Audience::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_flags_unpack() {
        let all = [Audience::Everyone, Audience::Contacts, Audience::Nobody];
        for (presence, last_seen) in all.into_iter().flat_map(|one| all.map(|other| (one, other))) {
            let privacy = Privacy { presence, last_seen };
            for restricted in [false, true] {
                let flags = UserFlags::default().with_privacy(privacy).with_restricted(restricted);
                assert_eq!((flags.privacy(), flags.restricted()), (privacy, restricted));
                assert_eq!(flags.with_privacy(Privacy::default()).restricted(), restricted);
                assert_eq!(flags.is_default(), privacy == Privacy::default() && !restricted);
            }
        }
    }
}
