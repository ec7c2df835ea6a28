//! Primitives for reading and writing records.

use super::RecordFault;

/// Kinds of bodies and codes of operations.
pub(super) mod code {
    pub(in crate::record) const OPERATIONS: u8 = 1;
    pub(in crate::record) const SEAL: u8 = 2;
    pub(in crate::record) const SNAPSHOT: u8 = 3;
    pub(in crate::record) const RELEASED: u8 = 4;
    pub(in crate::record) const SNAPSHOT_KEPT: u8 = 5;

    pub(in crate::record) const CREATE: u8 = 1;
    pub(in crate::record) const APPEND: u8 = 2;
    pub(in crate::record) const SET_LEN: u8 = 3;
    pub(in crate::record) const RENAME: u8 = 4;
    pub(in crate::record) const REMOVE_FILE: u8 = 5;
    pub(in crate::record) const CREATE_DIR: u8 = 6;
    pub(in crate::record) const REMOVE_TREE: u8 = 7;
}

/// Reads a record from front to back.
pub(super) struct RecordReader<'b>(&'b [u8]);

impl<'b> RecordReader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'b [u8], RecordFault> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(RecordFault::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], RecordFault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(RecordFault::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, RecordFault> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, RecordFault> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Reads a count and checks its limit.
    pub(super) fn count(&mut self, what: &'static str, max: usize) -> Result<usize, RecordFault> {
        let found = usize::try_from(u32::from_be_bytes(self.array()?)).unwrap_or(usize::MAX);
        within(what, found, max)
    }

    pub(super) fn text(&mut self, what: &'static str) -> Result<&'b str, RecordFault> {
        let len = usize::from(u16::from_be_bytes(self.array()?));
        std::str::from_utf8(self.take(len)?).map_err(|_| RecordFault::Bad(what))
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }
}

#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.put(&number.to_be_bytes());
    }

    pub(super) fn count(
        &mut self,
        what: &'static str,
        count: usize,
        max: usize,
    ) -> Result<(), RecordFault> {
        let count = u32::try_from(within(what, count, max)?).map_err(|_| RecordFault::Bad(what))?;
        self.put(&count.to_be_bytes());
        Ok(())
    }

    pub(super) fn text(&mut self, what: &'static str, text: &str) -> Result<(), RecordFault> {
        let len = u16::try_from(text.len()).map_err(|_| RecordFault::Bad(what))?;
        self.put(&len.to_be_bytes());
        self.put(text.as_bytes());
        Ok(())
    }
}

pub(super) fn within(what: &'static str, found: usize, max: usize) -> Result<usize, RecordFault> {
    if found > max {
        return Err(RecordFault::TooMuch { what, found, max });
    }
    Ok(found)
}
