//! The fields of a span, an event or a line.

use std::fmt;
use std::ops::Range;

use serde::{Serialize, Serializer};
use tracing::field::{Field, Visit};

/// Typical JSON size of a line's fields, in bytes, so that the buffer rarely grows.
const JSON_BYTES_EXPECTED: usize = 512;

/// Fields in the order in which they were first named, with values already serialized as JSON. A
/// line is created from the fields of its process, its spans and its event by copying bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    /// Names in Rust's `snake_case`, with the ranges of their values in `json`.
    places: Vec<(&'static str, Range<usize>)>,
    json: Vec<u8>,
}

impl Fields {
    /// Creates empty fields with capacity for those of a line.
    pub(crate) fn of_line() -> Self {
        Self {
            places: Vec::with_capacity(16),
            json: Vec::with_capacity(JSON_BYTES_EXPECTED),
        }
    }

    /// Sets a field; an existing field of the same name keeps its position and gets the new value.
    pub(crate) fn put(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) {
        let start = self.json.len();
        if serde_json::to_writer(&mut self.json, value).is_err() {
            self.json.truncate(start);
            self.json.extend_from_slice(b"null");
        }
        self.name(name, start);
    }

    /// Sets every field of `inner`.
    pub(crate) fn extend(&mut self, inner: &Self) {
        for (name, _) in &inner.places {
            self.copy(inner, name);
        }
    }

    /// Copies a field from `inner`; false if it does not exist there.
    pub(crate) fn copy(&mut self, inner: &Self, name: &'static str) -> bool {
        let Some(json) = inner.json_of(name) else {
            return false;
        };
        let start = self.json.len();
        self.json.extend_from_slice(json);
        self.name(name, start);
        true
    }

    /// One line: a JSON object with names in `camelCase`, and a newline.
    pub(crate) fn line(&self) -> Vec<u8> {
        let names: usize = self.places.iter().map(|(name, _)| name.len() + 4).sum();
        let mut line = Vec::with_capacity(names + self.json.len() + 3);
        let mut separator = b'{';
        for (name, place) in &self.places {
            line.push(separator);
            separator = b',';
            write_name(name, &mut line);
            line.push(b':');
            line.extend_from_slice(self.json.get(place.clone()).unwrap_or_default());
        }
        line.extend_from_slice(b"}\n");
        line
    }

    fn json_of(&self, name: &str) -> Option<&[u8]> {
        let mut places = self.places.iter();
        let (_, place) = places.find(|(known, _)| *known == name)?;
        self.json.get(place.clone())
    }

    /// Assigns a name to the value written last, which begins at `start`.
    fn name(&mut self, name: &'static str, start: usize) {
        let place = start..self.json.len();
        match self.places.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = place,
            None => self.places.push((name, place)),
        }
    }
}

/// Writes a name as JSON, in `camelCase`.
fn write_name(name: &str, line: &mut Vec<u8>) {
    line.push(b'"');
    let mut is_upper = false;
    for (place, byte) in name.bytes().enumerate() {
        match byte {
            b'_' if place > 0 => is_upper = true,
            b'"' | b'\\' | ..=0x1f => line.push(b'?'),
            _ if is_upper => line.push(byte.to_ascii_uppercase()),
            _ => line.push(byte),
        }
        is_upper &= byte == b'_';
    }
    line.push(b'"');
}

/// A value that serializes as its `Debug` output, without an intermediate string.
struct DebugValue<'v>(&'v dyn fmt::Debug);

impl Serialize for DebugValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:?}", self.0))
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), &DebugValue(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), &value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field.name(), &crate::error_chain(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_value_takes_the_place_of_an_outer_one() {
        let mut outer = Fields::default();
        outer.put("trace_id", "outer");
        outer.put("count", &1);
        let mut inner = Fields::default();
        inner.put("own", &f64::NAN);
        inner.put("trace_id", "in\"ner\n");
        outer.extend(&inner);
        assert!(!outer.copy(&inner, "count"));
        let line = String::from_utf8(outer.line()).unwrap();
        let expected = r#"{"traceId":"in\"ner\n","count":1,"own":null}"#;
        assert_eq!(line, format!("{expected}\n"));
    }

    #[test]
    fn names_are_valid_json_in_camel_case() {
        for (name, written) in [
            ("message", r#""message""#),
            ("tool_call_id", r#""toolCallId""#),
            ("_a__b_", r#""_aB""#),
            ("http.method", r#""http.method""#),
            ("gr\u{f6}\u{df}e_a\"b\\c\n", "\"gr\u{f6}\u{df}eA?b?c?\""),
        ] {
            let mut line = Vec::new();
            write_name(name, &mut line);
            assert_eq!(String::from_utf8(line).unwrap(), written);
        }
    }
}
