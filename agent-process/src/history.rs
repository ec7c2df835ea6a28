//! Where a loaded history lies in memory: a few large pieces, each message a slice of one.
//!
//! A history may have a hundred megabytes, and a fresh page of memory costs more than the bytes that
//! are put on it. So what comes in more than one page lies in memory that the system may give out in
//! huge pages, and the buffer that frames are read into is used again and again.

use bytes::Bytes;
use goondan_protocol::conversation::Conversation;
use goondan_protocol::records::Records;
use memmap2::MmapMut;

/// Memory that is asked for at once, in bytes. Pages that nothing was put on cost nothing.
const PIECE_BYTES: usize = 16 * 1024 * 1024;

/// Puts the pages of a history together.
#[derive(Debug, Default)]
pub(crate) struct History {
    conversation: Conversation,
    piece: Option<Piece>,
}

#[derive(Debug)]
struct Piece {
    memory: MmapMut,
    used: usize,
    /// Length of each message; they lie one behind the other.
    lengths: Vec<usize>,
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
            lengths: Vec::new(),
        })
    }

    fn fits(&self, bytes: usize) -> bool {
        self.memory.len() - self.used >= bytes
    }

    fn put(&mut self, record: &[u8]) {
        let end = self.used + record.len();
        if let Some(place) = self.memory.get_mut(self.used..end) {
            place.copy_from_slice(record);
            self.lengths.push(record.len());
            self.used = end;
        }
    }

    fn hand_over(self, conversation: &mut Conversation) {
        let mut rest = Bytes::from_owner(self.memory);
        for length in self.lengths {
            conversation.push_stored(rest.split_to(length));
        }
    }
}

impl History {
    /// Takes the messages of a page. `is_all`: no page came before, and none follows.
    ///
    /// # Errors
    ///
    /// If the system has no memory for it.
    pub(crate) fn take(&mut self, messages: &Records, is_all: bool) -> std::io::Result<()> {
        let bytes = messages.bytes();
        if is_all {
            let mut rest = Bytes::from(messages.iter().collect::<Vec<_>>().concat());
            for message in messages.iter() {
                self.conversation.push_stored(rest.split_to(message.len()));
            }
            return Ok(());
        }
        if !self.piece.as_ref().is_some_and(|piece| piece.fits(bytes)) {
            let full = self.piece.replace(Piece::new(bytes.max(PIECE_BYTES))?);
            if let Some(full) = full {
                full.hand_over(&mut self.conversation);
            }
        }
        if let Some(piece) = &mut self.piece {
            for message in messages.iter() {
                piece.put(message);
            }
        }
        Ok(())
    }

    /// The conversation of all pages.
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

    fn ids(history: History) -> Vec<String> {
        let messages = history.finish().to_messages().unwrap();
        messages.iter().map(|m| m.id.to_string()).collect()
    }

    #[test]
    fn pages_come_out_as_one_conversation_however_large_they_are() {
        let mut history = History::default();
        history.take(&page(0, 3, 7 * 1024 * 1024), false).unwrap();
        history.take(&page(3, 5, 6 * 1024 * 1024), false).unwrap();
        history.take(&Records::default(), false).unwrap();
        history.take(&page(5, 9, 10), false).unwrap();
        let expected: Vec<_> = (0..9).map(|n| format!("m{n}")).collect();
        assert_eq!(ids(history), expected);
    }

    #[test]
    fn a_history_of_one_page_or_none_asks_for_no_piece() {
        let mut history = History::default();
        history.take(&page(0, 3, 10), true).unwrap();
        assert!(history.piece.is_none());
        assert_eq!(ids(history), ["m0", "m1", "m2"]);
        assert!(ids(History::default()).is_empty());
    }
}
