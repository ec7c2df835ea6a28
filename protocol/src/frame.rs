//! The frame codec: a big-endian `u32` length, then that many bytes of JSON (`IPC-1`).
//!
//! Bytes, frames and messages are three layers; this is the lowest. "More bytes are needed" is not
//! an error; the end of the stream between two frames is clean, inside one it is not. The length is
//! checked before anything is allocated for it.
//!
//! The codec needs no runtime. With the feature `tokio-util` it is that crate's `Decoder` and `Encoder`
//! too, for programs whose streams it drives. The length codec that is ready-made there consumes the header
//! before the body is there and so cannot tell a clean end from a cut frame; ours leaves the header in the
//! buffer until the frame is whole.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits::{FRAME_HEADER_BYTES, MAX_FRAME_BYTES};

#[cfg(feature = "tokio-util")]
mod driven;

/// Why a stream of frames cannot go on. The stream is unusable after any of these.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A frame announces, or would have, more bytes than the limit.
    #[error("a frame of {len} bytes; at most {max} are allowed")]
    TooLarge {
        /// The announced length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The frames that have begun and are not whole yet hold all the memory there is for them.
    #[error(
        "there is no room for a frame of {len} bytes: unfinished frames of all connections may hold \
         {max} bytes together; try again when others are through"
    )]
    NoRoom {
        /// The announced length in bytes.
        len: usize,
        /// What all may hold, in bytes.
        max: usize,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame, after {got} of its bytes")]
    Truncated {
        /// How many bytes of the frame came, its header included.
        got: usize,
    },
    /// The transport under the frames failed.
    #[error("the transport failed")]
    Io(#[from] std::io::Error),
}

/// Encodes and decodes frames of at most [`MAX_FRAME_BYTES`].
#[derive(Debug, Clone)]
pub struct FrameCodec {
    max: usize,
}

impl FrameCodec {
    /// A codec with the protocol's limit.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_frame_bytes(MAX_FRAME_BYTES)
    }

    /// A codec with a tighter limit than the protocol's; a looser one is held at the protocol's.
    #[must_use]
    pub fn with_max_frame_bytes(max: usize) -> Self {
        Self {
            max: max.min(MAX_FRAME_BYTES),
        }
    }

    /// What stands before a body of `len` bytes, for whoever writes the body itself.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`] if no frame has that many.
    pub fn header(&self, len: usize) -> Result<[u8; FRAME_HEADER_BYTES], FrameError> {
        self.check(len)?;
        let header = u32::try_from(len).map(u32::to_be_bytes);
        header.map_err(|_| FrameError::TooLarge { len, max: self.max })
    }

    /// Takes a whole frame's body off `src`; none if more bytes are needed. Then there is room for them.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`] as soon as the header says so.
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

    /// As [`Self::decode`], when no more bytes come: none if the stream ended between two frames.
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

    /// Puts a frame with this body behind what `dst` holds.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`], which leaves `dst` as it was.
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
        /// However the bytes are cut into reads, the same frames come out.
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

        /// A stream that ends inside a frame says so.
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

        /// Garbage never panics and never makes the decoder hold more than its limit.
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
