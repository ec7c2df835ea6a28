//! The binaries of child processes.

use std::io;
use std::path::{Path, PathBuf};

use goondan_protocol::ipc::ChildRole;

/// Where the binaries of children are.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    agent: PathBuf,
    /// Without it agents run whose model is embedded, and no connection.
    connector: Result<PathBuf, ProgramMissing>,
}

/// A child's binary is neither beside the daemon's own nor in `PATH`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{name}` is neither beside `{}` nor in PATH; install all of goondan's binaries together", beside.display())]
pub(super) struct ProgramMissing {
    name: &'static str,
    beside: PathBuf,
}

impl Programs {
    /// Finds the children's binaries beside this executable, else in `PATH`. A daemon without agents is
    /// of no use, so theirs has to be there.
    pub(super) fn find() -> Result<Self, ProgramMissing> {
        Ok(Self {
            agent: find_program("goondan-agent-process")?,
            connector: find_program("goondan-connector-process"),
        })
    }

    /// Binaries that are not there.
    #[cfg(test)]
    pub(super) fn nowhere() -> Self {
        let name = "goondan-connector-process";
        let beside = PathBuf::from("/nowhere");
        Self {
            agent: beside.join("goondan-agent-process"),
            connector: Err(ProgramMissing { name, beside }),
        }
    }

    /// The binary of agents.
    pub(super) fn agent(&self) -> &Path {
        &self.agent
    }

    /// Why no connector process can be started, if none can.
    pub(super) fn missing(&self) -> Option<&ProgramMissing> {
        self.connector.as_ref().err()
    }

    /// The binary of a kind of child.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none.
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

/// A binary beside this executable, else in `PATH`.
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
