//! Directories that an agent's tools use, and path resolution within them.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use goondan_protocol::definition::ModuleSandbox;

use super::fault::ToolFault;
use super::host::Hosts;
use super::pipe::{PROJECT_ADVICE, Surroundings};
use super::rooted_files::Root;
use super::runtimes::Runtimes;
use super::secret_files::SecretFiles;
use super::session::Sessions;

/// Prefix of a path that is written as in a shell command.
const WORK_DIR_VAR: &str = "$GOONDAN_WORK_DIR";
/// The same prefix for the project.
const PROJECT_ROOT_VAR: &str = "$GOONDAN_PROJECT_ROOT";

/// Directories and processes that an agent's tools use.
#[derive(Debug)]
pub(crate) struct ToolRoots {
    /// Directory in which tools run and write.
    pub(crate) work: Arc<Root>,
    /// The project, which tools may read.
    pub(crate) project: Root,
    /// The project for writing, if tools work there instead of in the work directory.
    pub(crate) in_project: Option<Root>,
    /// True if a person can allow that.
    pub(crate) may_work_in_project: bool,
    /// Other directories that the file tools may open, by absolute paths: the baseline and the
    /// proposal of a sandbox, and the folders of skills.
    pub(crate) beside: Vec<(Root, Access)>,
    /// The sandboxes of the agents that this one coordinates, which it may read.
    pub(crate) run: Option<LaterRoot>,
    /// Access rights and environment of all programs that tools start.
    pub(crate) surroundings: Arc<Surroundings>,
    /// Environments of the modules of packages, each with the sandbox of its package.
    pub(crate) of_packages: Vec<(ModuleSandbox, Arc<Surroundings>)>,
    /// Environment of the extension host, if an extension belongs to a package.
    pub(crate) of_extensions: Option<Arc<Surroundings>>,
    /// The shells of `bash`.
    pub(crate) sessions: Sessions,
    pub(crate) hosts: Hosts,
    /// Runtimes for modules on this machine.
    pub(crate) runtimes: Runtimes,
}

/// A directory that may be made while the agent runs.
#[derive(Debug)]
pub(crate) struct LaterRoot {
    pub(super) path: PathBuf,
    pub(super) secret_files: Arc<SecretFiles>,
    pub(super) opened: OnceLock<Root>,
}

impl LaterRoot {
    /// The directory, if it exists by now.
    fn get(&self) -> Option<&Root> {
        if self.opened.get().is_none() {
            let root = Root::open(&self.path).ok()?;
            // Another thread may have been faster: the directory is the same.
            drop(self.opened.set(root.keeping(self.secret_files.clone())));
        }
        self.opened.get()
    }
}

impl ToolRoots {
    /// Directory in which relative paths begin.
    pub(crate) fn start(&self) -> &Path {
        self.in_project.as_ref().unwrap_or(&self.work).path()
    }

    /// Environment of a module, by its path.
    pub(crate) fn surroundings_of(&self, module: &Path) -> &Arc<Surroundings> {
        let mut of_packages = self.of_packages.iter();
        let own = of_packages.find(|(sandbox, _)| sandbox.holds_for(module));
        own.map_or(&self.surroundings, |(_, surroundings)| surroundings)
    }
}

/// Access that a tool requests to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read access, which includes the project.
    Read,
    /// Write access, within the work directory only.
    Write,
}

fn beside<'a, 'p>(places: &'a ToolRoots, full: &'p Path) -> Option<(&'a Root, &'p Path, Access)> {
    let mut beside = places.beside.iter();
    let found = beside.find_map(|(root, access)| Some((root, root.beneath(full)?, *access)));
    found.or_else(|| {
        let run = places.run.as_ref()?.get()?;
        Some((run, run.beneath(full)?, Access::Read))
    })
}

/// Resolves a path to its root and the path relative to it.
///
/// # Errors
///
/// [`ToolFault`] if the path is beneath no root that allows the access.
pub(crate) fn locate<'a>(
    places: &'a ToolRoots,
    path: &str,
    access: Access,
) -> Result<(&'a Root, PathBuf), ToolFault> {
    let spelled = |variable: &str, root: &Root| {
        let rest = path.strip_prefix(variable)?;
        (rest.is_empty() || rest.starts_with('/'))
            .then(|| root.path().join(rest.trim_start_matches('/')))
    };
    let work_dir = places.in_project.as_ref().unwrap_or(&places.work);
    let full = spelled(WORK_DIR_VAR, work_dir)
        .or_else(|| spelled(PROJECT_ROOT_VAR, &places.project))
        .unwrap_or_else(|| PathBuf::from(path));
    let outside = |why: &str| {
        let advice = "paths are relative to the work directory, or begin with \
                      $GOONDAN_PROJECT_ROOT for reading the project";
        Err(ToolFault::new(
            "E_PATH_OUTSIDE",
            format!("`{path}` {why}; {advice}"),
        ))
    };
    let work: &Root = &places.work;
    let in_project = places.in_project.as_ref().map(|writable| match access {
        Access::Read => &places.project,
        Access::Write => writable,
    });
    let (root, relative) = if full.is_relative() {
        (in_project.unwrap_or(work), full.as_path())
    } else if let Some(relative) = work.beneath(&full) {
        (work, relative)
    } else if let Some(relative) = places.project.beneath(&full) {
        if access == Access::Write && in_project.is_none() {
            let mut text = format!(
                "`{path}` is in the project, which is read-only; write in the work directory"
            );
            if places.may_work_in_project {
                text.push_str(&format!("; {PROJECT_ADVICE}"));
            }
            return Err(ToolFault::new("E_PATH_READ_ONLY", text));
        }
        (in_project.unwrap_or(&places.project), relative)
    } else if let Some((root, relative, granted)) = beside(places, &full) {
        if access == Access::Write && granted == Access::Read {
            return Err(ToolFault::new(
                "E_PATH_READ_ONLY",
                format!("`{path}` may only be read; write in the work directory"),
            ));
        }
        (root, relative)
    } else {
        return outside("is outside of the directories of this agent");
    };
    let mut clean = PathBuf::new();
    for part in relative.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return outside("holds `..`");
            }
        }
    }
    if access == Access::Write && root.protects(&clean) {
        return Err(ToolFault::new(
            "E_PATH_READ_ONLY",
            format!(
                "`{path}` is protected: agents cannot change the project's configuration, modules \
                 and files for secrets; write another file"
            ),
        ));
    }
    if access == Access::Write && root.keeps(&clean) {
        return Err(ToolFault::new(
            "E_PATH_READ_ONLY",
            format!(
                "`{path}` is in a directory of the task that only goondan writes; write beside it"
            ),
        ));
    }
    Ok((root, clean))
}
