//! Collects the problems of a project, so that all are reported together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::codes;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::kind::ResourceKind;
use crate::limits::{MAX_DIAGNOSTICS, MAX_MESSAGE_CHARS, MAX_SOURCE_LINE_CHARS};
pub(crate) use crate::place::{FileId, SourceLocation};
use crate::shape::Shape;
use crate::similar::NearestName;

#[derive(Debug)]
pub(crate) struct Problem {
    severity: Severity,
    code: &'static str,
    place: SourceLocation,
    message: String,
    suggestion: Option<String>,
    fix: Option<Fix>,
}

/// Automatic fix of a problem.
#[derive(Debug)]
enum Fix {
    /// Replace `from` by `to`.
    Replace {
        from: String,
        to: String,
    },
    Quote,
}

impl Fix {
    /// Replacement for `token`. `None` if the token is unexpected, as after an alias: a person must
    /// then decide.
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
    pub(crate) fn new(
        code: &'static str,
        place: SourceLocation,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            code,
            place,
            message: message.into(),
            suggestion: None,
            fix: None,
        }
    }

    /// A warning: a valid but probably unintended form. It does not prevent the project from
    /// running.
    pub(crate) fn warning(
        code: &'static str,
        place: SourceLocation,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::new(code, place, message)
        }
    }

    /// A note: a valid older form, reported once.
    pub(crate) fn note(
        code: &'static str,
        place: SourceLocation,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Note,
            ..Self::new(code, place, message)
        }
    }

    pub(crate) fn help(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Adds a suggestion, if there is one.
    pub(crate) fn help_if(mut self, suggestion: Option<String>) -> Self {
        self.suggestion = suggestion.or(self.suggestion);
        self
    }

    /// Adds "did you mean" if there is a candidate.
    pub(crate) fn did_you_mean(self, found: Option<NearestName<'_>>) -> Self {
        self.help_if(found.map(|found| format!("did you mean `{}`?", found.name)))
    }

    /// Adds "did you mean" if there is a candidate for a misspelled word, and an automatic fix if
    /// it is the only one.
    pub(crate) fn rename(self, written: &str, found: Option<NearestName<'_>>) -> Self {
        let problem = self.did_you_mean(found);
        match found {
            Some(found) if found.is_only => problem.replace(written, found.name),
            Some(_) | None => problem,
        }
    }

    /// Adds an automatic fix that replaces `from` by `to`.
    pub(crate) fn replace(mut self, from: &str, to: &str) -> Self {
        self.fix = Some(Fix::Replace {
            from: from.to_owned(),
            to: to.to_owned(),
        });
        self
    }

    /// Adds an automatic fix that quotes the value.
    pub(crate) fn quote(mut self) -> Self {
        self.fix = Some(Fix::Quote);
        self
    }
}

/// A file that was read, for showing its lines.
#[derive(Debug)]
struct SourceFile {
    path: PathBuf,
    text: String,
    /// Lines that may contain a secret and are never shown (`SEC-2`).
    hidden_lines: BTreeSet<usize>,
}

/// Information about all kinds that readers do not have themselves.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    /// The kinds, in the order shown to people.
    pub(crate) kinds: fn() -> Vec<ResourceKind>,
    /// Returns a suggestion for an unknown field of a mapping with this shape, within the `spec` of
    /// a kind.
    pub(crate) advise: fn(&'static Shape, Option<ResourceKind>, &str) -> Option<String>,
}

/// Files that were read and problems that were found.
#[derive(Debug, Default)]
pub(crate) struct ProblemReport {
    vocabulary: Option<&'static Vocabulary>,
    sources: Vec<SourceFile>,
    problems: Vec<Problem>,
    /// Places of all older forms. Notes report only the first place of each kind.
    older_places: Vec<SourceLocation>,
    partial: bool,
}

impl ProblemReport {
    /// Creates an empty report.
    pub(crate) fn of(vocabulary: &'static Vocabulary) -> Self {
        Self {
            vocabulary: Some(vocabulary),
            ..Self::default()
        }
    }

    pub(crate) fn kinds(&self) -> Vec<ResourceKind> {
        self.vocabulary.map(|it| (it.kinds)()).unwrap_or_default()
    }

    /// The kind with exactly this name.
    pub(crate) fn kind(&self, name: &str) -> Option<ResourceKind> {
        let mut kinds = self.kinds().into_iter();
        kinds.find(|kind| kind.name() == name)
    }

    /// Suggestion for an unknown field of a mapping with this shape.
    pub(crate) fn advise(
        &self,
        shape: &'static Shape,
        outer: Option<ResourceKind>,
        key: &str,
    ) -> Option<String> {
        self.vocabulary
            .and_then(|it| (it.advise)(shape, outer, key))
    }

