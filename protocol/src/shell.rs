//! Quotes texts for commands that users paste into a shell.

/// Longest text that a hint quotes as a shell argument, in characters.
const QUOTE_MAX_CHARS: usize = 200;

/// Quotes a text as one argument of a POSIX shell, so that a hint can be pasted; `None` if it is
/// too long to quote.
#[must_use]
pub fn shell_quoted(text: &str) -> Option<String> {
    if text.chars().nth(QUOTE_MAX_CHARS).is_some() || text.chars().any(char::is_control) {
        return None;
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        Some(text.to_owned())
    } else {
        Some(format!("'{}'", text.replace('\'', r"'\''")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_text_is_quoted_as_one_shell_argument() {
        assert_eq!(shell_quoted("main").as_deref(), Some("main"));
        assert_eq!(shell_quoted("it's $x").as_deref(), Some(r"'it'\''s $x'"));
        assert_eq!(shell_quoted("").as_deref(), Some("''"));
        assert_eq!(shell_quoted("-x").as_deref(), Some("'-x'"));
        assert_eq!(shell_quoted("a\nb"), None);
        assert_eq!(shell_quoted(&"x".repeat(QUOTE_MAX_CHARS + 1)), None);
    }
}
