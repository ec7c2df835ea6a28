//! Migrates a project of the format 0.0.3 to the current format (`COMPAT-1`).
//!
//! A document without older forms is preserved exactly. Other documents are rewritten and lose
//! their comments, which the resulting diff shows.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::compat;
use crate::diagnostic::Diagnostics;
use crate::documents::read_project;
use crate::environment::Variables;
use crate::limits::MAX_YAML_BYTES;
use crate::load::ExternalSources;
use crate::place::FileId;
use crate::project_files::ProjectFiles;
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::syntax::with_yaml_line_ends;
use crate::tree::YamlNode;
use crate::{codes, misplaced};

/// A file that changes in the current format. Nothing has been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigratedFile {
    /// The file, relative to the Project Root.
    pub path: PathBuf,
    pub before: String,
    pub after: String,
}

/// The files of a project that change in the current format, sorted by path. Environment variables
/// that are set determine which keys and connections are added.
pub(crate) fn migrate(
    files: &ProjectFiles,
    outside: ExternalSources<'_>,
) -> Result<Vec<MigratedFile>, Diagnostics> {
    let mut report = ProblemReport::of(&misplaced::VOCABULARY);
    let before = read_project(files, &mut report);
    let variables = Variables::read(outside.env, files, &mut report);
    let trees: Vec<_> = before
        .iter()
        .map(|(file, documents)| (*file, documents.clone()))
        .collect();
    let (after, _) = compat::modernize(trees, &variables, &mut report);
    if report.has_errors() {
        return Err(report.into_diagnostics());
    }
    let mut migrated = Vec::new();
    for ((file, before), (_, after)) in before.iter().zip(&after) {
        let path = report.path_of(SourceLocation::start_of(*file)).to_owned();
        let Ok(text) = files.read(&path, MAX_YAML_BYTES) else {
            continue;
        };
        match written_anew(&with_yaml_line_ends(&text), before, after) {
            Ok(None) => {}
            Ok(Some(after)) => migrated.push(MigratedFile {
                path,
                after: match text.contains("\r\n") {
                    true => after.replace('\n', "\r\n"),
                    false => after,
                },
                before: text,
            }),
            Err(error) => report.add(unwritable(*file, &error)),
        }
    }
    if report.has_errors() {
        return Err(report.into_diagnostics());
    }
    migrated.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(migrated)
}

fn unwritable(file: FileId, error: &serde_yaml::Error) -> Problem {
    let message = format!("failed to write the file's content as YAML: {error}");
    Problem::new(
        codes::UNREADABLE_FILE,
        SourceLocation::start_of(file),
        message,
    )
    .help("write the modern form by hand: docs/compatibility.md")
}

/// The text of a file with these documents; `None` if they are unchanged.
fn written_anew(
    text: &str,
    before: &[YamlNode],
    after: &[YamlNode],
) -> Result<Option<String>, serde_yaml::Error> {
    // Changed documents, by their first line.
    let mut changed = BTreeMap::new();
    for (was, is) in before.iter().zip(after) {
        let (was_json, is_json) = (was.to_json(), is.to_json());
        if was_json != is_json {
            changed.insert(was.place.line, serde_yaml::to_string(&is_json)?);
        }
    }
    if changed.is_empty() && after.len() == before.len() {
        return Ok(None);
    }
    let mut out = String::with_capacity(text.len());
    for part in parts_of(text) {
        let written = changed.iter().find(|(line, _)| part.lines.contains(line));
        out.push_str(part.mark);
        out.push_str(written.map_or(part.text, |(_, written)| written.as_str()));
    }
    for added in after.iter().skip(before.len()) {
        if !out.ends_with('\n') && !out.is_empty() {
            out.push('\n');
        }
        out.push_str("---\n");
        out.push_str(&serde_yaml::to_string(&added.to_json())?);
    }
    Ok(Some(out))
}

/// The text between two document markers, and the marker before it.
struct YamlDocument<'t> {
    mark: &'t str,
    text: &'t str,
    /// Counted from 1.
    lines: std::ops::Range<usize>,
}

fn parts_of(text: &str) -> Vec<YamlDocument<'_>> {
    let is_mark = |line: &str| {
        let rest = line.strip_prefix("---");
        rest.is_some_and(|rest| rest.trim().is_empty() || rest.trim_start().starts_with('#'))
    };
    let mut parts = vec![YamlDocument {
        mark: "",
        text: "",
        lines: 1..1,
    }];
    let mut at = 0;
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let end = at + line.len();
        if is_mark(line) {
            parts.push(YamlDocument {
                mark: text.get(at..end).unwrap_or_default(),
                text: text.get(end..end).unwrap_or_default(),
                lines: number + 1..number + 1,
            });
        } else if let Some(part) = parts.last_mut() {
            let begin = at - part.text.len();
            part.text = text.get(begin..end).unwrap_or_default();
            part.lines.end = number + 1;
        }
        at = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_its_parts() {
        for text in [
            "",
            "a: 1\n",
            "---\na: 1\n---\nb: 2",
            "# x\n--- # first\na: 1\n---\n",
            "a: |\n  ---\n  b\n---\nc: 3\n",
        ] {
            let whole: String = parts_of(text)
                .iter()
                .flat_map(|part| [part.mark, part.text])
                .collect();
            assert_eq!(whole, text);
        }
        let parts = parts_of("a: 1\nb: 2\n---\nc: 3\n");
        let lines: Vec<_> = parts.iter().map(|part| part.lines.clone()).collect();
        assert_eq!(lines, [1..3, 4..5]);
    }
}
