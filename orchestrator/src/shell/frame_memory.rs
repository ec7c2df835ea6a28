//! Shared memory budget for incomplete frames of many connections (`SEC-8`).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use goondan_protocol::frame::{FrameCodec, FrameError};
use goondan_protocol::limits::{FRAME_HEADER_BYTES, MAX_FRAME_BYTES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::codec::Decoder;

use crate::limits::FRAME_UNCOUNTED_BYTES;

/// Size of one permit, in bytes.
const PLACE_BYTES: usize = 1_024;

/// Memory budget for incomplete frames, shared by connections. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct FrameMemory {
    places: Arc<Semaphore>,
    bytes: usize,
}

impl FrameMemory {
    /// Creates a budget of `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        let places = Arc::new(Semaphore::new(bytes / PLACE_BYTES));
        Self { places, bytes }
    }

    /// The codec of one more connection.
    pub(super) fn codec(&self) -> CountedCodec {
        CountedCodec {
            codec: FrameCodec::new(),
            memory: self.clone(),
            held: None,
        }
    }

    fn take(&self, len: usize) -> Result<OwnedSemaphorePermit, FrameError> {
        let places = u32::try_from(len.div_ceil(PLACE_BYTES)).unwrap_or(u32::MAX);
        let taken = self.places.clone().try_acquire_many_owned(places);
        taken.map_err(|_none_left| FrameError::NoRoom {
            len,
            max: self.bytes,
        })
    }
}

/// A frame codec that reserves memory for a large frame before reading it, and releases it with the
/// frame.
#[derive(Debug)]
pub(super) struct CountedCodec {
    codec: FrameCodec,
    memory: FrameMemory,
    held: Option<OwnedSemaphorePermit>,
}

impl CountedCodec {
    /// Reserves memory for a large frame that has begun and is incomplete.
    fn make_room(&mut self, src: &BytesMut) -> Result<(), FrameError> {
        let Some(header) = src.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(());
        };
        let len = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
        let is_counted = len > FRAME_UNCOUNTED_BYTES && len <= MAX_FRAME_BYTES;
        let is_whole = src.len() >= FRAME_HEADER_BYTES.saturating_add(len);
        if is_counted && !is_whole && self.held.is_none() {
            self.held = Some(self.memory.take(len)?);
        }
        Ok(())
    }
}

impl Decoder for CountedCodec {
    type Item = Bytes;
    type Error = FrameError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        self.make_room(src)?;
        let frame = self.codec.decode(src)?;
        if frame.is_some() {
            self.held = None;
        }
        Ok(frame)
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        self.codec.decode_eof(src)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a frame of `len` bytes.
    fn begun(len: usize) -> BytesMut {
        let mut wire = BytesMut::new();
        wire.extend_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
        wire.extend_from_slice(b"{");
        wire
    }

    #[test]
    fn sec_8_partial_frames_share_memory_and_short_ones_use_none() {
        let len = 1024 * 1024;
        let memory = FrameMemory::new(2 * len);
        let (mut first, mut second, mut third) = (memory.codec(), memory.codec(), memory.codec());
        let mut wire = begun(len);
        assert!(first.decode(&mut wire).unwrap().is_none());
        assert!(second.decode(&mut begun(len)).unwrap().is_none());
        let full = third.decode(&mut begun(len)).unwrap_err();
        assert!(matches!(full, FrameError::NoRoom { .. }), "{full}");
        assert!(memory.codec().decode(&mut begun(100)).unwrap().is_none());
        // The first frame is now complete.
        wire.resize(FRAME_HEADER_BYTES + len, b' ');
        assert!(first.decode(&mut wire).unwrap().is_some());
        assert!(third.decode(&mut begun(len)).unwrap().is_none());
        // A closed connection releases its memory.
        drop((second, third));
        assert!(first.decode(&mut begun(2 * len)).unwrap().is_none());
    }
}
