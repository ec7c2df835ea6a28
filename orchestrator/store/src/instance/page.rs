//! Reading a conversation page by page.

use goondan_protocol::limits::HISTORY_PAGE_BYTES;
use serde_json::value::RawValue;

use super::{InstanceStore, fold};
use crate::error::StoreError;
use crate::finding::{Finding, FindingKind};

/// A page of a conversation.
#[derive(Debug, Clone)]
pub struct Page {
    /// Confirmed messages, raw.
    pub messages: Vec<Box<RawValue>>,
    /// Events of the open turn, raw; on the last page only.
    pub events: Vec<Box<RawValue>>,
    /// Where the next page begins; none on the last page.
    pub next: Option<u64>,
    /// What is not as it was written and was passed over (`MSG-11`).
    pub damage: Vec<Finding>,
}

impl InstanceStore {
    /// Reads the page of the conversation that begins at byte `offset` of the base: whole records, at
    /// least one, and not much more than [`HISTORY_PAGE_BYTES`].
    ///
    /// # Errors
    ///
    /// [`StoreError::HistoryChanged`] if no record begins at `offset`; [`StoreError::Io`];
    /// [`StoreError::Damaged`] if the open turn's journal cannot be read.
    pub fn page(&mut self, offset: u64) -> Result<Page, StoreError> {
        let is_line_start =
            offset <= self.base.len() && (offset == 0 || self.base.read(offset - 1, 1)? == b"\n");
        if !is_line_start {
            return Err(StoreError::HistoryChanged);
        }
        let mut page = Page {
            messages: Vec::new(),
            events: Vec::new(),
            next: None,
            damage: self.base.seek(offset)?,
        };
        let mut chunk = self.base.read(offset, HISTORY_PAGE_BYTES)?;
        match chunk.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => chunk.truncate(last + 1),
            None if chunk.is_empty() => {}
            None => chunk = self.base.line_at(offset)?,
        }
        let mut end = offset;
        let mut rest = chunk.as_slice();
        while !rest.is_empty() {
            let (len, is_good) = self.base.next_line(end, rest)?;
            let (line, behind) = rest.split_at_checked(len).unwrap_or((rest, b""));
            if is_good && line != b"\n" {
                self.take(&mut page, end, line);
            }
            end += line.len() as u64;
            rest = behind;
        }
        page.damage.extend(self.base.end_page(offset, end));
        if end < self.base.len() {
            page.next = Some(end);
        } else {
            page.events = fold::raw_events(&self.turn.events()?)?;
        }
        Ok(page)
    }

    fn take(&self, page: &mut Page, offset: u64, line: &[u8]) {
        match serde_json::from_slice::<Box<RawValue>>(line) {
            Ok(message) => page.messages.push(message),
            Err(error) => {
                let to = offset + line.len() as u64;
                let problem = format!("the record at byte {offset} cannot be read: {error}");
                let mut finding =
                    Finding::new(self.base.path(), FindingKind::DamagedRecord, problem);
                finding.bytes = Some(crate::finding::ByteRange { from: offset, to });
                page.damage.push(finding);
            }
        }
    }

    /// How many confirmed messages there are.
    #[must_use]
    pub fn count_messages(&self) -> u64 {
        self.base.count()
    }

    /// Bytes of the confirmed messages.
    #[must_use]
    pub fn base_bytes(&self) -> u64 {
        self.base.len()
    }
}
