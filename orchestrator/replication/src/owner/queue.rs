//! Batches that wait for a record.

use std::collections::VecDeque;

use super::BatchId;
use crate::limits::{APPEND_BYTES_MAX, RECORD_BYTES_MAX, RECORD_OPERATIONS_MAX};
use crate::operation::FileOperation;

/// Bytes that a record has for operations: what comes before them is short.
const OPERATIONS_BYTES_MAX: usize = RECORD_BYTES_MAX - 1_024;

/// Batches in the order in which they came; the first may have begun.
#[derive(Debug, Default)]
pub(super) struct Queue {
    batches: VecDeque<(BatchId, VecDeque<FileOperation>)>,
    bytes: usize,
}

impl Queue {
    pub(super) fn push(&mut self, id: BatchId, operations: Vec<FileOperation>) {
        let operations: VecDeque<_> = operations.into_iter().flat_map(fitting).collect();
        let bytes = operations.iter().map(FileOperation::encoded_bytes_max);
        self.bytes += bytes.sum::<usize>();
        self.batches.push_back((id, operations));
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

    /// As many operations as one record holds, and the batches whose last is among them.
    pub(super) fn next(&mut self) -> (Vec<FileOperation>, Vec<BatchId>) {
        let (mut taken, mut completes, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((id, operations)) = self.batches.front_mut() {
            while let Some(operation) = operations.front() {
                let len = operation.encoded_bytes_max();
                let is_full =
                    bytes + len > OPERATIONS_BYTES_MAX || taken.len() == RECORD_OPERATIONS_MAX;
                if is_full && !taken.is_empty() {
                    return (taken, completes);
                }
                bytes += len;
                self.bytes -= len;
                taken.extend(operations.pop_front());
            }
            completes.push(*id);
            self.batches.pop_front();
        }
        (taken, completes)
    }
}

/// An operation in pieces that fit into records.
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
