//! Parses the event stream encoding of AWS (`application/vnd.amazon.eventstream`) from a body that
//! arrives in parts of any size (pure).
//!
//! A message has its length, the length of its headers (4 bytes each), the checksum of both lengths,
//! its headers, its payload, and the checksum of all bytes before. A header has the length of its
//! name, its name, the type of its value, and its value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::dialect::{ReplyFault, text_at};
use super::events::{NoEvent, SseEvent};
use crate::limits::REPLY_EVENT_BYTES_MAX;

/// Media type of the encoding.
pub(super) const MEDIA_TYPE: &str = "application/vnd.amazon.eventstream";

/// Length of the two lengths and their checksum.
const PRELUDE_BYTES: usize = 12;

const CHECKSUM_BYTES: usize = 4;

/// Type of a header's value that is a text.
const TEXT: u8 = 7;

/// Parser of one body.
#[derive(Debug, Default)]
pub(super) struct AwsFrames {
    held: Vec<u8>,
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AwsMessage {
    /// Headers whose value is a text.
    headers: Vec<(String, String)>,
    payload: Vec<u8>,
}

impl AwsFrames {
    /// Adds the next part of the body. `take` receives each complete message and returns false to
    /// stop.
    ///
    /// # Errors
    ///
    /// [`NoEvent`], or an error of `take`.
    pub(super) fn feed<E: From<NoEvent>>(
        &mut self,
        part: &[u8],
        mut take: impl FnMut(AwsMessage) -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.held.extend_from_slice(part);
        let mut rest = self.held.as_slice();
        while let Some((message, behind)) = next_message(rest)? {
            rest = behind;
            if !take(message)? {
                self.held.clear();
                return Ok(false);
            }
        }
        let taken = self.held.len() - rest.len();
        self.held.drain(..taken);
        Ok(true)
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.first_chunk().copied()?))
}

/// The first message of a buffer and the bytes behind it; `None` if it is incomplete. Its length is
/// checked as soon as it is known.
fn next_message(buffer: &[u8]) -> Result<Option<(AwsMessage, &[u8])>, NoEvent> {
    let Some((prelude, _)) = buffer.split_at_checked(PRELUDE_BYTES) else {
        return Ok(None);
    };
    let (lengths, checksum) = prelude.split_at(PRELUDE_BYTES - CHECKSUM_BYTES);
    if number(checksum) != Some(crc32fast::hash(lengths)) {
        return Err(NoEvent::Damaged);
    }
    let length = |bytes: Option<&[u8]>| {
        let length = bytes.and_then(number);
        length.and_then(|length| usize::try_from(length).ok())
    };
    let (Some(total), Some(headers)) = (length(lengths.get(..4)), length(lengths.get(4..))) else {
        return Err(NoEvent::Damaged);
    };
    if total > REPLY_EVENT_BYTES_MAX {
        return Err(NoEvent::TooLong);
    }
    let Some((message, behind)) = buffer.split_at_checked(total) else {
        return Ok(None);
    };
    let checked = total.checked_sub(CHECKSUM_BYTES).ok_or(NoEvent::Damaged)?;
    let (content, checksum) = message.split_at(checked);
    if number(checksum) != Some(crc32fast::hash(content)) {
        return Err(NoEvent::Damaged);
    }
    let content = content.get(PRELUDE_BYTES..).ok_or(NoEvent::Damaged)?;
    let split = content.split_at_checked(headers).ok_or(NoEvent::Damaged)?;
    let (headers, payload) = split;
    let message = AwsMessage {
        headers: headers_of(headers).ok_or(NoEvent::Damaged)?,
        payload: payload.to_vec(),
    };
    Ok(Some((message, behind)))
}

/// Reads headers; `None` if they are malformed. Values that are not texts are skipped.
fn headers_of(mut bytes: &[u8]) -> Option<Vec<(String, String)>> {
    fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = bytes.split_at_checked(count)?;
        *bytes = rest;
        Some(taken)
    }
    let mut headers = Vec::new();
    while !bytes.is_empty() {
        let name_length = usize::from(*take(&mut bytes, 1)?.first()?);
        let name = take(&mut bytes, name_length)?;
        let kind = *take(&mut bytes, 1)?.first()?;
        let length = match kind {
            // True and false.
            0 | 1 => 0,
            // Numbers of 1, 2, 4 and 8 bytes.
            2 => 1,
            3 => 2,
            4 => 4,
            5 | 8 => 8,
            // Bytes and text.
            6 | TEXT => {
                let length = take(&mut bytes, 2)?;
                usize::from(u16::from_be_bytes(length.first_chunk().copied()?))
            }
            // A UUID.
            9 => 16,
            _ => return None,
        };
        let value = take(&mut bytes, length)?;
        if kind == TEXT {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
            headers.push((text(name)?, text(value)?));
        }
    }
    Some(headers)
}

