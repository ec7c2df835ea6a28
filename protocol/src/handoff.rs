//! HANDOFF: structured text by which one agent passes its work to another (`PROP-6`).
//!
//! A handoff is text in a message that models and people read and write. Facts in it that goondan
//! can check itself are not trusted. [`Handoff`] is its content. [`Display`](fmt::Display) writes
//! one canonical form, and [`FromStr`](std::str::FromStr) parses the variants of that form that
//! models write.

use std::fmt;
use std::ops::Deref;

mod read;
#[cfg(test)]
mod tests;

pub use read::HandoffError;

/// First line of a handoff.
pub const HANDOFF_MARK: &str = "HANDOFF";

/// Longest text that is searched for a handoff, in bytes.
pub const HANDOFF_TEXT_BYTES_MAX: usize = 1024 * 1024;

/// Longest paragraph of a handoff, in bytes.
pub const HANDOFF_PARAGRAPH_BYTES_MAX: usize = 16 * 1024;

/// Longest line or path of a handoff, in bytes.
pub const HANDOFF_LINE_BYTES_MAX: usize = 4 * 1024;

/// Largest number of lines in one list of a handoff.
pub const HANDOFF_LIST_MAX: usize = 1000;

const _: () = assert!(HANDOFF_LINE_BYTES_MAX <= HANDOFF_PARAGRAPH_BYTES_MAX);
const _: () = assert!(HANDOFF_PARAGRAPH_BYTES_MAX < HANDOFF_TEXT_BYTES_MAX);

/// A worker's result and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handoff {
    /// Background known when the work began.
    pub context: Paragraph,
    /// The goal.
    pub goal: Paragraph,
    /// The definition of done.
    pub dod: Paragraph,
    /// The worker's directory.
    pub sandbox_work_dir: HandoffPath,
    /// Path of the proposal's record. The file name is `proposal.json`.
    pub proposal_json: HandoffPath,
    /// The files that the proposal changes.
    pub changed_files: List<ChangedFile>,
    /// Executed tests and their results.
    pub tests: List<TextLine>,
    /// Next steps.
    pub next: List<TextLine>,
}

/// A field of a handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffField {
    /// `Context`.
    Context,
    /// `Goal`.
    Goal,
    /// `DoD`.
    Dod,
    /// `SandboxWorkDir`.
    SandboxWorkDir,
    /// `ProposalJson`.
    ProposalJson,
    /// `ChangedFiles`.
    ChangedFiles,
    /// `Tests`.
    Tests,
    /// `Next`.
    Next,
}

impl HandoffField {
    /// All fields, in the order in which they are written.
    pub const ALL: [Self; 8] = [
        Self::Context,
        Self::Goal,
        Self::Dod,
        Self::SandboxWorkDir,
        Self::ProposalJson,
        Self::ChangedFiles,
        Self::Tests,
        Self::Next,
    ];

    /// The name of the field in a handoff.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Context => "Context",
            Self::Goal => "Goal",
            Self::Dod => "DoD",
            Self::SandboxWorkDir => "SandboxWorkDir",
            Self::ProposalJson => "ProposalJson",
            Self::ChangedFiles => "ChangedFiles",
            Self::Tests => "Tests",
            Self::Next => "Next",
        }
    }
}

impl fmt::Display for HandoffField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reason why a text is not valid in a handoff.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandoffProblem {
    /// It is too long.
    #[error("it has more than {most} bytes")]
    TooLong {
        /// The limit.
        most: usize,
    },
    /// A list has too many lines.
    #[error("it has more than {HANDOFF_LIST_MAX} lines")]
    TooMany,
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It contains a control character; in a path, git's quoting must be used.
    #[error("it holds a control character")]
    Control,
    /// The path may escape its base directory.
    #[error("the path holds `..`, an empty name, or is absolute where it must not be")]
    Path,
    /// It is not the path of a proposal's record.
    #[error("it does not name a `proposal.json`")]
    NotProposalJson,
}

fn fits(text: &str, most: usize) -> Result<(), HandoffProblem> {
    if text.len() > most {
        return Err(HandoffProblem::TooLong { most });
    }
    Ok(())
}

/// Text of one or more lines, without control characters except newline and tab. Lines have no
/// trailing spaces, and the text has no leading or trailing white space.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paragraph(String);

impl Paragraph {
    /// Normalizes a text to this form.
    ///
    /// # Errors
    ///
    /// [`HandoffProblem::TooLong`] beyond [`HANDOFF_PARAGRAPH_BYTES_MAX`],
    /// [`HandoffProblem::Control`].
    pub fn new(text: &str) -> Result<Self, HandoffProblem> {
        fits(text, HANDOFF_PARAGRAPH_BYTES_MAX)?;
        let is_wrong =
            |character: char| character.is_control() && !matches!(character, '\n' | '\r' | '\t');
        if text.contains(is_wrong) {
            return Err(HandoffProblem::Control);
        }
        let lines: Vec<&str> = text.split('\n').map(str::trim_end).collect();
        let text = lines.join("\n");
        if text.contains('\r') {
            return Err(HandoffProblem::Control);
        }
        Ok(Self(text.trim().to_owned()))
    }
}

