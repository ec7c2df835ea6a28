//! Searches texts for secret values and masks them (`SEC-2`).
//!
//! Values are found in the forms that programs write: verbatim, escaped as JSON (once and twice,
//! because a line can quote another), in base64 at any offset, in hexadecimal, and percent-encoded.
//! Programs write a multi-line value, such as a private key, line by line, so each line is also a
//! value. Other escapes in the text (`\/`, `\u0068`, `%2f`) are decoded before the search, at each
//! level of quoting.
//!
//! The daemon masks what it writes with this crate; `gdn` masks the incidents that it exports.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use goondan_protocol::limits::MAX_LOG_LINE_BYTES;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

mod unescape;

use unescape::{ESCAPED_BYTES_MAX, before_escape, may_hide, undone};

/// Text in place of a value.
pub const MASK: &str = "[masked]";

/// Shortest value of a configuration that is masked where it turns up, in bytes (`SEC-2`). A shorter
/// one is found in too much that has nothing to do with it.
pub const MASKED_VALUE_BYTES_MIN: usize = 6;
/// Shortest line of a value of several lines that is masked where it turns up on its own, in bytes (`SEC-2`).
/// Shorter ones are brackets and names.
const MASKED_LINE_BYTES_MIN: usize = 16;
/// Pieces in which a value is looked for that may be longer than what can be kept of a log line, in bytes
/// (`SEC-2`). Of a value cut in two, less than this is left at the cut.
pub const MASKED_PIECE_BYTES: usize = 64;
/// Maximum number of bytes at the end of a task program's output that are held back, because a
/// secret value may begin there (`SEC-2`). Including replacements for values, an output message
/// stays below twice its size.
const MASKED_BEGINNING_BYTES_MAX: usize = 32 * 1024;

/// The values are too large to search for.
#[derive(Debug, thiserror::Error)]
#[error("the values to mask are too large to search for")]
pub struct MasksTooLarge(#[from] aho_corasick::BuildError);

/// The values to mask.
#[derive(Default)]
pub struct MaskTable {
    values: BTreeSet<String>,
    /// The search patterns of all values.
    patterns: BTreeSet<String>,
    /// Length in bytes of the longest part that is written contiguously.
    longest: usize,
    finder: Option<AhoCorasick>,
}

impl std::fmt::Debug for MaskTable {
    /// Shows only the number of values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Known({})", self.values.len())
    }
}

impl MaskTable {
    /// Adds values. Values shorter than [`MASKED_VALUE_BYTES_MIN`] are ignored.
    ///
    /// # Errors
    ///
    /// The values are too large to search for; earlier values stay masked.
    pub fn add(&mut self, values: &[&str]) -> Result<(), MasksTooLarge> {
        let before = self.values.len();
        let long = values.iter();
        let long = long.filter(|value| value.len() >= MASKED_VALUE_BYTES_MIN);
        self.values.extend(long.map(|value| (*value).to_owned()));
        if self.values.len() == before {
            return Ok(());
        }
        let parts: Vec<&str> = self.values.iter().flat_map(|value| parts(value)).collect();
        let longest = parts.iter().map(|part| part.len()).max();
        let longest = longest.unwrap_or_default();
        let patterns: BTreeSet<String> = parts.into_iter().flat_map(forms).collect();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&patterns)?;
        self.finder = Some(finder);
        self.patterns = patterns;
        self.longest = longest;
        Ok(())
    }

    /// Position at which `bytes`, the first part of a longer line, can be cut without splitting a
    /// value, with any bytes after it: at most `bytes.len()`, and 0 only if `bytes` is empty.
    pub fn cut_beside_values(&self, bytes: &[u8]) -> usize {
        let Some(finder) = &self.finder else {
            return bytes.len();
        };
        // The last bytes may be the beginning of a value with every byte escaped. A value longer
        // than half is split and found in pieces.
        let escaped = if may_hide(bytes) {
            self.longest.saturating_mul(ESCAPED_BYTES_MAX)
        } else {
            0
        };
        let kept_back = finder.max_pattern_len().max(escaped).saturating_sub(1);
        let cut = bytes.len().saturating_sub(kept_back.min(bytes.len() / 2));
        let cut = before_escape(bytes, cut);
        let mut across = self.spans(bytes).into_iter();
        let across = across.find(|span| span.start < cut && cut < span.end);
        across.map_or(cut, |span| span.end)
    }

    /// Removes the end of `text`, the first part of a longer text, that may be the beginning of a
    /// value.
    #[must_use]
    pub fn split_off_beginning(&self, text: &mut String) -> String {
        let begun = self.patterns.iter().filter_map(|pattern| {
            let most = pattern.len().min(MASKED_BEGINNING_BYTES_MAX + 1);
            let mut lengths = (1..most).rev();
            lengths.find(|length| {
                let beginning = pattern.get(..*length);
                beginning.is_some_and(|beginning| text.ends_with(beginning))
            })
        });
        let cut = text.len() - begun.max().unwrap_or_default();
        // A complete value is not split.
        let mut across = self.spans(text.as_bytes()).into_iter();
        let across = across.find(|span| span.start < cut && cut < span.end);
        text.split_off(across.map_or(cut, |span| span.end))
    }

    /// Replaces each value by [`MASK`].
    #[must_use]
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let spans = self.spans(text.as_bytes());
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut masked = String::with_capacity(text.len());
        let mut at = 0;
        for span in spans {
            masked.push_str(text.get(at..span.start).unwrap_or_default());
            masked.push_str(MASK);
            at = span.end;
        }
        masked.push_str(text.get(at..).unwrap_or_default());
        Cow::Owned(masked)
    }

    /// Positions of values, verbatim or escaped, in order and without overlaps.
    fn spans(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let Some(finder) = &self.finder else {
            return Vec::new();
        };
        let found = finder.find_iter(bytes);
        let mut spans: Vec<Range<usize>> = found.map(|found| found.range()).collect();
        if !may_hide(bytes) {
            return spans;
        }
        for undone in undone(bytes) {
            let found = finder.find_iter(&undone.bytes);
            spans.extend(found.map(|found| undone.places(found.range())));
        }
        spans.sort_by_key(|span| (span.start, span.end));
        let mut apart: Vec<Range<usize>> = Vec::new();
        for span in spans {
            match apart.last_mut() {
                Some(last) if span.start < last.end => last.end = last.end.max(span.end),
                _ => apart.push(span),
            }
        }
        apart
    }

    /// True if this JSON may contain a value, verbatim or escaped, such as in a string that is JSON
    /// itself.
    #[must_use]
    pub fn may_be_in_json(&self, json: &[u8]) -> bool {
        let finder = self.finder.as_ref();
        finder.is_some_and(|finder| may_hide(json) || finder.is_match(json))
    }

    /// Masks JSON so that it stays valid.
    pub fn raw(&self, raw: &mut Box<RawValue>) {
        if self.may_be_in_json(raw.get().as_bytes())
            && let Ok(value) = serde_json::from_str(raw.get())
            && let Ok(masked) = to_raw_value(&self.value(value))
        {
            *raw = masked;
        }
    }

    /// Masks every text of a JSON value, names of fields included.
    #[must_use]
    pub fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                let masked = fields.into_iter();
                let masked =
                    masked.map(|(name, value)| (self.text(&name).into_owned(), self.value(value)));
                Value::Object(masked.collect())
            }
            Value::Number(number) if self.values.contains(&number.to_string()) => MASK.into(),
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
        }
    }
}

