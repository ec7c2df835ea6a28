//! Working directories of processes (`BOX-3`), chosen in one place, because a runtime reads
//! configuration files from its working directory.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Working directory of an agent's programs: `Agent.spec.runtime.cwdMode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CwdMode {
    /// In the Project Root: for an agent that maintains the project.
    Workspace,
    /// In the work directory of its conversation.
    #[default]
    AgentHome,
}

impl CwdMode {
    /// True if it is the default.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Purpose of a process, which determines its working directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessPurpose<'a> {
    /// For goondan itself: its own processes, and its checks of the machine.
    Own,
    /// The programs of an agent's tools.
    Agent {
        /// The configured mode.
        mode: CwdMode,
        /// The work directory of the conversation.
        work_dir: &'a Path,
        /// The Project Root.
        project_root: &'a Path,
    },
    /// For a module of a tool or an extension. A module gets the work directory with each call and
    /// does not start there, because a runtime would read its own configuration there, and less
    /// trusted code can write there.
    Module,
    /// For a task: the program that works for it.
    Task {
        /// The work area.
        work_area: &'a Path,
        /// Its copy of the project, if it has a source.
        copy: Option<&'a Path>,
    },
    /// For a connection: the program that is its connector.
    Connection {
        /// The Project Root.
        project_root: &'a Path,
    },
}

/// The directory in which a process starts. Every start of a process uses this function.
#[must_use]
pub fn working_directory(purpose: ProcessPurpose<'_>) -> &Path {
    match purpose {
        // `/` keeps no directory busy that a user may want to unmount or remove.
        ProcessPurpose::Own | ProcessPurpose::Module => Path::new("/"),
        ProcessPurpose::Agent {
            mode: CwdMode::AgentHome,
            work_dir,
            ..
        } => work_dir,
        ProcessPurpose::Task { work_area, copy } => copy.unwrap_or(work_area),
        ProcessPurpose::Agent {
            mode: CwdMode::Workspace,
            project_root,
            ..
        }
        | ProcessPurpose::Connection { project_root } => project_root,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn box_3_agent_works_in_its_own_directory_unless_set_to_project() {
        let (work_dir, project_root) = (Path::new("/state/work"), Path::new("/project"));
        let of = |mode| {
            working_directory(ProcessPurpose::Agent {
                mode,
                work_dir,
                project_root,
            })
        };
        assert_eq!(of(CwdMode::default()), work_dir);
        assert_eq!(of(CwdMode::AgentHome), work_dir);
        assert_eq!(of(CwdMode::Workspace), project_root);
        assert_eq!(
            working_directory(ProcessPurpose::Connection { project_root }),
            project_root
        );
        assert_eq!(working_directory(ProcessPurpose::Own), Path::new("/"));
    }

    #[test]
    fn sec_3_a_module_starts_where_no_agent_writes() {
        assert_eq!(working_directory(ProcessPurpose::Module), Path::new("/"));
    }

    #[test]
    fn box_3_task_program_works_in_its_project_copy_or_work_area() {
        let (work_area, sandbox) = (
            Path::new("/tasks/t-1"),
            Path::new("/sandboxes/t-1/coder/work"),
        );
        for (copy, wanted) in [(None, work_area), (Some(sandbox), sandbox)] {
            assert_eq!(
                working_directory(ProcessPurpose::Task { work_area, copy }),
                wanted
            );
        }
    }
}
