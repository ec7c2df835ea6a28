//! All limits of `gdn upgrade` (`REL-1`).

/// Largest archive of a version, in bytes.
pub(crate) const ARCHIVE_BYTES_MAX: u64 = 1_073_741_824;

/// Bytes that an archive or a directory of a version may unpack to.
pub(crate) const UNPACKED_BYTES_MAX: u64 = 4_294_967_296;

/// Files and directories that one archive of a version may hold.
pub(crate) const ARCHIVE_ENTRIES_MAX: usize = 1024;

/// Longest path in an archive of a version, in bytes.
pub(crate) const ARCHIVE_PATH_BYTES_MAX: usize = 256;

/// Largest `SHA256SUMS`, in bytes.
pub(crate) const SUMS_BYTES_MAX: u64 = 262_144;

/// Largest journal of an upgrade, in bytes.
pub(crate) const JOURNAL_BYTES_MAX: u64 = 65_536;

/// Versions that stay after an upgrade: the one that runs and the one before.
pub(crate) const VERSIONS_KEPT_MAX: usize = 2;

/// Time that a program of another version has to say what it is, or what it sees, in milliseconds.
pub(crate) const PROGRAM_ANSWER_TIMEOUT_MS: u64 = 20_000;

/// Time in which the daemon of the new version has to be as well as the one before, in milliseconds.
pub(crate) const HEALTH_TIMEOUT_MS: u64 = 60_000;

/// How long it has to stay well, in milliseconds.
pub(crate) const HEALTH_SETTLE_MS: u64 = 2_000;

/// How often it is looked at, in milliseconds.
pub(crate) const HEALTH_LOOK_MS: u64 = 250;

/// Time that a daemon which does not answer has to end after SIGTERM, in milliseconds; then it is killed.
pub(crate) const SILENT_END_TIMEOUT_MS: u64 = 10_000;

/// Steps that one upgrade may take: somebody who starts daemons all the while must not keep it going for ever.
pub(crate) const UPGRADE_STEPS_MAX: usize = 32;
