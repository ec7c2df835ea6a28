//! A page's records, carried without being parsed.
//!
//! A long history would be parsed several times over on its way from a file to the process that
//! needs it. So records travel as one JSON array in a frame of their own, behind the message that says
//! how long each of them is; who receives it cuts it up and reads only what it looks at.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// JSON texts, each on its own, that travel together.
///
/// Written with `serde` it is the list of their lengths in bytes; the texts are [`Records::frame`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    lengths: Vec<u32>,
    /// `[a,b]`; empty if there is no record.
    array: Bytes,
}

/// A frame of records is not what was announced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{announced} records were announced, and a frame of {bytes} bytes that holds others came")]
pub struct NotAsAnnounced {
    announced: usize,
    bytes: usize,
}

impl Records {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none. Then no frame follows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The frame that carries them; none if there are none.
    #[must_use]
    pub fn frame(&self) -> Option<&Bytes> {
        (!self.is_empty()).then_some(&self.array)
    }

    /// Takes the frame that carries the records whose lengths are known.
    ///
    /// # Errors
    ///
    /// [`NotAsAnnounced`] if the frame holds other records. Whether each is JSON is not looked at.
    pub fn fill(&mut self, frame: Bytes) -> Result<(), NotAsAnnounced> {
        let not_as_announced = NotAsAnnounced {
            announced: self.len(),
            bytes: frame.len(),
        };
        let mut rest = &*frame;
        for (at, length) in self.lengths.iter().enumerate() {
            let before = if at == 0 { b'[' } else { b',' };
            let behind = usize::try_from(*length).ok().and_then(|length| {
                let record = rest.strip_prefix(&[before])?;
                record.get(length..)
            });
            let Some(behind) = behind else {
                return Err(not_as_announced);
            };
            rest = behind;
        }
        if rest != b"]" {
            return Err(not_as_announced);
        }
        self.array = frame;
        Ok(())
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

    /// Bytes of all records.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.array.len().saturating_sub(1 + self.len())
    }
}

/// Puts records together.
#[derive(Debug, Default)]
pub struct RecordsBuilder {
    lengths: Vec<u32>,
    array: BytesMut,
}

impl RecordsBuilder {
    /// An empty one with room for records of `bytes` bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            lengths: Vec::new(),
            array: BytesMut::with_capacity(bytes + 2),
        }
    }

    /// Adds a record: one JSON text. Whether it is one is the caller's business, as it is to add no
    /// more than a frame holds.
    pub fn push(&mut self, record: &[u8]) {
        // One that is longer fits no frame.
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        self.array
            .put_u8(if self.lengths.is_empty() { b'[' } else { b',' });
        self.array.put_slice(record);
        self.lengths.push(length);
    }

    /// The records.
    #[must_use]
    pub fn finish(mut self) -> Records {
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
    fn what_was_not_announced_is_refused() {
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
            let result = announced(lengths).fill(Bytes::from_static(frame.as_bytes()));
            assert!(result.is_err(), "{lengths} {frame}");
        }
    }

    #[test]
    fn no_record_needs_no_frame() {
        let none = Records::default();
        assert_eq!(
            (none.frame(), none.bytes(), none.iter().count()),
            (None, 0, 0)
        );
        assert_eq!(serde_json::to_string(&none).unwrap(), "[]");
    }

    proptest! {
        /// The records that come out are those that went in, and the frame is one JSON array of them.
        #[test]
        fn records_travel(values in prop::collection::vec(any::<(u32, String)>(), 0..20)) {
            let texts: Vec<String> = values.iter().map(|v| serde_json::to_string(v).unwrap()).collect();
            let sent: Records = texts.iter().collect();
            let mut received = announced(&serde_json::to_string(&sent).unwrap());
            if let Some(frame) = sent.frame() {
                let array: Vec<(u32, String)> = serde_json::from_slice(frame).unwrap();
                prop_assert_eq!(array, values);
                received.fill(frame.clone()).unwrap();
            }
            prop_assert_eq!(&received, &sent);
            let got: Vec<&[u8]> = received.iter().collect();
            prop_assert_eq!(received.bytes(), texts.iter().map(String::len).sum::<usize>());
            prop_assert_eq!(got, texts.iter().map(String::as_bytes).collect::<Vec<_>>());
        }
    }
}
