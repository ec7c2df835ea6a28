//! Index of the newest checkpoint's files, so that unchanged files are neither read nor compressed
//! again (`CKPT-5`).
//!
//! An index is only a cache and is not trusted: a compressed group is copied from the newest
//! archive only if its checksum matches. A file counts as unchanged if all its metadata is the same
//! and its last change is older than the start of the index, like git's rule for racily clean
//! files. An index from before a reboot is not used, because a crash can revert contents and keep
//! times.

use std::collections::HashMap;

use goondan_durable::disk::{NodeKind, NodeStat};
use goondan_trees::{Digest, RelativePath};
use serde::{Deserialize, Serialize};

use crate::error::CheckpointError;
use crate::id::CheckpointId;
use crate::record::json;

/// A compressed group in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Detects damage only. Restored data is checked against digests.
    pub(crate) crc32: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexedFile {
    pub(crate) stat: NodeStat,
    pub(crate) sha256: Digest,
}

#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub(crate) base: CheckpointId,
    pub(crate) archive_bytes: u64,
    /// Digest of the checkpoint's manifest without goondan's own files.
    pub(crate) content: Digest,
    pub(crate) files: HashMap<RelativePath, IndexedFile>,
    /// The groups, by the digest of their content.
    pub(crate) members: HashMap<Digest, Member>,
}

impl Index {
    /// The digest of an unchanged file.
    pub(crate) fn digest_of(&self, path: &RelativePath, stat: &NodeStat) -> Option<Digest> {
        let known = self.files.get(path)?;
        (known.stat == *stat).then_some(known.sha256)
    }
}

/// Serialized form of an index.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IndexFile {
    boot: String,
    base: CheckpointId,
    archive_bytes: u64,
    content: Digest,
    files: Vec<StoredFile>,
    members: Vec<(Digest, u64, u64, u32)>,
}

/// Path, version, length, mode and digest.
#[derive(Serialize, Deserialize)]
struct StoredFile(String, [i128; 4], u64, u32, Digest);

/// Serializes an index with its digest.
pub(crate) fn write(index: &Index, boot: &str) -> Result<Vec<u8>, CheckpointError> {
    let file = |(path, known): (&RelativePath, &IndexedFile)| {
        let stat = known.stat;
        StoredFile(
            path.to_string(),
            stat.version,
            stat.len,
            stat.mode,
            known.sha256,
        )
    };
    let member =
        |(key, member): (&Digest, &Member)| (*key, member.offset, member.bytes, member.crc32);
    let text = json(&IndexFile {
        boot: boot.to_owned(),
        base: index.base,
        archive_bytes: index.archive_bytes,
        content: index.content,
        files: index.files.iter().map(file).collect(),
        members: index.members.iter().map(member).collect(),
    })?;
    let mut whole = format!("{}\n", Digest::of(&text)).into_bytes();
    whole.extend_from_slice(&text);
    Ok(whole)
}

/// Parses an index; `None` if it is damaged or from before a reboot.
pub(crate) fn read(whole: &[u8], boot: &str) -> Option<Index> {
    let at = whole.iter().position(|byte| *byte == b'\n')?;
    let (digest, text) = whole.split_at_checked(at)?;
    let text = text.get(1..)?;
    if digest != Digest::of(text).to_string().as_bytes() {
        return None;
    }
    let stored: IndexFile = serde_json::from_slice(text).ok()?;
    if stored.boot != boot {
        return None;
    }
    let mut files = HashMap::with_capacity(stored.files.len());
    for StoredFile(path, version, len, mode, sha256) in stored.files {
        let path = RelativePath::text_allowed(&path, goondan_trees::Names::Local).ok()?;
        let stat = NodeStat {
            kind: NodeKind::File,
            mode,
            len,
            version,
        };
        files.insert(path, IndexedFile { stat, sha256 });
    }
    let member = |(key, offset, bytes, crc32)| {
        (
            key,
            Member {
                offset,
                bytes,
                crc32,
            },
        )
    };
    Some(Index {
        base: stored.base,
        archive_bytes: stored.archive_bytes,
        content: stored.content,
        files,
        members: stored.members.into_iter().map(member).collect(),
    })
}
