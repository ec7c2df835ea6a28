//! Encoding of records.

use super::bytes::{Writer, code, within};
use super::{Body, EncodedRecord, LogRecord, MAGIC, RECORD_FORMAT, RecordFault};
use crate::limits::{APPEND_BYTES_MAX, RECORD_BYTES_MAX, RECORD_OPERATIONS_MAX};
use crate::names::Hash;
use crate::operation::{FileOperation, RelativePath};

/// Largest encoded size of an operation without its paths and appended bytes.
const OPERATION_BYTES: usize = 1 + 2 + 2 + 8 + 4;

impl LogRecord {
    /// Encodes the record.
    ///
    /// # Errors
    ///
    /// [`RecordFault::TooMuch`] if it exceeds the size limit of records.
    pub fn encode(&self) -> Result<EncodedRecord, RecordFault> {
        let mut out = Writer::default();
        out.put(&MAGIC);
        out.put(&[RECORD_FORMAT]);
        out.text("workspace", self.workspace.as_str())?;
        out.u64(self.position.0);
        out.u64(self.epoch.0);
        out.put(&self.previous.0);
        body(&mut out, &self.body)?;
        within("bytes of a record", out.0.len(), RECORD_BYTES_MAX)?;
        Ok(EncodedRecord {
            workspace: self.workspace.clone(),
            position: self.position,
            hash: Hash::of(&out.0),
            bytes: out.0,
        })
    }
}

fn body(out: &mut Writer, body: &Body) -> Result<(), RecordFault> {
    match body {
        Body::Operations(changes) => {
            out.put(&[code::OPERATIONS]);
            operations(out, changes)?;
        }
        Body::Seal { node, life } => {
            out.put(&[code::SEAL]);
            out.u64(life.0);
            out.text("node", node.as_str())?;
        }
        Body::Snapshot {
            reference,
            node,
            life,
        } => {
            out.put(&[code::SNAPSHOT]);
            out.text("name of a snapshot", reference.as_str())?;
            out.u64(life.0);
            out.text("node", node.as_str())?;
        }
        Body::Released { to } => {
            out.put(&[code::RELEASED]);
            out.text("node", to.as_ref().map_or("", |to| to.as_str()))?;
        }
        Body::SnapshotKept { at, digest } => {
            out.put(&[code::SNAPSHOT_KEPT]);
            out.u64(at.0);
            out.put(&digest.0);
        }
    }
    Ok(())
}

pub(super) fn operations(
    out: &mut Writer,
    operations: &[FileOperation],
) -> Result<(), RecordFault> {
    out.count("operations", operations.len(), RECORD_OPERATIONS_MAX)?;
    operations.iter().try_for_each(|it| operation(out, it))
}

fn operation(out: &mut Writer, operation: &FileOperation) -> Result<(), RecordFault> {
    let mut begin = |code: u8, path: &RelativePath| {
        out.put(&[code]);
        out.text("path", path.as_str())
    };
    match operation {
        FileOperation::Create { path } => begin(code::CREATE, path)?,
        FileOperation::Append {
            path,
            offset,
            bytes,
        } => {
            begin(code::APPEND, path)?;
            out.u64(*offset);
            out.count("bytes of an append", bytes.len(), APPEND_BYTES_MAX)?;
            out.put(bytes);
        }
        FileOperation::SetLen { path, len } => {
            begin(code::SET_LEN, path)?;
            out.u64(*len);
        }
        FileOperation::Rename { from, to } => {
            begin(code::RENAME, from)?;
            out.text("path", to.as_str())?;
        }
        FileOperation::RemoveFile { path } => begin(code::REMOVE_FILE, path)?,
        FileOperation::CreateDir { path } => begin(code::CREATE_DIR, path)?,
        FileOperation::RemoveTree { path } => begin(code::REMOVE_TREE, path)?,
    }
    Ok(())
}

impl FileOperation {
    /// Upper bound of its size within a record, in bytes.
    #[must_use]
    pub fn encoded_bytes_max(&self) -> usize {
        let content = match self {
            Self::Append { path, bytes, .. } => path.as_str().len() + bytes.len(),
            Self::Rename { from, to } => from.as_str().len() + to.as_str().len(),
            Self::Create { path }
            | Self::SetLen { path, .. }
            | Self::RemoveFile { path }
            | Self::CreateDir { path }
            | Self::RemoveTree { path } => path.as_str().len(),
        };
        OPERATION_BYTES + content
    }
}
