//! Reading a conversation page by page.

use goondan_protocol::limits::HISTORY_PAGE_BYTES;
use serde_json::value::RawValue;

use super::{Finding, InstanceStore, fold, read_line_at};
use crate::error::StoreError;

/// A page of a conversation.
#[derive(Debug, Clone)]
pub struct Page {
    /// Confirmed messages, raw.
    pub messages: Vec<Box<RawValue>>,
    /// Events of the open turn, raw; on the last page only.
    pub events: Vec<Box<RawValue>>,
    /// Where the next page begins; none on the last page.
    pub next: Option<u64>,
    /// Lines that could not be read and were passed over (`MSG-11`).
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
            damage: Vec::new(),
        };
        let chunk = self.base.read(offset, HISTORY_PAGE_BYTES)?;
        let mut end = offset;
        match chunk.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => {
                for line in chunk
                    .get(..last)
                    .unwrap_or_default()
                    .split(|byte| *byte == b'\n')
                {
                    self.take(&mut page, end, line);
                    end += line.len() as u64 + 1;
                }
            }
            None if chunk.is_empty() => {}
            None => {
                let (line, next) = read_line_at(&mut self.base, offset)?;
                self.take(&mut page, end, &line);
                end = next;
            }
        }
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
            Err(error) => page.damage.push(Finding {
                path: self.base.path().to_owned(),
                problem: format!("the record at byte {offset} cannot be read: {error}"),
            }),
        }
    }

    /// How many confirmed messages there are. Reads the whole base.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn count_messages(&mut self) -> Result<u64, StoreError> {
        let mut count = 0;
        self.base.scan(|_, _| count += 1)?;
        Ok(count)
    }

    /// Bytes of the confirmed messages.
    #[must_use]
    pub fn base_bytes(&self) -> u64 {
        self.base.len()
    }
}
