//! Root file system that contains only the policy's paths (level `full`).

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use goondan_protocol::sandbox::Network;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};

use crate::layout::{Access, DEVICES, Layout};
use crate::mountinfo::{MountPoint, mount_points};
use crate::namespaces::NamespaceError;
use crate::outside_sockets;

/// Directory in which the new root is assembled. In this mount namespace it hides the directory's
/// content.
const BASE: &str = "/tmp";

/// Directories that start empty and disappear with the sandbox, with the options of their file
/// systems.
const EMPTY: [(&str, &std::ffi::CStr); 3] = [
    ("tmp", c"mode=1777,size=1g"),
    ("run", c"mode=755,size=16m"),
    ("dev/shm", c"mode=1777,size=256m"),
];

/// Empty home directory of module hosts.
const HOME: &str = "run/home";

/// Links of `/dev`.
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
    ("pts/ptmx", "dev/ptmx"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RootOwner<'a> {
    /// A program in its sandbox, with its network access. The caller is the sandbox's first
    /// process.
    Sandbox(&'a Network),
    /// A goondan process, which sees the machine's processes and creates roots for others.
    Process,
}

/// A part of the machine's file system, detached from its tree.
struct DetachedMount {
    at: PathBuf,
    tree: OwnedFd,
    is_directory: bool,
}

/// Replaces the root of the calling process. The new root contains the policy's paths, `/proc`, a
/// few devices, and for a program empty directories for temporary files. A program's `/proc`
/// belongs to its PID namespace, whose first process must be the caller. Nothing is created on the
/// machine's own file systems. The working directory stays the same.
pub(crate) fn replace_root(layout: &Layout, of: RootOwner<'_>) -> Result<(), NamespaceError> {
    let step = |what: &'static str| move |error: io::Error| NamespaceError::new(what, error);
    let working_directory =
        std::env::current_dir().map_err(step("failed to find the working directory"))?;
    if layout.mounts.contains_key(Path::new("/")) {
        let error = io::Error::other("list the needed directories instead");
        return Err(NamespaceError::new(
            "`/` cannot be part of a new root",
            error,
        ));
    }
    let parts = take_out(layout).map_err(step("failed to mount a path of the policy"))?;
    let devices = take_out_devices().map_err(step("failed to mount the devices"))?;
    let processes = match of {
        RootOwner::Sandbox(_) => None,
        RootOwner::Process => Some(take(Path::new("/proc")).map_err(step("failed to open /proc"))?),
    };
    let covered = match of {
        RootOwner::Sandbox(network) => outside_sockets::to_cover(layout, network)
            .map_err(step("failed to find sockets of the machine"))?,
        RootOwner::Process => BTreeSet::new(),
    };
    lay_base().map_err(step("failed to mount a private root"))?;
    // Mounted first, so that paths of the policy may be beneath one of them.
    match of {
        RootOwner::Sandbox(_) => {
            for (directory, options) in EMPTY {
                empty(directory, options).map_err(step("failed to mount an empty directory"))?;
            }
            make_directory(Path::new(HOME)).map_err(step("failed to create an empty directory"))?;
        }
        // Mount point for assembling the roots of programs.
        RootOwner::Process => make_directory(&beneath_root(Path::new(BASE)))
            .map_err(step("failed to create an empty directory"))?,
    }
    for part in &parts {
        put_in(part, layout).map_err(step("failed to mount a path of the policy"))?;
    }
    if !covered.is_empty() {
        cover(&covered).map_err(step("failed to cover a socket of the machine"))?;
    }
    for (link, target) in &layout.links {
        put_link(target, &beneath_root(link)).map_err(step("failed to create a link"))?;
    }
    put_devices(&devices).map_err(step("failed to mount the devices"))?;
    if let RootOwner::Sandbox(_) = of {
        put_terminals().map_err(step("failed to mount private terminals"))?;
    }
    match processes {
        None => mount_proc().map_err(step("failed to mount a private /proc"))?,
        Some(processes) => put_in(&processes, layout).map_err(step("failed to mount /proc"))?,
    }
    restrict(layout).map_err(step("failed to make mounts read-only"))?;
    pivot().map_err(step("failed to replace the root"))?;
    chdir(&working_directory)
        .map_err(io::Error::from)
        .map_err(step(
            "the working directory is not within the sandbox; list it in the policy",
        ))
}

/// True if a part of the machine's file system can be mounted at a second place, as the new root
/// requires. Needs a private mount namespace and an empty `/tmp`.
pub(crate) fn can_put_in() -> bool {
    const DEVICE: &str = "/dev/null";
    let put = || -> io::Result<bool> {
        let DetachedMount { tree, .. } = take(Path::new(DEVICE))?;
        chdir(BASE)?;
        let at = Path::new("./device");
        File::create_new(at)?;
        attach(&tree, at)?;
        Ok(fs::metadata(at)?.file_type().is_char_device())
    };
    put().unwrap_or(false)
}

fn take_out(layout: &Layout) -> io::Result<Vec<DetachedMount>> {
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", all)?;
    layout.mounts.keys().map(|path| take(path)).collect()
}

fn take_out_devices() -> io::Result<Vec<DetachedMount>> {
    let there = DEVICES.iter().map(Path::new).filter(|path| path.exists());
    there.map(take).collect()
}

/// Copies the mounts at a path and beneath it. Never follows symbolic links, even if one is created
/// concurrently.
fn take(path: &Path) -> io::Result<DetachedMount> {
    let named = |errno: rustix::io::Errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file =
        openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(named)?;
    let is_directory = fs::metadata(path)?.is_dir();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(&file, c"", flags).map_err(named)?;
    let at = beneath_root(path);
    Ok(DetachedMount {
        at,
        tree,
        is_directory,
    })
}

/// The path relative to the new root, which is the working directory while it is assembled.
fn beneath_root(path: &Path) -> PathBuf {
    Path::new(".").join(path.strip_prefix("/").unwrap_or(path))
}

fn lay_base() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(c"tmpfs", BASE, c"tmpfs", flags, c"mode=755,size=4m")?;
    Ok(chdir(BASE)?)
}

