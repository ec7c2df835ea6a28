//! Gathers problems while a project is read, so that all of them are told at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::codes;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::kind::Kind;
use crate::limits::{MAX_DIAGNOSTICS, MAX_MESSAGE_CHARS, MAX_SOURCE_LINE_CHARS};
pub(crate) use crate::place::{FileId, Place};
use crate::shape::Shape;
use crate::similar::Nearest;

/// One thing that is wrong.
#[derive(Debug)]
pub(crate) struct Problem {
    severity: Severity,
    code: &'static str,
    place: Place,
    message: String,
    suggestion: Option<String>,
    fix: Option<Fix>,
}

/// How a problem is mended without a person's judgement.
#[derive(Debug)]
enum Fix {
    /// Write `to` where `from` stands.
    Replace { from: String, to: String },
    /// Put what stands there in quotes.
    Quote,
}

impl Fix {
    /// What is to stand in place of `token`. `None` if that is not what was expected there, as behind
    /// an alias: then a person has to look.
    fn of(&self, token: &str) -> Option<String> {
        match self {
            Self::Replace { from, to } => ["", "\"", "'"]
                .into_iter()
                .find(|quote| token == format!("{quote}{from}{quote}"))
                .map(|quote| format!("{quote}{to}{quote}")),
            Self::Quote => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-._:".contains(c);
                (!token.is_empty() && token.chars().all(is_plain)).then(|| format!("\"{token}\""))
            }
        }
    }
}

impl Problem {
    pub(crate) fn new(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            place,
            message: message.into(),
            suggestion: None,
            fix: None,
        }
    }

    /// Something that may be meant but hardly is. It keeps no project from running.
    pub(crate) fn warning(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::new(code, place, message)
        }
    }

    /// Something that is as good as what is written today, and is told once.
    pub(crate) fn note(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Note,
            ..Self::new(code, place, message)
        }
    }

    /// Adds what to do about it.
    pub(crate) fn help(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Adds what to do about it, if anything is known.
    pub(crate) fn help_if(mut self, suggestion: Option<String>) -> Self {
        self.suggestion = suggestion.or(self.suggestion);
        self
    }

    /// Adds "did you mean" if there is a candidate.
    pub(crate) fn did_you_mean(self, found: Option<Nearest<'_>>) -> Self {
        self.help_if(found.map(|found| format!("did you mean `{}`?", found.name)))
    }

    /// Adds "did you mean" if there is a candidate for a misspelt word, and that writing it mends the
    /// problem if there is only one.
    pub(crate) fn rename(self, written: &str, found: Option<Nearest<'_>>) -> Self {
        let problem = self.did_you_mean(found);
        match found {
            Some(found) if found.is_only => problem.replace(written, found.name),
            Some(_) | None => problem,
        }
    }

    /// Adds that writing `to` where `from` stands mends the problem.
    pub(crate) fn replace(mut self, from: &str, to: &str) -> Self {
        self.fix = Some(Fix::Replace {
            from: from.to_owned(),
            to: to.to_owned(),
        });
        self
    }

    /// Adds that putting the value in quotes mends the problem.
    pub(crate) fn quote(mut self) -> Self {
        self.fix = Some(Fix::Quote);
        self
    }
}

/// A file that was read, kept to show its lines.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    text: String,
    /// Lines that may hold a secret and are never shown (`SEC-2`).
    hidden_lines: BTreeSet<usize>,
}

/// What readers need to know of all that a project may hold, and do not know themselves.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    /// The kinds there are, in the order in which people are told of them.
    pub(crate) kinds: fn() -> Vec<Kind>,
    /// Says what to do about a field that a mapping of this shape does not have, within the `spec` of a
    /// kind.
    pub(crate) advise: fn(&'static Shape, Option<Kind>, &str) -> Option<String>,
}

/// Files that were read and problems that were found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    vocabulary: Option<&'static Vocabulary>,
    sources: Vec<Source>,
    problems: Vec<Problem>,
    partial: bool,
}

impl Report {
    /// An empty one, for readers of documents.
    pub(crate) fn of(vocabulary: &'static Vocabulary) -> Self {
        Self {
            vocabulary: Some(vocabulary),
            ..Self::default()
        }
    }

