//! The mark by which goondan knows its own words when GitHub sends them back.

/// Stands in everything that goondan writes on GitHub, unseen, so that its own words are no event.
pub(super) const OWN_MARK: &str = "<!-- goondan -->";

/// The text with the mark.
pub(super) fn marked(body: &str) -> String {
    if body.contains(OWN_MARK) {
        body.to_owned()
    } else {
        format!("{body}\n\n{OWN_MARK}")
    }
}