fn put_in(part: &DetachedMount, layout: &Layout) -> io::Result<()> {
    let path = Path::new("/").join(part.at.strip_prefix(".").unwrap_or(&part.at));
    // The file system beneath a mount is the machine's, so nothing is created there.
    if !layout.is_beneath_a_mount(&path) {
        make_room(part)?;
    }
    attach(&part.tree, &part.at).map_err(|error| {
        let why = match error.kind() {
            // A mount still shows what was deleted beneath it.
            io::ErrorKind::NotFound => "it was deleted or replaced".to_owned(),
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("`{}`: {why}", path.display()))
    })
}

/// Mounts an empty file without permissions over each socket, so that connections are refused.
fn cover(sockets: &BTreeSet<PathBuf>) -> io::Result<()> {
    /// The file only has a name until it is mounted.
    const COVER: &str = "cover";
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o0)
        .open(COVER)?;
    for socket in sockets {
        let cover = take(Path::new(COVER))?;
        match attach(&cover.tree, &beneath_root(socket)) {
            // The owner of the socket has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    fs::remove_file(COVER)
}

fn make_room(part: &DetachedMount) -> io::Result<()> {
    if part.is_directory {
        make_directory(&part.at)
    } else {
        if let Some(parent) = part.at.parent() {
            make_directory(parent)?;
        }
        File::create_new(&part.at).map(drop)
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn attach(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let target = openat2(CWD, at, flags, Mode::empty(), resolve)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, c"", &target, c"", flags)?)
}

fn put_link(target: &Path, at: &Path) -> io::Result<()> {
    if let Some(parent) = at.parent() {
        make_directory(parent)?;
    }
    symlink(target, at)
}

fn put_devices(devices: &[DetachedMount]) -> io::Result<()> {
    make_directory(Path::new("dev"))?;
    for device in devices {
        make_room(device)?;
        attach(&device.tree, &device.at)?;
    }
    for (target, at) in LINKS {
        symlink(target, at)?;
    }
    Ok(())
}

fn put_terminals() -> io::Result<()> {
    make_directory(Path::new("dev/pts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount(
        c"devpts",
        c"dev/pts",
        c"devpts",
        flags,
        c"newinstance,ptmxmode=0666,mode=620",
    )?;
    Ok(())
}

fn mount_proc() -> io::Result<()> {
    make_directory(Path::new("proc"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    Ok(mount(c"proc", c"proc", c"proc", flags, c"")?)
}

/// Removes permissions from all mounts of a part. Permissions are never added.
fn restrict(layout: &Layout) -> io::Result<()> {
    let table = fs::read("proc/self/mountinfo")?;
    for MountPoint { path, has } in mount_points(&table) {
        let Ok(path) = path.strip_prefix(BASE) else {
            continue;
        };
        let Some(access) = layout.nearest(&Path::new("/").join(path)) else {
            continue;
        };
        let mut flags = has | MountFlags::NOSUID | MountFlags::NODEV;
        if access == Access::Read {
            flags |= MountFlags::RDONLY;
        }
        if flags != has {
            mount_remount(Path::new(".").join(path), flags | MountFlags::BIND, c"")?;
        }
    }
    Ok(())
}

fn empty(directory: &str, options: &std::ffi::CStr) -> io::Result<()> {
    make_directory(Path::new(directory))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount(c"tmpfs", directory, c"tmpfs", flags, options)?)
}

/// Mounts the old root over the new one and unmounts it.
fn pivot() -> io::Result<()> {
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount_remount("/", flags, c"")?)
}
