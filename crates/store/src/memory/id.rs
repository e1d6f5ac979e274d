//! An id in memory. A short one is stored inline, so that a heartbeat does not follow a pointer for each id into uncached
//! memory.

/// The most bytes stored inline. A UUID takes 36; with tag and length an id takes 40 bytes.
const SHORT: usize = 38;

/// A checked id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Id {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<str>),
}

impl Id {
    pub(super) fn new(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            Some(inline) => {
                inline.copy_from_slice(text.as_bytes());
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

    /// The id as text. The bytes came from text, so the conversion is lossless.
    pub(super) fn to_text(&self) -> String {
        String::from_utf8_lossy(self.as_bytes()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_any_length_are_preserved() {
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
    fn id_is_forty_bytes() {
        assert_eq!(size_of::<Id>(), 40);
    }
}
