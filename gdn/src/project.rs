//! Locates the project of a command, and its additional environment files.

use std::path::{Path, PathBuf};

use clap::Args;
use goondan_vault::ProjectIdentity;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text::shell_quoted;

/// File that makes a directory a project.
pub(crate) const PROJECT_FILE: &str = "goondan.yaml";

/// Identity of a project for secret consent.
pub(crate) fn identity(project_root: &Path) -> ProjectIdentity {
    let package = goondan_config::package_name(project_root).unwrap_or_default();
    ProjectIdentity::new(project_root, package.as_deref())
}

/// Environment files in addition to the project's own.
#[derive(Debug, Default, Args)]
pub(crate) struct EnvFiles {
    /// Additional file with environment variables (can be repeated; the last one wins)
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
}

impl EnvFiles {
    /// Absolute paths of the named files.
    pub(crate) fn absolute(&self) -> Result<Vec<PathBuf>, ProjectError> {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|source| ProjectError::Unreachable {
                dir: path.clone(),
                source,
            })
        };
        self.env_file.iter().map(absolute).collect()
    }
}

/// Reason why there is no project.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectError {
    /// Neither the directory nor its ancestors are a project.
    #[error("no {PROJECT_FILE} in {} or in any directory above it", from.display())]
    NoneAbove { from: PathBuf },
    /// The named directory is not a project.
    #[error("no {PROJECT_FILE} in {}", dir.display())]
    NotAProject { dir: PathBuf },
    /// One of the two roots contains the other (`ROOT-1`).
    #[error(
        "the project {} and the state root {} must not contain each other",
        project_root.display(),
        state_root.display()
    )]
    RootsOverlap {
        project_root: PathBuf,
        state_root: PathBuf,
    },
    /// The named directory cannot be accessed.
    #[error("cannot open the directory {}", dir.display())]
    Unreachable {
        dir: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl From<ProjectError> for Failure {
    fn from(error: ProjectError) -> Self {
        let exit = match &error {
            ProjectError::RootsOverlap { .. } => Exit::Conflict,
            _ => Exit::NotFound,
        };
        let hint = match &error {
            ProjectError::RootsOverlap { .. } => {
                "move the project, or choose another state root: `gdn --state-root DIR …`"
                    .to_owned()
            }
            ProjectError::NoneAbove { .. } => {
                "select the project with `--project DIR`, or create one: `gdn init my-swarm`"
                    .to_owned()
            }
            ProjectError::NotAProject { dir } => match shell_quoted(&dir.to_string_lossy()) {
                Some(dir) => format!("create a project in it: `gdn init {dir}`"),
                None => "create a project: `gdn init my-swarm`".to_owned(),
            },
            ProjectError::Unreachable { .. } => {
                "pass a directory that contains goondan.yaml: `gdn --project DIR …`".to_owned()
            }
        };
        Self::of(exit, &error, hint)
    }
}

/// Finds the canonical Project Root: the directory `named`, otherwise the nearest one from the current directory
/// upwards.
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

/// Checks that neither root contains the other (`ROOT-1`). The daemon checks this too, but it creates the state root
/// first, so it must not be started for a state root inside the project.
pub(crate) fn check_apart(project_root: &Path, state_root: &Path) -> Result<(), ProjectError> {
    // Canonicalizes the existing part of a state root that does not exist yet.
    let existing = state_root.ancestors().find_map(|dir| {
        let rest = state_root.strip_prefix(dir).ok()?;
        Some(dir.canonicalize().ok()?.join(rest))
    });
    let state_root = existing.unwrap_or_else(|| state_root.to_owned());
    if project_root.starts_with(&state_root) || state_root.starts_with(project_root) {
        return Err(ProjectError::RootsOverlap {
            project_root: project_root.to_owned(),
            state_root,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_1_neither_root_contains_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&here, here.join("link")).unwrap();
        let check =
            |project: &str, state: &str| check_apart(&here.join(project), &here.join(state));
        assert!(check("p", "s").is_ok());
        assert!(check("p", "pp").is_ok());
        for (project, state) in [("p", "p"), ("p", "p/s/t"), ("s/p", "s"), ("p", "link/p/s")] {
            assert!(check(project, state).is_err(), "{project} {state}");
        }
    }
}
