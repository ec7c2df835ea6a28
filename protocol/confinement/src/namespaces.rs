//! Users, files, processes and a network of one's own (level `full`).

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

/// What the process that makes the sandbox has to be able to do, and gives up before it starts anything.
const MAKES_IT: [CapabilitySet; 3] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SETPCAP,
    CapabilitySet::NET_ADMIN,
];

/// Ubuntu's switch: user namespaces without any right in them, but for programs with a profile.
const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// A part of the sandbox that could not be made.
#[derive(Debug, thiserror::Error)]
#[error(
    "the sandbox level `full` cannot be had: {what}: {source}; {}",
    remedy()
)]
pub struct NamespaceError {
    what: &'static str,
    source: io::Error,
}

impl NamespaceError {
    pub(crate) fn new(what: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        Self { what, source }
    }

    /// What is refused and why, without what a person can do about it.
    pub(crate) fn reason(&self) -> String {
        format!("{}: {}", self.what, self.source)
    }
}

/// What a person can do about it.
fn remedy() -> &'static str {
    let is = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|is| is.trim() == value);
    if is(APPARMOR, "1") {
        "AppArmor restricts user namespaces here: `sudo sysctl \
         kernel.apparmor_restrict_unprivileged_userns=0`, or a profile with `userns,`; or write `require: \
         landlock`"
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "user namespaces are switched off here: `sudo sysctl user.max_user_namespaces=15000`; or write \
         `require: landlock`"
    } else {
        "`gdn doctor` says what this kernel gives; or write `require: landlock`"
    }
}

/// Puts the calling process into namespaces of its own; the next process that it starts is the first one of
/// a PID namespace, and can make the rest of the sandbox with [`enforce`](crate::enforce). The user stays
/// the same, and has no rights over anything outside.
///
/// To be called while there is one thread. Files and processes look as before to the caller itself.
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
    pass_on_capabilities()
        .map_err(|errno| NamespaceError::new("rights within the namespaces are not given", errno))
}

/// Mounts of its own, and perhaps a network without anything in it, for a process that others of its user cannot look
/// into: the kernel lets nobody write about such a one, itself included, so that it can be looked into meanwhile.
pub(crate) fn unshare_mounts(network: &Network) -> Result<(), NamespaceError> {
    let refused = |errno| NamespaceError::new("namespaces are not given", errno);
    let was_open = get_dumpable().map_err(refused)?;
    set_dumpable(true).map_err(refused)?;
    let unshared = unshare_with(CloneFlags::CLONE_NEWNS | own_network(network));
    set_dumpable(was_open).map_err(refused)?;
    unshared
}

/// What stands between a process and the machine's network, unless it may reach all of that.
fn own_network(network: &Network) -> CloneFlags {
    match network {
        Network::None | Network::Allow(_) => CloneFlags::CLONE_NEWNET,
        Network::Any => CloneFlags::empty(),
    }
}

/// A user namespace, and others in it.
pub(crate) fn unshare_with(namespaces: CloneFlags) -> Result<(), NamespaceError> {
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | namespaces)
        .map_err(|errno| NamespaceError::new("namespaces are not given", errno))?;
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ] {
        write(file, &text)
            .map_err(|error| NamespaceError::new("the user cannot be mapped", error))?;
    }
    Ok(())
}

/// A file of the kernel, in one call.
fn write(path: &str, text: &str) -> io::Result<()> {
    use io::Write as _;
    fs::File::options()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

/// Whoever is not root loses its capabilities when it starts a program, unless they are ambient.
pub(crate) fn pass_on_capabilities() -> rustix::io::Result<()> {
    let own = capabilities(None)?;
    let inheritable = MAKES_IT.into_iter().collect();
    set_capabilities(None, CapabilitySets { inheritable, ..own })?;
    for capability in MAKES_IT {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Binds the life of the calling process, the first of its PID namespace, to the process that started it,
/// and with it that of all others in the namespace. `parent` is that process's number as the mounted `/proc`
/// counts ([`own_number`]).
///
/// # Errors
///
/// [`NamespaceError`] if it cannot be done, or that process is gone already.
pub fn die_with(parent: &str) -> Result<(), NamespaceError> {
    const WHAT: &str = "its life cannot be bound to its parent's";
    if nix::unistd::getpid().as_raw() != 1 {
        let error = io::Error::other("it is not the first process of a PID namespace");
        return Err(NamespaceError::new(WHAT, error));
    }
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| NamespaceError::new(WHAT, errno))?;
    // It could have died before.
    let status = fs::read_to_string("/proc/self/status");
    let status = status.map_err(|error| NamespaceError::new(WHAT, error))?;
    let is_there = status
        .lines()
        .filter_map(|line| line.strip_prefix("PPid:"))
        .any(|number| number.trim() == parent);
    if is_there {
        Ok(())
    } else {
        let error = io::Error::other("the process that started it is gone");
        Err(NamespaceError::new(WHAT, error))
    }
}

/// Whether a file system of processes can be mounted, as the first process of a PID namespace.
pub(crate) fn has_own_proc() -> bool {
    nix::unistd::getpid().as_raw() == 1
        && rustix::mount::mount(c"proc", c"/proc", c"proc", MountFlags::RDONLY, c"").is_ok()
        && fs::read_link("/proc/self").is_ok_and(|number| number == std::path::Path::new("1"))
}

/// The number of the calling process as the mounted `/proc` counts.
///
/// # Errors
///
/// If there is no `/proc`.
pub fn own_number() -> io::Result<String> {
    let number = fs::read_link("/proc/self")?;
    Ok(number.to_string_lossy().into_owned())
}

/// Brings up the loopback of a new network namespace.
pub(crate) fn raise_loopback() -> Result<(), NamespaceError> {
    loopback().map_err(|errno| NamespaceError::new("the loopback cannot be brought up", errno))
}

/// The one message of rtnetlink: `RTM_NEWLINK` for the first interface, with `IFF_UP`, to be acknowledged.
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
    // The error stands behind the header: zero, or a negative number.
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
