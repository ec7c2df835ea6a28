//! Reads a conversation in pages, because a long one does not fit into a response.

use std::ops::Range;

use goondan_durable::{Finding, FindingKind};
use goondan_protocol::ids::{ExtensionStates, MessageId};
use goondan_protocol::limits::HISTORY_PAGE_BYTES;
use goondan_protocol::message::{Message, MessageEvent};
use goondan_protocol::records::Records;
use serde_json::value::RawValue;

use super::{InstanceStore, fold};
use crate::error::StoreError;
use goondan_durable::limits::READ_CHUNK_BYTES;

#[derive(Debug, Clone, Default)]
pub struct ConversationSlice {
    /// Confirmed messages, raw.
    pub messages: Records,
    /// Offset of each message in the base.
    pub places: Vec<u64>,
    /// Raw events of the open turn; only after the last message.
    pub events: Vec<Box<RawValue>>,
    /// States of the requested extensions.
    pub states: ExtensionStates,
    /// Offset of the next page; `None` on the last page.
    pub next: Option<u64>,
    /// End of the previous page, for backward reads; `None` if the page begins with the first
    /// message.
    pub previous: Option<u64>,
    /// Findings about damaged records that were skipped (`MSG-11`).
    pub damage: Vec<Finding>,
}

impl InstanceStore {
    /// Reads the page of the conversation that begins at `offset`: whole records, at least one, and
    /// little more than [`HISTORY_PAGE_BYTES`] each of messages and of events.
    ///
    /// Offsets are bytes of the base. Beyond its end, each offset is one event of the open turn,
    /// because the base does not change while a turn is open.
    ///
    /// # Errors
    ///
    /// [`StoreError::HistoryChanged`] if no record begins at `offset`; [`StoreError::File`], also
    /// if the open turn's journal is unreadable.
    pub fn page(&mut self, offset: u64) -> Result<ConversationSlice, StoreError> {
        if let Some(first) = offset
            .checked_sub(self.base.len())
            .filter(|first| *first > 0)
        {
            return self.page_of_events(first);
        }
        self.check_line_start(offset)?;
        self.page_of_messages(offset, HISTORY_PAGE_BYTES)
    }

    /// Reads the page that ends at `before`, or at the end of the conversation: between one and
    /// `limit` confirmed messages, and at most [`HISTORY_PAGE_BYTES`] unless the only message is
    /// longer. Offsets and events are as in [`Self::page`].
    ///
    /// # Errors
    ///
    /// As [`Self::page`].
    pub fn page_before(
        &mut self,
        before: Option<u64>,
        limit: u64,
    ) -> Result<ConversationSlice, StoreError> {
        let end = before.unwrap_or(self.base.len());
        self.check_line_start(end)?;
        let start = self.start_of_lines(end, limit, HISTORY_PAGE_BYTES as u64)?;
        let mut page = match usize::try_from(end - start).unwrap_or(usize::MAX) {
            0 => ConversationSlice {
                next: before,
                ..self.page_of_events(0)?
            },
            bytes => self.page_of_messages(start, bytes)?,
        };
        page.previous = (start > 0).then_some(start);
        Ok(page)
    }

    /// Returns the offset of the last `count` lines before `end`, which is the end of a line.
    /// Returns fewer lines if they exceed `bytes_max` bytes, but at least one if there is one.
    fn start_of_lines(&mut self, end: u64, count: u64, bytes_max: u64) -> Result<u64, StoreError> {
        let (mut start, mut lines, mut from) = (end, 0, end.saturating_sub(1));
        while from > 0 {
            let len = from.min(READ_CHUNK_BYTES as u64);
            from -= len;
            let chunk = self.base.read(from, usize::try_from(len).unwrap_or(0))?;
            for (at, _) in chunk.iter().enumerate().rev().filter(|(_, b)| **b == b'\n') {
                let line = from + at as u64 + 1;
                if lines > 0 && end - line > bytes_max {
                    return Ok(start);
                }
                (start, lines) = (line, lines + 1);
                if lines >= count {
                    return Ok(start);
                }
            }
        }
        let is_first_taken = lines == 0 || end <= bytes_max;
        Ok(if is_first_taken { 0 } else { start })
    }

    fn check_line_start(&mut self, offset: u64) -> Result<(), StoreError> {
        let is_line_start =
            offset <= self.base.len() && (offset == 0 || self.base.read(offset - 1, 1)? == b"\n");
        if !is_line_start {
            return Err(StoreError::HistoryChanged);
        }
        Ok(())
    }

