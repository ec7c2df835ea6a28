//! Numbers, strings and paths as JavaScript handles them, because the tools of 0.0.3 were written
//! in it. Strings consist of UTF-16 code units there.

use std::cmp::Ordering;
use std::path::{Component, Path, PathBuf};

use serde_json::value::RawValue;
use serde_json::{Error, Value, json};

/// JavaScript's largest integer without gaps.
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Characters in the order of `localeCompare`; of letters, only the small ones.
const COLLATION: &str = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz";

/// Converts a number to an integer, toward zero. Large numbers are clamped.
pub(super) fn integer(value: f64) -> i64 {
    let whole = value.trunc().clamp(-INTEGER_MAX, INTEGER_MAX);
    // Not a number is 0.
    format!("{whole:.0}").parse().unwrap_or(0)
}

/// A JSON number as `JSON.stringify` writes it: integers have no fraction.
pub(super) fn number(value: f64) -> Value {
    if value.fract() != 0.0 {
        return json!(value);
    }
    // Digits beyond the precision of the number are zeros.
    let whole = format!("{value}");
    let signed = whole.parse::<i64>().map(Value::from);
    let whole = signed.or_else(|_| whole.parse::<u64>().map(Value::from));
    whole.unwrap_or_else(|_| json!(value))
}

/// The numbers of a document as JavaScript reads them.
pub(super) fn with_numbers(document: Value) -> Value {
    match document {
        Value::Number(written) => written.as_f64().map_or(Value::Number(written), number),
        Value::Array(items) => items.into_iter().map(with_numbers).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields
                .map(|(name, value)| (name, with_numbers(value)))
                .collect()
        }
        other @ (Value::Null | Value::Bool(_) | Value::String(_)) => other,
    }
}

/// A string, number or truth value as `String` converts it; `None` for other values.
pub(super) fn primitive_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(written) => written.as_f64().map(number_text),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn number_text(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:e}");
    let parts = scientific.split_once('e');
    let parts = parts.and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?)));
    match parts {
        Some((digits, power)) if !(-6..21).contains(&power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{}", power.unsigned_abs())
        }
        Some(_) | None => format!("{value}"),
    }
}

/// The index at the start of a text, as `Number.parseInt` finds it; `None` if it is negative.
pub(super) fn index(text: &str) -> Option<usize> {
    let text = text.trim_start_matches(is_space);
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.split(|c: char| !c.is_ascii_digit()).next();
    let index: usize = digits.unwrap_or_default().parse().ok()?;
    (!is_negative || index == 0).then_some(index)
}

/// True for white space of `trim`.
pub(super) fn is_space(c: char) -> bool {
    // Unlike Rust, JavaScript trims a byte order mark, and no next-line character.
    c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}')
}

pub(super) fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

/// Length of a text in UTF-16 code units.
pub(super) fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

/// A part of a text. Negative positions count from the end.
pub(super) fn slice(units: &[u16], start: f64, end: Option<f64>) -> &[u16] {
    let start = position(start, units.len());
    let end = end.map_or(units.len(), |end| position(end, units.len()));
    units.get(start..end).unwrap_or_default()
}

fn position(written: f64, len: usize) -> usize {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let written = integer(written);
    let from_start = match written < 0 {
        true => written.saturating_add(len),
        false => written,
    };
    usize::try_from(from_start.clamp(0, len)).unwrap_or(0)
}

/// A JSON string of code units. Half of a surrogate pair, which no Rust string can hold, is written
/// as an escape, as `JSON.stringify` writes it.
pub(super) fn json_text(units: &[u16]) -> Result<Box<RawValue>, Error> {
    let mut text = String::with_capacity(units.len().saturating_add(2));
    text.push('"');
    for decoded in char::decode_utf16(units.iter().copied()) {
        match decoded {
            Ok(c @ ('"' | '\\')) => text.extend(['\\', c]),
            Ok(c) if c < ' ' => {
                let escaped = Value::from(c.to_string()).to_string();
                text.push_str(escaped.trim_matches('"'));
            }
            Ok(c) => text.push(c),
            Err(half) => text.push_str(&format!("\\u{:04x}", half.unpaired_surrogate())),
        }
    }
    text.push('"');
    RawValue::from_string(text)
}

/// The path of an argument: absolute ones unchanged, others joined to `base` as `path.join` does.
pub(super) fn resolved(base: &Path, written: &str) -> String {
    if written.starts_with('/') {
        return written.to_owned();
    }
    let mut joined = normal(&base.join(written));
    if written.ends_with('/') && !joined.ends_with('/') {
        joined.push('/');
    }
    joined
}

