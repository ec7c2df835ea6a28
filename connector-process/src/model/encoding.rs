//! Decodes the bodies of gateways that compress although no request allows it (pure).

use std::borrow::Cow;
use std::io::{self, Write as _};

use flate2::write::{MultiGzDecoder, ZlibDecoder};
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

/// A decoder of one body. It passes on at once whatever a part completes, so that a stream stays
/// live.
pub(super) enum BodyDecoder {
    Identity,
    Gzip(MultiGzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
}

impl BodyDecoder {
    /// The decoder for the `content-encoding` of a response.
    ///
    /// # Errors
    ///
    /// The name of an encoding that is not supported.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, String> {
        let encoding = headers.get(CONTENT_ENCODING);
        let encoding = encoding.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let encoding = encoding.unwrap_or_default().trim().to_lowercase();
        match encoding.as_str() {
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip(MultiGzDecoder::new(Vec::new()))),
            "deflate" => Ok(Self::Deflate(ZlibDecoder::new(Vec::new()))),
            _ => Err(encoding),
        }
    }

    /// Decodes the next part. The result can be empty.
    ///
    /// # Errors
    ///
    /// If the part does not continue the encoding.
    pub(super) fn decode<'p>(&mut self, part: &'p [u8]) -> io::Result<Cow<'p, [u8]>> {
        let decoded = match self {
            Self::Identity => return Ok(Cow::Borrowed(part)),
            Self::Gzip(decoder) => {
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
        Ok(Cow::Owned(std::mem::take(decoded)))
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use reqwest::header::HeaderValue;

    use super::*;

    fn decoder(encoding: &'static str) -> Result<BodyDecoder, String> {
        let value = HeaderValue::from_static(encoding);
        BodyDecoder::of(&HeaderMap::from_iter([(CONTENT_ENCODING, value)]))
    }

    /// Parts as a server flushes them, one for each event.
    fn parts(encoding: &str, events: &[&str]) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        if encoding == "deflate" {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            for event in events {
                encoder.write_all(event.as_bytes()).unwrap();
                encoder.flush().unwrap();
                parts.push(std::mem::take(encoder.get_mut()));
            }
            parts.push(encoder.finish().unwrap());
        } else {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            for event in events {
                encoder.write_all(event.as_bytes()).unwrap();
                encoder.flush().unwrap();
                parts.push(std::mem::take(encoder.get_mut()));
            }
            parts.push(encoder.finish().unwrap());
        }
        parts
    }

    #[test]
    fn prov_1_each_event_of_a_compressed_stream_is_decoded_when_it_arrives() {
        let events = [
            "data: {\"a\": 1}\n\n",
            "data: {\"b\": \"데이터\"}\n\n",
            "data: [DONE]\n\n",
        ];
        for encoding in ["gzip", "x-gzip", " GZIP", "deflate"] {
            let mut live = decoder(encoding).unwrap();
            for (part, event) in parts(encoding, &events).iter().zip(events) {
                assert_eq!(&*live.decode(part).unwrap(), event.as_bytes(), "{encoding}");
            }
            // Cut anywhere.
            let mut by_byte = decoder(encoding).unwrap();
            let whole = parts(encoding, &events).concat();
            let decoded: Vec<u8> = whole
                .iter()
                .flat_map(|byte| by_byte.decode(&[*byte]).unwrap().into_owned())
                .collect();
            assert_eq!(decoded, events.concat().as_bytes(), "{encoding}");
        }
    }

    #[test]
    fn prov_1_an_uncompressed_body_is_unchanged_and_others_are_refused() {
        for encoding in ["", "identity"] {
            let mut decoder = decoder(encoding).unwrap();
            assert_eq!(&*decoder.decode(b"data: x").unwrap(), b"data: x");
        }
        assert_eq!(decoder("br").err().as_deref(), Some("br"));
        assert!(
            decoder("gzip")
                .unwrap()
                .decode(b"data: {\"a\": 1}\n\n")
                .is_err()
        );
        assert!(
            decoder("deflate")
                .unwrap()
                .decode(b"data: {\"a\": 1}\n\n")
                .is_err()
        );
    }
}
