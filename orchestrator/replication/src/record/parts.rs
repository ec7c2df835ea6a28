//! Parts of a stored snapshot: operations that create its files from nothing.
//!
//! Numbers are big-endian.
//!
//! ```text
//! "gdns" │ format 1 │ is last 1 │ digest 32 if so │ count 4, then each operation as in a record
//! ```
//!
//! As with records, encoding is one-to-one.

use super::bytes::{RecordReader, Writer, within};
use super::{RecordFault, decode, encode};
use crate::limits::{PART_BYTES_MAX, RECORD_OPERATIONS_MAX};
use crate::names::Hash;
use crate::operation::FileOperation;

pub const PART_FORMAT: u8 = 1;

/// Magic bytes of a part.
const MAGIC: [u8; 4] = *b"gdns";
/// Space in a part for operations; the fields before them are short.
const OPERATIONS_BYTES_MAX: usize = PART_BYTES_MAX - 64;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotPart {
    /// Operations that create files after those of the previous parts.
    pub operations: Vec<FileOperation>,
    /// For the last part: the digest of all files.
    pub digest: Option<Hash>,
}

impl SnapshotPart {
    /// Encodes the part.
    ///
    /// # Errors
    ///
    /// [`RecordFault::TooMuch`] if it exceeds the size limit of parts.
    pub fn encode(&self) -> Result<Vec<u8>, RecordFault> {
        let mut out = Writer::default();
        out.put(&MAGIC);
        out.put(&[PART_FORMAT, u8::from(self.digest.is_some())]);
        out.put(self.digest.as_ref().map_or(&[][..], |digest| &digest.0));
        encode::operations(&mut out, &self.operations)?;
        within("bytes of a part", out.0.len(), PART_BYTES_MAX)?;
        Ok(out.0)
    }

    /// Decodes a part.
    ///
    /// # Errors
    ///
    /// [`RecordFault`] if the bytes are not exactly one part.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordFault> {
        within("bytes of a part", bytes.len(), PART_BYTES_MAX)?;
        let mut reader = RecordReader::new(bytes);
        if reader.array().ok() != Some(MAGIC) {
            return Err(RecordFault::Bad("beginning"));
        }
        match reader.u8()? {
            PART_FORMAT => {}
            other => return Err(RecordFault::Format(other)),
        }
        let digest = match reader.u8()? {
            0 => None,
            1 => Some(Hash(reader.array()?)),
            _ => return Err(RecordFault::Bad("last")),
        };
        let operations = decode::operations(&mut reader)?;
        match reader.left() {
            0 => Ok(Self { operations, digest }),
            left => Err(RecordFault::Behind(left)),
        }
    }
}

/// Collects operations into parts.
#[derive(Debug, Default)]
pub struct PartBuilder {
    operations: Vec<FileOperation>,
    bytes: usize,
}

impl PartBuilder {
    /// Adds an operation. Returns the previous part if it is full. An append must have at most
    /// [`APPEND_BYTES_MAX`](crate::limits::APPEND_BYTES_MAX).
    pub fn push(&mut self, operation: FileOperation) -> Option<SnapshotPart> {
        let len = operation.encoded_bytes_max();
        let is_full = self.bytes + len > OPERATIONS_BYTES_MAX
            || self.operations.len() == RECORD_OPERATIONS_MAX;
        let full = (is_full && !self.operations.is_empty()).then(|| SnapshotPart {
            operations: std::mem::take(&mut self.operations),
            digest: None,
        });
        if full.is_some() {
            self.bytes = 0;
        }
        self.bytes += len;
        self.operations.push(operation);
        full
    }

    #[must_use]
    pub fn finish(self, digest: Hash) -> SnapshotPart {
        SnapshotPart {
            operations: self.operations,
            digest: Some(digest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::APPEND_BYTES_MAX;
    use crate::operation::RelativePath;

    #[test]
    fn parts_hold_all_operations_in_order_and_each_within_its_limit() {
        let path = RelativePath::new("f").unwrap();
        let appends: Vec<_> = (0..9)
            .map(|n| FileOperation::Append {
                path: path.clone(),
                offset: n,
                bytes: vec![7; APPEND_BYTES_MAX],
            })
            .collect();
        let mut builder = PartBuilder::default();
        let mut parts: Vec<_> = appends
            .iter()
            .filter_map(|append| builder.push(append.clone()))
            .collect();
        parts.push(builder.finish(Hash([3; 32])));
        assert_eq!(parts.len(), 3);
        let mut found = Vec::new();
        for (n, part) in parts.iter().enumerate() {
            let bytes = part.encode().unwrap();
            assert_eq!(&SnapshotPart::decode(&bytes).unwrap(), part);
            assert_eq!(part.digest.is_some(), n == 2);
            found.extend(part.operations.clone());
        }
        assert_eq!(found, appends);
    }

    #[test]
    fn invalid_snapshot_part_is_rejected() {
        let path = RelativePath::new("d").unwrap();
        let part = SnapshotPart {
            operations: vec![FileOperation::CreateDir { path }],
            digest: Some(Hash([1; 32])),
        };
        let bytes = part.encode().unwrap();
        for len in 0..bytes.len() {
            SnapshotPart::decode(&bytes[..len]).unwrap_err();
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(
            SnapshotPart::decode(&longer).unwrap_err(),
            RecordFault::Behind(1)
        );
        for (at, byte) in [(0, b'x'), (4, 9), (5, 2)] {
            let mut altered = bytes.clone();
            altered[at] = byte;
            SnapshotPart::decode(&altered).unwrap_err();
        }
    }
}
