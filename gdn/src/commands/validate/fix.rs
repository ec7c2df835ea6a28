//! `gdn validate --fix`: writes the files fixed by [`goondan_config::autofix()`].

use std::path::{Path, PathBuf};

use goondan_config::{AutofixChange, FixedFile, Loader};
use serde_json::{Value, json};

use super::super::rewrite::rewrite;
use crate::failure::Failure;
use crate::output::style::{self, Palette};
use crate::output::text;

#[derive(Debug)]
pub(super) struct Autofix {
    file: PathBuf,
    change: AutofixChange,
}

/// Fixes the project's files and returns the fixes. Each file is replaced atomically.
pub(super) fn autofix(root: &Path, loader: &Loader<'_>) -> Result<Vec<Autofix>, Failure> {
    // If the Project Root cannot be opened, the check that follows reports it.
    let files = loader.autofix(root).unwrap_or_default();
    let mut fixes = Vec::new();
    for file in files {
        write(root, &file)?;
        let FixedFile { path, changes, .. } = file;
        fixes.extend(changes.into_iter().map(|change| Autofix {
            file: path.clone(),
            change,
        }));
    }
    Ok(fixes)
}

fn write(root: &Path, file: &FixedFile) -> Result<(), Failure> {
    let (before, after) = (file.before.as_bytes(), file.after.as_bytes());
    rewrite(&root.join(&file.path), Some(before), after)
        .map_err(|error| error.failure("gdn validate --fix"))
}

impl Autofix {
    pub(super) fn to_json(&self) -> Value {
        let problem = &self.change.problem;
        json!({
            "code": problem.code,
            "message": problem.message,
            "file": self.file,
            "line": problem.line,
            "column": problem.column,
            "before": problem.source_line,
            "after": self.change.line_after,
        })
    }

    /// The problem, and the line before and after the fix.
    pub(super) fn to_text(&self, palette: Palette) -> String {
        let problem = &self.change.problem;
        let place = format!("{}:{}", self.file.display(), problem.line);
        let mut shown = format!(
            "{} {}: {}\n",
            palette.paint(style::GOOD, "fixed"),
            text::one_line(&place),
            text::one_line(&problem.message)
        );
        match (&problem.source_line, &self.change.line_after) {
            (Some(before), Some(after)) => {
                for (mark, style, line) in [("-", style::BAD, before), ("+", style::GOOD, after)] {
                    let line = format!("  {mark} {}", text::printable(line));
                    shown.push_str(&palette.paint(style, &line));
                    shown.push('\n');
                }
            }
            _ => shown.push_str("  (the line may hold a secret and is not shown)\n"),
        }
        shown
    }
}
