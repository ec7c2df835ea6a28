//! Batches that wait for a record.

use std::collections::VecDeque;

use super::BatchId;
use crate::limits::{APPEND_BYTES_MAX, RECORD_BYTES_MAX, RECORD_OPERATIONS_MAX};
use crate::operation::FileOperation;
use crate::record::SnapshotReference;

/// Space in a record for operations; the fields before them are short.
const OPERATIONS_BYTES_MAX: usize = RECORD_BYTES_MAX - 1_024;

#[derive(Debug)]
pub(super) enum NextRecord {
    /// Operations, possibly none, and the batches whose last operation is among them.
    Operations(Vec<FileOperation>, Vec<BatchId>),
    /// A copy of the files in their current state has started.
    Snapshot(SnapshotReference, BatchId),
}

#[derive(Debug)]
enum QueuedChange {
    Operations(VecDeque<FileOperation>),
    Snapshot(SnapshotReference),
}

/// Batches in order of arrival; the first may be partly written.
#[derive(Debug, Default)]
pub(super) struct Queue {
    batches: VecDeque<(BatchId, QueuedChange)>,
    bytes: usize,
}

impl Queue {
    pub(super) fn push(&mut self, id: BatchId, operations: Vec<FileOperation>) {
        let operations: VecDeque<_> = operations.into_iter().flat_map(fitting).collect();
        let bytes = operations.iter().map(FileOperation::encoded_bytes_max);
        self.bytes += bytes.sum::<usize>();
        self.batches
            .push_back((id, QueuedChange::Operations(operations)));
    }

    pub(super) fn push_snapshot(&mut self, id: BatchId, reference: SnapshotReference) {
        self.batches
            .push_back((id, QueuedChange::Snapshot(reference)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn batches(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Content of the next record: as many operations as fit, or a snapshot.
    pub(super) fn next(&mut self) -> NextRecord {
        let (mut taken, mut completes, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((id, work)) = self.batches.front_mut() {
            let operations = match work {
                QueuedChange::Operations(operations) => operations,
                QueuedChange::Snapshot(reference) if taken.is_empty() && completes.is_empty() => {
                    let next = NextRecord::Snapshot(reference.clone(), *id);
                    self.batches.pop_front();
                    return next;
                }
                QueuedChange::Snapshot(_) => break,
            };
            while let Some(operation) = operations.front() {
                let len = operation.encoded_bytes_max();
                let is_full =
                    bytes + len > OPERATIONS_BYTES_MAX || taken.len() == RECORD_OPERATIONS_MAX;
                if is_full && !taken.is_empty() {
                    return NextRecord::Operations(taken, completes);
                }
                bytes += len;
                self.bytes -= len;
                taken.extend(operations.pop_front());
            }
            completes.push(*id);
            self.batches.pop_front();
        }
        NextRecord::Operations(taken, completes)
    }
}

/// Splits an operation into pieces that fit in records.
fn fitting(operation: FileOperation) -> Vec<FileOperation> {
    match operation {
        FileOperation::Append {
            path,
            offset,
            bytes,
        } if bytes.len() > APPEND_BYTES_MAX => FileOperation::appends(&path, offset, &bytes),
        fitting => vec![fitting],
    }
}