impl AwsMessage {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(found, _)| found == name)?;
        Some(value)
    }

    /// The event of the model's own protocol that a message of Bedrock contains; `None` if it
    /// contains none.
    ///
    /// # Errors
    ///
    /// If it reports a failure, or is malformed.
    pub(super) fn into_event(self) -> Result<Option<SseEvent>, ReplyFault> {
        match self.header(":message-type") {
            Some("event") => {}
            Some("exception") => {
                let kind = self.header(":exception-type").unwrap_or_default();
                let said: Value = serde_json::from_slice(&self.payload).unwrap_or_default();
                return Err(failure(kind, text_at(&said, "/message")));
            }
            Some("error") => {
                let kind = self.header(":error-code").unwrap_or_default();
                return Err(failure(kind, self.header(":error-message")));
            }
            Some(_) | None => return Ok(None),
        }
        if self.header(":event-type") != Some("chunk") {
            return Ok(None);
        }
        let chunk: Value = serde_json::from_slice(&self.payload).map_err(ReplyFault::NoJson)?;
        let bytes = text_at(&chunk, "/bytes").and_then(|bytes| STANDARD.decode(bytes).ok());
        let data = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let data = data.ok_or(ReplyFault::NoEvent(NoEvent::NotText))?;
        let name = String::new();
        Ok(Some(SseEvent { name, data }))
    }
}

/// A failure within a stream, with the HTTP status that it has in place of a stream.
fn failure(kind: &str, message: Option<&str>) -> ReplyFault {
    let status = match kind {
        "throttlingException" | "serviceQuotaExceededException" => 429,
        "validationException" => 400,
        "accessDeniedException" => 403,
        "modelTimeoutException" => 408,
        "serviceUnavailableException" | "modelNotReadyException" => 503,
        _ => 500,
    };
    let message = format!("{kind}: {}", message.unwrap_or("no message"));
    ReplyFault::Said(json!({"error": {"code": status, "message": message}}))
}

/// Writes a message whose headers are texts.
#[cfg(test)]
pub(super) fn written(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap());
        head.extend_from_slice(name.as_bytes());
        head.push(TEXT);
        head.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        head.extend_from_slice(value.as_bytes());
    }
    let total = PRELUDE_BYTES + head.len() + payload.len() + CHECKSUM_BYTES;
    let mut message = u32::try_from(total).unwrap().to_be_bytes().to_vec();
    message.extend_from_slice(&u32::try_from(head.len()).unwrap().to_be_bytes());
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message.extend_from_slice(&head);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: &[u8], part_bytes: usize) -> Result<Vec<AwsMessage>, NoEvent> {
        let mut frames = AwsFrames::default();
        let mut found = Vec::new();
        for part in body.chunks(part_bytes) {
            frames.feed(part, |message| {
                found.push(message);
                Ok::<_, NoEvent>(true)
            })?;
        }
        Ok(found)
    }

    #[test]
    fn prov_1_published_messages_are_read_across_any_chunk_boundary() {
        let plain = [
            0, 0, 0, 30, 0, 0, 0, 0, 186, 242, 246, 138, 123, 34, 102, 111, 111, 34, 58, 32, 34,
            98, 97, 114, 34, 125, 174, 114, 88, 228,
        ];
        let with_header = [
            0, 0, 0, 62, 0, 0, 0, 32, 64, 93, 249, 70, 12, 99, 111, 110, 116, 101, 110, 116, 45,
            116, 121, 112, 101, 7, 0, 16, 97, 112, 112, 108, 105, 99, 97, 116, 105, 111, 110, 47,
            106, 115, 111, 110, 123, 34, 102, 111, 111, 34, 58, 32, 34, 98, 97, 114, 34, 125, 111,
            162, 191, 59,
        ];
        let payload = br#"{"foo": "bar"}"#;
        let header = ("content-type".to_owned(), "application/json".to_owned());
        let expected = [Vec::new(), vec![header]].map(|headers| AwsMessage {
            headers,
            payload: payload.to_vec(),
        });
        let body = [plain.as_slice(), &with_header].concat();
        for part_bytes in [1, 2, 7, 40, body.len()] {
            assert_eq!(read(&body, part_bytes).unwrap(), expected, "{part_bytes}");
        }
        assert_eq!(written(&[], payload), plain);
    }

    #[test]
    fn prov_1_a_damaged_or_huge_message_is_refused() {
        let whole = written(&[(":event-type", "chunk")], b"{}");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(read(&damaged, 5), Err(NoEvent::Damaged), "{at}");
        }
        let mut huge = u32::MAX.to_be_bytes().to_vec();
        huge.extend_from_slice(&[0; 4]);
        huge.extend_from_slice(&crc32fast::hash(&huge).to_be_bytes());
        assert_eq!(read(&huge, 4), Err(NoEvent::TooLong));
        for total in 0..16_u32 {
            let mut short = total.to_be_bytes().to_vec();
            short.extend_from_slice(&[0; 4]);
            short.extend_from_slice(&crc32fast::hash(&short).to_be_bytes());
            short.extend_from_slice(&[0; 16]);
            assert_eq!(read(&short, 100), Err(NoEvent::Damaged), "{total}");
        }
    }

    proptest! {
        #[test]
        fn prov_1_no_bytes_make_the_parser_fail(
            body in prop::collection::vec(any::<u8>(), 0..200),
            part_bytes in 1_usize..9,
        ) {
            let _read = read(&body, part_bytes);
            let _headers = headers_of(&body);
        }
    }
}
