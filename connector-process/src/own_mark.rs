//! Marker by which goondan recognizes its own texts when a code host sends them back.

/// Invisible marker in every text that goondan writes on GitHub or GitLab, so that its own texts cause no
/// event.
pub(crate) const OWN_MARK: &str = "<!-- goondan -->";

/// Adds the marker to a text.
pub(crate) fn marked(body: &str) -> String {
    if body.contains(OWN_MARK) {
        body.to_owned()
    } else {
        format!("{body}\n\n{OWN_MARK}")
    }
}
