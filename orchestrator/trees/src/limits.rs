//! The limits of trees. Callers may ask for less ([`Limits`]), never for more.

/// Files, directories and links of one tree at most.
pub const TREE_ENTRIES_MAX: usize = 250_000;

/// Bytes of all files of one tree at most.
pub const TREE_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// Names that a path has at most, one below another.
pub const PATH_DEPTH_MAX: usize = 128;

/// Bytes of one name at most.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of one path at most; what the kernel takes less room for a prefix.
pub const PATH_BYTES_MAX: usize = 3 * 1024;

/// Bytes that a link's target has at most.
pub const LINK_TARGET_BYTES_MAX: usize = 4095;

/// Bytes of one file in a patch at most, before or after. What a patch tells of a binary file holds it twice,
/// as it was and as it is, so that more would not fit into [`PATCH_BYTES_MAX`].
pub const PATCH_FILE_BYTES_MAX: usize = 192 * 1024 * 1024;

/// Bytes of a whole patch at most; git itself refuses more than 1023 MiB.
pub const PATCH_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Lines of context around a change in a patch.
pub const PATCH_CONTEXT_LINES: usize = 3;

/// Bytes of a file from which it is written as a binary in a patch, though it may be text.
pub const PATCH_TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Entries of one tree that are looked at to tell how much it takes; one with more is not measured.
pub const TREE_SIZE_ENTRIES_MAX: usize = 2_000_000;

/// How many times larger than an archive what comes out of it may be, beyond [`EXTRACT_FREE_BYTES`].
pub const EXTRACT_RATIO_MAX: u64 = 200;

/// Bytes that may come out of an archive before the ratio counts.
pub const EXTRACT_FREE_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes of what stands between two files in an archive at most: headers, long names.
pub const EXTRACT_HEADER_BYTES_MAX: u64 = 64 * 1024;

/// Times that a file is copied anew because it was written meanwhile, before a freeze gives up.
pub const FREEZE_ATTEMPTS: usize = 3;

/// Bytes of a swap's plan at most.
pub const SWAP_PLAN_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes copied at a time.
pub const COPY_CHUNK_BYTES: usize = 256 * 1024;

/// New files that are open at a time, to be synced together.
pub const SYNC_FILES: usize = 128;

/// Threads that sync them: waiting for the disk, so that more than processors help.
pub const SYNC_THREADS: usize = 8;

const _: () = assert!(NAME_BYTES_MAX <= PATH_BYTES_MAX && PATH_BYTES_MAX < 4096);
// 52 bytes are a line of 67, and what cannot be deflated becomes longer by less than a hundredth.
const _: () = assert!(2 * (PATCH_FILE_BYTES_MAX / 100 * 101) / 52 * 67 < PATCH_BYTES_MAX);
const _: () = assert!(PATCH_TEXT_BYTES_MAX <= PATCH_FILE_BYTES_MAX);

/// What one tree may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    entries: usize,
    bytes: u64,
}

impl Limits {
    /// Limits of a caller's own; none beyond those of every tree.
    #[must_use]
    pub fn new(entries: usize, bytes: u64) -> Self {
        Self {
            entries: entries.min(TREE_ENTRIES_MAX),
            bytes: bytes.min(TREE_BYTES_MAX),
        }
    }

    /// Entries at most.
    #[must_use]
    pub fn entries(self) -> usize {
        self.entries
    }

    /// Bytes of all files at most.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.bytes
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(TREE_ENTRIES_MAX, TREE_BYTES_MAX)
    }
}

/// Directories of a tree that is removed that are open at a time, one below the other.
pub const REMOVAL_DEPTH: usize = 64;

/// Times that a directory is listed anew because something was written into it while it was removed.
pub const REMOVAL_ROUNDS: usize = 16;
