//! `gdn validate --fix`: writes what [`goondan_config::autofix()`] made of the project's files.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use goondan_config::{Change, FixedFile, Loader};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style::{self, Palette};
use crate::output::text;

/// Why a file is left as it is.
#[derive(Debug, thiserror::Error)]
enum FixError {
    #[error("{} was changed by somebody else meanwhile", path.display())]
    ChangedMeanwhile { path: PathBuf },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl From<FixError> for Failure {
    fn from(error: FixError) -> Self {
        match error {
            FixError::ChangedMeanwhile { .. } => {
                Self::of(Exit::TryAgain, &error, "run it again: `gdn validate --fix`")
            }
            FixError::Write { .. } => Self::of(
                Exit::Internal,
                &error,
                "check who may write to the project's directory and whether its disk has room",
            ),
        }
    }
}

/// One thing that was fixed and written.
#[derive(Debug)]
pub(super) struct Autofix {
    file: PathBuf,
    change: Change,
}

/// Fixes the project's files and says what was done. Each file is replaced as a whole or not at all.
pub(super) fn autofix(root: &Path, loader: &Loader<'_>) -> Result<Vec<Autofix>, Failure> {
    // A Project Root that cannot be opened is told by the check that follows.
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

fn write(root: &Path, file: &FixedFile) -> Result<(), FixError> {
    let path = root.join(&file.path);
    let failed = |source| FixError::Write {
        path: path.clone(),
        source,
    };
    // What a link leads to is replaced, not the link.
    let target = path.canonicalize().map_err(failed)?;
    if fs::read(&target).map_err(failed)? != file.before.as_bytes() {
        return Err(FixError::ChangedMeanwhile { path });
    }
    let permissions = fs::metadata(&target).map_err(failed)?.permissions();
    let directory = target.parent().unwrap_or(root);
    let mut new = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    new.write_all(file.after.as_bytes())
        .and_then(|()| new.as_file().set_permissions(permissions))
        .and_then(|()| new.as_file().sync_all())
        .map_err(failed)?;
    new.persist(&target).map_err(|error| failed(error.error))?;
    Ok(())
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

    /// The problem, and the line before and after.
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
