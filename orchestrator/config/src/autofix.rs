//! Fixes problems that need no judgment: misspelled names of fields, kinds and words, and values
//! without required quotes. The rest of a file is preserved byte for byte.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::compat;
use crate::diagnostic::Diagnostic;
use crate::limits::{MAX_FIXES, MAX_YAML_BYTES};
use crate::load::{self, ExternalSources};
use crate::misplaced_fields;
use crate::project_files::ProjectFiles;
use crate::report::ProblemReport;
use crate::syntax;
use crate::tree::YamlNode;

/// A file with its fixes. Nothing has been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedFile {
    /// The file, relative to the Project Root.
    pub path: PathBuf,
    pub before: String,
    pub after: String,
    /// The fixes, in order of their places.
    pub changes: Vec<AutofixChange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutofixChange {
    /// The problem, with its place in the text in which it was found.
    pub problem: Diagnostic,
    /// The text that replaces the characters of the problem.
    pub replacement: String,
    /// The line after the fix. `None` if it may contain a secret (`SEC-2`).
    pub line_after: Option<String>,
}

/// See [`crate::autofix()`].
pub(crate) fn autofix(mut files: ProjectFiles, outside: ExternalSources<'_>) -> Vec<FixedFile> {
    let mut fixed: Vec<FixedFile> = Vec::new();
    let mut refused: Vec<(PathBuf, usize, usize)> = Vec::new();
    let place = |problem: &Diagnostic| (problem.file.clone(), problem.line, problem.column);
    // Each round fixes one problem, because a fix may move the places of the others.
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

fn find_problems(files: &ProjectFiles, outside: ExternalSources<'_>) -> Vec<Diagnostic> {
    let (mut errors, warnings) = load::read(files, outside).report.finish();
    errors.extend(warnings);
    errors
}

/// Makes a fix; reverts it if it does not solve the problem or changes anything else.
fn try_fix(
    problem: &Diagnostic,
    files: &mut ProjectFiles,
    outside: ExternalSources<'_>,
    fixed: &mut Vec<FixedFile>,
) -> bool {
    let (Some(replacement), Ok(before)) = (&problem.fix, files.read(&problem.file, MAX_YAML_BYTES))
    else {
        return false;
    };
    let Some(after) = replace(&before, problem, replacement) else {
        return false;
    };
    // An alias repeats the value in other places, where it may be correct.
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
    let change = AutofixChange {
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

/// Number of differences between two YAML texts. `None` if one of them is not valid YAML.
fn differences(before: &str, after: &str) -> Option<usize> {
    let parse = |text: &str| {
        let text = syntax::with_yaml_line_ends(text);
        let mut report = ProblemReport::of(&misplaced_fields::VOCABULARY);
        let file = report.add_file(Path::new(""), text.as_ref());
        let nodes = compat::parse(file, &text, &mut report)?;
        Some(nodes.iter().map(YamlNode::to_json).collect::<Json>())
    };
    Some(difference(&parse(before)?, &parse(after)?))
}

/// Number of differences between two values. A renamed field counts as one.
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

/// Replaces the characters of a problem in the text.
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

/// Byte offset of a line. Lines end as in YAML: with `\n`, `\r\n` or `\r`. A byte order mark is not
/// part of the first line.
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
