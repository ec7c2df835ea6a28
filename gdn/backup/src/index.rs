//! The list of files of a backup: its text, its validation, and its file.
//!
//! The file has a header line in JSON, the sealed list, and a SHA-256 of both. The
//! encryption authenticates the header, too.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};

use goondan_protocol::state_root::RESTORE_MARK;

use crate::error::{BackupError, During as _};
use crate::format::{
    Content, DEPTH_MAX, ENTRIES_MAX, Entry, FORMAT, HEADER_BYTES_MAX, Header, INDEX_BYTES_MAX,
    INDEX_TEXT_BYTES_MAX, LINE_BYTES_MAX, LINK_BYTES_MAX, NAME_BYTES_MAX, NOT_COPIED,
    PATH_BYTES_MAX, PackKey, is_plain_name,
};
use crate::pack::is_plausible;
use crate::seal::{self, Identities, Key};
use crate::stored_file::open_stored;

/// Purpose of the key of the list.
const PURPOSE: &str = "list of files";

/// Length of the digest at the end.
const DIGEST_BYTES: usize = 32;

/// Paths of a backup, in order.
pub(crate) type Entries = BTreeMap<Vec<u8>, Entry>;

/// List of files, and the packs that it refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) packs: Vec<PackKey>,
    pub(crate) entries: Entries,
}

/// One line of the list.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// The path; in hexadecimal if it is not UTF-8.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    #[serde(flatten)]
    entry: Entry,
}

impl Index {
    /// Writes the list: one line with the packs, and one for each path.
    pub(crate) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut out = DeflateEncoder::new(Vec::new(), Compression::fast());
        let mut line = |value: Vec<u8>| -> std::io::Result<()> {
            out.write_all(&value)?;
            out.write_all(b"\n")
        };
        line(serde_json::to_vec(&self.packs)?)?;
        for (path, entry) in &self.entries {
            let text = std::str::from_utf8(path).ok();
            line(serde_json::to_vec(&Line {
                path: text.map(str::to_owned),
                hex: text.is_none().then(|| hex::encode(path)),
                entry: entry.clone(),
            })?)?;
        }
        line(serde_json::to_vec(&self.entries.len())?)?;
        out.finish()
    }

    /// Reads a list and validates it as a whole.
    pub(crate) fn decode(text: &[u8]) -> Result<Self, String> {
        let text = DeflateDecoder::new(text).take(INDEX_TEXT_BYTES_MAX);
        let mut text = BufReader::new(text);
        let mut line = Vec::new();
        let mut next = |line: &mut Vec<u8>| -> Result<bool, String> {
            line.clear();
            let mut limited = text.by_ref().take(LINE_BYTES_MAX);
            let read = limited
                .read_until(b'\n', line)
                .map_err(|error| format!("the list of files cannot be read: {error}"))?;
            Ok(read > 0)
        };
        let invalid = |error: serde_json::Error| format!("the list of files is not valid: {error}");
        if !next(&mut line)? {
            return Err("the list of files is empty".to_owned());
        }
        let packs: Vec<PackKey> = serde_json::from_slice(&line).map_err(invalid)?;
        if !packs.iter().all(|pack| is_plain_name(&pack.name)) {
            return Err("the list of files names a pack outside of the directory".to_owned());
        }
        let mut entries = Entries::new();
        loop {
            if !next(&mut line)? {
                return Err("the list of files is incomplete".to_owned());
            }
            if let Ok(count) = serde_json::from_slice::<usize>(&line) {
                if count != entries.len() {
                    return Err("the list of files is incomplete".to_owned());
                }
                break;
            }
            if entries.len() >= ENTRIES_MAX {
                return Err(format!("the list has more than {ENTRIES_MAX} files"));
            }
            let Line { path, hex, entry } = serde_json::from_slice(&line).map_err(invalid)?;
            let path = match (path, hex) {
                (Some(path), None) => path.into_bytes(),
                (None, Some(hex)) => {
                    hex::decode(hex).map_err(|_| "a path is not valid".to_owned())?
                }
                _ => return Err("a path is missing".to_owned()),
            };
            check(&path, &entry, &packs, &entries)?;
            entries.insert(path, entry);
        }
        Ok(Self { packs, entries })
    }
}

