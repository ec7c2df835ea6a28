//! Decoding of records from untrusted bytes.

use goondan_protocol::ids::WorkspaceId;

use super::bytes::{RecordReader, code, within};
use super::{Body, EncodedRecord, LogRecord, MAGIC, RECORD_FORMAT, RecordFault, SnapshotReference};
use crate::limits::{APPEND_BYTES_MAX, RECORD_BYTES_MAX, RECORD_OPERATIONS_MAX};
use crate::names::{Epoch, Hash, Incarnation, NodeId, Position};
use crate::operation::{FileOperation, RelativePath};

impl LogRecord {
    /// Decodes a record.
    ///
    /// # Errors
    ///
    /// [`RecordFault`] if the bytes are not exactly one record.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordFault> {
        within("bytes of a record", bytes.len(), RECORD_BYTES_MAX)?;
        let mut reader = RecordReader::new(bytes);
        if reader.array().ok() != Some(MAGIC) {
            return Err(RecordFault::NoRecord);
        }
        match reader.u8()? {
            RECORD_FORMAT => {}
            other => return Err(RecordFault::Format(other)),
        }
        let workspace = reader.text("workspace")?;
        let record = Self {
            workspace: WorkspaceId::new(workspace).map_err(|_| RecordFault::Bad("workspace"))?,
            position: Position(reader.u64()?),
            epoch: Epoch(reader.u64()?),
            previous: Hash(reader.array()?),
            body: body(&mut reader)?,
        };
        if record.position == Position::START {
            return Err(RecordFault::Bad("position"));
        }
        match reader.left() {
            0 => Ok(record),
            left => Err(RecordFault::Behind(left)),
        }
    }
}

impl EncodedRecord {
    /// Decodes a record from the bytes of a log, and keeps the bytes.
    ///
    /// # Errors
    ///
    /// As [`LogRecord::decode`].
    pub fn of_bytes(bytes: Vec<u8>) -> Result<(Self, LogRecord), RecordFault> {
        let record = LogRecord::decode(&bytes)?;
        let encoded = Self {
            workspace: record.workspace.clone(),
            position: record.position,
            hash: Hash::of(&bytes),
            bytes,
        };
        Ok((encoded, record))
    }
}

fn body(reader: &mut RecordReader<'_>) -> Result<Body, RecordFault> {
    let body = match reader.u8()? {
        code::OPERATIONS => Body::Operations(operations(reader)?),
        code::SEAL => Body::Seal {
            life: Incarnation(reader.u64()?),
            node: node(reader.text("node")?)?,
        },
        code::SNAPSHOT => Body::Snapshot {
            reference: SnapshotReference::new(reader.text("name of a snapshot")?)?,
            life: Incarnation(reader.u64()?),
            node: node(reader.text("node")?)?,
        },
        code::RELEASED => {
            let to = reader.text("node")?;
            let to = (!to.is_empty()).then(|| node(to)).transpose()?;
            Body::Released { to }
        }
        code::SNAPSHOT_KEPT => Body::SnapshotKept {
            at: Position(reader.u64()?),
            digest: Hash(reader.array()?),
        },
        _ => return Err(RecordFault::Bad("kind")),
    };
    Ok(body)
}

fn node(text: &str) -> Result<NodeId, RecordFault> {
    NodeId::new(text).map_err(|_| RecordFault::Bad("node"))
}

fn path(reader: &mut RecordReader<'_>) -> Result<RelativePath, RecordFault> {
    let text = reader.text("path")?;
    RelativePath::new(text).map_err(|_| RecordFault::Bad("path"))
}

pub(super) fn operations(reader: &mut RecordReader<'_>) -> Result<Vec<FileOperation>, RecordFault> {
    let count = reader.count("operations", RECORD_OPERATIONS_MAX)?;
    // Memory grows with the parsed operations, not with the announced count.
    let mut operations = Vec::new();
    for _ in 0..count {
        operations.push(operation(reader)?);
    }
    Ok(operations)
}

fn operation(reader: &mut RecordReader<'_>) -> Result<FileOperation, RecordFault> {
    let code = reader.u8()?;
    let path = path(reader)?;
    let operation = match code {
        code::CREATE => FileOperation::Create { path },
        code::APPEND => {
            let offset = reader.u64()?;
            let len = reader.count("bytes of an append", APPEND_BYTES_MAX)?;
            FileOperation::Append {
                path,
                offset,
                bytes: reader.take(len)?.to_vec(),
            }
        }
        code::SET_LEN => FileOperation::SetLen {
            path,
            len: reader.u64()?,
        },
        code::RENAME => FileOperation::Rename {
            from: path,
            to: self::path(reader)?,
        },
        code::REMOVE_FILE => FileOperation::RemoveFile { path },
        code::CREATE_DIR => FileOperation::CreateDir { path },
        code::REMOVE_TREE => FileOperation::RemoveTree { path },
        _ => return Err(RecordFault::Bad("operation")),
    };
    Ok(operation)
}