    /// Registers a file by its path relative to the Project Root. `text` may be empty if the file
    /// could not be read.
    pub(crate) fn add_file(&mut self, path: &Path, text: impl Into<String>) -> FileId {
        self.sources.push(SourceFile {
            path: path.to_path_buf(),
            text: text.into(),
            hidden_lines: BTreeSet::new(),
        });
        FileId(self.sources.len() - 1)
    }

    pub(crate) fn add(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Keeps one of the problems that several Agents have at the same place, because they inherit
    /// its value.
    pub(crate) fn unify(&mut self, inherited: &BTreeSet<SourceLocation>) {
        let mut seen = BTreeSet::new();
        self.problems.retain(|problem| {
            let place = problem.place;
            !inherited.contains(&place)
                || seen.insert((problem.code, place, without_agents(&problem.message)))
        });
    }

    /// Records the place of an older form.
    pub(crate) fn add_older_place(&mut self, place: SourceLocation) {
        self.older_places.push(place);
    }

    /// The places of all older forms.
    pub(crate) fn older_places(&self) -> &[SourceLocation] {
        &self.older_places
    }

    /// Marks a line as secret, so that it is never shown.
    pub(crate) fn hide_line(&mut self, file: FileId, line: usize) {
        if let Some(source) = self.sources.get_mut(file.0) {
            source.hidden_lines.insert(line);
        }
    }

    /// Records that resources are missing because they could not be read, so that references to
    /// them are not reported as well.
    pub(crate) fn set_partial(&mut self) {
        self.partial = true;
    }

    /// True if some resources could not be read.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial
    }

    /// True if there are errors, which keep the project from running.
    pub(crate) fn has_errors(&self) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|problem| problem.severity == Severity::Error)
    }

    /// The file of a place, relative to the Project Root.
    pub(crate) fn path_of(&self, place: SourceLocation) -> &Path {
        let source = self.sources.get(place.file.0);
        source.map_or(Path::new(""), |source| &source.path)
    }

    /// Formats a place as `file:line:column`, for messages that name a second place.
    pub(crate) fn locate(&self, place: SourceLocation) -> String {
        let path = self.sources.get(place.file.0).map(|source| &source.path);
        let path = path.map_or_else(String::new, |path| path.display().to_string());
        format!("{path}:{}:{}", place.line, place.column)
    }

    /// The sorted problems: errors, and warnings.
    pub(crate) fn finish(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let mut found: BTreeMap<_, Diagnostic> = BTreeMap::new();
        for problem in self.problems {
            let SourceLocation {
                file,
                line,
                column,
                len,
            } = problem.place;
            let Some(source) = self.sources.get(file.0) else {
                continue;
            };
            // A file may be read twice, such as a script of two models, but each problem is
            // reported once. If two start at the same place, the longer span comes first.
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

    /// The errors; there must be at least one.
    pub(crate) fn into_diagnostics(self) -> Diagnostics {
        Diagnostics::new(self.finish().0)
    }
}

/// A message without the names of Agents.
fn without_agents(message: &str) -> String {
    let mut parts = message.split("Agent `");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("Agent");
        text.push_str(part.split_once('`').map_or(part, |(_, rest)| rest));
    }
    text
}

/// Limits the number of problems and counts the rest.
fn cut(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let hidden = diagnostics.len().saturating_sub(MAX_DIAGNOSTICS);
    diagnostics.truncate(MAX_DIAGNOSTICS);
    if let Some(last) = diagnostics.last().filter(|_| hidden > 0) {
        diagnostics.push(Diagnostic {
            code: codes::TOO_MANY_PROBLEMS,
            message: format!("{hidden} further problems are not shown"),
            source_line: None,
            suggestion: Some("fix the problems above and load again".into()),
            fix: None,
            ..last.clone()
        });
    }
    diagnostics
}

impl SourceFile {
    fn text_of_line(&self, line: usize) -> Option<&str> {
        let text = self.text.trim_start_matches('\u{feff}');
        text.lines().nth(line.checked_sub(1)?)
    }

    /// The line to show, truncated to its limit; `None` if the problem's place is not in it.
    fn line(&self, line: usize, column: usize) -> Option<String> {
        if self.hidden_lines.contains(&line) || column > MAX_SOURCE_LINE_CHARS {
            return None;
        }
        let text = self.text_of_line(line)?;
        Some(shorten(text, MAX_SOURCE_LINE_CHARS))
    }

    /// The text of a span, if it is within one line.
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

/// Truncates a text to `max` characters, because values in files may be arbitrarily long.
fn shorten(text: &str, max: usize) -> String {
    let mut shown: String = text.chars().take(max).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
