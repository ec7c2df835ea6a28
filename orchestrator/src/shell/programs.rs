//! The binaries of child processes.

use std::io;
use std::path::{Path, PathBuf};

use goondan_protocol::ipc::ChildRole;

/// Paths of the binaries.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    agent: PathBuf,
    /// Without it, only agents with an embedded model can run, and no connections.
    connector: Result<PathBuf, ProgramMissing>,
}

/// A binary is neither next to the daemon's own nor in `PATH`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{name}` is neither next to `{}` nor in PATH; install all goondan binaries together", beside.display())]
pub(super) struct ProgramMissing {
    name: &'static str,
    beside: PathBuf,
}

impl Programs {
    /// Finds the binaries next to this executable or in `PATH`. The agent binary is required,
    /// because a daemon without agents is useless.
    pub(super) fn find() -> Result<Self, ProgramMissing> {
        Ok(Self {
            agent: find_program("goondan-agent-process")?,
            connector: find_program("goondan-connector-process"),
        })
    }

    /// Missing binaries, for tests.
    #[cfg(test)]
    pub(super) fn nowhere() -> Self {
        let name = "goondan-connector-process";
        let beside = PathBuf::from("/nowhere");
        Self {
            agent: beside.join("goondan-agent-process"),
            connector: Err(ProgramMissing { name, beside }),
        }
    }

    pub(super) fn agent(&self) -> &Path {
        &self.agent
    }

    /// The reason that no connector process can be started, if any.
    pub(super) fn missing(&self) -> Option<&ProgramMissing> {
        self.connector.as_ref().err()
    }

    /// The binary of a role.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is missing.
    pub(super) fn of(&self, role: ChildRole) -> io::Result<&Path> {
        match role {
            ChildRole::Agent | ChildRole::Task => Ok(&self.agent),
            ChildRole::Connector | ChildRole::Model => match &self.connector {
                Ok(path) => Ok(path),
                Err(missing) => Err(io::Error::new(io::ErrorKind::NotFound, missing.clone())),
            },
        }
    }
}

/// Finds a binary next to this executable or in `PATH`.
///
/// # Errors
///
/// [`ProgramMissing`].
pub(super) fn find_program(name: &'static str) -> Result<PathBuf, ProgramMissing> {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.parent().map(Path::to_owned).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(beside.clone())
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or(ProgramMissing { name, beside })
}
