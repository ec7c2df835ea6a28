//! A node's position in a workspace's log, stored as a file.
//!
//! ```json
//! {"format":1,"note":{"chain":{…},"ahead":0,"files":"asNoted"},"sha256":"…"}
//! ```
//!
//! `sha256` covers `note` in its serialized form. An altered note is refused, because the node
//! would assume a log that differs from the one it has read.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, read_all};
use goondan_durable::{FileError, IoContext as _, files};
use goondan_replication::chain::Chain;
use goondan_replication::names::Hash;
use goondan_replication::standby::FilesState;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limits::NOTE_BYTES_MAX;

/// Format version that is written.
const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Note {
    /// Position up to which the log was read and its changes were made and synced.
    pub chain: Chain,
    /// Number of changes of the following record that are also made and synced
    /// ([`crate::Replica::follow`]).
    pub ahead: u32,
    pub files: FilesState,
}

/// Reason why a note cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    /// The file system refused, or the note could not be serialized.
    #[error(transparent)]
    File(#[from] FileError),
    /// A newer version of goondan wrote it.
    #[error(
        "`{}` has format {found}, but this goondan supports {FORMAT}: upgrade goondan on this node", path.display()
    )]
    Newer { path: PathBuf, found: u32 },
    #[error(
        "`{}` is damaged: {problem}. Move it away, and the workspace's files are rebuilt from its log", path.display()
    )]
    Damaged { path: PathBuf, problem: String },
}

/// Fields common to all formats.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredNote {
    format: u32,
    note: Box<RawValue>,
    sha256: Hash,
}

/// Reads a note; `None` if the file does not exist.
///
/// # Errors
///
/// [`NoteError`].
pub fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Note>, NoteError> {
    if disk.stat(path).during("inspect", path)?.is_none() {
        return Ok(None);
    }
    let mut file = disk.open_read(path).during("open", path)?;
    let text = read_all(file.as_mut(), NOTE_BYTES_MAX).during("read", path)?;
    let damaged = |problem: String| NoteError::Damaged {
        path: path.to_owned(),
        problem,
    };
    let unreadable = |error: serde_json::Error| damaged(error.to_string());
    let AnyFormat { format } = serde_json::from_slice(&text).map_err(unreadable)?;
    if format > FORMAT {
        let path = path.to_owned();
        return Err(NoteError::Newer {
            path,
            found: format,
        });
    }
    let written: StoredNote = serde_json::from_slice(&text).map_err(unreadable)?;
    if format != FORMAT || Hash::of(written.note.get().as_bytes()) != written.sha256 {
        return Err(damaged("its content has changed".to_owned()));
    }
    serde_json::from_str(written.note.get())
        .map(Some)
        .map_err(unreadable)
}

/// Durably replaces the note. After a crash the file contains either the old or the new note.
///
/// # Errors
///
/// [`NoteError::File`].
pub fn write(disk: &dyn Disk, path: &Path, note: &Note) -> Result<(), NoteError> {
    let unwritable = |error: serde_json::Error| FileError::Unwritable {
        problem: error.to_string(),
    };
    let note = serde_json::value::to_raw_value(note).map_err(unwritable)?;
    let sha256 = Hash::of(note.get().as_bytes());
    let written = StoredNote {
        format: FORMAT,
        note,
        sha256,
    };
    let mut text = serde_json::to_vec(&written).map_err(unwritable)?;
    text.push(b'\n');
    files::replace(disk, path, &text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::SimulatedDisk;
    use goondan_protocol::ids::WorkspaceId;
    use goondan_replication::names::{Incarnation, NodeId};
    use goondan_replication::record::Body;

    use super::*;

    const PATH: &str = "/note.json";

    /// A log with these bodies, read to its end.
    fn chain(bodies: Vec<Body>) -> Chain {
        let mut chain = Chain::new(WorkspaceId::new("w").unwrap());
        for body in bodies {
            let record = chain.next(body).unwrap();
            chain.follow_bytes(record.bytes().to_vec()).unwrap();
        }
        chain
    }

    fn seal() -> Body {
        Body::Seal {
            node: NodeId::new("a").unwrap(),
            life: Incarnation(u64::MAX),
        }
    }

    #[test]
    fn ownership_note_reads_back_for_any_release_target() {
        let disk = SimulatedDisk::new();
        let path = Path::new(PATH);
        assert!(read(&disk, path).unwrap().is_none());
        let to = NodeId::new("b").ok();
        for bodies in [
            vec![],
            vec![seal()],
            vec![seal(), Body::Released { to: None }],
            vec![seal(), Body::Released { to }],
        ] {
            for files in [FilesState::AsNoted, FilesState::PerhapsAhead] {
                let chain = chain(bodies.clone());
                let note = Note {
                    chain,
                    ahead: 3,
                    files,
                };
                write(&disk, path, &note).unwrap();
                assert_eq!(read(&disk, path).unwrap(), Some(note));
            }
        }
    }

    #[test]
    fn a_newer_note_and_a_damaged_one_are_refused_with_advice() {
        let disk = SimulatedDisk::new();
        let path = Path::new(PATH);
        let note = Note {
            chain: chain(vec![seal()]),
            ahead: 0,
            files: FilesState::AsNoted,
        };
        write(&disk, path, &note).unwrap();
        let mut file = disk.open_read(path).unwrap();
        let text = read_all(file.as_mut(), NOTE_BYTES_MAX).unwrap();
        let text = String::from_utf8(text).unwrap();
        disk.plant(path, br#"{"format":2,"else":true}"#).unwrap();
        let newer = read(&disk, path).unwrap_err();
        assert!(matches!(newer, NoteError::Newer { found: 2, .. }));
        assert!(newer.to_string().contains("upgrade"), "{newer}");
        for damaged in [
            String::new(),
            text.split_at(text.len() / 2).0.to_owned(),
            text.replace("\"position\":1", "\"position\":2"),
            text.replace("\"format\":1", "\"format\":0"),
        ] {
            assert_ne!(damaged, text);
            disk.plant(path, damaged.as_bytes()).unwrap();
            let error = read(&disk, path).unwrap_err();
            assert!(matches!(error, NoteError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains("Move it away"), "{error}");
        }
    }
}
