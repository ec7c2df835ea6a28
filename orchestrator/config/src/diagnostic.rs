//! Problems of a project, for the person who fixes them.

use std::fmt;
use std::path::PathBuf;

use unicode_width::UnicodeWidthChar;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Error,
    /// The project runs, but probably not as intended.
    Warning,
    /// The project runs as intended, but uses an older form.
    Note,
}

impl Severity {
    /// `error`, `warning` or `note`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A problem in a project's files, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Stable code, one of [`crate::codes`].
    pub code: &'static str,
    /// The problem and the expected form: a fragment in lower case, without a full stop.
    pub message: String,
    /// The file, relative to the Project Root.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The line's text. `None` if there is none, or if it may contain a secret (`SEC-2`).
    pub source_line: Option<String>,
    /// Length of the affected text from `column` on, in characters; at least 1.
    pub span_len: usize,
    pub suggestion: Option<String>,
    /// Replacement for the `span_len` characters at `column` that fixes the problem without a
    /// person's judgment; applied by [`crate::autofix()`].
    pub fix: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gutter = self.line.to_string().len();
        let severity = self.severity.as_str();
        writeln!(f, "{severity}[{}]: {}", self.code, Printable(&self.message))?;
        write!(
            f,
            "{:gutter$}--> {}:{}:{}",
            "",
            Printable(&self.file.to_string_lossy()),
            self.line,
            self.column
        )?;
        if let Some(source_line) = &self.source_line {
            let before = source_line.chars().take(self.column.saturating_sub(1));
            let meant = source_line
                .chars()
                .skip(self.column.saturating_sub(1))
                .take(self.span_len);
            let marks: usize = meant.map(columns).sum();
            write!(f, "\n{:gutter$} |", "")?;
            write!(f, "\n{} | {}", self.line, Printable(source_line))?;
            write!(f, "\n{:gutter$} | ", "")?;
            for c in before {
                // Tabs are repeated, so that the marker lines up with the text.
                if c == '\t' {
                    write!(f, "\t")?;
                } else {
                    write!(f, "{:1$}", "", columns(c))?;
                }
            }
            write!(f, "{}", "^".repeat(marks.max(1)))?;
        }
        if let Some(suggestion) = &self.suggestion {
            write!(f, "\n{:gutter$} = help: {}", "", Printable(suggestion))?;
        }
        Ok(())
    }
}

/// Width of a character in a terminal, as [`Printable`] shows it.
fn columns(c: char) -> usize {
    match c.width() {
        Some(width) => width,
        None if c == '\t' => 1,
        None => c.escape_default().count(),
    }
}

/// Displays text from a project's files without terminal control sequences.
struct Printable<'t>(&'t str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if c.is_control() && c != '\t' && c != '\n' {
                write!(f, "{}", c.escape_default())
            } else {
                write!(f, "{c}")
            }
        })
    }
}

/// All errors of a project, sorted by file and line. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Creates the list, in the given order.
    pub(crate) fn new(diagnostics: Vec<Diagnostic>) -> Self {
        debug_assert!(!diagnostics.is_empty(), "a failed load says why");
        Self(diagnostics)
    }

    /// The problems, sorted by file, line and column.
    #[must_use]
    pub fn as_slice(&self) -> &[Diagnostic] {
        &self.0
    }
}

impl AsRef<[Diagnostic]> for Diagnostics {
    fn as_ref(&self) -> &[Diagnostic] {
        &self.0
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                write!(f, "\n\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnostic(source_line: &str, column: usize, span_len: usize) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code: "E_CONFIG_TEST",
            message: "something is wrong".into(),
            file: "goondan.yaml".into(),
            line: 12,
            column,
            source_line: Some(source_line.into()),
            span_len,
            suggestion: Some("do it right".into()),
            fix: None,
        }
    }

    #[test]
    fn diagnostic_underlines_the_affected_text() {
        assert_eq!(
            diagnostic("  promt: x", 3, 5).to_string(),
            "error[E_CONFIG_TEST]: something is wrong\n  \
             --> goondan.yaml:12:3\n   \
             |\n\
             12 |   promt: x\n   \
             |   ^^^^^\n   \
             = help: do it right"
        );
    }

    #[test]
    fn wide_characters_and_tabs_keep_the_marks_below_the_text() {
        let rendered = diagnostic("\t가나: 다라", 6, 2).to_string();
        assert!(
            rendered.contains("12 | \t가나: 다라\n   | \t      ^^^^\n"),
            "{rendered}"
        );
    }

    #[test]
    fn a_file_cannot_command_the_terminal() {
        let mut hostile = diagnostic("a: \u{1b}[2J x", 4, 1);
        hostile.message = "\u{1b}]0;owned\u{7}".into();
        let rendered = hostile.to_string();
        assert!(!rendered.contains('\u{1b}'), "{rendered:?}");
        assert!(!rendered.contains('\u{7}'), "{rendered:?}");
    }
}
