//! The file descriptors of this process: how many it may have, and how many it has.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit as far as the system allows.
pub(super) fn raise_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // The limit that is in force will do for fewer.
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok();
    }
}

/// How many there may be.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

/// How many there are; none if the system does not tell.
pub(super) fn open() -> Option<u64> {
    // Kernels from 6.2 on tell their number as the directory's size; before that it is 0.
    let told = std::fs::metadata("/proc/self/fd").map_or(0, |dir| dir.len());
    if told > 0 {
        return Some(told);
    }
    let entries = std::fs::read_dir("/dev/fd").ok()?;
    u64::try_from(entries.count()).ok()
}

/// Whether an error says that there are no descriptors, processes or memory left, so that what failed may
/// work once there is room.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::EAGAIN | Errno::ENOMEM)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_is_one_more() {
        let before = open().unwrap();
        let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/").unwrap()).collect();
        // Other tests of this process open and close files meanwhile, but not as many.
        let after = open().unwrap();
        assert!(after >= before + 25 && after <= limit(), "{before} {after}");
        drop(files);
    }

    #[test]
    fn a_shortage_is_told_from_other_errors() {
        assert!(is_shortage(&io::Error::from_raw_os_error(24)));
        assert!(!is_shortage(&io::Error::from_raw_os_error(2)));
        assert!(!is_shortage(&io::Error::other("no such luck")));
    }
}