/// Checks a path and its entry against those before it.
fn check(path: &[u8], entry: &Entry, packs: &[PackKey], before: &Entries) -> Result<(), String> {
    let shown = String::from_utf8_lossy(path);
    let refuse = |why: &str| Err(format!("the path `{}` {why}", shown.escape_debug()));
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let is_name = |part: &&[u8]| {
        !part.is_empty()
            && part.len() <= NAME_BYTES_MAX
            && !matches!(*part, b"." | b"..")
            && !part.contains(&0)
    };
    if path.len() > PATH_BYTES_MAX || parts.len() > DEPTH_MAX + 1 || !parts.iter().all(is_name) {
        return refuse("is not a path below the state root");
    }
    let top = parts.first().copied().unwrap_or_default();
    if NOT_COPIED.contains(&top) || path == RESTORE_MARK.as_bytes() {
        return refuse("is not part of a backup");
    }
    if let Some((last, _)) = before.last_key_value()
        && last.as_slice() >= path
    {
        return refuse("is listed twice, or is not in order");
    }
    if let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
        let parent = path.get(..end).and_then(|parent| before.get(parent));
        let is_directory =
            parent.is_some_and(|parent| matches!(parent.content, Content::Directory { .. }));
        if !is_directory {
            return refuse("is not in a listed directory");
        }
    }
    match &entry.content {
        Content::Directory { .. } => Ok(()),
        Content::File { state, chunks, .. } => {
            let mut total: u64 = 0;
            for chunk in chunks {
                if chunk.0 >= packs.len() || !is_plausible(chunk) {
                    return refuse("has a content that does not exist");
                }
                total = total.saturating_add(u64::from(chunk.3));
            }
            if total == state.size {
                Ok(())
            } else {
                refuse("has a content of another size")
            }
        }
        Content::Link(target) => match hex::decode(target) {
            Ok(target)
                if !target.is_empty() && target.len() <= LINK_BYTES_MAX && !target.contains(&0) =>
            {
                Ok(())
            }
            _ => refuse("is a link without a valid target"),
        },
    }
}

/// Bytes of a backup's file.
///
/// # Errors
///
/// [`BackupError::TooLarge`] instead of a file that no restore would read.
pub(crate) fn to_file(
    header: &Header,
    key: Option<&Key>,
    index: &Index,
) -> Result<Vec<u8>, BackupError> {
    let failed = |error: &dyn std::fmt::Display| BackupError::Encryption(error.to_string());
    let mut file = serde_json::to_vec(header).map_err(|error| failed(&error))?;
    file.push(b'\n');
    let head = file.len();
    let is_long = |len: usize| u64::try_from(len).unwrap_or(u64::MAX) > INDEX_BYTES_MAX;
    let list = index.encode().map_err(|error| failed(&error))?;
    let key = key.map(|key| key.derive(PURPOSE));
    let sealed = seal::seal(key.as_ref(), 0, &file, &list)?;
    file.extend_from_slice(&sealed);
    let digest = ring::digest::digest(&ring::digest::SHA256, &file);
    file.extend_from_slice(digest.as_ref());
    let files = index.entries.len();
    if head > HEADER_BYTES_MAX || files > ENTRIES_MAX || is_long(list.len()) || is_long(file.len())
    {
        return Err(BackupError::TooLarge { files });
    }
    Ok(file)
}

/// A backup's file, read and compared with its digest.
pub(crate) struct BackupFile {
    pub(crate) header: Header,
    /// Length of the header line.
    head: usize,
    bytes: Vec<u8>,
}

