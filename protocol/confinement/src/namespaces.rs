//! Namespaces for users, files, processes and the network (level `full`).

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::{get_dumpable, set_dumpable};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use nix::unistd::{getegid, geteuid};
use rustix::mount::MountFlags;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};
use std::os::fd::AsRawFd as _;

use goondan_protocol::sandbox::Network;

/// Capabilities that the process needs to create the sandbox. It drops them before it starts a
/// program.
const MAKES_IT: [CapabilitySet; 3] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SETPCAP,
    CapabilitySet::NET_ADMIN,
];

/// Ubuntu's setting that leaves unprivileged user namespaces without any rights, except for
/// programs with a profile.
const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// A part of the sandbox could not be created.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct NamespaceError {
    what: &'static str,
    source: io::Error,
}

impl NamespaceError {
    pub(crate) fn new(what: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        Self { what, source }
    }

    fn text(&self) -> String {
        let reason = self.reason();
        // The kernel is not at fault.
        if self.source.kind() == io::ErrorKind::NotFound {
            return format!(
                "failed to create the sandbox: {reason}; restore the missing parts, then run `gdn restart`"
            );
        }
        let remedy = remedy();
        format!("the sandbox level `full` is not available: {reason}; {remedy}")
    }

    /// The refused operation and the reason, without the suggested fix.
    pub(crate) fn reason(&self) -> String {
        format!("{}: {}", self.what, self.source)
    }
}

/// A suggested fix for a person.
fn remedy() -> &'static str {
    let is = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|is| is.trim() == value);
    if is(APPARMOR, "1") {
        "AppArmor restricts user namespaces: `sudo sysctl \
         kernel.apparmor_restrict_unprivileged_userns=0`, or add a profile with `userns,`; or \
         write `require: landlock`"
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "user namespaces are disabled: `sudo sysctl user.max_user_namespaces=15000`; or write \
         `require: landlock`"
    } else {
        "run `gdn doctor` to see what this kernel supports; or write `require: landlock`"
    }
}

/// Moves the calling process into new namespaces. The next process that it starts is the first one
/// of the PID namespace and can create the rest of the sandbox with [`enforce`](crate::enforce).
/// The user stays the same, without rights over anything outside.
///
/// Call this while the process has one thread. The caller itself sees the same files and processes
/// as before.
///
/// # Errors
///
/// [`NamespaceError`] if the kernel refuses any of it.
pub fn unshare_all(network: &Network) -> Result<(), NamespaceError> {
    unshare_with(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | own_network(network),
    )?;
    pass_on_capabilities().map_err(|errno| {
        NamespaceError::new("the kernel grants no rights within the namespaces", errno)
    })
}

/// Moves the process into a private mount namespace, and an empty network namespace if required.
/// Other processes of the user must not be able to inspect the process. The kernel then refuses
/// writes to its files in `/proc`, even by itself, so the process is made inspectable during the
/// call.
pub(crate) fn unshare_mounts(network: &Network) -> Result<(), NamespaceError> {
    let refused = |errno| NamespaceError::new("the kernel grants no namespaces", errno);
    let was_open = get_dumpable().map_err(refused)?;
    set_dumpable(true).map_err(refused)?;
    let unshared = unshare_with(CloneFlags::CLONE_NEWNS | own_network(network));
    set_dumpable(was_open).map_err(refused)?;
    unshared
}

/// Network namespace flag, unless the process may reach the whole network.
fn own_network(network: &Network) -> CloneFlags {
    match network {
        Network::None | Network::Allow(_) => CloneFlags::CLONE_NEWNET,
        Network::Any => CloneFlags::empty(),
    }
}

/// Creates a user namespace, and the other namespaces in it.
pub(crate) fn unshare_with(namespaces: CloneFlags) -> Result<(), NamespaceError> {
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | namespaces)
        .map_err(|errno| NamespaceError::new("the kernel grants no namespaces", errno))?;
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ] {
        write(file, &text).map_err(|error| NamespaceError::new("failed to map the user", error))?;
    }
    Ok(())
}

