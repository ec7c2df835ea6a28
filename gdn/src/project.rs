//! Locates the project of a command, and its additional environment files.

use std::path::{Path, PathBuf};

use clap::Args;
use goondan_config::Loader;
use goondan_protocol::control::{OpenWorkspace, WorkspaceInfo};
use goondan_protocol::ids::ResourceName;
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

/// Options of a workspace that affect how its project is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProjectChoice {
    pub(crate) env_files: Vec<PathBuf>,
    /// The Swarm to run; `None` for the first one.
    pub(crate) swarm: Option<ResourceName>,
}

impl ProjectChoice {
    /// The options of a registered workspace.
    pub(crate) fn of_workspace(info: &WorkspaceInfo) -> Self {
        // The first Swarm need not be named, but may be.
        Self {
            env_files: info.env_files.clone(),
            swarm: info.swarm.clone(),
        }
    }

    /// The options of a request to open a workspace.
    pub(crate) fn of_request(open: &OpenWorkspace) -> Self {
        Self {
            env_files: open.env_files.clone().unwrap_or_default(),
            swarm: open.swarm.clone().flatten(),
        }
    }

    pub(crate) fn apply<'e>(&self, loader: Loader<'e>) -> Loader<'e> {
        let loader = loader.with_env_files(&self.env_files);
        loader.with_swarm(self.swarm.as_ref())
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
    /// Something else has the name of the file.
    #[error("{} is {what}, not a file", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    /// The directory's path has no place in a text, and all state names it.
    #[error("the path {} is not UTF-8 text", dir.display())]
    NotText { dir: PathBuf },
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
            ProjectError::NotAFile { .. } => {
                "move it away, and put the project's configuration there; an example: `gdn init my-swarm`"
                    .to_owned()
            }
            ProjectError::NotText { .. } => {
                "rename the directory, or choose another one with `--project DIR`".to_owned()
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
    if named.is_some() {
        return match is_project(&from)? {
            true => Ok(from),
            false => Err(ProjectError::NotAProject { dir: from }),
        };
    }
    for dir in from.ancestors() {
        if is_project(dir)? {
            return Ok(dir.to_owned());
        }
    }
    Err(ProjectError::NoneAbove { from })
}

/// True if a directory has the file that makes it a project.
fn is_project(dir: &Path) -> Result<bool, ProjectError> {
    let path = dir.join(PROJECT_FILE);
    let Ok(entry) = path.symlink_metadata() else {
        return Ok(false);
    };
    let what = match path.metadata() {
        Ok(found) if found.is_file() && dir.to_str().is_none() => {
            return Err(ProjectError::NotText {
                dir: dir.to_owned(),
            });
        }
        Ok(found) if found.is_file() => return Ok(true),
        Ok(found) if found.is_dir() => "a directory",
        Err(_) if entry.is_symlink() => "a symbolic link that leads nowhere",
        Ok(_) | Err(_) => "a device, a socket or a pipe",
    };
    Err(ProjectError::NotAFile { path, what })
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
    fn something_else_with_the_files_name_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let problem = || find(Some(&dir)).unwrap_err().to_string();
        assert!(problem().starts_with("no goondan.yaml in "));
        let file = dir.join(PROJECT_FILE);
        std::fs::create_dir(&file).unwrap();
        assert!(problem().ends_with("goondan.yaml is a directory, not a file"));
        std::fs::remove_dir(&file).unwrap();
        std::os::unix::fs::symlink(&file, &file).unwrap();
        assert!(problem().contains("a symbolic link that leads nowhere"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[expect(clippy::disallowed_methods, reason = "writes a project")]
    fn path_that_is_no_text_is_refused() {
        use std::os::unix::ffi::OsStrExt as _;
        let temp = tempfile::tempdir().unwrap();
        let name = std::ffi::OsStr::from_bytes(b"p\xff");
        let dir = temp.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(PROJECT_FILE), "").unwrap();
        let refused = find(Some(&dir)).unwrap_err();
        assert!(matches!(refused, ProjectError::NotText { .. }), "{refused}");
    }

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
