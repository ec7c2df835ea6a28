//! Unix sockets of the machine's processes beneath paths that a sandbox shows (level `full`).
//!
//! A read-only mount does not prevent connections to sockets in it. A person who lists a directory
//! that contains a service's socket, such as Docker's, would let programs use that service. Sockets
//! that exist when the root is created are therefore covered.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use goondan_protocol::sandbox::Network;

use crate::layout::{Access, Layout};

/// Sockets of the network namespace of the machine's first process; the caller's own namespace is
/// already empty.
const TABLE: &str = "/proc/1/net/unix";

/// A path that services often use for a directory, and the directory's real path.
const OLD_RUN: (&str, &str) = ("/var/run", "/run");

/// Sockets to cover, each by its path without links.
///
/// With a private network, the machine's table contains no sockets of the sandbox. With a shared
/// network it also contains the sandbox's own sockets; they are in writable directories, which are
/// not covered.
///
/// If the machine hides its first process, the table is hidden as well and no socket is covered.
///
/// # Errors
///
/// The table exists but cannot be read.
pub(crate) fn to_cover(layout: &Layout, network: &Network) -> io::Result<BTreeSet<PathBuf>> {
    match fs::read(TABLE) {
        Ok(table) => Ok(shown(&table, layout, network)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

fn shown(table: &[u8], layout: &Layout, network: &Network) -> BTreeSet<PathBuf> {
    let is_covered = |socket: &PathBuf| match layout.nearest(socket) {
        Some(Access::Read) => true,
        Some(Access::Write) => *network != Network::Any,
        None => false,
    };
    bound(table).filter_map(real).filter(is_covered).collect()
}

/// The current real path of a socket; `None` if there is no socket, or if the path means something
/// else, as in a container.
fn real(path: &Path) -> Option<PathBuf> {
    let of_run = || {
        let (old, run) = OLD_RUN;
        let name = path.strip_prefix(old).ok()?;
        fs::canonicalize(Path::new(run).join(name)).ok()
    };
    let real = fs::canonicalize(path).ok().or_else(of_run)?;
    let is_socket = fs::symlink_metadata(&real).is_ok_and(|it| it.file_type().is_socket());
    is_socket.then_some(real)
}

/// The absolute paths in a table like `/proc/net/unix`.
fn bound(table: &[u8]) -> impl Iterator<Item = &Path> {
    /// Number of fields before the path.
    const FIELDS: usize = 7;
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut rest = line;
        for _ in 0..FIELDS {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(u8::is_ascii_whitespace)?;
            (_, rest) = rest.split_at_checked(end)?;
        }
        let path = Path::new(OsStr::from_bytes(rest.strip_prefix(b" ")?));
        path.is_absolute().then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_3_paths_of_sockets_are_read_from_the_kernels_table() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            00000000ce81160d: 00000003 00000000 00000000 0002 03 27167\n\
            000000006a4f67b4: 00000002 00000000 00010000 0001 01    88 /run/a b/bus\n\
            0000000070000000: 00000002 00000000 00010000 0001 01 35290 @abstract\n\
            000000001232d2bb: 00000002 00000000 00000000 0002 01 27050 relative\n";
        let paths: Vec<_> = bound(table).collect();
        assert_eq!(paths, [Path::new("/run/a b/bus")]);
    }

    #[test]
    fn sec_3_sockets_of_others_are_covered_where_they_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        let listeners = ["read", "write", "other"].map(|place| {
            fs::create_dir(at(place)).unwrap();
            std::os::unix::net::UnixListener::bind(at(place).join("socket")).unwrap()
        });
        let layout = Layout::of_paths(
            [at("read").as_path()].into_iter(),
            [at("write").as_path()].into_iter(),
        );
        let layout = layout.unwrap();
        let table = fs::read("/proc/self/net/unix").unwrap();
        let covered = |network| -> Vec<_> {
            let all = shown(&table, &layout, &network);
            all.into_iter().filter(|it| it.starts_with(&root)).collect()
        };
        let [read, write] = ["read/socket", "write/socket"].map(at);
        assert_eq!(covered(Network::None), [read.clone(), write]);
        assert_eq!(covered(Network::Any), [read]);
        drop(listeners);
    }
}
