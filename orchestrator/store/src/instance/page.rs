//! Reading a conversation page by page.

use std::ops::Range;

use goondan_durable::{Finding, FindingKind};
use goondan_protocol::ids::ExtensionStates;
use goondan_protocol::limits::HISTORY_PAGE_BYTES;
use goondan_protocol::records::Records;
use serde_json::value::RawValue;

use super::{InstanceStore, fold};
use crate::error::StoreError;

/// A page of a conversation.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Confirmed messages, raw.
    pub messages: Records,
    /// Events of the open turn, raw; behind the last message only.
    pub events: Vec<Box<RawValue>>,
    /// What the extensions that were asked for remember.
    pub states: ExtensionStates,
    /// Where the next page begins; none on the last page.
    pub next: Option<u64>,
    /// What is not as it was written and was passed over (`MSG-11`).
    pub damage: Vec<Finding>,
}

impl InstanceStore {
    /// Reads the page of the conversation that begins at `offset`: whole records, at least one, and not
    /// much more than [`HISTORY_PAGE_BYTES`] each of messages and of events.
    ///
    /// Offsets are bytes of the base; from its end on each stands for one event of the open turn, since
    /// the base does not change while a turn is open.
    ///
    /// # Errors
    ///
    /// [`StoreError::HistoryChanged`] if no record begins at `offset`; [`StoreError::File`];
    /// [`StoreError::File`] if the open turn's journal cannot be read.
    pub fn page(&mut self, offset: u64) -> Result<Page, StoreError> {
        if let Some(first) = offset
            .checked_sub(self.base.len())
            .filter(|first| *first > 0)
        {
            return self.page_of_events(first);
        }
        let is_line_start =
            offset <= self.base.len() && (offset == 0 || self.base.read(offset - 1, 1)? == b"\n");
        if !is_line_start {
            return Err(StoreError::HistoryChanged);
        }
        let mut damage = self.base.seek(offset)?;
        let mut text = vec![b'\n'];
        self.base.read_into(&mut text, offset, HISTORY_PAGE_BYTES)?;
        match text.iter().rposition(|byte| *byte == b'\n') {
            // One line alone is longer than a page.
            Some(0) => {
                text.truncate(1);
                text.extend(self.base.line_at(offset)?);
            }
            last => text.truncate(last.map_or(0, |at| at + 1)),
        }
        let (mut places, mut end) = (Vec::new(), offset);
        let mut from = 1;
        while let Some(rest) = text.get(from..).filter(|rest| !rest.is_empty()) {
            let (len, is_good) = self.base.next_line(end, rest)?;
            let line = rest.get(..len).unwrap_or(rest);
            if is_good && line != b"\n" {
                match place_of_record(line) {
                    Some(place) => places.push(from + place.start..from + place.end),
                    None => damage.push(self.no_record(end, line)),
                }
            }
            end += line.len() as u64;
            from += line.len();
        }
        damage.extend(self.base.end_page(offset, end));
        let mut page = match Some(end).filter(|end| *end < self.base.len()) {
            Some(next) => Page {
                next: Some(next),
                ..Page::default()
            },
            None => self.page_of_events(0)?,
        };
        (page.messages, page.damage) = (Records::cut_from(text, &places), damage);
        Ok(page)
    }

    /// The events of the open turn from the one with this index on.
    fn page_of_events(&mut self, first: u64) -> Result<Page, StoreError> {
        let (events, next) = self.turn.events_from(first, HISTORY_PAGE_BYTES as u64)?;
        Ok(Page {
            events: fold::raw_events(&events)?,
            next: next.map(|next| self.base.len() + next),
            ..Page::default()
        })
    }

    fn no_record(&self, offset: u64, line: &[u8]) -> Finding {
        let to = offset + line.len() as u64;
        let problem = format!("the record at byte {offset} is no JSON object");
        let mut finding = Finding::new(self.base.path(), FindingKind::DamagedRecord, problem);
        finding.bytes = Some(goondan_durable::ByteRange { from: offset, to });
        finding
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

/// Where the record of a line is; none if the line cannot be one.
///
/// A line whose checksum fits was JSON when it was given that checksum, so the whole of it is not
/// looked at again.
fn place_of_record(line: &[u8]) -> Option<Range<usize>> {
    let end = line.trim_ascii_end();
    let record = end.trim_ascii_start();
    let place = end.len() - record.len()..end.len();
    (record.starts_with(b"{") && record.ends_with(b"}")).then_some(place)
}