impl BackupFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`BackupError::Damaged`] if it differs from its digest.
    pub(crate) fn read(path: &Path) -> Result<Self, BackupError> {
        let mut bytes = Vec::new();
        open_stored(path)?
            .take(INDEX_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .during("read", path)?;
        let damaged = |problem: &str| BackupError::damaged(path, problem);
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > INDEX_BYTES_MAX {
            return Err(damaged("it is too long"));
        }
        let end = bytes
            .len()
            .checked_sub(DIGEST_BYTES)
            .ok_or_else(|| damaged("it is too short"))?;
        let digest = bytes.split_off(end);
        if ring::digest::digest(&ring::digest::SHA256, &bytes).as_ref() != digest {
            return Err(damaged("it differs from its digest"));
        }
        let header = header_line(&bytes).ok_or_else(|| damaged("it has no header"))?;
        let head = header.len() + 1;
        let header = parse_header(header, path)?;
        Ok(Self {
            header,
            head,
            bytes,
        })
    }

    /// Opens the list of files.
    pub(crate) fn index(
        &self,
        path: &Path,
        identities: &Identities,
    ) -> Result<(Index, Option<Key>), BackupError> {
        let key = match &self.header.key {
            None => None,
            Some(armored) => {
                let (id, recipients) = (self.header.id.clone(), self.header.recipients.clone());
                if identities.is_empty() {
                    return Err(BackupError::IdentityNeeded { id, recipients });
                }
                let key = identities
                    .unwrap(armored)
                    .map_err(|problem| BackupError::damaged(path, problem))?;
                Some(key.ok_or(BackupError::OtherIdentity { id, recipients })?)
            }
        };
        let (about, sealed) = self
            .bytes
            .split_at_checked(self.head)
            .ok_or_else(|| BackupError::damaged(path, "it has no list of files"))?;
        let of_list = key.as_ref().map(|key| key.derive(PURPOSE));
        let index = seal::open(of_list.as_ref(), 0, about, sealed.to_vec(), INDEX_BYTES_MAX)
            .and_then(|list| Index::decode(&list))
            .and_then(|index| self.check_packs(index))
            .map_err(|problem| BackupError::damaged(path, problem))?;
        Ok((index, key))
    }

    /// The header, which can be read without a key, must name the packs of the list.
    fn check_packs(&self, index: Index) -> Result<Index, String> {
        let named = self.header.packs.iter().map(|pack| &pack.name);
        if named.eq(index.packs.iter().map(|pack| &pack.name)) {
            Ok(index)
        } else {
            Err("its header names other packs than its list of files".to_owned())
        }
    }
}

fn header_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    bytes.get(..end)
}

fn parse_header(line: &[u8], path: &Path) -> Result<Header, BackupError> {
    #[derive(Deserialize)]
    struct Versioned {
        format: u64,
    }
    let invalid =
        |error: serde_json::Error| BackupError::damaged(path, format!("its header: {error}"));
    let Versioned { format } = serde_json::from_slice(line).map_err(invalid)?;
    if format != FORMAT {
        return Err(BackupError::NewerFormat {
            path: path.to_owned(),
            format,
        });
    }
    let header: Header = serde_json::from_slice(line).map_err(invalid)?;
    let names = header.packs.iter().map(|pack| &pack.name);
    if !names.chain([&header.id]).all(|name| is_plain_name(name)) {
        return Err(BackupError::damaged(path, "its header has an invalid name"));
    }
    Ok(header)
}

