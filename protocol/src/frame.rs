//! Frame codec: a big-endian `u32` length, followed by that many bytes of JSON (`IPC-1`).
//!
//! This is the lowest of three layers: bytes, frames, messages. Incomplete input is not an error.
//! The end of the stream is clean between two frames and an error inside one. The length is checked
//! before memory is allocated for it.
//!
//! The codec needs no runtime. The feature `tokio-util` implements that crate's `Decoder` and
//! `Encoder` for programs that use its streams. Its own length-delimited codec consumes the header
//! before the body has arrived, and so cannot distinguish a clean end from a truncated frame. This
//! codec leaves the header in the buffer until the frame is complete.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits::{FRAME_HEADER_BYTES, MAX_FRAME_BYTES};

#[cfg(feature = "tokio-util")]
mod driven;

/// Error of a stream of frames. The stream is unusable afterwards.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A frame is larger than the limit.
    #[error("a frame of {len} bytes; at most {max} are allowed")]
    TooLarge {
        /// The announced length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// Incomplete frames use all memory reserved for them.
    #[error(
        "no memory for a frame of {len} bytes: unfinished frames of all connections are limited to \
         {max} bytes; try again later"
    )]
    NoRoom {
        /// The announced length in bytes.
        len: usize,
        /// The limit for all incomplete frames, in bytes.
        max: usize,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame, after {got} of its bytes")]
    Truncated {
        /// Received bytes of the frame, including its header.
        got: usize,
    },
    /// I/O error of the underlying transport.
    #[error("the transport failed")]
    Io(#[from] std::io::Error),
}

/// Encodes and decodes frames of at most [`MAX_FRAME_BYTES`].
#[derive(Debug, Clone)]
pub struct FrameCodec {
    max: usize,
}

impl FrameCodec {
    /// Creates a codec with the protocol's limit.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_frame_bytes(MAX_FRAME_BYTES)
    }

    /// Creates a codec with a lower limit; a higher limit is reduced to the protocol's.
    #[must_use]
    pub fn with_max_frame_bytes(max: usize) -> Self {
        Self {
            max: max.min(MAX_FRAME_BYTES),
        }
    }

    /// The header of a body of `len` bytes, for callers that write the body themselves.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`] if the length exceeds the limit.
    pub fn header(&self, len: usize) -> Result<[u8; FRAME_HEADER_BYTES], FrameError> {
        self.check(len)?;
        let header = u32::try_from(len).map(u32::to_be_bytes);
        header.map_err(|_| FrameError::TooLarge { len, max: self.max })
    }

    /// Removes a complete frame's body from `src`. Returns `None` and reserves space if more bytes
    /// are needed.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`] as soon as the header has arrived.
    pub fn decode(&self, src: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(header) = src.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let len = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
        self.check(len)?;
        let frame_bytes = FRAME_HEADER_BYTES + len;
        if src.len() < frame_bytes {
            src.reserve(frame_bytes - src.len());
            return Ok(None);
        }
        src.advance(FRAME_HEADER_BYTES);
        Ok(Some(src.split_to(len).freeze()))
    }

    /// Like [`Self::decode`], at the end of the stream: `None` if the stream ended between two
    /// frames.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`] if it ended inside one; [`FrameError::TooLarge`].
    pub fn decode_eof(&self, src: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        match self.decode(src)? {
            Some(frame) => Ok(Some(frame)),
            None if src.is_empty() => Ok(None),
            None => Err(FrameError::Truncated { got: src.len() }),
        }
    }

    /// Appends a frame with this body to `dst`.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`], which leaves `dst` unchanged.
    pub fn encode(&self, body: &[u8], dst: &mut BytesMut) -> Result<(), FrameError> {
        let header = self.header(body.len())?;
        dst.reserve(FRAME_HEADER_BYTES + body.len());
        dst.put_slice(&header);
        dst.put_slice(body);
        Ok(())
    }

    fn check(&self, len: usize) -> Result<(), FrameError> {
        if len > self.max {
            Err(FrameError::TooLarge { len, max: self.max })
        } else {
            Ok(())
        }
    }
}

impl Default for FrameCodec {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(bodies: &[Vec<u8>]) -> BytesMut {
        let mut wire = BytesMut::new();
        for body in bodies {
            FrameCodec::new()
                .encode(body.as_slice(), &mut wire)
                .unwrap();
        }
        wire
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(&encoded(&[b"{}".to_vec()])[..], b"\x00\x00\x00\x02{}");
    }

    #[test]
    fn an_oversized_frame_is_refused_by_its_header_alone() {
        let mut src = BytesMut::from(&b"\xff\xff\xff\xff"[..]);
        let error = FrameCodec::new().decode(&mut src).unwrap_err();
        assert!(
            matches!(
                error,
                FrameError::TooLarge {
                    len: 0xffff_ffff,
                    ..
                }
            ),
            "{error}"
        );
        assert!(src.capacity() < 1024, "something was allocated for it");
        let codec = FrameCodec::with_max_frame_bytes(3);
        assert!(codec.encode(&b"four"[..], &mut BytesMut::new()).is_err());
    }

    proptest! {
        /// The split of bytes into reads does not change the decoded frames.
        #[test]
        fn chunking_does_not_matter(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
            cuts in prop::collection::vec(1usize..50, 1..60),
        ) {
            let wire = encoded(&bodies);
            let codec = FrameCodec::new();
            let (mut src, mut out, mut rest) = (BytesMut::new(), Vec::new(), &wire[..]);
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                src.extend_from_slice(chunk);
                rest = tail;
                while let Some(frame) = codec.decode(&mut src).unwrap() {
                    out.push(frame.to_vec());
                }
            }
            prop_assert_eq!(out, bodies);
            prop_assert!(codec.decode_eof(&mut src).unwrap().is_none());
        }

        /// A stream that ends inside a frame returns an error.
        #[test]
        fn a_cut_frame_is_an_error(body in prop::collection::vec(any::<u8>(), 1..100), at in 1usize..104) {
            let wire = encoded(&[body]);
            prop_assume!(at < wire.len());
            let mut src = BytesMut::from(&wire[..at]);
            let codec = FrameCodec::new();
            prop_assert!(codec.decode(&mut src).unwrap().is_none());
            let is_truncated = matches!(codec.decode_eof(&mut src), Err(FrameError::Truncated { got }) if got == at);
            prop_assert!(is_truncated);
        }

        /// Garbage never panics and never makes the decoder allocate more than its limit.
        #[test]
        fn garbage_is_bounded(garbage in prop::collection::vec(any::<u8>(), 0..300)) {
            let codec = FrameCodec::with_max_frame_bytes(4096);
            let mut src = BytesMut::from(&garbage[..]);
            while let Ok(Some(frame)) = codec.decode(&mut src) {
                prop_assert!(frame.len() <= 4096);
            }
            prop_assert!(src.capacity() <= 2 * (4096 + FRAME_HEADER_BYTES));
        }
    }
}
