//! Buffers a reply's parts before they are sent, so that a fast model does not cause a frame per
//! word.

use std::time::Duration;

use goondan_clock::Instant;
use goondan_protocol::call::ModelPiece;
use serde_json::value::to_raw_value;

use super::draft::PieceKind;
use crate::calls::Pieces;
use crate::limits::{PIECE_BYTES_MAX, PIECE_INTERVAL_MS};

/// Words that wait to be sent.
pub(super) struct PieceBuffer {
    pieces: Pieces,
    kind: PieceKind,
    text: String,
    /// Latest time to send the buffered text.
    due: Instant,
}

impl PieceBuffer {
    pub(super) fn new(pieces: Pieces) -> Self {
        Self {
            pieces,
            kind: PieceKind::Text,
            text: String::new(),
            due: Instant::now(),
        }
    }

    /// Deadline of [`PieceBuffer::flush`]; `None` if the buffer is empty.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.text.is_empty()).then_some(self.due)
    }

    pub(super) async fn add(&mut self, kind: PieceKind, text: &str) {
        if kind != self.kind {
            self.flush().await;
            self.kind = kind;
        }
        if self.text.is_empty() {
            // The first words are sent immediately, the following ones are buffered.
            let since = Instant::now() - self.due;
            let interval = Duration::from_millis(PIECE_INTERVAL_MS);
            self.due = Instant::now() + interval.saturating_sub(since);
        }
        self.text.push_str(text);
        if self.text.len() >= PIECE_BYTES_MAX || self.due <= Instant::now() {
            self.flush().await;
        }
    }

    pub(super) async fn flush(&mut self) {
        if self.text.is_empty() {
            return;
        }
        let text = std::mem::take(&mut self.text);
        self.due = Instant::now();
        let piece = match self.kind {
            PieceKind::Text => ModelPiece::Text { text },
            PieceKind::Reasoning => ModelPiece::Reasoning { text },
        };
        if let Ok(piece) = to_raw_value(&piece) {
            self.pieces.send(piece).await;
        }
    }
}
