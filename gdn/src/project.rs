//! Which project a command is about.

use std::path::{Path, PathBuf};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text::shell_quoted;

/// The file that makes a directory a project.
pub(crate) const PROJECT_FILE: &str = "goondan.yaml";

/// Why there is no project.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectError {
    /// Neither here nor above is one.
    #[error("no {PROJECT_FILE} in {} or in any directory above it", from.display())]
    NoneAbove { from: PathBuf },
    /// The directory that was named is none.
    #[error("no {PROJECT_FILE} in {}", dir.display())]
    NotAProject { dir: PathBuf },
    /// The directory that was named cannot be reached.
    #[error("cannot open the directory {}", dir.display())]
    Unreachable {
        dir: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl From<ProjectError> for Failure {
    fn from(error: ProjectError) -> Self {
        let hint = match &error {
            ProjectError::NoneAbove { .. } => {
                "name the project with `--project DIR`, or make one: `gdn init my-swarm`".to_owned()
            }
            ProjectError::NotAProject { dir } => match shell_quoted(&dir.to_string_lossy()) {
                Some(dir) => format!("make it a project: `gdn init {dir}`"),
                None => "make a project: `gdn init my-swarm`".to_owned(),
            },
            ProjectError::Unreachable { .. } => {
                "name a directory that holds goondan.yaml: `gdn --project DIR …`".to_owned()
            }
        };
        Self::of(Exit::NotFound, &error, hint)
    }
}

/// The canonical Project Root: the directory `named`, else the nearest from here upwards.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, ProjectError> {
    let start = named.unwrap_or(Path::new("."));
    let from = start
        .canonicalize()
        .map_err(|source| ProjectError::Unreachable {
            dir: start.to_owned(),
            source,
        })?;
    let is_project = |dir: &Path| dir.join(PROJECT_FILE).is_file();
    if named.is_some() {
        return if is_project(&from) {
            Ok(from)
        } else {
            Err(ProjectError::NotAProject { dir: from })
        };
    }
    match from.ancestors().find(|dir| is_project(dir)) {
        Some(root) => Ok(root.to_owned()),
        None => Err(ProjectError::NoneAbove { from }),
    }
}
