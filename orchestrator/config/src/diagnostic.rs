//! What is wrong with a project, told to the person who can put it right.

use std::fmt;
use std::path::PathBuf;

use unicode_width::UnicodeWidthChar;

/// How much a problem weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The project cannot run.
    Error,
    /// The project runs, but hardly as it was meant.
    Warning,
    /// The project runs as it was meant; the same is written otherwise today.
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

/// One problem of a project's files, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How much it weighs.
    pub severity: Severity,
    /// Stable code, one of [`crate::codes`].
    pub code: &'static str,
    /// What is wrong and what would be right: a fragment in lower case, without a full stop.
    pub message: String,
    /// The file, relative to the Project Root.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The line's text. `None` if there is none, or if it may hold a secret (`SEC-2`).
    pub source_line: Option<String>,
    /// How many characters from `column` on are meant; at least 1.
    pub span_len: usize,
    /// What to do about it.
    pub suggestion: Option<String>,
    /// What to write in place of the `span_len` characters at `column`, where that mends the problem
    /// without a person's judgement; [`crate::autofix()`] does it.
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
                // A tab is repeated, so that it is as wide below as it is above.
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

/// How many columns of a terminal a character takes as [`Printable`] shows it.
fn columns(c: char) -> usize {
    match c.width() {
        Some(width) => width,
        None if c == '\t' => 1,
        None => c.escape_default().count(),
    }
}

/// Shows text from a project's files without letting it command the reader's terminal.
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

/// Every error of a project, ordered by file and line. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Gathers problems in the order given.
    pub(crate) fn new(diagnostics: Vec<Diagnostic>) -> Self {
        debug_assert!(!diagnostics.is_empty(), "a failed load says why");
        Self(diagnostics)
    }

    /// The problems, ordered by file, line and column.
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
    fn underlines_what_is_meant() {
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
