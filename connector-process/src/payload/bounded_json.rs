//! Parses large JSON bodies into bounded memory: long texts and lists are shortened.
//!
//! A shortened list ends with `{"omitted": <count>}`, a shortened text with `…`. Fields after a
//! long list are kept, because services put the sender and the repository there.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as _, Deserializer};
use serde_json::{Map, Number, Value, json};

use crate::limits::{BOUNDED_ITEMS_MAX, BOUNDED_TEXT_BYTES_MAX, BOUNDED_VALUES_MAX};

/// Field of the last item of a shortened list: the number of omitted items.
const OMITTED: &str = "omitted";

/// Limits of texts and lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonBounds {
    /// Longest text, in bytes.
    pub(crate) text_bytes: usize,
    /// Most items of a list.
    pub(crate) items: usize,
}

/// Parses JSON. A body of at most [`BOUNDED_TEXT_BYTES_MAX`] is kept whole. Otherwise, texts have at
/// most that length and lists [`BOUNDED_ITEMS_MAX`]; after [`BOUNDED_VALUES_MAX`] values, further
/// ones are omitted.
///
/// # Errors
///
/// The error of the parser if it is not JSON.
pub(crate) fn parse(body: &[u8]) -> Result<Value, serde_json::Error> {
    if body.len() <= BOUNDED_TEXT_BYTES_MAX {
        return serde_json::from_slice(body);
    }
    let left = Cell::new(BOUNDED_VALUES_MAX);
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Part { left: &left }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Shortens texts and lists further.
pub(crate) fn shrunk(value: &Value, bounds: JsonBounds) -> Value {
    match value {
        Value::String(text) => Value::String(cut(text, bounds.text_bytes)),
        Value::Array(items) => {
            let (items, earlier) = without_mark(items);
            let kept = items.iter().take(bounds.items);
            let mut kept: Vec<Value> = kept.map(|item| shrunk(item, bounds)).collect();
            let omitted = items.len() - kept.len() + earlier;
            if omitted > 0 {
                kept.push(json!({OMITTED: omitted}));
            }
            Value::Array(kept)
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| (name.clone(), shrunk(value, bounds)));
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The items of a list without the mark of omitted items, and the number of omitted items.
pub(super) fn without_mark(items: &[Value]) -> (&[Value], usize) {
    let Some((last, others)) = items.split_last() else {
        return (items, 0);
    };
    let omitted = match last.as_object() {
        Some(fields) if fields.len() == 1 => fields.get(OMITTED).and_then(Value::as_u64),
        Some(_) | None => None,
    };
    match omitted {
        Some(omitted) => (others, usize::try_from(omitted).unwrap_or(usize::MAX)),
        None => (items, 0),
    }
}

fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max);
    format!("{}…", text.get(..end).unwrap_or_default())
}

/// One value, if the budget permits another one.
#[derive(Clone, Copy)]
struct Part<'a> {
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let Some(left) = self.left.get().checked_sub(1) else {
            IgnoredAny::deserialize(deserializer)?;
            return Ok(Value::Null);
        };
        self.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(cut(text, BOUNDED_TEXT_BYTES_MAX)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < BOUNDED_ITEMS_MAX && self.left.get() > 0 {
            match list.next_element_seed(self)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
        let mut omitted = 0_usize;
        while list.next_element::<IgnoredAny>()?.is_some() {
            omitted += 1;
        }
        if omitted > 0 {
            items.push(json!({OMITTED: omitted}));
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while self.left.get() > 0 {
            let Some(name) = map.next_key::<String>()? else {
                return Ok(Value::Object(fields));
            };
            fields.insert(name, map.next_value_seed(self)?);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{items, omitted};
    use super::*;

    fn parsed(value: &Value) -> Value {
        parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn conn_1_ordinary_json_is_parsed_as_it_is() {
        let value = json!({"a": [1, -2, 1.5, true, null, "가\n\"x\""], "b": {"c": {}}, "d": []});
        assert_eq!(parsed(&value), value);
        let long = json!({"value": value, "long": vec!["x".repeat(1_000); 80]});
        assert_eq!(parsed(&long), long);
        for invalid in ["", "{", "[1,]", "{} x", "{\"a\":\u{1}}", "nul"] {
            assert!(parse(invalid.as_bytes()).is_err(), "{invalid}");
        }
        assert!(parse(&[b'"', 0xff, b'"']).is_err());
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn conn_1_long_lists_and_texts_are_shortened_and_counted() {
        let commits: Vec<Value> = (0..BOUNDED_ITEMS_MAX + 7)
            .map(|n| json!({"n": n}))
            .collect();
        let long = "가".repeat(BOUNDED_TEXT_BYTES_MAX);
        let found = parsed(&json!({"commits": commits, "patch": long, "sender": "ada"}));
        assert_eq!(items(&found, "/commits").count(), BOUNDED_ITEMS_MAX);
        assert_eq!(omitted(&found, "/commits"), 7);
        assert!(found["patch"].as_str().unwrap().len() <= BOUNDED_TEXT_BYTES_MAX + 3);
        assert_eq!(found["sender"], "ada");
        let bounds = JsonBounds {
            text_bytes: 10,
            items: 3,
        };
        let smaller = shrunk(&found, bounds);
        assert_eq!(items(&smaller, "/commits").count(), 3);
        assert_eq!(omitted(&smaller, "/commits"), BOUNDED_ITEMS_MAX + 7 - 3);
        assert_eq!(smaller["patch"], "가가가…");
    }

    #[test]
    fn conn_1_nested_lists_stay_within_the_budget_of_values() {
        fn count(value: &Value) -> usize {
            match value {
                Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
                Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
            }
        }
        let row = format!("[{}]", vec!["0"; BOUNDED_ITEMS_MAX].join(","));
        let table = format!("[{}]", vec![row; BOUNDED_ITEMS_MAX].join(","));
        let cube = format!("[{}]", vec![table; BOUNDED_ITEMS_MAX].join(","));
        let found = parse(cube.as_bytes()).unwrap();
        // Each list at which the budget ends has a mark of two values.
        assert!(count(&found) <= BOUNDED_VALUES_MAX + 3 * BOUNDED_ITEMS_MAX * BOUNDED_ITEMS_MAX);
    }
}
