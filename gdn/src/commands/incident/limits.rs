//! Limits of incidents.

/// Largest file of an incident, in bytes.
pub(crate) const INCIDENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Time to replay the incidents of one batch, in milliseconds.
pub(crate) const REPLAY_TIMEOUT_MS: u64 = 120_000;

/// Bytes of incidents that are replayed together. One that is larger is replayed alone.
pub(crate) const REPLAY_BATCH_BYTES: usize = 16 * 1024 * 1024;

/// Files of a directory that `gdn incident test` replays.
pub(crate) const INCIDENT_FILES_MAX: usize = 10_000;
