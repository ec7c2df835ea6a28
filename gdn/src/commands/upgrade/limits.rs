//! All limits of `gdn daemon upgrade` (`REL-1`).

/// Maximum size of a version's archive, in bytes.
pub(crate) const ARCHIVE_BYTES_MAX: u64 = 1_073_741_824;

/// Maximum unpacked size of an archive or directory of a version, in bytes.
pub(crate) const UNPACKED_BYTES_MAX: u64 = 4_294_967_296;

/// Maximum number of files and directories in an archive.
pub(crate) const ARCHIVE_ENTRIES_MAX: usize = 1024;

/// Maximum length of a path in an archive, in bytes.
pub(crate) const ARCHIVE_PATH_BYTES_MAX: usize = 256;

/// Maximum size of `SHA256SUMS`, in bytes.
pub(crate) const SUMS_BYTES_MAX: u64 = 262_144;

/// Maximum size of an upgrade's journal, in bytes.
pub(crate) const JOURNAL_BYTES_MAX: u64 = 65_536;

/// Number of versions kept after an upgrade: the current one and the previous one.
pub(crate) const VERSIONS_KEPT_MAX: usize = 2;

/// Timeout for a query to a program of another version, in milliseconds.
pub(crate) const PROGRAM_ANSWER_TIMEOUT_MS: u64 = 20_000;

/// Time within which the new daemon must be as healthy as the previous one, in milliseconds.
pub(crate) const HEALTH_TIMEOUT_MS: u64 = 60_000;

/// Time for which it must stay healthy, in milliseconds.
pub(crate) const HEALTH_SETTLE_MS: u64 = 2_000;

/// Interval between health checks, in milliseconds.
pub(crate) const HEALTH_LOOK_MS: u64 = 250;

/// Time that an unresponsive daemon has to exit after SIGTERM before it is killed, in milliseconds.
pub(crate) const SILENT_END_TIMEOUT_MS: u64 = 10_000;

/// Maximum number of steps in one upgrade, so that a process that keeps starting daemons cannot prolong it forever.
pub(crate) const UPGRADE_STEPS_MAX: usize = 32;
