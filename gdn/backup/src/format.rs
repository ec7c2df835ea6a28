//! The data of a backup, and its limits.

use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Version of the format of backups.
pub(crate) const FORMAT: u64 = 1;

/// Size of the parts into which a file is split, in bytes.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;

/// Size at which a new pack begins, in bytes.
pub(crate) const PACK_BYTES: u64 = 128 * 1024 * 1024;

/// Maximum length of a header line, in bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum size of a stored list of files, in bytes, and of the list itself.
pub(crate) const INDEX_BYTES_MAX: u64 = 512 * 1024 * 1024;
pub(crate) const INDEX_TEXT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Maximum length of a line of the list, in bytes.
pub(crate) const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Maximum number of files and directories.
pub(crate) const ENTRIES_MAX: usize = 20_000_000;

/// Maximum length of a path below the state root, in bytes, of a name, and the maximum depth. A
/// restore needs the rest of the 4,096 bytes of a whole path for the state root.
pub(crate) const PATH_BYTES_MAX: usize = 3_000;
pub(crate) const NAME_BYTES_MAX: usize = 255;
pub(crate) const DEPTH_MAX: usize = 128;

/// Maximum length of the target of a symbolic link, in bytes: the maximum on Linux.
pub(crate) const LINK_BYTES_MAX: usize = 4_095;

/// A sparse file larger than this is not copied, in bytes: a program can create one of any size.
pub(crate) const SPARSE_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// Names at the top of the state root that are not copied: sockets and locks, log files, and files
/// that goondan can download again.
pub(crate) const NOT_COPIED: [&[u8]; 3] = [b"run", b"logs", b"caches"];

/// Permission bits that are stored and restored. Programs with the rights of their owner are not
/// restored as such.
pub(crate) const MODE_BITS: u32 = 0o777;

/// First line of a backup: facts that can be read without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    pub format: u64,
    pub id: String,
    pub taken_at: Timestamp,
    /// Version of the goondan that made it.
    pub goondan: String,
    /// Public keys of the identities that decrypt it; empty if it is not encrypted.
    pub recipients: Vec<String>,
    /// Its key, encrypted for the recipients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Number of files, and their size in bytes.
    pub files: u64,
    pub bytes: u64,
    /// Size of the packs that were made for it, in bytes.
    pub new_bytes: u64,
    /// All packs that it refers to.
    pub packs: Vec<StoredPack>,
}

/// A pack, and its content as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPack {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Position of a chunk, and the digest of its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkRef(
    /// Index of the pack.
    pub(crate) usize,
    /// Offset in the pack.
    pub(crate) u64,
    /// Stored length.
    pub(crate) u32,
    /// Length of the content.
    pub(crate) u32,
    /// SHA-256 of the content, in hexadecimal.
    pub(crate) String,
);

/// Seconds and nanoseconds since 1970.
pub(crate) type Time = (i64, u32);

/// Facts that show if a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileState {
    #[serde(rename = "n")]
    pub(crate) size: u64,
    #[serde(rename = "t")]
    pub(crate) modified: Time,
    #[serde(rename = "c")]
    pub(crate) changed: Time,
    #[serde(rename = "i")]
    pub(crate) inode: u64,
}

/// Kind and content of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    Directory {
        modified: Time,
    },
    File {
        state: FileState,
        /// Time at which it was read, in seconds.
        read: i64,
        chunks: Vec<ChunkRef>,
    },
    /// A symbolic link, and the bytes of its target in hexadecimal.
    Link(String),
}

/// A path of the state root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(rename = "m")]
    pub(crate) mode: u32,
    #[serde(flatten)]
    pub(crate) content: Content,
}

/// A pack's name and its key, in hexadecimal; the key is missing if it is not encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackKey {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

/// True if a name is one that goondan gives to backups and packs.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= 100 && name.bytes().all(is_plain)
}
