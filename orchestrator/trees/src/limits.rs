//! Limits of trees. Callers can request lower limits ([`Limits`]), never higher ones.

/// Most files, directories and links in one tree.
pub const TREE_ENTRIES_MAX: usize = 250_000;

/// Most bytes of all files in one tree.
pub const TREE_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// Most components of a path.
pub const PATH_DEPTH_MAX: usize = 128;

/// Most bytes of one name.
pub const NAME_BYTES_MAX: usize = 255;

/// Most bytes of one path: the kernel's limit minus room for a prefix.
pub const PATH_BYTES_MAX: usize = 3 * 1024;

/// Most bytes of a link's target.
pub const LINK_TARGET_BYTES_MAX: usize = 4095;

/// Most bytes of one file in a patch, before or after. A patch holds a binary file twice, old and
/// new, so a larger file would not fit into [`PATCH_BYTES_MAX`].
pub const PATCH_FILE_BYTES_MAX: usize = 192 * 1024 * 1024;

/// Most bytes of a whole patch. git rejects more than 1023 MiB.
pub const PATCH_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Lines of context around a change in a patch.
pub const PATCH_CONTEXT_LINES: usize = 3;

/// Size from which a patch treats a text file as binary, in bytes.
pub const PATCH_TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most entries counted to measure a tree. A larger tree is not measured.
pub const TREE_SIZE_ENTRIES_MAX: usize = 2_000_000;

/// Highest ratio of extracted bytes to archive size, beyond [`EXTRACT_FREE_BYTES`].
pub const EXTRACT_RATIO_MAX: u64 = 200;

/// Extracted bytes to which the ratio does not apply.
pub const EXTRACT_FREE_BYTES: u64 = 16 * 1024 * 1024;

/// Most bytes between two files in an archive: headers, long names.
pub const EXTRACT_HEADER_BYTES_MAX: u64 = 64 * 1024;

/// Attempts to copy a file that changes during the copy.
pub const FREEZE_ATTEMPTS: usize = 3;

/// Most bytes of a swap's plan.
pub const SWAP_PLAN_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes copied at a time.
pub const COPY_CHUNK_BYTES: usize = 256 * 1024;

/// New files kept open to be synced together.
pub const SYNC_FILES: usize = 128;

/// Threads that sync files. They wait for the disk, so more threads than processors help.
pub const SYNC_THREADS: usize = 8;

const _: () = assert!(NAME_BYTES_MAX <= PATH_BYTES_MAX && PATH_BYTES_MAX < 4096);
// 52 bytes take a line of 67, and incompressible data grows by less than one percent.
const _: () = assert!(2 * (PATCH_FILE_BYTES_MAX / 100 * 101) / 52 * 67 < PATCH_BYTES_MAX);
const _: () = assert!(PATCH_TEXT_BYTES_MAX <= PATCH_FILE_BYTES_MAX);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    entries: usize,
    bytes: u64,
}

impl Limits {
    /// Creates limits, capped by the limits of every tree.
    #[must_use]
    pub fn new(entries: usize, bytes: u64) -> Self {
        Self {
            entries: entries.min(TREE_ENTRIES_MAX),
            bytes: bytes.min(TREE_BYTES_MAX),
        }
    }

    #[must_use]
    pub fn entries(self) -> usize {
        self.entries
    }

    /// Most bytes of all files.
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

/// Files of this length or more count with the bytes that they occupy on the disk, because they can
/// be sparse.
pub const SPARSE_BYTES_MIN: u64 = 1024 * 1024;

/// Directories kept open at a time, one below another, while a tree is removed.
pub const REMOVAL_DEPTH: usize = 64;

/// Most listings of a directory that is written to during its removal.
pub const REMOVAL_ROUNDS: usize = 16;