/// Writes a kernel file with a single call.
fn write(path: &str, text: &str) -> io::Result<()> {
    use io::Write as _;
    fs::File::options()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

/// A process that is not root loses its capabilities when it executes a program, unless they are
/// ambient.
pub(crate) fn pass_on_capabilities() -> rustix::io::Result<()> {
    let own = capabilities(None)?;
    let inheritable = MAKES_IT.into_iter().collect();
    set_capabilities(None, CapabilitySets { inheritable, ..own })?;
    for capability in MAKES_IT {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Ties the life of the calling process, the first of its PID namespace, to its parent, and with it
/// the life of all processes in the namespace. `parent` is the parent's process id in the mounted
/// `/proc` ([`own_number`]).
///
/// # Errors
///
/// [`NamespaceError`] if this fails, or if the parent has already ended.
pub fn die_with(parent: &str) -> Result<(), NamespaceError> {
    const WHAT: &str = "failed to bind its lifetime to its parent";
    if nix::unistd::getpid().as_raw() != 1 {
        let error = io::Error::other("it is not the first process of a PID namespace");
        return Err(NamespaceError::new(WHAT, error));
    }
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| NamespaceError::new(WHAT, errno))?;
    // The parent may have ended before this call.
    let status = fs::read_to_string("/proc/self/status");
    let status = status.map_err(|error| NamespaceError::new(WHAT, error))?;
    let is_there = status
        .lines()
        .filter_map(|line| line.strip_prefix("PPid:"))
        .any(|number| number.trim() == parent);
    if is_there {
        Ok(())
    } else {
        let error = io::Error::other("its parent process has ended");
        Err(NamespaceError::new(WHAT, error))
    }
}

/// True if `/proc` can be mounted by the first process of a PID namespace.
pub(crate) fn has_own_proc() -> bool {
    nix::unistd::getpid().as_raw() == 1
        && rustix::mount::mount(c"proc", c"/proc", c"proc", MountFlags::RDONLY, c"").is_ok()
        && fs::read_link("/proc/self").is_ok_and(|number| number == std::path::Path::new("1"))
}

/// Process id of the caller in the mounted `/proc`.
///
/// # Errors
///
/// `/proc` is missing.
pub fn own_number() -> io::Result<String> {
    let number = fs::read_link("/proc/self")?;
    Ok(number.to_string_lossy().into_owned())
}

/// Brings up the loopback interface of a new network namespace.
pub(crate) fn raise_loopback() -> Result<(), NamespaceError> {
    loopback()
        .map_err(|errno| NamespaceError::new("failed to bring up the loopback interface", errno))
}

/// Sends one rtnetlink message: `RTM_NEWLINK` for the first interface, with `IFF_UP` and a request
/// to acknowledge.
fn loopback() -> nix::Result<()> {
    const LENGTH: u32 = 32;
    const RTM_NEWLINK: u16 = 16;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
    const FIRST_INTERFACE: u32 = 1;
    const IFF_UP: u32 = 1;
    let words = |values: &[u32]| {
        values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect()
    };
    let shorts = |values: [u16; 2]| values.into_iter().flat_map(u16::to_ne_bytes);
    let mut message: Vec<u8> = words(&[LENGTH]);
    message.extend(shorts([RTM_NEWLINK, REQUEST_AND_ACKNOWLEDGE]));
    message.extend::<Vec<u8>>(words(&[1, 0, 0, FIRST_INTERFACE, IFF_UP, IFF_UP]));

    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let kernel = NetlinkAddr::new(0, 0);
    sendto(socket.as_raw_fd(), &message, &kernel, MsgFlags::empty())?;
    let mut answer = [0; 64];
    let count = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // The error code follows the header: zero or a negative number.
    let error = answer.get(16..20).filter(|_| count >= 20);
    let error = error
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(()),
        Some(error) => Err(nix::errno::Errno::from_raw(error.saturating_neg())),
        None => Err(nix::errno::Errno::EPROTO),
    }
}