/// One line of text, trimmed, without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextLine(String);

impl TextLine {
    /// Validates a line.
    ///
    /// # Errors
    ///
    /// [`HandoffProblem::TooLong`] beyond [`HANDOFF_LINE_BYTES_MAX`], [`HandoffProblem::Empty`],
    /// [`HandoffProblem::Control`].
    pub fn new(text: &str) -> Result<Self, HandoffProblem> {
        let text = text.trim();
        fits(text, HANDOFF_LINE_BYTES_MAX)?;
        if text.is_empty() {
            return Err(HandoffProblem::Empty);
        }
        // A tab counts as a space, because it cannot hide text as other control characters can.
        if text.contains(|character: char| character.is_control() && character != '\t') {
            return Err(HandoffProblem::Control);
        }
        Ok(Self(text.to_owned()))
    }
}

/// A path on this machine, absolute or relative to the Project Root, on one line and without `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffPath(String);

impl HandoffPath {
    /// Validates a path.
    ///
    /// # Errors
    ///
    /// As [`TextLine::new`], and [`HandoffProblem::Path`].
    pub fn new(text: &str) -> Result<Self, HandoffProblem> {
        let TextLine(text) = TextLine::new(text)?;
        if text.contains('\t') {
            return Err(HandoffProblem::Control);
        }
        let below = text.strip_prefix('/').unwrap_or(&text);
        names_are_safe(below.strip_suffix('/').unwrap_or(below))?;
        Ok(Self(text))
    }
}

/// A file that the proposal changes: a path relative to the Project Root, quoted as in
/// `proposal.json` where git would quote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile(String);

impl ChangedFile {
    /// Validates a path.
    ///
    /// # Errors
    ///
    /// As [`HandoffPath::new`]; an absolute path is [`HandoffProblem::Path`].
    pub fn new(text: &str) -> Result<Self, HandoffProblem> {
        let HandoffPath(text) = HandoffPath::new(text)?;
        names_are_safe(text.trim_matches('"'))?;
        Ok(Self(text))
    }
}

fn names_are_safe(path: &str) -> Result<(), HandoffProblem> {
    let is_wrong = |name: &str| matches!(name, "" | "." | "..");
    if path.split('/').any(is_wrong) {
        return Err(HandoffProblem::Path);
    }
    Ok(())
}

/// Lines of a handoff, at most [`HANDOFF_LIST_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(Vec<T>);

impl<T> List<T> {
    /// Validates the number of lines.
    ///
    /// # Errors
    ///
    /// [`HandoffProblem::TooMany`].
    pub fn new(lines: Vec<T>) -> Result<Self, HandoffProblem> {
        if lines.len() > HANDOFF_LIST_MAX {
            return Err(HandoffProblem::TooMany);
        }
        Ok(Self(lines))
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

macro_rules! text {
    ($($name:ident),*) => {$(
        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }
    )*};
}

text!(Paragraph, TextLine, HandoffPath, ChangedFile);

impl fmt::Display for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HANDOFF_MARK)?;
        for field in HandoffField::ALL {
            write!(f, "\n{field}:")?;
            match field {
                HandoffField::Context => write_paragraph(f, &self.context)?,
                HandoffField::Goal => write_paragraph(f, &self.goal)?,
                HandoffField::Dod => write_paragraph(f, &self.dod)?,
                HandoffField::SandboxWorkDir => write_path(f, " ", &self.sandbox_work_dir)?,
                HandoffField::ProposalJson => write_path(f, " ", &self.proposal_json)?,
                HandoffField::ChangedFiles => {
                    for file in self.changed_files.iter() {
                        write_path(f, "\n- ", file)?;
                    }
                }
                HandoffField::Tests => write_lines(f, &self.tests)?,
                HandoffField::Next => write_lines(f, &self.next)?,
            }
        }
        Ok(())
    }
}

/// All lines but the first are indented, so that they are not parsed as fields.
fn write_paragraph(f: &mut fmt::Formatter<'_>, paragraph: &Paragraph) -> fmt::Result {
    for (number, line) in paragraph.split('\n').enumerate() {
        match (number, line) {
            (0, "") => {}
            (0, line) => write!(f, " {line}")?,
            (_, "") => f.write_str("\n")?,
            (_, line) => write!(f, "\n  {line}")?,
        }
    }
    Ok(())
}

fn write_lines(f: &mut fmt::Formatter<'_>, lines: &[TextLine]) -> fmt::Result {
    lines
        .iter()
        .try_for_each(|line| write!(f, "\n- {}", &**line))
}

/// A path that starts with a backtick or like a list item is enclosed in a longer run of backticks,
/// as in Markdown, because readers strip enclosing backticks and list markers.
fn write_path(f: &mut fmt::Formatter<'_>, before: &str, path: &str) -> fmt::Result {
    if !path.starts_with('`') && read::bullet(path).is_none() {
        return write!(f, "{before}{path}");
    }
    let longest = path.split(|character| character != '`').map(str::len).max();
    let fence = "`".repeat(longest.unwrap_or_default() + 1);
    write!(f, "{before}{fence} {path} {fence}")
}
