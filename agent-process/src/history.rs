//! Memory layout of a loaded history: a few large pieces, each message a slice of one.
//!
//! A history may take a hundred megabytes, and a fresh memory page costs more than the bytes
//! written to it. A history of more than one page is therefore stored in memory that the system can
//! back with huge pages, and frames are read from the socket directly into it.

use std::ops::Range;

use bytes::Bytes;
use goondan_protocol::conversation::Conversation;
use goondan_protocol::records::{AnnouncementMismatch, Records};
use memmap2::MmapMut;

/// Bytes per allocation. Untouched memory pages cost nothing.
const PIECE_BYTES: usize = 16 * 1024 * 1024;

/// Assembles the pages of a history.
#[derive(Debug, Default)]
pub(crate) struct History {
    conversation: Conversation,
    piece: Option<Piece>,
    /// Frame of a history with a single page.
    only: Vec<u8>,
}

#[derive(Debug)]
struct Piece {
    memory: MmapMut,
    used: usize,
    places: Vec<Range<usize>>,
}

impl Piece {
    fn new(bytes: usize) -> std::io::Result<Self> {
        let memory = MmapMut::map_anon(bytes)?;
        #[cfg(target_os = "linux")]
        if let Err(error) = memory.advise(memmap2::Advice::HugePage) {
            // A kernel without huge pages is only slower.
            tracing::debug!(error = &error as &dyn std::error::Error, "no huge pages");
        }
        Ok(Self {
            memory,
            used: 0,
            places: Vec::new(),
        })
    }

    fn fits(&self, bytes: usize) -> bool {
        self.memory.len() - self.used >= bytes
    }

    fn hand_over(self, conversation: &mut Conversation) {
        let all = Bytes::from_owner(self.memory);
        for place in self.places {
            conversation.push_stored(all.slice(place));
        }
    }
}

impl History {
    /// Returns memory for the frame with the messages of a page. The caller fills it and then calls
    /// [`Self::take`]. `is_all` is true if the history has only this page.
    ///
    /// # Errors
    ///
    /// If the system is out of memory.
    pub(crate) fn room(&mut self, bytes: usize, is_all: bool) -> std::io::Result<&mut [u8]> {
        if is_all {
            self.only = vec![0; bytes];
            return Ok(&mut self.only);
        }
        if let Some(full) = self.piece.take_if(|piece| !piece.fits(bytes)) {
            full.hand_over(&mut self.conversation);
        }
        let piece = match &mut self.piece {
            Some(piece) => piece,
            none => none.insert(Piece::new(bytes.max(PIECE_BYTES))?),
        };
        let room = piece.memory.get_mut(piece.used..piece.used + bytes);
        Ok(room.unwrap_or_default())
    }

    /// Adds the messages of the page whose frame is in the memory returned last.
    ///
    /// # Errors
    ///
    /// [`AnnouncementMismatch`] if the frame has other contents.
    pub(crate) fn take(&mut self, announced: &Records) -> Result<(), AnnouncementMismatch> {
        if announced.is_empty() {
            return Ok(());
        }
        let bytes = usize::try_from(announced.frame_bytes()).unwrap_or(usize::MAX);
        match &mut self.piece {
            Some(piece) => {
                let from = piece.used;
                let frame = piece.memory.get(from..).and_then(|rest| rest.get(..bytes));
                let places = announced.places_in(frame.unwrap_or_default())?;
                let shifted = |place: Range<usize>| from + place.start..from + place.end;
                piece.places.extend(places.into_iter().map(shifted));
                piece.used += bytes;
            }
            None => {
                let places = announced.places_in(&self.only)?;
                let only = Bytes::from(std::mem::take(&mut self.only));
                for place in places {
                    self.conversation.push_stored(only.slice(place));
                }
            }
        }
        Ok(())
    }

    /// Returns the conversation of all pages.
    pub(crate) fn finish(mut self) -> Conversation {
        if let Some(piece) = self.piece.take() {
            piece.hand_over(&mut self.conversation);
        }
        self.conversation
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::ids::MessageId;
    use goondan_protocol::message::Message;
    use goondan_protocol::time::Timestamp;

    use super::*;

    fn page(from: usize, to: usize, text_bytes: usize) -> Records {
        let record = |n| {
            let id = MessageId::new(format!("m{n}")).unwrap();
            let at = Timestamp::from_unix_millis(0);
            serde_json::to_vec(&Message::user(id, at, &"x".repeat(text_bytes))).unwrap()
        };
        (from..to).map(record).collect()
    }

    fn take(history: &mut History, page: &Records, is_all: bool) {
        if let Some(frame) = page.frame() {
            let room = history.room(frame.len(), is_all).unwrap();
            room.copy_from_slice(frame);
        }
        history.take(page).unwrap();
    }

    fn ids(history: History) -> Vec<String> {
        let messages = history.finish().to_messages().unwrap();
        messages.iter().map(|m| m.id.to_string()).collect()
    }

    #[test]
    fn history_pages_of_any_size_join_into_one_conversation() {
        let mut history = History::default();
        take(&mut history, &page(0, 3, 7 * 1024 * 1024), false);
        take(&mut history, &page(3, 5, 6 * 1024 * 1024), false);
        take(&mut history, &Records::default(), false);
        take(&mut history, &page(5, 9, 10), false);
        let expected: Vec<_> = (0..9).map(|n| format!("m{n}")).collect();
        assert_eq!(ids(history), expected);
    }

    #[test]
    fn a_history_of_one_page_or_none_asks_for_no_piece() {
        let mut history = History::default();
        take(&mut history, &page(0, 3, 10), true);
        assert!(history.piece.is_none());
        assert_eq!(ids(history), ["m0", "m1", "m2"]);
        assert!(ids(History::default()).is_empty());
    }
}
