//! Content encodings of HTTP bodies: their names, and a decoder of bodies that arrive in parts. Pure.

use std::borrow::Cow;
use std::io::{self, Write as _};

use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use crate::limits::ENCODED_PIECE_BYTES;

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentEncoding {
    Identity,
    Gzip,
    /// With or without the frame of zlib, which many senders omit (RFC 9110, 8.4.1.2).
    Deflate,
}

/// Content encodings that `fetch` of JavaScript decodes and [`BodyDecoder`] does not.
const UNDECODED: [&str; 2] = ["br", "zstd"];

impl ContentEncoding {
    /// The encoding of a body with these headers.
    ///
    /// # Errors
    ///
    /// The name of an encoding that is not supported.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, String> {
        let Some(name) = headers.get(CONTENT_ENCODING) else {
            return Ok(Self::Identity);
        };
        let name = String::from_utf8_lossy(name.as_bytes());
        let name = name.trim().to_ascii_lowercase();
        match name.as_str() {
            "" | "identity" => Ok(Self::Identity),
            name => Self::named(name).ok_or(name.to_owned()),
        }
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            _ => None,
        }
    }

    /// The encoding of an answer whose request accepted none. As in `fetch`, a body with an unknown
    /// encoding is not decoded.
    ///
    /// # Errors
    ///
    /// A message about an encoding that is not supported.
    pub(crate) fn of_answer(headers: &HeaderMap) -> Result<Self, String> {
        Self::of(headers).or_else(|names| {
            let mut parts = names.split(',').map(str::trim);
            match parts.any(|name| Self::named(name).is_some() || UNDECODED.contains(&name)) {
                true => Err(format!("unexpected content encoding `{names}`")),
                false => Ok(Self::Identity),
            }
        })
    }
}

/// Decodes one body. Returns everything that a part completes immediately, so that a stream stays
/// live.
pub(crate) enum BodyDecoder {
    Identity,
    Gzip(MultiGzDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
    Deflate(DeflateDecoder<Vec<u8>>),
    /// The first byte shows whether the body has the frame of zlib.
    AnyDeflate,
}

impl BodyDecoder {
    pub(crate) fn new(encoding: ContentEncoding) -> Self {
        match encoding {
            ContentEncoding::Identity => Self::Identity,
            ContentEncoding::Gzip => Self::Gzip(MultiGzDecoder::new(Vec::new())),
            ContentEncoding::Deflate => Self::AnyDeflate,
        }
    }

    /// Decodes the next part and appends it to a body of at most `most` bytes. Returns true if the
    /// body has more.
    ///
    /// # Errors
    ///
    /// If the part does not continue the encoding.
    pub(crate) fn decode_to(
        &mut self,
        body: &mut Vec<u8>,
        most: usize,
        part: &[u8],
    ) -> io::Result<bool> {
        for piece in part.chunks(ENCODED_PIECE_BYTES) {
            let decoded = self.decode(piece)?;
            let room = most.saturating_sub(body.len());
            body.extend_from_slice(decoded.get(..room).unwrap_or(&decoded));
            if decoded.len() > room {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Decodes the next part. The result can be empty.
    ///
    /// # Errors
    ///
    /// If the part does not continue the encoding.
    pub(crate) fn decode<'p>(&mut self, part: &'p [u8]) -> io::Result<Cow<'p, [u8]>> {
        if let (Self::AnyDeflate, Some(first)) = (&*self, part.first()) {
            *self = match first & 0x0f == ZLIB_METHOD {
                true => Self::Zlib(ZlibDecoder::new(Vec::new())),
                false => Self::Deflate(DeflateDecoder::new(Vec::new())),
            };
        }
        let plain = match self {
            Self::Identity | Self::AnyDeflate => return Ok(Cow::Borrowed(part)),
            Self::Gzip(decoder) => {
                decoder.write_all(part)?;
                decoder.flush()?;
                decoder.get_mut()
            }
            Self::Zlib(decoder) => {
                decoder.write_all(part)?;
                decoder.flush()?;
                decoder.get_mut()
            }
            Self::Deflate(decoder) => {
                decoder.write_all(part)?;
                decoder.flush()?;
                decoder.get_mut()
            }
        };
        Ok(Cow::Owned(std::mem::take(plain)))
    }
}

/// Compression method in the first byte of a frame of zlib (RFC 1950).
const ZLIB_METHOD: u8 = 8;

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const EVENTS: [&str; 3] = [
        "data: {\"a\": 1}\n\n",
        "data: {\"b\": \"데이터\"}\n\n",
        "data: [DONE]\n\n",
    ];

