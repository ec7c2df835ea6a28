//! Fixes what needs no judgement: misspelt names of fields, kinds and words, and values that only lack
//! quotes. Everything else in a file stays as it is, byte for byte.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::diagnostic::Diagnostic;
use crate::limits::{MAX_FIXES, MAX_YAML_BYTES};
use crate::load::{self, Outside};
use crate::misplaced;
use crate::project_files::ProjectFiles;
use crate::report::Report;
use crate::syntax;
use crate::tree::{self, Node};

/// A file with what was fixed in it. Nothing has been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedFile {
    /// The file, relative to the Project Root.
    pub path: PathBuf,
    /// Its text as it is.
    pub before: String,
    /// Its text as it would be.
    pub after: String,
    /// What was fixed, in the order of their places.
    pub changes: Vec<Change>,
}

/// One thing that was fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The problem, with its place in the text as it was when it was found.
    pub problem: Diagnostic,
    /// What stands there now in place of the characters the problem names.
    pub replacement: String,
    /// The line as it is now. `None` if it may hold a secret (`SEC-2`).
    pub line_after: Option<String>,
}

/// See [`crate::autofix()`].
pub(crate) fn autofix(mut files: ProjectFiles, outside: Outside<'_>) -> Vec<FixedFile> {
    let mut fixed: Vec<FixedFile> = Vec::new();
    let mut refused: Vec<(PathBuf, usize, usize)> = Vec::new();
    let place = |problem: &Diagnostic| (problem.file.clone(), problem.line, problem.column);
    // Each round mends one problem: the next one's place may have moved.
    for _ in 0..MAX_FIXES {
        let next = find_problems(&files, outside)
            .into_iter()
            .find(|problem| problem.fix.is_some() && !refused.contains(&place(problem)));
        let Some(problem) = next else { break };
        if !try_fix(&problem, &mut files, outside, &mut fixed) {
            refused.push(place(&problem));
        }
    }
    for file in &mut fixed {
        file.changes
            .sort_by_key(|change| (change.problem.line, change.problem.column));
    }
    fixed.sort_by(|left, right| left.path.cmp(&right.path));
    fixed
}

fn find_problems(files: &ProjectFiles, outside: Outside<'_>) -> Vec<Diagnostic> {
    let (mut errors, warnings) = load::read(files, outside).report.finish();
    errors.extend(warnings);
    errors
}

/// Makes one fix; takes it back if it does not mend the problem, or changes anything beside it.
fn try_fix(
    problem: &Diagnostic,
    files: &mut ProjectFiles,
    outside: Outside<'_>,
    fixed: &mut Vec<FixedFile>,
) -> bool {
    let (Some(replacement), Ok(before)) = (&problem.fix, files.read(&problem.file, MAX_YAML_BYTES))
    else {
        return false;
    };
    let Some(after) = replace(&before, problem, replacement) else {
        return false;
    };
    // What an alias repeats may be right elsewhere as it is.
    if differences(&before, &after) != Some(1) {
        return false;
    }
    files.pretend(&problem.file, after.clone());
    let is_still_there = find_problems(files, outside).iter().any(|left| {
        (left.code, &left.file, left.line, left.column)
            == (problem.code, &problem.file, problem.line, problem.column)
    });
    if is_still_there {
        files.pretend(&problem.file, before);
        return false;
    }
    let line_after = problem
        .source_line
        .as_ref()
        .and_then(|_| line(&after, problem.line).map(str::to_owned));
    let change = Change {
        problem: problem.clone(),
        replacement: replacement.clone(),
        line_after,
    };
    match fixed.iter_mut().find(|file| file.path == problem.file) {
        Some(file) => {
            file.after = after;
            file.changes.push(change);
        }
        None => fixed.push(FixedFile {
            path: problem.file.clone(),
            before,
            after,
            changes: vec![change],
        }),
    }
    true
}

/// In how many places two YAML texts differ. `None` if one of them is no YAML.
fn differences(before: &str, after: &str) -> Option<usize> {
    let parse = |text: &str| {
        let text = syntax::with_yaml_line_ends(text);
        let mut report = Report::of(&misplaced::VOCABULARY);
        let file = report.add_file(Path::new(""), text.as_ref());
        let nodes = tree::parse(file, &text, &mut report)?;
        Some(nodes.iter().map(Node::to_json).collect::<Json>())
    };
    Some(difference(&parse(before)?, &parse(after)?))
}

/// In how many places two values differ. A field that was renamed is one.
fn difference(before: &Json, after: &Json) -> usize {
    match (before, after) {
        (Json::Array(before), Json::Array(after)) if before.len() == after.len() => {
            let pairs = before.iter().zip(after);
            pairs.map(|(before, after)| difference(before, after)).sum()
        }
        (Json::Object(before), Json::Object(after)) if before.len() == after.len() => {
            let renamed = before.keys().filter(|name| !after.contains_key(*name));
            let kept = before.iter().filter_map(|(name, value)| {
                let after = after.get(name)?;
                Some(difference(value, after))
            });
            renamed.count() + kept.sum::<usize>()
        }
        (before, after) => usize::from(before != after),
    }
}

/// The text with the characters that a problem names replaced.
fn replace(text: &str, problem: &Diagnostic, replacement: &str) -> Option<String> {
    let line_start = line_start(text, problem.line)?;
    let in_line = text.get(line_start..)?;
    let mut offsets = in_line
        .char_indices()
        .map(|(at, _)| at)
        .chain([in_line.len()])
        .skip(problem.column.checked_sub(1)?);
    let from = line_start + offsets.next()?;
    let to = line_start + offsets.nth(problem.span_len.checked_sub(1)?)?;
    Some([text.get(..from)?, replacement, text.get(to..)?].concat())
}

/// Where a line begins, in bytes. Lines end as YAML says: `\n`, `\r\n` or `\r`. A byte order mark is
/// no part of the first.
fn line_start(text: &str, line: usize) -> Option<usize> {
    let mark = text.len() - text.trim_start_matches('\u{feff}').len();
    let bytes = text.as_bytes();
    let ends = bytes
        .iter()
        .enumerate()
        .filter_map(|(at, byte)| match byte {
            b'\n' => Some(at + 1),
            b'\r' if bytes.get(at + 1) != Some(&b'\n') => Some(at + 1),
            _ => None,
        });
    std::iter::once(mark).chain(ends).nth(line.checked_sub(1)?)
}

fn line(text: &str, line: usize) -> Option<&str> {
    text.get(line_start(text, line)?..)?
        .split(['\n', '\r'])
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_as_the_loader_counts_them() {
        let text = "\u{feff}a\r\nb\rc\nd";
        let starts: Vec<_> = (1..=5).map(|number| line_start(text, number)).collect();
        assert_eq!(starts, [Some(3), Some(6), Some(8), Some(10), None]);
        assert_eq!(line(text, 2), Some("b"));
        assert_eq!(line(text, 4), Some("d"));
    }
}
