//! File descriptors of this process: limit and current number.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit.
pub(super) fn raise_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If this fails, the current limit applies.
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok();
    }
}

pub(super) fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

/// The number of open descriptors; `None` if unknown.
pub(super) fn open() -> Option<u64> {
    // Since Linux 6.2 the size of this directory is the number of descriptors; before that it is 0.
    let told = std::fs::metadata("/proc/self/fd").map_or(0, |dir| dir.len());
    if told > 0 {
        return Some(told);
    }
    let entries = std::fs::read_dir("/dev/fd").ok()?;
    u64::try_from(entries.count()).ok()
}

/// True if the error means that descriptors, processes or memory are exhausted, so a later attempt
/// may succeed.
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
        // Other tests of this process open and close files concurrently, but fewer than this.
        let after = open().unwrap();
        assert!(after >= before + 25 && after <= limit(), "{before} {after}");
        drop(files);
    }

    #[test]
    fn descriptor_shortage_is_distinguished_from_other_errors() {
        assert!(is_shortage(&io::Error::from_raw_os_error(24)));
        assert!(!is_shortage(&io::Error::from_raw_os_error(2)));
        assert!(!is_shortage(&io::Error::other("no such luck")));
    }
}
