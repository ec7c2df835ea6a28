//! The processes of agents and connectors, which confine themselves (`SEC-3`, `SEC-6`).
//!
//! Each does so once it knows what it is, before it does anything, while it has one thread. What it starts inherits
//! it, and can only confine itself further.

use std::fmt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::getppid;

use goondan_protocol::sandbox::{Facts, Network, OwnSandbox, Right, SandboxPolicy};

use crate::allowed::{PROGRAMS, SETTINGS};
use crate::capabilities::{self, Kept};
use crate::error::EnforceError;
use crate::files::{Files, restrict_scopes};
use crate::layout::Layout;
use crate::mounts::{RootOf, replace_root};
use crate::namespaces::{NamespaceError, unshare_mounts};
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

/// What a process holds itself to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// What the kernel holds from now on.
    pub rights: Facts,
    /// Why that is not all that the process holds itself to, for people; none if it is.
    pub lacks: Option<String>,
}

impl Held {
    fn lack(&mut self, reason: &dyn fmt::Display) {
        let before = self.lacks.take().map(|before| format!("{before}; "));
        self.lacks = Some(before.unwrap_or_default() + &reason.to_string());
    }
}

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
            network: programs.network.clone(),
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

    /// The same, with the way to the egress at whose socket its programs are handed in. It is the directory that is
    /// kept: an egress that is started again makes another socket.
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
            kept: Kept::Nothing,
        }
    }

    /// Restricts this process, which has one thread as yet, for good, and tells what the kernel holds from now on.
    ///
    /// A kernel that does not give all of it gives what it can, and filters system calls in any case.
    ///
    /// # Errors
    ///
    /// [`EnforceError`] if the kernel refuses what it said it holds. A part of it may hold then: the caller ends.
    pub fn enforce(&self) -> Result<Held, EnforceError> {
        let mut held = Held::default();
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

    /// Files, signals and abstract sockets, if the kernel has such rules.
    fn keep_files(&self, held: &mut Held) -> Result<(), EnforceError> {
        let mut files = match Files::new() {
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

    /// A root of its own, and no network if its programs have none, if they can be had. Nothing is changed if not.
    fn keep_mounts(&self, held: &mut Held) -> Result<(), EnforceError> {
        // What cannot be laid out here is told by each program that is to be started in the same way.
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
        // Where whoever started it stood need not be a part of its root.
        let root = std::env::set_current_dir("/");
        root.map_err(|error| NamespaceError::new("there is no root", error))?;
        replace_root(&layout, RootOf::Process)?;
        let is_root = nix::unistd::geteuid().is_root();
        drop_capabilities(if is_root {
            Kept::NestedUsers
        } else {
            Kept::Nothing
        })?;
        held.rights.extend([Right::UserNamespaces, Right::Mounts]);
        if self.network != Network::Any {
            held.rights.insert(Right::Network);
        }
        Ok(())
    }
}

/// Signals and abstract sockets, if the kernel has such rules.
fn keep_scopes(held: &mut Held) -> Result<(), EnforceError> {
    if let Err(error) = restrict_scopes() {
        held.lack(&error);
        return Ok(());
    }
    let parent = getppid();
    // One in another PID namespace has no number here, and nothing can be tried on it.
    if parent.as_raw() > 0 && kill(parent, None) != Err(Errno::EPERM) {
        return Err(EnforceError::NotHeld(Right::Signals));
    }
    held.rights.extend([Right::Signals, Right::AbstractSockets]);
    Ok(())
}

fn drop_capabilities(kept: Kept) -> Result<(), EnforceError> {
    capabilities::keep(kept).map_err(|errno| EnforceError::Capabilities(errno.into()))
}

/// What is not there cannot be kept.
fn there(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    let paths = paths.iter().map(PathBuf::as_path);
    paths.filter(|path| path.exists())
}
