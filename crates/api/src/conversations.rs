//! In which conversations does a caller take part?
//!
//! Rollcall keeps no list of participants: whoever signs tokens knows them, and says so in the token. Whether a
//! conversation exists is nothing that Rollcall knows either, so a refusal cannot give it away.

use rollcall_core::{ConversationId, Invalid};

/// Stands for every conversation, in a token.
const ANY: &str = "*";

/// The conversations of which a caller may know who types, and in which they may type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversations {
    /// Any.
    Any,
    /// These, and no other. None at all is what a token allows that says nothing about it.
    Only(Vec<ConversationId>),
}

impl Conversations {
    /// No conversation.
    pub const NONE: Conversations = Conversations::Only(Vec::new());

    /// Whether this one is among them.
    pub fn allows(&self, conversation: &ConversationId) -> bool {
        match self {
            Conversations::Any => true,
            Conversations::Only(these) => these.contains(conversation),
        }
    }

    /// As a token lists them.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Conversations::Any => vec![ANY],
            Conversations::Only(these) => these.iter().map(ConversationId::as_str).collect(),
        }
    }

    /// As a token lists them, read; the error is the place in the list and the rule broken there.
    pub(crate) fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, (usize, Invalid)> {
        let parsed = names.into_iter().enumerate();
        parsed.map(|(place, name)| ConversationId::parse(name).map_err(|invalid| (place, invalid))).collect()
    }
}

impl Default for Conversations {
    fn default() -> Self {
        Self::NONE
    }
}

impl FromIterator<ConversationId> for Conversations {
    /// `*` among them means any: no token can name a conversation that is called so.
    fn from_iter<I: IntoIterator<Item = ConversationId>>(conversations: I) -> Self {
        let these: Vec<ConversationId> = conversations.into_iter().collect();
        if these.iter().any(|conversation| conversation.as_str() == ANY) {
            return Conversations::Any;
        }
        Conversations::Only(these)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn id(name: &str) -> ConversationId {
        ConversationId::parse(name).unwrap()
    }

    #[test]
    fn only_what_is_listed_is_allowed_and_a_star_is_everything() {
        let some = Conversations::parse(["c1", "c2"]).unwrap();
        assert!(some.allows(&id("c1")) && some.allows(&id("c2")));
        assert!(!some.allows(&id("c3")) && !some.allows(&id("C1")));
        assert!(!Conversations::default().allows(&id("c1")));
        let any = Conversations::parse(["c1", "*"]).unwrap();
        assert_eq!(any, Conversations::Any);
        assert!(any.allows(&id("c3")));
    }

    #[test]
    fn what_is_listed_is_read_back() {
        for conversations in [Conversations::Any, Conversations::NONE, [id("c1"), id("c*")].into_iter().collect()] {
            assert_eq!(Conversations::parse(conversations.names()), Ok(conversations.clone()));
        }
    }

    #[test]
    fn a_bad_name_is_refused_by_its_place() {
        let (place, invalid) = Conversations::parse(["c1", "c\n2"]).unwrap_err();
        assert_eq!((place, invalid.rule.as_str()), (1, "contains a control character"));
    }
}
