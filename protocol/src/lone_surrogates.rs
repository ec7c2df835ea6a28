//! Repairs JSON with the escape of half a surrogate pair. Pure.
//!
//! JavaScript and Python write such an escape if they cut a text in the middle of a character.
//! Parsers reject the whole document because of one such escape.

use serde::de::DeserializeOwned;

/// Replacement of half a pair, as an escape.
const REPLACEMENT: &str = "\\ufffd";

/// Digits of an escape.
const HEX_DIGITS: usize = 4;

/// Bytes of `\ud800`.
const ESCAPE_BYTES: usize = HEX_DIGITS + 2;

/// Parses JSON, with U+FFFD for each half of a surrogate pair.
///
/// # Errors
///
/// If the text is not JSON of this type.
pub fn from_json<T: DeserializeOwned>(text: impl AsRef<[u8]>) -> serde_json::Result<T> {
    let text = text.as_ref();
    serde_json::from_slice(text).or_else(|error| {
        let text = std::str::from_utf8(text).ok();
        let repaired = text.and_then(without_lone_surrogates);
        let repaired = repaired.and_then(|text| serde_json::from_str(&text).ok());
        repaired.ok_or(error)
    })
}

/// Replaces each escape of half a surrogate pair with `\ufffd`, and keeps all other bytes. `None` if
/// the text has no such escape.
pub fn without_lone_surrogates(text: &str) -> Option<String> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return None;
    }
    let mut repaired = String::with_capacity(text.len());
    let (mut kept_to, mut at) = (0, 0);
    while let Some(to_backslash) = text.get(at..)?.find('\\') {
        at += to_backslash;
        match unit_at(text, at) {
            Some(0xd800..=0xdbff)
                if matches!(unit_at(text, at + ESCAPE_BYTES), Some(0xdc00..=0xdfff)) =>
            {
                at += 2 * ESCAPE_BYTES;
            }
            Some(0xd800..=0xdfff) => {
                repaired.push_str(text.get(kept_to..at)?);
                repaired.push_str(REPLACEMENT);
                at += ESCAPE_BYTES;
                kept_to = at;
            }
            Some(_) => at += ESCAPE_BYTES,
            // The escaped character can be another backslash.
            None => at += 1 + text.get(at + 1..)?.chars().next().map_or(0, char::len_utf8),
        }
    }
    repaired.push_str(text.get(kept_to..)?);
    (kept_to > 0).then_some(repaired)
}

/// The UTF-16 unit of the escape at a position.
fn unit_at(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..)?.strip_prefix("\\u")?.get(..HEX_DIGITS)?;
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let unit = u16::from_str_radix(digits, 16).ok()?;
    are_digits.then_some(unit)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn prov_1_only_half_of_a_pair_is_replaced() {
        for (text, expected) in [
            (r#""a\ud83e""#, r#""a\ufffd""#),
            (r"a\ud83eb", r"a\ufffdb"),
            (r"\uDC80", r"\ufffd"),
            (r"\ud83e\ud83e\udd86", r"\ufffd\ud83e\udd86"),
            (r"\\ud83e \udc80", r"\\ud83e \ufffd"),
            (r"é\né\ud83e\", r"é\né\ufffd\"),
        ] {
            let found = without_lone_surrogates(text);
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
        for text in [
            r#""\ud83e\udd86""#,
            r#""\\ud83e""#,
            "plain",
            r"\u00e9",
            r"\u+d80",
            r"\ud8",
            r"\ud83é",
            r"\",
        ] {
            assert_eq!(without_lone_surrogates(text), None, "{text}");
        }
    }

    #[test]
    fn prov_1_json_with_half_of_a_pair_is_parsed() {
        let found: Value = from_json(r#"["a\ud83e"]"#).unwrap();
        assert_eq!(found, json!(["a\u{fffd}"]));
        assert!(from_json::<Value>(r#"["a\ud83e""#).is_err());
        assert!(from_json::<Value>(b"\"\xff\\ud83e\"").is_err());
    }
}
