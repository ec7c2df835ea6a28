//! Records of a page, transferred without parsing.
//!
//! Without this, each process between the file and the recipient would parse a long history again.
//! Records travel as one JSON array in a separate frame after the message that contains their
//! lengths. The recipient splits the array and parses only the records it inspects.

use std::ops::Range;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// JSON texts that travel together.
///
/// `serde` serializes the list of their lengths in bytes; the texts are in [`Records::frame`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    lengths: Vec<u32>,
    /// `[a,b]`; empty if there are no records.
    array: Bytes,
}

/// A frame of records differs from its announcement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{announced} records were announced, and a frame of {bytes} bytes that holds others came")]
pub struct AnnouncementMismatch {
    announced: usize,
    bytes: usize,
}

impl Records {
    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// True if there are no records. Then no frame follows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Takes the records at the ranges `places` of `text`, in order; ranges outside of it are
    /// ignored.
    ///
    /// The text is not copied if it consists only of the records, with one arbitrary byte before
    /// the first, between any two and after the last. A caller that reads lines therefore leaves
    /// room for one byte before them. The caller is responsible for passing valid JSON records, and
    /// no more than fit in a frame.
    #[must_use]
    pub fn cut_from(mut text: Vec<u8>, places: &[Range<usize>]) -> Self {
        if places.is_empty() {
            return Self::default();
        }
        let mut expected = 1;
        let is_dense = places.iter().all(|place| {
            let is_next = place.start == expected && place.end >= place.start;
            expected = place.end + 1;
            is_next
        }) && expected == text.len();
        if !is_dense {
            let records = places.iter().filter_map(|place| text.get(place.clone()));
            return records.collect();
        }
        if let Some(first) = text.first_mut() {
            *first = b'[';
        }
        for place in places {
            if let Some(behind) = text.get_mut(place.end) {
                *behind = b',';
            }
        }
        if let Some(last) = text.last_mut() {
            *last = b']';
        }
        Self {
            lengths: places.iter().map(|place| length(place.len())).collect(),
            array: Bytes::from(text),
        }
    }

    /// The frame with the records; `None` if there are no records.
    #[must_use]
    pub fn frame(&self) -> Option<&Bytes> {
        (!self.is_empty()).then_some(&self.array)
    }

    /// Size of the frame with the records, whether it has arrived or is only announced; 0 if there
    /// is none.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        let brackets_and_commas = self.lengths.len() as u64 + u64::from(!self.is_empty());
        self.lengths
            .iter()
            .map(|length| u64::from(*length))
            .sum::<u64>()
            + brackets_and_commas
    }

    /// Ranges of the announced records in the frame that carries them.
    ///
    /// # Errors
    ///
    /// [`AnnouncementMismatch`] if the frame contains other records. The JSON is not validated.
    pub fn places_in(&self, frame: &[u8]) -> Result<Vec<Range<usize>>, AnnouncementMismatch> {
        let not_as_announced = AnnouncementMismatch {
            announced: self.len(),
            bytes: frame.len(),
        };
        let mut places = Vec::with_capacity(self.len());
        let mut at = 0_usize;
        for length in &self.lengths {
            let before = if at == 0 { b'[' } else { b',' };
            let end = usize::try_from(*length)
                .map_or(usize::MAX, |length| (at + 1).saturating_add(length));
            if frame.get(at) != Some(&before) || end > frame.len() {
                return Err(not_as_announced);
            }
            places.push(at + 1..end);
            at = end;
        }
        if frame.get(at..) != Some(b"]") {
            return Err(not_as_announced);
        }
        Ok(places)
    }

    /// Each record's JSON text, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 1;
        self.lengths.iter().filter_map(move |length| {
            let end = at + usize::try_from(*length).ok()?;
            let record = self.array.get(at..end);
            at = end + 1;
            record
        })
    }
}

