//! Paths that a project's `.gitignore` files exclude from copies of the whole project (`REPO-1`).
//!
//! Build output and installed packages are neither copied nor proposed. The lines are recorded with
//! the sandbox, so that a worker cannot change the proposal by editing such a file.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Folder, NodeKind, read_full};
use goondan_trees::Excludes;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext as _, ProposalError};
use crate::limits::{IGNORE_FILE_BYTES_MAX, IGNORE_LINES_MAX};

const IGNORE_FILE: &str = ".gitignore";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct IgnoreFile {
    /// Its directory; empty for the root.
    pub(crate) directory: String,
    pub(crate) lines: Vec<String>,
}

/// Excludes the paths that the files list.
pub(crate) fn ignoring(excludes: Excludes, files: &[IgnoreFile]) -> Excludes {
    let lines = files.iter().flat_map(|file| {
        let lines = file.lines.iter();
        lines.map(|line| (file.directory.as_str(), line.as_str()))
    });
    excludes.ignoring(lines)
}

/// Reads the files of a project, those above first. Nothing is looked for in what `excludes` or they leave out.
pub(crate) fn read(
    project: &dyn Folder,
    excludes: &Excludes,
) -> Result<Vec<IgnoreFile>, ProposalError> {
    let mut files: Vec<IgnoreFile> = Vec::new();
    let mut all = excludes.clone();
    let mut count = 0;
    let mut waiting = VecDeque::from([PathBuf::new()]);
    while let Some(at) = waiting.pop_front() {
        let path = at.join(IGNORE_FILE);
        let is_file = |kind| kind == Some(NodeKind::File);
        let found = project.look(&path).during("inspect", &path)?;
        if is_file(found.map(|stat| stat.kind)) {
            let lines = read_lines(project, &path)?;
            count += lines.len();
            if count > IGNORE_LINES_MAX {
                return Err(ProposalError::invalid(
                    format!(
                        "the project's `.gitignore` files have more than {IGNORE_LINES_MAX} lines"
                    ),
                    "shorten them",
                ));
            }
            // A pattern can only name a path that is valid UTF-8.
            if let Some(directory) = at.to_str() {
                let directory = directory.to_owned();
                files.push(IgnoreFile { directory, lines });
                all = ignoring(excludes.clone(), &files);
            }
        }
        for name in project.names(&at).during("list", &at)? {
            let path = at.join(&name);
            let stat = project.look(&path).during("inspect", &path)?;
            let is_directory = stat.is_some_and(|stat| stat.kind == NodeKind::Directory);
            if is_directory
                && all
                    .reason(path.as_os_str().as_encoded_bytes(), true)
                    .is_none()
            {
                waiting.push_back(path);
            }
        }
    }
    Ok(files)
}

fn read_lines(project: &dyn Folder, path: &Path) -> Result<Vec<String>, ProposalError> {
    let mut file = project.read(path).during("open", path)?;
    let mut text = vec![0; IGNORE_FILE_BYTES_MAX];
    let read = read_full(file.as_mut(), &mut text, 0).during("read", path)?;
    text.truncate(read);
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(ToOwned::to_owned).collect())
}