/// Parts of a value that are written contiguously: the whole value, the trimmed value, and each
/// line that is long enough.
fn parts(value: &str) -> BTreeSet<&str> {
    let lines = value.lines().map(str::trim);
    let lines = lines.filter(|line| line.len() >= MASKED_LINE_BYTES_MIN);
    lines.chain([value, value.trim()]).collect()
}

/// The search patterns of a form: itself, and its pieces if it can be split when every byte is
/// escaped.
fn with_pieces(form: String) -> Vec<String> {
    let mut found_by = Vec::new();
    if form.len() > MAX_LOG_LINE_BYTES / 2 / ESCAPED_BYTES_MAX {
        let mut rest = form.as_str();
        while rest.len() >= MASKED_PIECE_BYTES {
            let (piece, behind) = rest.split_at(rest.floor_char_boundary(MASKED_PIECE_BYTES));
            found_by.push(piece.to_owned());
            rest = behind;
        }
    }
    found_by.push(form);
    found_by
}

/// The forms of a value that are long enough to avoid accidental matches.
fn forms(value: &str) -> Vec<String> {
    let escaped = json_escaped(value);
    let mut forms = vec![
        value.to_owned(),
        json_escaped(&escaped),
        escaped,
        percent_encoded(value, false, "%20"),
        percent_encoded(value, true, "%20"),
        percent_encoded(value, true, "+"),
        ascii_escaped(value),
        hex_encoded(value, false),
        hex_encoded(value, true),
    ];
    for skipped in 0..3 {
        let encoded = base64_within(value.as_bytes(), skipped);
        forms.push(encoded.replace('+', "-").replace('/', "_"));
        forms.push(encoded);
    }
    forms.retain(|form| form.len() >= MASKED_VALUE_BYTES_MIN);
    forms.into_iter().flat_map(with_pieces).collect()
}

fn json_escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    let inner = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"'));
    inner.unwrap_or(&quoted).to_owned()
}

/// Escapes a text as ASCII-only JSON.
fn ascii_escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in json_escaped(text).chars() {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

fn hex_encoded(text: &str, is_upper: bool) -> String {
    let digits = text.bytes().map(|byte| format!("{byte:02x}"));
    let digits = digits.collect::<String>();
    if is_upper {
        digits.to_uppercase()
    } else {
        digits
    }
}

fn percent_encoded(text: &str, is_upper: bool, space: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push_str(space),
            _ if is_upper => encoded.push_str(&format!("%{byte:02X}")),
            _ => encoded.push_str(&format!("%{byte:02x}")),
        }
    }
    encoded
}

/// The part of a base64 text that depends on `bytes` alone, if `skipped` bytes (modulo 3) precede
/// them.
fn base64_within(bytes: &[u8], skipped: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let before = std::iter::repeat_n(0, skipped);
    let bits: Vec<u8> = before
        .chain(bytes.iter().copied())
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    // A digit encodes six bits; digits that also depend on preceding or following bytes are
    // omitted.
    let first = (skipped * 8).div_ceil(6);
    let digits = bits.chunks_exact(6).skip(first).map(|digit| {
        let index = digit.iter().fold(0, |sum, bit| sum * 2 + usize::from(*bit));
        ALPHABET.get(index).copied().map_or('=', char::from)
    });
    digits.collect()
}

#[cfg(test)]
mod cut_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_2_line_of_a_value_is_masked_in_base64_as_well() {
        let mut masks = MaskTable::default();
        let key = "-----BEGIN PRIVATE KEY-----\r\n  MC4CAQAwBQYDK2VwBCIEIBbl\n{\n}\n";
        masks.add(&[key]).unwrap();
        let encoded = base64_within(b"MC4CAQAwBQYDK2VwBCIEIBbl", 0);
        assert_eq!(masks.text(&encoded), MASK);
    }
}