/// The length of a record. Longer records do not fit in a frame.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Collects records into one frame.
#[derive(Debug, Default)]
struct RecordsBuilder {
    lengths: Vec<u32>,
    array: BytesMut,
}

impl RecordsBuilder {
    fn push(&mut self, record: &[u8]) {
        self.array
            .put_u8(if self.lengths.is_empty() { b'[' } else { b',' });
        self.array.put_slice(record);
        self.lengths.push(length(record.len()));
    }

    fn finish(mut self) -> Records {
        if !self.lengths.is_empty() {
            self.array.put_u8(b']');
        }
        Records {
            lengths: self.lengths,
            array: self.array.freeze(),
        }
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Records {
    fn from_iter<I: IntoIterator<Item = T>>(records: I) -> Self {
        let mut builder = RecordsBuilder::default();
        for record in records {
            builder.push(record.as_ref());
        }
        builder.finish()
    }
}

impl Serialize for Records {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.lengths.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Records {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self {
            lengths: Vec::deserialize(deserializer)?,
            array: Bytes::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn announced(lengths: &str) -> Records {
        serde_json::from_str(lengths).unwrap()
    }

    #[test]
    fn frame_that_contradicts_the_announced_lengths_is_rejected() {
        for (lengths, frame) in [
            ("[1]", "[11]"),
            ("[1,1]", "[1]"),
            ("[1,1]", "[1;2]"),
            ("[1]", "[1"),
            ("[1]", "1]"),
            ("[1]", ""),
            ("[]", "[]"),
            ("[4294967295]", "[1]"),
        ] {
            let result = announced(lengths).places_in(frame.as_bytes());
            assert!(result.is_err(), "{lengths} {frame}");
        }
    }

    #[test]
    fn no_record_needs_no_frame() {
        let none = Records::default();
        assert_eq!(
            (none.frame(), none.frame_bytes(), none.iter().count()),
            (None, 0, 0)
        );
        assert_eq!(serde_json::to_string(&none).unwrap(), "[]");
    }

    proptest! {
        /// Adjacent records are not copied, with the same result.
        #[test]
        fn records_are_cut_from_a_text(
            texts in prop::collection::vec("[a-z]{0,4}", 0..8),
            gaps in prop::collection::vec(prop_oneof![9 => Just(1usize), 1 => 0usize..3], 9),
        ) {
            let (mut text, mut places) = (vec![b'\n'; gaps[0]], Vec::new());
            for (record, gap) in texts.iter().zip(&gaps[1..]) {
                places.push(text.len()..text.len() + record.len());
                text.extend(record.bytes());
                text.extend(vec![b'\n'; *gap]);
            }
            let expected: Records = texts.iter().collect();
            prop_assert_eq!(Records::cut_from(text, &places), expected);
        }

        /// Records survive a round trip, and the frame is one JSON array of them.
        #[test]
        fn records_travel(values in prop::collection::vec(any::<(u32, String)>(), 0..20)) {
            let texts: Vec<String> = values.iter().map(|v| serde_json::to_string(v).unwrap()).collect();
            let sent: Records = texts.iter().collect();
            let received = announced(&serde_json::to_string(&sent).unwrap());
            let frame_bytes = sent.frame().map_or(0, |frame| frame.len() as u64);
            prop_assert_eq!(received.frame_bytes(), frame_bytes);
            if let Some(frame) = sent.frame() {
                let array: Vec<(u32, String)> = serde_json::from_slice(frame).unwrap();
                prop_assert_eq!(array, values);
                let places = received.places_in(frame).unwrap();
                let cut: Vec<&[u8]> = places.into_iter().map(|place| &frame[place]).collect();
                prop_assert_eq!(cut, texts.iter().map(String::as_bytes).collect::<Vec<_>>());
            }
            let got: Vec<&[u8]> = sent.iter().collect();
            prop_assert_eq!(got, texts.iter().map(String::as_bytes).collect::<Vec<_>>());
        }
    }
}
