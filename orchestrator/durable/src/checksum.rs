//! Checksums of lines: CRC-32 as in zlib, gzip and `crc32`.
//!
//! Lines in our own formats carry their checksum: a record ends in
//! `"n":17,"d":16,"crc32":"89abcdef"}`, where `n` is its number in the file, `d` the number of the
//! last durable record at the time of writing, and `crc32` the checksum of every byte before
//! `,"crc32"`. This detects flipped bits and moved, repeated or removed lines, and distinguishes
//! the remains of a crash from damage to durable data. Lines in foreign formats stay plain; their
//! checksums are in a separate file (see `base.sums.jsonl`).
//!
//! A CRC-32 detects every single flipped bit and every burst of up to 32 bits. It does not prevent
//! forgery, because a writer of these files can also write their checksums.

use serde::Serialize;

use crate::error::FileError;

/// Text before the checksum of a record.
const MARK: &[u8] = b",\"crc32\":\"";
const DIGITS: usize = 8;
/// Text after the checksum.
const END: &[u8] = b"\"}";
/// Length of all three, in bytes.
const SUFFIX: usize = MARK.len() + DIGITS + END.len();

/// Returns the checksum of some bytes.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Position of a record in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPosition {
    /// Its number, from 1.
    pub n: u64,
    /// The number of the last durable record when this one was written.
    pub durable: u64,
}

/// State of a line's seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seal {
    Whole(RecordPosition),
    /// No checksum: another implementation wrote the line.
    Absent,
    /// The checksum does not match.
    Broken,
}

/// Serializes a record, a non-empty object, as one sealed line.
///
/// # Errors
///
/// [`FileError::Unwritable`] if it cannot be written as JSON.
pub fn seal(record: &impl Serialize, place: RecordPosition) -> Result<Vec<u8>, FileError> {
    let mut line = serde_json::to_vec(record).map_err(|error| FileError::Unwritable {
        problem: error.to_string(),
    })?;
    debug_assert!(
        line.ends_with(b"}") && line.len() > 2,
        "a record is an object"
    );
    line.pop();
    line.extend(format!(",\"n\":{},\"d\":{}", place.n, place.durable).bytes());
    let sum = crc32(&line);
    line.extend_from_slice(MARK);
    line.extend(format!("{sum:08x}").bytes());
    line.extend_from_slice(END);
    line.push(b'\n');
    Ok(line)
}

/// Checks the seal of a line without its newline.
pub fn seal_of(line: &[u8]) -> Seal {
    let Some((body, suffix)) = line
        .len()
        .checked_sub(SUFFIX)
        .and_then(|at| line.split_at_checked(at))
    else {
        return Seal::Absent;
    };
    let digits = suffix
        .strip_prefix(MARK)
        .and_then(|rest| rest.strip_suffix(END));
    let Some(digits) = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit)) else {
        return Seal::Absent;
    };
    if format!("{:08x}", crc32(body)).as_bytes() != digits {
        return Seal::Broken;
    }
    place_of(body).map_or(Seal::Absent, Seal::Whole)
}

/// Returns the content of a sealed line (without its newline) before sealing, without its closing
/// brace; `None` if the seal is invalid.
pub fn unsealed(line: &[u8]) -> Option<&[u8]> {
    let Seal::Whole(_) = seal_of(line) else {
        return None;
    };
    let body = line.get(..line.len() - SUFFIX)?;
    let (rest, _) = number_behind(body, b",\"d\":")?;
    let (record, _) = number_behind(rest, b",\"n\":")?;
    Some(record)
}

/// Parses `…,"n":17,"d":16`.
fn place_of(body: &[u8]) -> Option<RecordPosition> {
    let (rest, durable) = number_behind(body, b",\"d\":")?;
    let (_, n) = number_behind(rest, b",\"n\":")?;
    Some(RecordPosition { n, durable })
}

fn number_behind<'a>(body: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], u64)> {
    let digits = body.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (rest, digits) = body.split_at_checked(body.len() - digits)?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((rest.strip_suffix(mark)?, number))
}

/// Returns the lengths of the sealed records in a line that lost its line breaks, each including
/// the byte in place of the line break. The bytes after them are not a record.
pub fn sealed_prefixes(line: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut start = 0;
    for at in 0..line.len().saturating_sub(SUFFIX) {
        let end = at + SUFFIX;
        if line.get(at..at + MARK.len()) == Some(MARK)
            && let Some(record) = line.get(start..end)
            && matches!(seal_of(record), Seal::Whole(_))
        {
            ends.push(end);
            start = end + 1;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PLACE: RecordPosition = RecordPosition { n: 17, durable: 9 };

    fn sealed() -> Vec<u8> {
        let mut line = seal(&json!({"type": "accepted", "text": "é\n"}), PLACE).unwrap();
        assert_eq!(line.pop(), Some(b'\n'));
        line
    }

    #[test]
    fn sealed_record_is_valid_json_with_its_position() {
        let line = sealed();
        assert_eq!(seal_of(&line), Seal::Whole(PLACE));
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["n"], 17);
        assert_eq!(value["text"], "é\n");
        assert_eq!(seal_of(b"{\"type\":\"append\"}"), Seal::Absent);
        assert_eq!(seal_of(b""), Seal::Absent);
    }

    /// zlib's polynomial, so that standard tools can verify a line.
    #[test]
    fn the_checksum_is_the_one_everybody_has() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    /// A flip is detected, or it hits the name of the checksum field and leaves the record's
    /// content intact.
    #[test]
    fn msg_11_no_flipped_bit_is_taken_for_a_whole_record() {
        let line = sealed();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut flipped = line.clone();
                flipped[at] ^= 1 << bit;
                match seal_of(&flipped) {
                    Seal::Broken => {}
                    Seal::Absent => assert!(at >= line.len() - SUFFIX, "byte {at}, bit {bit}"),
                    Seal::Whole(_) => panic!("byte {at}, bit {bit} was not seen"),
                }
            }
        }
    }

    #[test]
    fn records_that_lost_the_break_between_them_are_found() {
        let (a, b) = (sealed(), sealed());
        let joined = [a.as_slice(), b"\x08", b.as_slice()].concat();
        assert_eq!(seal_of(&joined), Seal::Broken);
        assert_eq!(sealed_prefixes(&joined), [a.len()]);
    }
}
