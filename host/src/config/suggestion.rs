//! Suggestions for unknown names.

/// The candidate with the fewest edits, unless they are more than half of the name.
pub(super) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.into_iter().map(|candidate| (edits(name, candidate), candidate));
    let (edits, candidate) = scored.min_by_key(|(edits, _)| *edits)?;
    (edits * 2 <= name.chars().count()).then_some(candidate)
}

/// The Levenshtein distance, row by row.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (at, left) in (1..).zip(from.chars()) {
        // `diagonal` is the row above, one to the left; `before` is this row, one to the left.
        let (mut diagonal, mut before) = (at - 1, at);
        for (cell, right) in row.iter_mut().skip(1).zip(to.chars()) {
            let cost = (diagonal + usize::from(left != right)).min(*cell + 1).min(before + 1);
            (diagonal, before) = (*cell, cost);
            *cell = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = at;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("", ""), 0);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("intervall", "interval"), 1);
    }

    #[test]
    fn nearest_is_found_within_half_the_name() {
        let names = ["interval", "tolerance", "listen"];
        assert_eq!(nearest("intervall", names), Some("interval"));
        assert_eq!(nearest("lisen", names), Some("listen"));
        assert_eq!(nearest("zzz", names), None);
        assert_eq!(nearest("", names), None);
    }
}