/// An absolute path without `.`, `..` and repeated slashes.
pub(super) fn normal(path: &Path) -> String {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part @ (Component::Normal(_) | Component::RootDir | Component::Prefix(_)) => {
                clean.push(part);
            }
        }
    }
    clean.to_string_lossy().into_owned()
}

/// The order of `localeCompare` for ASCII. Other characters follow by their numbers.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let weights = |text: &str| -> Vec<u32> {
        let small = text.chars().flat_map(char::to_lowercase);
        small.map(weight).collect()
    };
    let cases = |text: &str| -> Vec<bool> { text.chars().map(char::is_uppercase).collect() };
    weights(a)
        .cmp(&weights(b))
        .then_with(|| cases(a).cmp(&cases(b)))
        .then_with(|| a.cmp(b))
}

fn weight(c: char) -> u32 {
    let place = COLLATION.chars().position(|known| known == c);
    let place = place.and_then(|place| u32::try_from(place).ok());
    place.unwrap_or_else(|| 1_000_u32.saturating_add(u32::from(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The expected values of these tables are those of Node 20.

    #[test]
    fn compat_2_numbers_are_written_as_in_javascript() {
        for (value, text) in [
            (1.0, "1"),
            (-0.0, "0"),
            (1.5, "1.5"),
            (1e21, "1e+21"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (1e-6, "0.000001"),
            (1.5e-7, "1.5e-7"),
            (-2e-10, "-2e-10"),
        ] {
            assert_eq!(number_text(value), text);
        }
        for (value, json) in [
            (1.0, "1"),
            (-0.0, "0"),
            (0.5, "0.5"),
            (-3.0, "-3"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (12_345_678_901_234_567_000.0, "12345678901234567000"),
        ] {
            assert_eq!(number(value).to_string(), json);
        }
        let read = serde_json::from_str(r#"{"a": [1.0, 1e3, 9007199254740993]}"#).unwrap();
        let expected = r#"{"a":[1,1000,9007199254740992]}"#;
        assert_eq!(with_numbers(read).to_string(), expected);
    }

    #[test]
    fn compat_2_indexes_are_parsed_as_in_javascript() {
        for (text, expected) in [
            ("0", Some(0)),
            ("12abc", Some(12)),
            (" 1", Some(1)),
            ("+2", Some(2)),
            ("1.5", Some(1)),
            ("-0", Some(0)),
            ("0x10", Some(0)),
            ("-1", None),
            ("", None),
            ("a1", None),
            ("\"1\"", None),
        ] {
            assert_eq!(index(text), expected, "{text:?}");
        }
    }

    #[test]
    fn compat_2_slices_count_utf16_code_units() {
        let text = units("a😀bc");
        for (start, end, expected) in [
            (0.0, None, "\"a😀bc\""),
            (0.0, Some(2.0), r#""a\ud83d""#),
            (2.0, None, r#""\ude00bc""#),
            (1.0, Some(3.0), "\"😀\""),
            (-2.0, None, "\"bc\""),
            (-100.0, Some(1.0), "\"a\""),
            (3.0, Some(1.0), "\"\""),
            (1.9, Some(-1.9), "\"😀b\""),
            (0.0, Some(1e300), "\"a😀bc\""),
        ] {
            let found = json_text(slice(&text, start, end)).unwrap();
            assert_eq!(found.get(), expected, "{start} {end:?}");
        }
        let found = json_text(&units("\"\\\n\u{1}")).unwrap();
        assert_eq!(found.get(), r#""\"\\\n\u0001""#);
    }

    #[test]
    fn compat_2_paths_are_joined_and_sorted_as_in_javascript() {
        let base = Path::new("/w/p");
        for (written, expected) in [
            ("a/./b//c", "/w/p/a/b/c"),
            ("a/../b/", "/w/p/b/"),
            ("../x", "/w/x"),
            (".", "/w/p"),
            ("", "/w/p"),
            ("/a/../b", "/a/../b"),
        ] {
            assert_eq!(resolved(base, written), expected, "{written}");
        }
        let mut names = [
            "z",
            "README.md",
            "b.txt",
            "a/b",
            "a",
            "B.txt",
            "_a",
            "a-b",
            "10",
            "aB",
            "2",
            ".x",
            "a.txt",
            "ab",
            "readme.md",
            "A.txt",
            "a b",
            "a0",
            "Ab",
            "나",
            "가",
        ];
        names.sort_by(|a, b| compare(a, b));
        assert_eq!(
            names,
            [
                "_a",
                ".x",
                "10",
                "2",
                "a",
                "a b",
                "a-b",
                "a.txt",
                "A.txt",
                "a/b",
                "a0",
                "ab",
                "aB",
                "Ab",
                "b.txt",
                "B.txt",
                "readme.md",
                "README.md",
                "z",
                "가",
                "나",
            ]
        );
    }
}
