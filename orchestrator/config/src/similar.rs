//! "Did you mean": the most similar valid name.

/// A likely intended name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NearestName<'c> {
    pub(crate) name: &'c str,
    /// True if no other candidate is similar enough.
    pub(crate) is_only: bool,
}

/// The candidate most similar to `text`, if it is similar enough.
///
/// The limit is one edit for every three characters, and at least one; a higher limit would suggest
/// words that are merely short. Ties are resolved by the order of candidates.
pub(crate) fn nearest<'c>(
    text: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<NearestName<'c>> {
    let allowed = (text.chars().count() / 3).max(1);
    let near: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|candidate| (distance(text, candidate), candidate))
        .filter(|(edits, _)| *edits <= allowed)
        .collect();
    let (_, name) = near.iter().min_by_key(|(edits, _)| *edits)?;
    Some(NearestName {
        name,
        is_only: near.len() == 1,
    })
}

/// The name most similar to `text`, if it is similar enough.
#[must_use]
pub fn nearest_name<'c>(text: &str, names: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    nearest(text, names).map(|nearest| nearest.name)
}

/// Longest text to compare, in characters. Longer names are hardly mistyped, and the cost grows
/// with the product of the lengths.
const MAX_COMPARED_CHARS: usize = 128;

/// Minimum number of insertions, deletions, replacements and swaps of adjacent characters that turn
/// `left` into `right`, ignoring case.
fn distance(left: &str, right: &str) -> usize {
    let fold = |text: &str| -> String {
        let compared = text.chars().take(MAX_COMPARED_CHARS);
        compared.flat_map(char::to_lowercase).collect()
    };
    strsim::osa_distance(&fold(left), &fold(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits_and_swaps_and_ignores_case() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("tolos", "tools"), 1);
        assert_eq!(distance("MODELREF", "modelRef"), 0);
    }

    #[test]
    fn suggests_only_plausible_names() {
        let fields = ["modelConfig", "prompt", "tools"];
        let name = |text, candidates: &[&'static str]| {
            nearest(text, candidates.iter().copied()).map(|found| (found.name, found.is_only))
        };
        assert_eq!(name("promt", &fields), Some(("prompt", true)));
        assert_eq!(name("tolos", &fields), Some(("tools", true)));
        assert_eq!(name("temperature", &fields), None);
        assert_eq!(name("x", &["yz"]), None);
        assert_eq!(name("tol", &["tool", "to"]), Some(("tool", false)));
    }
}
