//! Splits lines of goondan's own processes whose message is too long. Secret values are not split.
//! Each part becomes a line with all fields and its number (`LOG-3`).

use goondan_protocol::JsonObject;
use goondan_protocol::limits::MAX_LOG_LINE_BYTES;
use serde_json::{Value, json};

use crate::shell::masking::Masks;

/// Maximum line length of goondan's own processes, in bytes: a text of
/// [`TEXT_BYTES_MAX`](goondan_log::TEXT_BYTES_MAX) with every byte escaped.
pub(super) const OWN_LINE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bytes reserved per line for identity and trace.
const BESIDE_BYTES: usize = 1024;

/// Field with the number of a part.
const SPLIT_PART: &str = "splitPart";

const MESSAGE: &str = "message";

/// Numbers the parts of a text, continuing the numbers of parts sent by the process.
#[derive(Debug, Default)]
pub(super) struct PartNumbers(u64);

impl PartNumbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Splits a line that is too long or already a part; `None` if the line stays unchanged or is not a
/// line of this form.
pub(super) fn message_parts(
    line: &[u8],
    masks: &Masks,
    numbers: &mut PartNumbers,
) -> Option<Vec<Vec<u8>>> {
    let name = SPLIT_PART.as_bytes();
    let is_long = line.len() > MAX_LOG_LINE_BYTES;
    if !is_long && !line.windows(name.len()).any(|window| window == name) {
        return None;
    }
    let mut fields: JsonObject = serde_json::from_slice(line).ok()?;
    let part = fields.get(SPLIT_PART).and_then(Value::as_u64);
    if !is_long && part.is_none() {
        return None;
    }
    let message = fields.get_mut(MESSAGE)?;
    let Value::String(text) = std::mem::take(message) else {
        return None;
    };
    let beside = serde_json::to_vec(&fields).ok()?.len() + BESIDE_BYTES;
    if beside > MAX_LOG_LINE_BYTES / 2 {
        return None;
    }
    // A new text begins.
    if part.is_none_or(|part| part == 1) {
        *numbers = PartNumbers::default();
    }
    let texts = parts(&text, MAX_LOG_LINE_BYTES - beside, masks);
    let lines = texts.into_iter().map(|text| {
        fields.insert(MESSAGE.to_owned(), json!(text));
        fields.insert(SPLIT_PART.to_owned(), json!(numbers.next()));
        serde_json::to_vec(&fields).ok()
    });
    lines.collect()
}

/// Splits a text into parts of at most `bytes_max` bytes as JSON, without splitting a value.
fn parts<'t>(text: &'t str, bytes_max: usize, masks: &Masks) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let fitting = fitting(rest, bytes_max);
        if fitting == rest.len() {
            parts.push(rest);
            return parts;
        }
        let first = rest.as_bytes().get(..fitting).unwrap_or_default();
        let cut = rest.floor_char_boundary(masks.cut_beside_values(first));
        let (part, behind) = rest.split_at(if cut == 0 { fitting } else { cut });
        parts.push(part);
        rest = behind;
    }
}

/// Number of bytes of a text that fit into `bytes_max` as JSON.
fn fitting(text: &str, bytes_max: usize) -> usize {
    let mut written = 0;
    let mut places = text.char_indices();
    let too_far = places.find(|(_, character)| {
        written += match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            other => other.len_utf8(),
        };
        written > bytes_max
    });
    too_far.map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(
        line: &Value,
        masks: &Masks,
        numbers: &mut PartNumbers,
    ) -> Option<Vec<(String, u64)>> {
        let lines = message_parts(line.to_string().as_bytes(), masks, numbers)?;
        let read = |line: Vec<u8>| {
            let line: Value = serde_json::from_slice(&line).unwrap();
            let message = line["message"].as_str().unwrap().to_owned();
            (message, line["splitPart"].as_u64().unwrap())
        };
        Some(lines.into_iter().map(read).collect())
    }

    #[test]
    fn log_3_parts_of_parts_are_counted_on() {
        let (masks, mut numbers) = (Masks::default(), PartNumbers::default());
        let long = "x".repeat(MAX_LOG_LINE_BYTES * 2);
        let mut all = String::new();
        let mut count = 0;
        for (part, text) in [(1, &long), (2, &long), (3, &"end".to_owned())] {
            let line = json!({"message": text, "splitPart": part});
            for (text, number) in lines_of(&line, &masks, &mut numbers).unwrap() {
                count += 1;
                assert_eq!(number, count);
                all += &text;
            }
        }
        assert_eq!(all, format!("{long}{long}end"));
        assert!(count > 5, "{count}");
        let begins = json!({"message": "another", "splitPart": 1});
        let lines = lines_of(&begins, &masks, &mut numbers);
        assert_eq!(lines.unwrap(), [("another".to_owned(), 1)]);
    }

    #[test]
    fn log_3_a_line_that_is_short_or_no_text_is_not_split() {
        let (masks, mut numbers) = (Masks::default(), PartNumbers::default());
        let long = "x".repeat(MAX_LOG_LINE_BYTES);
        for line in [
            json!({"message": "short"}),
            json!({"message": "of splitPart"}),
            json!({"message": [&long]}),
            json!({"text": &long}),
            json!({"message": "short", "other": &long}),
        ] {
            assert_eq!(lines_of(&line, &masks, &mut numbers), None);
        }
    }

    #[test]
    fn sec_2_a_message_is_split_beside_a_value() {
        let masks = Masks::default();
        masks.add_value("hunter2 and \"more\"");
        let text = "hunter2 and \"more\"; ".repeat(10_000);
        let line = json!({"message": &text});
        let lines = lines_of(&line, &masks, &mut PartNumbers::default()).unwrap();
        assert!(lines.len() > 2);
        for (text, _) in &lines {
            let masked = masks.text(text);
            assert!(
                !masked.contains("hunter") && !masked.contains("more"),
                "{masked}"
            );
        }
        let joined: String = lines.into_iter().map(|(text, _)| text).collect();
        assert_eq!(joined, text);
    }

    #[test]
    fn log_3_every_part_fits_however_it_is_escaped() {
        let masks = Masks::default();
        for character in ["\u{1}", "\"", "\u{20ac}", "x", "\n"] {
            let text = character.repeat(200_000);
            let line = json!({"message": &text}).to_string();
            let lines = message_parts(line.as_bytes(), &masks, &mut PartNumbers::default());
            for line in lines.unwrap() {
                assert!(line.len() <= MAX_LOG_LINE_BYTES, "{}", line.len());
            }
        }
    }
}
