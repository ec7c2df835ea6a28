//! Environment variables: from the process, from named environment files (`--env-file`), and from
//! the project's `.env.local` and `.env`. Precedence: the process over files, named files over the
//! project's, later named files over earlier ones, and `.env.local` over `.env`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Environment;
use crate::codes;
use crate::file_list::FileFailure;
use crate::project_files::ProjectFiles;
use crate::report::{FileId, Problem, ProblemReport, SourceLocation};

/// The project's environment files, by descending precedence.
const FILES: [&str; 2] = [".env.local", ".env"];

/// All variables that a project can use.
pub(crate) struct Variables<'e> {
    process: &'e dyn Environment,
    files: Vec<EnvironmentFile>,
}

/// Variables of an environment file, each with its line.
struct EnvironmentFile {
    path: PathBuf,
    variables: BTreeMap<String, (String, usize)>,
}

/// A variable's value and its origin.
#[derive(Debug)]
pub(crate) struct ResolvedVariable {
    pub(crate) value: String,
    pub(crate) setter: VariableOrigin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VariableOrigin {
    Process,
    File { path: PathBuf, line: usize },
}

impl<'e> Variables<'e> {
    /// Reads the project's environment files. Their lines are never shown (`SEC-2`).
    pub(crate) fn read(
        process: &'e dyn Environment,
        files: &ProjectFiles,
        report: &mut ProblemReport,
    ) -> Self {
        let named = files.env_files().iter().rev().map(PathBuf::as_path);
        let paths = named.chain(FILES.iter().map(Path::new));
        // For a stored configuration only the variables that it needs matter, not other problems of
        // the files.
        let mut unheeded = ProblemReport::default();
        let report = if files.is_kept() {
            &mut unheeded
        } else {
            report
        };
        let files = paths
            .filter_map(|path| EnvironmentFile::read(path, files, report))
            .collect();
        Self { process, files }
    }

    pub(crate) fn get(&self, name: &str) -> Option<ResolvedVariable> {
        if let Some(value) = self.process.get(name) {
            return Some(ResolvedVariable {
                value,
                setter: VariableOrigin::Process,
            });
        }
        self.files.iter().find_map(|file| {
            let (value, line) = file.variables.get(name)?;
            Some(ResolvedVariable {
                value: value.clone(),
                setter: VariableOrigin::File {
                    path: file.path.clone(),
                    line: *line,
                },
            })
        })
    }
}

impl EnvironmentFile {
    fn read(path: &Path, files: &ProjectFiles, report: &mut ProblemReport) -> Option<Self> {
        let text = match files.read_env_file(path) {
            Ok(text) => text,
            // A directory of that name belongs to another tool.
            Err(FileFailure::NotFound(_) | FileFailure::NotAFile(_)) if !path.is_absolute() => {
                return None;
            }
            Err(failure) => {
                let file = report.add_file(path, "");
                report.add(failure.at(SourceLocation::start_of(file)));
                return None;
            }
        };
        // Registered without its text, so that no line can be shown.
        let file = report.add_file(path, "");
        Some(Self {
            path: path.to_path_buf(),
            variables: parse(&text, file, report),
        })
    }
}

/// Parses `NAME=value` lines. Nothing is expanded: `$` is literal.
fn parse(
    text: &str,
    file: FileId,
    report: &mut ProblemReport,
) -> BTreeMap<String, (String, usize)> {
    let text = crate::syntax::with_yaml_line_ends(text.trim_start_matches('\u{feff}'));
    let mut variables = BTreeMap::new();
    let mut rest: &str = &text;
    let mut line = 1;
    while !rest.is_empty() {
        let before = rest;
        let place = SourceLocation {
            line,
            ..SourceLocation::start_of(file)
        };
        match take_variable(&mut rest) {
            Ok(None) => {}
            Ok(Some((name, value))) => {
                let first = variables.insert(name.clone(), (value, line));
                if let Some((_, first)) = first {
                    report.add(
                        Problem::warning(
                            codes::DUPLICATE_VARIABLE,
                            place,
                            format!("`{name}` is set again; first on line {first}"),
                        )
                        .help("the last assignment applies; remove the other"),
                    );
                }
            }
            Err(reason) => {
                let problem = Problem::new(codes::ENVIRONMENT_FILE, place, reason);
                report.add(problem.help(
                    "write `NAME=value`, and put a value of several words or lines in quotes",
                ));
            }
        }
        let taken = before.len().saturating_sub(rest.len());
        line += before
            .get(..taken)
            .map_or(0, |taken| taken.matches('\n').count());
    }
    variables
}

/// Parses a line, and further lines of a quoted value. `None` if it sets no variable.
fn take_variable(rest: &mut &str) -> Result<Option<(String, String)>, &'static str> {
    let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
    let whole = *rest;
    *rest = after;
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (name, _) = line.split_once('=').ok_or("a line without `=`")?;
    let name = name.trim();
    let name = name
        .strip_prefix("export")
        .filter(|rest| rest.starts_with(char::is_whitespace))
        .map_or(name, str::trim_start);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        return Err("the text before `=` is not a valid variable name");
    }
    let (_, value) = whole.split_once('=').unwrap_or_default();
    let value = value.trim_start_matches([' ', '\t']);
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else {
        let value = value.split('\n').next().unwrap_or_default();
        return Ok(Some((name.to_owned(), unquoted(value).to_owned())));
    };
    let (value, behind) = quoted(value, quote).ok_or("a quote is not closed")?;
    let (behind, after) = behind.split_once('\n').unwrap_or((behind, ""));
    *rest = after;
    let behind = behind.trim();
    if !(behind.is_empty() || behind.starts_with('#')) {
        return Err("unexpected text after the closing quote");
    }
    Ok(Some((name.to_owned(), value)))
}