/// Reads only the header of a backup's file.
pub(crate) fn read_header(path: &Path) -> Result<Header, BackupError> {
    let file = open_stored(path)?;
    let most = u64::try_from(HEADER_BYTES_MAX).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    BufReader::new(file.take(most))
        .read_until(b'\n', &mut line)
        .during("read", path)?;
    let line = header_line(&line).ok_or_else(|| BackupError::damaged(path, "it has no header"))?;
    parse_header(line, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ChunkRef, FileState};

    fn directory() -> Entry {
        Entry {
            mode: 0o700,
            content: Content::Directory { modified: (1, 2) },
        }
    }

    fn file(size: u64, chunks: Vec<ChunkRef>) -> Entry {
        let state = FileState {
            size,
            modified: (1, 2),
            changed: (3, 4),
            inode: 5,
        };
        let content = Content::File {
            state,
            read: 6,
            chunks,
        };
        Entry {
            mode: 0o600,
            content,
        }
    }

    fn chunk(len: u32) -> ChunkRef {
        ChunkRef(0, 0, len, len, seal::sha256(b"x"))
    }

    fn link(target: &[u8]) -> Entry {
        Entry {
            mode: 0o777,
            content: Content::Link(hex::encode(target)),
        }
    }

    fn index(entries: Vec<(&[u8], Entry)>) -> Index {
        let entries = entries
            .into_iter()
            .map(|(path, entry)| (path.to_vec(), entry));
        let name = "p-1".to_owned();
        Index {
            packs: vec![PackKey { name, key: None }],
            entries: entries.collect(),
        }
    }

    #[test]
    fn list_of_files_survives_a_round_trip() {
        let list = index(vec![
            (b"system", directory()),
            (b"system/a\xff", file(3, vec![chunk(3)])),
            (b"system/empty", file(0, vec![])),
            (b"system/link", link(b"../\xfe")),
            (b"system/long", link(&[b'x'; LINK_BYTES_MAX])),
        ]);
        assert_eq!(Index::decode(&list.encode().unwrap()).unwrap(), list);
    }

    #[test]
    fn hostile_lists_are_refused_as_a_whole() {
        let paths: [(&[u8], &str); 9] = [
            (b"../x", "not a path below"),
            (b"/etc/passwd", "not a path below"),
            (b"a/../../x", "not a path below"),
            (b"", "not a path below"),
            (b"a//b", "not a path below"),
            (b"nul\0", "not a path below"),
            (b"run/orchestrator.sock", "not part of a backup"),
            (b"system/restored.json", "not part of a backup"),
            (b"missing/x", "not in a listed directory"),
        ];
        for (path, why) in paths {
            let list = index(vec![(path, file(0, vec![]))]);
            let refused = Index::decode(&list.encode().unwrap()).unwrap_err();
            assert!(refused.contains(why), "{path:?}: {refused}");
        }
        // A file below a link would be written elsewhere.
        let below_a_link = index(vec![(b"a", link(b"/etc")), (b"a/passwd", file(0, vec![]))]);
        let refused = Index::decode(&below_a_link.encode().unwrap()).unwrap_err();
        assert!(refused.contains("not in a listed directory"), "{refused}");

        for (entry, why) in [
            (file(5, vec![chunk(3)]), "another size"),
            (file(2 << 20, vec![chunk(2 << 20)]), "does not exist"),
            (
                file(1, vec![ChunkRef(7, 0, 1, 1, seal::sha256(b"x"))]),
                "does not exist",
            ),
            (
                file(1, vec![ChunkRef(0, u64::MAX, 9, 1, seal::sha256(b"x"))]),
                "does not exist",
            ),
            (link(b""), "valid target"),
        ] {
            let list = index(vec![(b"f", entry)]);
            let refused = Index::decode(&list.encode().unwrap()).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let mut outside = index(vec![]);
        outside.packs[0].name = "../../x".to_owned();
        Index::decode(&outside.encode().unwrap()).unwrap_err();
    }

    #[test]
    fn incomplete_list_is_refused() {
        let encoded = |text: &str| {
            let mut out = DeflateEncoder::new(Vec::new(), Compression::fast());
            out.write_all(text.as_bytes()).unwrap();
            out.finish().unwrap()
        };
        for text in ["", "[]\n", "[]\n3\n", "[]\n{}\n0\n", "no list\n0\n"] {
            Index::decode(&encoded(text)).unwrap_err();
        }
        Index::decode(b"not deflated").unwrap_err();
        Index::decode(&encoded("[]\n0\n")).unwrap();
    }
}
