//! The conversations a caller takes part in.
//!
//! Rollcall keeps no list of participants: the issuer of tokens knows them and lists them in the token. Rollcall does not
//! know which conversations exist either, so a refusal reveals nothing.

use rollcall_core::{ConversationId, Invalid};

/// Means every conversation, in a token.
const ANY: &str = "*";

/// The conversations in which a caller may type and see who is typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversations {
    /// Any.
    Any,
    /// Only these. Empty for a token without the claim.
    Only(Vec<ConversationId>),
}

impl Conversations {
    /// No conversation.
    pub const NONE: Conversations = Conversations::Only(Vec::new());

    /// Whether the caller takes part in this one.
    pub fn allows(&self, conversation: &ConversationId) -> bool {
        match self {
            Conversations::Any => true,
            Conversations::Only(these) => these.contains(conversation),
        }
    }

    /// The entries of the claim in a token.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Conversations::Any => vec![ANY],
            Conversations::Only(these) => these.iter().map(ConversationId::as_str).collect(),
        }
    }

    /// Parses the entries of the claim. The error is the index of the bad entry and the rule it breaks.
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
    /// `*` among them means any, so a token cannot name a conversation called `*`.
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
    fn star_allows_any_conversation() {
        let some = Conversations::parse(["c1", "c2"]).unwrap();
        assert!(some.allows(&id("c1")) && some.allows(&id("c2")));
        assert!(!some.allows(&id("c3")) && !some.allows(&id("C1")));
        assert!(!Conversations::default().allows(&id("c1")));
        let any = Conversations::parse(["c1", "*"]).unwrap();
        assert_eq!(any, Conversations::Any);
        assert!(any.allows(&id("c3")));
    }

    #[test]
    fn conversations_parse_back() {
        for conversations in [Conversations::Any, Conversations::NONE, [id("c1"), id("c*")].into_iter().collect()] {
            assert_eq!(Conversations::parse(conversations.names()), Ok(conversations.clone()));
        }
    }

    #[test]
    fn bad_conversation_is_refused_by_index() {
        let (place, invalid) = Conversations::parse(["c1", "c\n2"]).unwrap_err();
        assert_eq!((place, invalid.rule.as_str()), (1, "contains a control character"));
    }
}