/// An unquoted value, which ends at a `#` after a space.
fn unquoted(value: &str) -> &str {
    let comment = value
        .char_indices()
        .zip(std::iter::once(' ').chain(value.chars()))
        .find(|((_, c), before)| *c == '#' && before.is_whitespace())
        .map(|((at, _), _)| at);
    let value = comment.and_then(|at| value.get(..at)).unwrap_or(value);
    value.trim()
}

/// A quoted value and the text after it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.chars();
    chars.next();
    loop {
        match chars.next()? {
            c if c == quote => return Some((value, chars.as_str())),
            '\\' if quote == '"' => match chars.next()? {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                c @ ('"' | '\\' | '$') => value.push(c),
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (BTreeMap<String, (String, usize)>, Vec<String>) {
        let mut report = ProblemReport::default();
        let file = report.add_file(Path::new(".env"), "");
        let variables = parse(text, file, &mut report);
        let (errors, warnings) = report.finish();
        let found = errors.into_iter().chain(warnings);
        let shown = found.map(|found| format!("{} {}: {}", found.code, found.line, found.message));
        (variables, shown.collect())
    }

    #[test]
    fn variables_are_read_as_people_write_them() {
        let text = "\u{feff}# a comment\n\nPLAIN=a b # c\nHASH=a#b\nEMPTY=\r\n  export  NAME = x \n\
                    SINGLE='a $b \\n # \"c\"' # why\nDOUBLE=\"a\\n\\\"b\\\" \\$c \\d\"\nexport=1\n\
                    LINES=\"one\ntwo\"\nLAST=end";
        let (variables, problems) = read(text);
        assert_eq!(problems, Vec::<String>::new());
        let expected = [
            ("DOUBLE", "a\n\"b\" $c \\d", 8),
            ("EMPTY", "", 5),
            ("HASH", "a#b", 4),
            ("LAST", "end", 12),
            ("LINES", "one\ntwo", 10),
            ("NAME", "x", 6),
            ("PLAIN", "a b", 3),
            ("SINGLE", "a $b \\n # \"c\"", 7),
            ("export", "1", 9),
        ];
        let found: Vec<_> = variables
            .iter()
            .map(|(name, (value, line))| (name.as_str(), value.as_str(), *line))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn invalid_env_lines_are_reported_by_number_without_content() {
        let (variables, problems) =
            read("hunter2\n1A=hunter2\nA='hunter2' hunter3\nB=1\nB=2\nC=\"hunter2\n");
        assert_eq!(variables.len(), 1);
        assert_eq!(variables["B"], ("2".to_owned(), 5));
        assert_eq!(
            problems,
            [
                "E_CONFIG_ENVIRONMENT_FILE 1: a line without `=`",
                "E_CONFIG_ENVIRONMENT_FILE 2: the text before `=` is not a valid variable name",
                "E_CONFIG_ENVIRONMENT_FILE 3: unexpected text after the closing quote",
                "E_CONFIG_ENVIRONMENT_FILE 6: a quote is not closed",
                "W_CONFIG_DUPLICATE_VARIABLE 5: `B` is set again; first on line 4",
            ]
        );
    }
}
