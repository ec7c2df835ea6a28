//! Problems as annotations for GitHub workflows.

use std::path::{Path, PathBuf};

use goondan_config::{Diagnostic, Severity};

/// Formats a problem as a workflow command. GitHub shows it at the line if the file's path is relative to the
/// repository, which is the working directory of workflow commands.
pub(super) fn annotation(root: &Path, problem: &Diagnostic) -> String {
    let command = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let help = problem.suggestion.as_ref();
    let help = help.map_or_else(String::new, |help| format!("\nhelp: {help}"));
    format!(
        "::{command} file={},line={},col={},endColumn={},title={}::{}",
        property(&shown_path(root, &problem.file).to_string_lossy()),
        problem.line,
        problem.column,
        problem.column + problem.span_len,
        property(problem.code),
        data(&format!("{}{help}", problem.message)),
    )
}

fn shown_path(root: &Path, file: &Path) -> PathBuf {
    let path = root.join(file);
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    match here {
        Ok(here) => match path.strip_prefix(&here) {
            Ok(relative) => relative.to_owned(),
            Err(_) => path,
        },
        Err(_) => path,
    }
}

/// Escapes a message, so that it cannot end the line or start another command.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_problem_ends_its_annotation() {
        let problem = Diagnostic {
            severity: Severity::Warning,
            code: "W_CONFIG_TEST",
            message: "100 %\n::error::no".into(),
            file: "a,b:c.yaml".into(),
            line: 3,
            column: 5,
            source_line: None,
            span_len: 2,
            suggestion: Some("do\rit".into()),
            fix: None,
        };
        assert_eq!(
            annotation(Path::new("/nowhere"), &problem),
            "::warning file=/nowhere/a%2Cb%3Ac.yaml,line=3,col=5,endColumn=7,title=W_CONFIG_TEST\
             ::100 %25%0A::error::no%0Ahelp: do%0Dit"
        );
    }
}