    fn of(name: &'static str) -> Result<ContentEncoding, String> {
        let value = HeaderValue::from_static(name);
        ContentEncoding::of(&HeaderMap::from_iter([(CONTENT_ENCODING, value)]))
    }

    #[test]
    fn prov_1_names_of_encodings_are_known_in_any_case() {
        for name in ["gzip", "x-gzip", " GZIP"] {
            assert_eq!(of(name), Ok(ContentEncoding::Gzip));
        }
        assert_eq!(of("deflate"), Ok(ContentEncoding::Deflate));
        for name in ["", "identity"] {
            assert_eq!(of(name), Ok(ContentEncoding::Identity));
        }
        let none = ContentEncoding::of(&HeaderMap::new());
        assert_eq!(none, Ok(ContentEncoding::Identity));
        assert_eq!(of("br"), Err("br".to_owned()));
    }

    #[test]
    fn compat_2_encodings_of_answers_are_those_of_fetch() {
        let of_answer = |name: &'static str| {
            let value = HeaderValue::from_static(name);
            ContentEncoding::of_answer(&HeaderMap::from_iter([(CONTENT_ENCODING, value)]))
        };
        assert_eq!(of_answer("gzip"), Ok(ContentEncoding::Gzip));
        for name in ["identity", "other", "aws-chunked"] {
            assert_eq!(of_answer(name), Ok(ContentEncoding::Identity));
        }
        for name in ["br", "ZSTD", "gzip, br", "gzip, gzip"] {
            assert!(of_answer(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_file_that_is_compressed_unasked_is_decoded_up_to_the_limit() {
        let plain = vec![b'a'; 100_000];
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&plain).unwrap();
        let gzip = gzip.finish().unwrap();
        let of = |most| {
            let (mut decoder, mut body) = (BodyDecoder::new(ContentEncoding::Gzip), Vec::new());
            let has_more = decoder.decode_to(&mut body, most, &gzip).unwrap();
            (body.len(), has_more)
        };
        assert_eq!(of(plain.len()), (plain.len(), false));
        assert_eq!(of(plain.len() - 1), (plain.len() - 1, true));
    }

    #[test]
    fn prov_1_each_event_of_a_compressed_stream_is_decoded_when_it_arrives() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let mut decoder = BodyDecoder::new(ContentEncoding::Gzip);
        for event in EVENTS {
            encoder.write_all(event.as_bytes()).unwrap();
            encoder.flush().unwrap();
            let part = std::mem::take(encoder.get_mut());
            assert_eq!(&*decoder.decode(&part).unwrap(), event.as_bytes());
        }
    }

    #[test]
    fn prov_1_bodies_are_decoded_wherever_they_are_cut() {
        let plain = EVENTS.concat();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(plain.as_bytes()).unwrap();
        zlib.write_all(plain.as_bytes()).unwrap();
        bare.write_all(plain.as_bytes()).unwrap();
        for (encoding, body) in [
            (ContentEncoding::Identity, plain.clone().into_bytes()),
            (ContentEncoding::Gzip, gzip.finish().unwrap()),
            (ContentEncoding::Deflate, zlib.finish().unwrap()),
            (ContentEncoding::Deflate, bare.finish().unwrap()),
        ] {
            let mut decoder = BodyDecoder::new(encoding);
            let mut decoded = Vec::new();
            for byte in &body {
                decoded.extend_from_slice(&decoder.decode(&[*byte]).unwrap());
            }
            assert_eq!(decoded, plain.as_bytes(), "{encoding:?}");
        }
    }

    #[test]
    fn prov_1_a_body_that_is_not_compressed_as_named_is_refused() {
        for encoding in [ContentEncoding::Gzip, ContentEncoding::Deflate] {
            let decoded = BodyDecoder::new(encoding)
                .decode(b"plain text, and more text")
                .map(Cow::into_owned);
            assert!(decoded.is_err(), "{encoding:?}: {decoded:?}");
        }
    }
}
