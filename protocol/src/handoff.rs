//! HANDOFF: how one agent tells another what it leaves it with (`PROP-6`).
//!
//! A handoff is text in a message, for models and people to read and write; nothing in it is believed where
//! it can be looked up. [`Handoff`] is what it says, written by its [`Display`](fmt::Display) in one form and
//! read back ([`FromStr`](std::str::FromStr)) from what models make of that form.

use std::fmt;
use std::ops::Deref;

mod read;
#[cfg(test)]
mod tests;

pub use read::HandoffError;

/// The line that a handoff begins with.
pub const HANDOFF_MARK: &str = "HANDOFF";

/// Bytes of a text that a handoff is looked for in, at most.
pub const HANDOFF_TEXT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a paragraph of a handoff at most.
pub const HANDOFF_PARAGRAPH_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a line or path of a handoff at most.
pub const HANDOFF_LINE_BYTES_MAX: usize = 4 * 1024;

/// Lines of one list of a handoff at most.
pub const HANDOFF_LIST_MAX: usize = 1000;

const _: () = assert!(HANDOFF_LINE_BYTES_MAX <= HANDOFF_PARAGRAPH_BYTES_MAX);
const _: () = assert!(HANDOFF_PARAGRAPH_BYTES_MAX < HANDOFF_TEXT_BYTES_MAX);

/// What a worker hands in, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handoff {
    /// What was known when the work began.
    pub context: Paragraph,
    /// What was to be done.
    pub goal: Paragraph,
    /// When it counts as done.
    pub dod: Paragraph,
    /// The directory that the worker worked in.
    pub sandbox_work_dir: HandoffPath,
    /// The proposal's record. Its last name is `proposal.json`.
    pub proposal_json: HandoffPath,
    /// The files that the proposal changes.
    pub changed_files: List<ChangedFile>,
    /// What was run, and how it went.
    pub tests: List<Line>,
    /// What is to happen now.
    pub next: List<Line>,
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
    /// All of them, in the order in which they are written.
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

    /// Its name in a handoff.
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

/// Why a text cannot stand in a handoff.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandoffProblem {
    /// It is too long.
    #[error("it has more than {most} bytes")]
    TooLong {
        /// How many it may have.
        most: usize,
    },
    /// A list has too many lines.
    #[error("it has more than {HANDOFF_LIST_MAX} lines")]
    TooMany,
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It holds a control character; a path is quoted as git quotes names then.
    #[error("it holds a control character")]
    Control,
    /// The path may lead out of where it belongs.
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

/// Text of several lines at most, without control characters besides newline and tab; lines do not end with
/// spaces, nor does the text begin or end with any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paragraph(String);

impl Paragraph {
    /// Brings a text into this form.
    ///
    /// # Errors
    ///
    /// [`HandoffProblem::TooLong`] past [`HANDOFF_PARAGRAPH_BYTES_MAX`], [`HandoffProblem::Control`].
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
pub struct Line(String);

impl Line {
    /// Checks a line.
    ///
    /// # Errors
    ///
    /// [`HandoffProblem::TooLong`] past [`HANDOFF_LINE_BYTES_MAX`], [`HandoffProblem::Empty`],
    /// [`HandoffProblem::Control`].
    pub fn new(text: &str) -> Result<Self, HandoffProblem> {
        let text = text.trim();
        fits(text, HANDOFF_LINE_BYTES_MAX)?;
        if text.is_empty() {
            return Err(HandoffProblem::Empty);
        }
        // A tab counts as space, and is none of the control characters that hide something.
        if text.contains(|character: char| character.is_control() && character != '\t') {
            return Err(HandoffProblem::Control);
        }
        Ok(Self(text.to_owned()))
    }
}

/// A path of the machine, absolute or below the Project Root, in one line and without `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffPath(String);

impl HandoffPath {
    /// Checks a path.
    ///
    /// # Errors
    ///
    /// As [`Line::new`], and [`HandoffProblem::Path`].
    pub fn new(text: &str) -> Result<Self, HandoffProblem> {
        let Line(text) = Line::new(text)?;
        if text.contains('\t') {
            return Err(HandoffProblem::Control);
        }
        let below = text.strip_prefix('/').unwrap_or(&text);
        names_are_safe(below.strip_suffix('/').unwrap_or(below))?;
        Ok(Self(text))
    }
}

/// A file that a proposal changes: a path below the Project Root as `proposal.json` writes it, which is
/// quoted as git quotes names where it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile(String);

impl ChangedFile {
    /// Checks a path.
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
    /// Checks how many there are.
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

text!(Paragraph, Line, HandoffPath, ChangedFile);

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

/// All lines but the first are indented, so that none of them is taken for a field.
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

fn write_lines(f: &mut fmt::Formatter<'_>, lines: &[Line]) -> fmt::Result {
    lines
        .iter()
        .try_for_each(|line| write!(f, "\n- {}", &**line))
}

/// A path that begins with a backtick is put between more of them, as Markdown has it: readers take away
/// those that stand around a path.
fn write_path(f: &mut fmt::Formatter<'_>, before: &str, path: &str) -> fmt::Result {
    if !path.starts_with('`') {
        return write!(f, "{before}{path}");
    }
    let longest = path.split(|character| character != '`').map(str::len).max();
    let fence = "`".repeat(longest.unwrap_or_default() + 1);
    write!(f, "{before}{fence} {path} {fence}")
}