    /// The kinds of resources there are.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.vocabulary.map(|it| (it.kinds)()).unwrap_or_default()
    }

    /// The kind of exactly this name.
    pub(crate) fn kind(&self, name: &str) -> Option<Kind> {
        let mut kinds = self.kinds().into_iter();
        kinds.find(|kind| kind.name() == name)
    }

    /// What to do about a field that a mapping of this shape does not have.
    pub(crate) fn advise(
        &self,
        shape: &'static Shape,
        outer: Option<Kind>,
        key: &str,
    ) -> Option<String> {
        self.vocabulary
            .and_then(|it| (it.advise)(shape, outer, key))
    }

    /// Registers a file by its path relative to the Project Root. `text` may be empty if the file
    /// could not be read.
    pub(crate) fn add_file(&mut self, path: &Path, text: impl Into<String>) -> FileId {
        self.sources.push(Source {
            path: path.to_path_buf(),
            text: text.into(),
            hidden_lines: BTreeSet::new(),
        });
        FileId(self.sources.len() - 1)
    }

    pub(crate) fn add(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Never shows this line of this file.
    pub(crate) fn hide_line(&mut self, file: FileId, line: usize) {
        if let Some(source) = self.sources.get_mut(file.0) {
            source.hidden_lines.insert(line);
        }
    }

    /// Notes that resources are missing because they could not be read, so that a reference to one
    /// of them is not reported as a second problem.
    pub(crate) fn set_partial(&mut self) {
        self.partial = true;
    }

    /// Whether some resources could not be read at all.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial
    }

    /// Whether anything keeps the project from running.
    pub(crate) fn has_errors(&self) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|problem| problem.severity == Severity::Error)
    }

    /// The file of a place, relative to the Project Root.
    pub(crate) fn path_of(&self, place: Place) -> &Path {
        let source = self.sources.get(place.file.0);
        source.map_or(Path::new(""), |source| &source.path)
    }

    /// `file:line:column`, as shown in messages that name a second place.
    pub(crate) fn locate(&self, place: Place) -> String {
        let path = self.sources.get(place.file.0).map(|source| &source.path);
        let path = path.map_or_else(String::new, |path| path.display().to_string());
        format!("{path}:{}:{}", place.line, place.column)
    }

    /// What was found, in the order a reader meets it: errors, and warnings.
    pub(crate) fn finish(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let mut found: BTreeMap<_, Diagnostic> = BTreeMap::new();
        for problem in self.problems {
            let Place {
                file,
                line,
                column,
                len,
            } = problem.place;
            let Some(source) = self.sources.get(file.0) else {
                continue;
            };
            // The same file may have been read twice (a script shared by two models): one problem
            // is one problem. The longer span comes first when two start at the same place.
            let key = (
                source.path.clone(),
                line,
                column,
                Reverse(len),
                problem.code,
                problem.message.clone(),
            );
            found.entry(key).or_insert_with(|| Diagnostic {
                severity: problem.severity,
                code: problem.code,
                message: shorten(&problem.message, MAX_MESSAGE_CHARS),
                file: source.path.clone(),
                line,
                column,
                source_line: source.line(line, column),
                span_len: source.span_len(line, column, len),
                suggestion: problem
                    .suggestion
                    .map(|text| shorten(&text, MAX_MESSAGE_CHARS)),
                fix: problem
                    .fix
                    .and_then(|fix| fix.of(&source.token(line, column, len)?)),
            });
        }
        let (errors, warnings): (Vec<_>, Vec<_>) = found
            .into_values()
            .partition(|diagnostic| diagnostic.severity == Severity::Error);
        (cut(errors), cut(warnings))
    }

    /// The errors that were found; there must be some.
    pub(crate) fn into_diagnostics(self) -> Diagnostics {
        Diagnostics::new(self.finish().0)
    }
}

/// Keeps the first problems and counts the rest.
fn cut(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let hidden = diagnostics.len().saturating_sub(MAX_DIAGNOSTICS);
    diagnostics.truncate(MAX_DIAGNOSTICS);
    if let Some(last) = diagnostics.last().filter(|_| hidden > 0) {
        diagnostics.push(Diagnostic {
            code: codes::TOO_MANY_PROBLEMS,
            message: format!("{hidden} further problems are not shown"),
            source_line: None,
            suggestion: Some("solve those above and load again".into()),
            fix: None,
            ..last.clone()
        });
    }
    diagnostics
}

impl Source {
    fn text_of_line(&self, line: usize) -> Option<&str> {
        let text = self.text.trim_start_matches('\u{feff}');
        text.lines().nth(line.checked_sub(1)?)
    }

    /// The line to show: cut to its limit, and only if what is meant is still in it.
    fn line(&self, line: usize, column: usize) -> Option<String> {
        if self.hidden_lines.contains(&line) || column > MAX_SOURCE_LINE_CHARS {
            return None;
        }
        let text = self.text_of_line(line)?;
        Some(shorten(text, MAX_SOURCE_LINE_CHARS))
    }

    /// What a span holds, if it is within one line.
    fn token(&self, line: usize, column: usize, len: usize) -> Option<String> {
        let rest = self
            .text_of_line(line)?
            .chars()
            .skip(column.checked_sub(1)?);
        let token: String = rest.take(len).collect();
        (token.chars().count() == len).then_some(token)
    }

    /// A span's length within its first line, at least 1.
    fn span_len(&self, line: usize, column: usize, len: usize) -> usize {
        let line_len = self
            .text_of_line(line)
            .map_or(0, |text| text.chars().count());
        let rest = (line_len + 1).saturating_sub(column);
        len.min(rest).max(1)
    }
}

/// The text, cut to `max` characters. What a file holds may be of any length; what is told may not.
fn shorten(text: &str, max: usize) -> String {
    let mut shown: String = text.chars().take(max).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
