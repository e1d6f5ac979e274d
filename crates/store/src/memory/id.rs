//! An id as it lies in memory. A short one is stored in place: a heartbeat then finds a person and a device in one
//! place, instead of following a pointer for each into memory that no cache holds.

/// The most bytes stored in place. A UUID takes 36; with its tag and its length this makes 40, five words.
const SHORT: usize = 38;

/// An id that was checked when it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Id {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<str>),
}

impl Id {
    pub(super) fn new(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                Self::Short { length: text.len() as u8, bytes }
            }
            None => Self::Long(text.into()),
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Self::Long(text) => text.as_bytes(),
        }
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.as_bytes() == text.as_bytes()
    }

    /// The id as text. It came from text, so nothing is ever lost.
    pub(super) fn to_text(&self) -> String {
        String::from_utf8_lossy(self.as_bytes()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_any_length_comes_back_as_it_was() {
        for length in [1, SHORT - 1, SHORT, SHORT + 1, 128] {
            let text = "é".repeat(length / 2) + if length % 2 == 1 { "x" } else { "" };
            let id = Id::new(&text);
            assert_eq!(id.to_text(), text);
            assert!(id.is(&text));
            assert!(!id.is("other"));
            assert_eq!(matches!(id, Id::Short { .. }), length <= SHORT);
        }
    }

    #[test]
    fn an_id_is_five_words() {
        assert_eq!(size_of::<Id>(), 40);
    }
}
