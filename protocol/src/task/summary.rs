//! Titles of changes, from the summaries that agents write.

/// Longest title of a commit or a pull request, in characters.
const TITLE_CHARS_MAX: usize = 120;

/// Title and text of a change: the summary's heading or first line, and the rest. The heading of a
/// summary that goondan generated is the same for all changes, so that the task's title replaces it.
#[must_use]
pub fn title_and_text(summary: &str, task_title: &str) -> (String, String) {
    let summary = summary.trim();
    let (first, rest) = summary.split_once('\n').unwrap_or((summary, ""));
    let heading = first.trim_start_matches('#').trim();
    let is_title = !heading.is_empty() && heading != "What changed";
    let (title, text) = match is_title && heading.chars().count() <= TITLE_CHARS_MAX {
        true => (heading, rest.trim()),
        false => (task_title, summary),
    };
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = title.chars().take(TITLE_CHARS_MAX).collect();
    (title, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repo_3_summary_becomes_title_and_text_of_a_pull_request() {
        let text = |summary: &str| title_and_text(summary, "Fix  the\nlogin");
        let pair = |title: &str, text: &str| (title.to_owned(), text.to_owned());
        assert_eq!(
            text("# Check the name\n\nIt was never checked.\n"),
            pair("Check the name", "It was never checked.")
        );
        assert_eq!(text("Mended\n"), pair("Mended", ""));
        let generated = "# What changed\n\n- modified `a`";
        assert_eq!(text(generated), pair("Fix the login", generated));
        let long = "word ".repeat(40);
        assert_eq!(text(&long), pair("Fix the login", long.trim()));
        assert_eq!(text(""), pair("Fix the login", ""));
    }
}
