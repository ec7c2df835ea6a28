//! Self-confinement of agent and connector processes (`SEC-3`, `SEC-6`).
//!
//! Each process confines itself when it has received its assignment, before any work and while it
//! has one thread. Its descendants inherit the confinement and can only tighten it.

use std::fmt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::getppid;

use goondan_protocol::sandbox::{Facts, Network, OwnSandbox, Right, SandboxPolicy};

use crate::capabilities::{self, RetainedCapabilities};
use crate::error::EnforceError;
use crate::files::{LandlockRules, restrict_scopes};
use crate::layout::Layout;
use crate::mounts::{RootOwner, replace_root};
use crate::namespaces::{NamespaceError, unshare_mounts};
use crate::rights::{PROGRAMS, SETTINGS, certificate_authorities};
use crate::system_calls::{self, Caller};

/// The program of this process, even if its file was replaced meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Files with the addresses of name servers and with certificates. They are replaced by new files
/// while a process runs.
const ABOUT_SERVERS: [&str; 5] = [
    "/etc",
    "/var/lib/ca-certificates",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
];

/// Result of a process's self-confinement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelfConfinement {
    /// Rights that the kernel enforces from now on.
    pub rights: Facts,
    /// Reason why the confinement is incomplete, for people; `None` if it is complete.
    pub lacks: Option<String>,
}

impl SelfConfinement {
    fn lack(&mut self, reason: &dyn fmt::Display) {
        let before = self.lacks.take().map(|before| format!("{before}; "));
        self.lacks = Some(before.unwrap_or_default() + &reason.to_string());
    }
}

/// Permissions that a goondan process keeps for itself and its children.
#[derive(Debug, Clone)]
pub struct OwnPolicy {
    sandbox: OwnSandbox,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    network: Network,
    kept: RetainedCapabilities,
}

impl OwnPolicy {
    /// Policy of an agent: the files of its programs, and its own program to start them. `programs`
    /// is their policy.
    #[must_use]
    pub fn of_agent(sandbox: OwnSandbox, programs: &SandboxPolicy) -> Self {
        Self {
            network: programs.network.clone(),
            kept: RetainedCapabilities::Nothing,
            ..Self::beside(sandbox, programs)
        }
    }

    /// Policy of a connector: the network, the files about name servers and certificates, and the
    /// files of its programs.
    #[must_use]
    pub fn of_connector(sandbox: OwnSandbox, programs: &SandboxPolicy) -> Self {
        let mut own = Self {
            network: Network::Any,
            // Ports below 1024, which a person may have configured.
            kept: RetainedCapabilities::LowPorts,
            ..Self::beside(sandbox, programs)
        };
        own.read.extend(certificate_authorities());
        own.read.extend(ABOUT_SERVERS.map(PathBuf::from));
        own
    }

    /// Adds the directory of the egress socket through which its programs connect. The directory is
    /// kept rather than the socket, because a restarted egress creates a new socket.
    #[must_use]
    pub fn reaching(mut self, egress_socket: Option<&Path>) -> Self {
        let directory = egress_socket.and_then(Path::parent);
        self.read.extend(directory.map(Path::to_owned));
        self
    }

    fn beside(sandbox: OwnSandbox, programs: &SandboxPolicy) -> Self {
        let paths = |paths: &[goondan_protocol::sandbox::SandboxPath]| {
            let paths = paths.iter().map(|path| path.as_path().to_owned());
            paths.collect::<Vec<_>>()
        };
        let usual = PROGRAMS.iter().chain(&SETTINGS).map(PathBuf::from);
        let mut read: Vec<PathBuf> = usual.collect();
        read.extend(paths(&programs.read));
        Self {
            sandbox,
            read,
            write: paths(&programs.write),
            network: Network::None,
            kept: RetainedCapabilities::Nothing,
        }
    }

    /// Permanently restricts this process, which must have one thread, and returns the rights that
    /// the kernel enforces.
    ///
    /// If the kernel does not support all of it, the supported part is applied. System calls are
    /// always filtered.
    ///
    /// # Errors
    ///
    /// [`EnforceError`] if the kernel refuses something that it reported as supported. Some parts
    /// may already be in effect, so the caller must exit.
    pub fn enforce(&self) -> Result<SelfConfinement, EnforceError> {
        let mut held = SelfConfinement::default();
        let caller = match self.sandbox {
            OwnSandbox::None => return Ok(held),
            OwnSandbox::Landlock => {
                self.keep_files(&mut held)?;
                Caller::Process(self.network.clone())
            }
            OwnSandbox::Mounts => {
                self.keep_mounts(&mut held)?;
                keep_scopes(&mut held)?;
                Caller::Supervisor
            }
        };
        system_calls::apply(caller)?;
        held.rights.insert(Right::SystemCalls);
        Ok(held)
    }

    /// Applies rules for files, signals and abstract sockets, if the kernel supports them.
    fn keep_files(&self, held: &mut SelfConfinement) -> Result<(), EnforceError> {
        let mut files = match LandlockRules::new() {
            Ok(files) => files,
            Err(error) => {
                held.lack(&error);
                return drop_capabilities(self.kept);
            }
        };
        files.read([Path::new(OWN_PROGRAM), Path::new("/proc")])?;
        files.read(there(&self.read))?;
        files.write(there(&self.write))?;
        files.devices()?;
        drop_capabilities(self.kept)?;
        files.restrict()?;
        held.rights.extend(Right::LANDLOCK);
        Ok(())
    }

    /// Creates a private root, and an empty network if the programs need none. Changes nothing if
    /// this is not possible.
    fn keep_mounts(&self, held: &mut SelfConfinement) -> Result<(), EnforceError> {
        // Programs started with the same layout report a layout error themselves.
        let layout = match Layout::of_paths(there(&self.read), there(&self.write)) {
            Ok(layout) => layout,
            Err(error) => {
                held.lack(&error);
                return Ok(());
            }
        };
        if let Err(error) = unshare_mounts(&self.network) {
            held.lack(&error.reason());
            return Ok(());
        }
        // The parent's working directory need not exist in the new root.
        let root = std::env::set_current_dir("/");
        root.map_err(|error| NamespaceError::new("failed to open the root directory", error))?;
        replace_root(&layout, RootOwner::Process)?;
        let is_root = nix::unistd::geteuid().is_root();
        drop_capabilities(if is_root {
            RetainedCapabilities::NestedUsers
        } else {
            RetainedCapabilities::Nothing
        })?;
        held.rights.extend([Right::UserNamespaces, Right::Mounts]);
        if self.network != Network::Any {
            held.rights.insert(Right::Network);
        }
        Ok(())
    }
}

/// Applies rules for signals and abstract sockets, if the kernel supports them.
fn keep_scopes(held: &mut SelfConfinement) -> Result<(), EnforceError> {
    if let Err(error) = restrict_scopes() {
        held.lack(&error);
        return Ok(());
    }
    let parent = getppid();
    // A parent in another PID namespace has no process id here, so this cannot be tested.
    if parent.as_raw() > 0 && kill(parent, None) != Err(Errno::EPERM) {
        return Err(EnforceError::NotHeld(Right::Signals));
    }
    held.rights.extend([Right::Signals, Right::AbstractSockets]);
    Ok(())
}

fn drop_capabilities(kept: RetainedCapabilities) -> Result<(), EnforceError> {
    capabilities::keep(kept).map_err(|errno| EnforceError::Capabilities(errno.into()))
}

/// Missing paths are left out.
fn there(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    let paths = paths.iter().map(PathBuf::as_path);
    paths.filter(|path| path.exists())
}
