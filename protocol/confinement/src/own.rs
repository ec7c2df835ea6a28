//! The processes of agents and connectors, which confine themselves (`SEC-3`, `SEC-6`).
//!
//! Each does so once it knows what it is, before it does anything, while it has one thread. What it starts inherits
//! it, and can only confine itself further.

use std::path::{Path, PathBuf};

use goondan_protocol::sandbox::{Facts, Network, OwnSandbox, SandboxPolicy};

use crate::allowed::{PROGRAMS, SETTINGS};
use crate::capabilities::{self, Kept};
use crate::error::EnforceError;
use crate::files::Files;
use crate::system_calls::{self, Caller};

/// The program of the process, also when its file was replaced meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Where the addresses of name servers and the certificates of authorities are kept. They change while a process runs,
/// by new files.
const ABOUT_SERVERS: [&str; 5] = [
    "/etc",
    "/var/lib/ca-certificates",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
];

/// Variables that name certificates to trust in place of the system's.
const NAMED_BY: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// What a process of goondan's keeps for itself and for what it starts.
#[derive(Debug, Clone)]
pub struct OwnPolicy {
    sandbox: OwnSandbox,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    network: Network,
    kept: Kept,
}

impl OwnPolicy {
    /// Of an agent: its programs' files, and its own to start them. `programs` is what those may touch.
    #[must_use]
    pub fn of_agent(sandbox: OwnSandbox, programs: &SandboxPolicy) -> Self {
        Self {
            network: programs.network,
            kept: Kept::Nothing,
            ..Self::beside(sandbox, programs)
        }
    }

    /// Of a connector: the network, the files that name servers and authorities are found by, and those of its
    /// programs.
    #[must_use]
    pub fn of_connector(sandbox: OwnSandbox, programs: &SandboxPolicy) -> Self {
        let mut own = Self {
            network: Network::Any,
            // Ports below 1024, as a person may have asked for.
            kept: Kept::LowPorts,
            ..Self::beside(sandbox, programs)
        };
        for named in NAMED_BY.into_iter().filter_map(std::env::var_os) {
            own.read.extend(std::env::split_paths(&named));
        }
        own.read.extend(ABOUT_SERVERS.map(PathBuf::from));
        own
    }

    fn beside(sandbox: OwnSandbox, programs: &SandboxPolicy) -> Self {
        let paths = |paths: &[goondan_protocol::sandbox::SandboxPath]| {
            let paths = paths.iter().map(|path| path.as_path().to_owned());
            paths.collect::<Vec<_>>()
        };
        let usual = PROGRAMS.iter().chain(&SETTINGS).map(PathBuf::from);
        let mut read: Vec<PathBuf> = usual.collect();
        read.push(OWN_PROGRAM.into());
        read.extend(paths(&programs.read));
        Self {
            sandbox,
            read,
            write: paths(&programs.write),
            network: Network::None,
            kept: Kept::Nothing,
        }
    }

    /// Restricts this process, which has one thread as yet, for good, and tells what the kernel holds from now on.
    ///
    /// A kernel without Landlock, or with less of it than is asked for, filters system calls all the same.
    ///
    /// # Errors
    ///
    /// [`EnforceError`] if the kernel refuses what it said it holds. A part of it may hold then: the caller ends.
    pub fn enforce(&self) -> Result<Facts, EnforceError> {
        let caller = match self.sandbox {
            OwnSandbox::None => return Ok(Facts::new()),
            OwnSandbox::SystemCalls => Caller::Supervisor,
            OwnSandbox::Landlock => Caller::Process(self.network),
        };
        let files = match self.sandbox {
            OwnSandbox::Landlock if Files::are_held() => {
                let is_there = |path: &&PathBuf| path.exists();
                let mut files = Files::new()?;
                files.read(self.read.iter().filter(is_there))?;
                files.write(self.write.iter().filter(is_there))?;
                files.read([Path::new("/proc")])?;
                files.devices()?;
                Some(files)
            }
            _ => None,
        };
        if self.sandbox == OwnSandbox::Landlock {
            capabilities::keep(self.kept)
                .map_err(|errno| EnforceError::Capabilities(errno.into()))?;
        }
        let mut held = Facts::from_iter(OwnSandbox::SystemCalls.rights().iter().copied());
        if let Some(files) = files {
            files.restrict()?;
            held.extend(self.sandbox.rights().iter().copied());
        }
        system_calls::apply(caller)?;
        Ok(held)
    }
}