    /// Reads messages from a line's start on: at most `bytes_max` bytes, or one longer message.
    fn page_of_messages(
        &mut self,
        offset: u64,
        bytes_max: usize,
    ) -> Result<ConversationSlice, StoreError> {
        let mut damage = self.base.seek(offset)?;
        let mut text = vec![b'\n'];
        self.base.read_into(&mut text, offset, bytes_max)?;
        match text.iter().rposition(|byte| *byte == b'\n') {
            // A single line is longer than a page.
            Some(0) => {
                text.truncate(1);
                text.extend(self.base.line_at(offset)?);
            }
            last => text.truncate(last.map_or(0, |at| at + 1)),
        }
        let (mut places, mut starts, mut end) = (Vec::new(), Vec::new(), offset);
        let mut from = 1;
        while let Some(rest) = text.get(from..).filter(|rest| !rest.is_empty()) {
            let (len, is_good) = self.base.next_line(end, rest)?;
            let line = rest.get(..len).unwrap_or(rest);
            if is_good && line != b"\n" {
                match place_of_record(line) {
                    Some(place) => {
                        places.push(from + place.start..from + place.end);
                        starts.push(end);
                    }
                    None => damage.push(self.no_record(end, line)),
                }
            }
            end += line.len() as u64;
            from += line.len();
        }
        damage.extend(self.base.end_page(offset, end));
        let mut page = match Some(end).filter(|end| *end < self.base.len()) {
            Some(next) => ConversationSlice {
                next: Some(next),
                ..ConversationSlice::default()
            },
            None => self.page_of_events(0)?,
        };
        page.messages = Records::cut_from(text, &places);
        (page.places, page.damage) = (starts, damage);
        Ok(page)
    }

    /// Reads one message as changed by the open turn. `offset` is its offset in the base; `None` if
    /// the open turn added it.
    ///
    /// # Errors
    ///
    /// [`StoreError::HistoryChanged`] if it does not exist there; [`StoreError::File`].
    pub fn message(&mut self, id: &MessageId, offset: Option<u64>) -> Result<Message, StoreError> {
        let mut found: Option<Message> = None;
        if let Some(offset) = offset {
            self.check_line_start(offset)?;
            let line = self.base.line_at(offset)?;
            found = serde_json::from_slice(&line).ok();
        }
        let mut next = Some(0);
        while let Some(first) = next {
            let events;
            (events, next) = self.turn.events_from(first, HISTORY_PAGE_BYTES as u64)?;
            for raw in fold::raw_events(&events)? {
                let Ok(event) = serde_json::from_str::<MessageEvent>(raw.get()) else {
                    continue;
                };
                let is_found = |target: &MessageId| found.as_ref().is_some_and(|f| f.id == *target);
                match event {
                    MessageEvent::Append { message } if message.id == *id => found = Some(message),
                    MessageEvent::Replace { target_id, message }
                        if message.id == *id || is_found(&target_id) =>
                    {
                        found = Some(message);
                    }
                    MessageEvent::Remove { target_id } if is_found(&target_id) => found = None,
                    MessageEvent::Truncate => found = None,
                    MessageEvent::Append { .. }
                    | MessageEvent::Replace { .. }
                    | MessageEvent::Remove { .. } => {}
                }
            }
        }
        found
            .filter(|found| found.id == *id)
            .ok_or(StoreError::HistoryChanged)
    }

    /// Reads the events of the open turn from this index on.
    fn page_of_events(&mut self, first: u64) -> Result<ConversationSlice, StoreError> {
        let (events, next) = self.turn.events_from(first, HISTORY_PAGE_BYTES as u64)?;
        Ok(ConversationSlice {
            events: fold::raw_events(&events)?,
            next: next.map(|next| self.base.len() + next),
            ..ConversationSlice::default()
        })
    }

    fn no_record(&self, offset: u64, line: &[u8]) -> Finding {
        let to = offset + line.len() as u64;
        let problem = format!("record at byte {offset} is not a JSON object");
        let mut finding = Finding::new(self.base.path(), FindingKind::DamagedRecord, problem);
        finding.bytes = Some(goondan_durable::ByteRange { from: offset, to });
        finding
    }

    /// Returns the number of confirmed messages.
    #[must_use]
    pub fn count_messages(&self) -> u64 {
        self.base.count()
    }

    /// Returns the size of the confirmed messages in bytes.
    #[must_use]
    pub fn base_bytes(&self) -> u64 {
        self.base.len()
    }
}

/// Returns the range of the record in a line; `None` if the line cannot be a record.
///
/// A line with a matching checksum was JSON when it got the checksum, so it is not parsed again.
fn place_of_record(line: &[u8]) -> Option<Range<usize>> {
    let end = line.trim_ascii_end();
    let record = end.trim_ascii_start();
    let place = end.len() - record.len()..end.len();
    (record.starts_with(b"{") && record.ends_with(b"}")).then_some(place)
}
