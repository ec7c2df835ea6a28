//! Detects lines written by goondan processes that can be passed on unchanged.

use std::fmt;

use goondan_protocol::JsonObject;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::traces::Traces;

/// The first fields of every line.
const HEAD: [&str; 3] = ["timestamp", "level", "message"];

/// Identity fields, set by the daemon. A line has only those of its process.
pub(super) const WHO: [&str; 8] = [
    "process",
    "pid",
    "workspaceId",
    "agentName",
    "instanceKey",
    "connection",
    "model",
    "role",
];

/// Maximum number of fields of a line passed on unchanged. goondan's own lines have fewer.
const FIELDS_MAX: usize = 32;

/// True if parsing `line` and writing it with its identity would not change it: it is a flat object
/// that begins with the required fields, has its trace, no duplicate fields, and matches
/// `identity`.
pub(super) fn is_complete(line: &[u8], identity: &JsonObject, traces: &Traces) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(line);
    line.ends_with(b"}")
        && matches!(
            reader.deserialize_map(Complete { identity, traces }),
            Ok(true)
        )
        && reader.end().is_ok()
}

/// Visitor that checks such a line without copying. A line with values that must be copied does not
/// match.
struct Complete<'i> {
    identity: &'i JsonObject,
    traces: &'i Traces,
}

impl Complete<'_> {
    fn knows(&self, id: &str) -> bool {
        id.parse().is_ok_and(|trace| self.traces.knows(trace))
    }
}

impl<'de> Visitor<'de> for Complete<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a log line")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        let mut names = Vec::with_capacity(FIELDS_MAX);
        let (mut known, mut has_trace) = (0, false);
        while let Some((name, value)) = fields.next_entry::<&str, Flat<'_>>()? {
            let is_at_its_place = HEAD.get(names.len()).is_none_or(|first| *first == name);
            if !is_at_its_place || names.len() == FIELDS_MAX || names.contains(&name) {
                return Err(A::Error::custom("not such a line"));
            }
            names.push(name);
            if let Some(wanted) = self.identity.get(name) {
                if !value.is(wanted) {
                    return Ok(false);
                }
                known += 1;
            }
            if WHO.contains(&name) && !self.identity.contains_key(name) {
                return Ok(false);
            }
            if name == "traceId" {
                has_trace = matches!(value, Flat::Text(id) if self.knows(id));
            }
        }
        Ok(has_trace && names.len() >= HEAD.len() && known == self.identity.len())
    }
}

enum Flat<'l> {
    /// A string without escapes.
    Text(&'l str),
    Count(u64),
    Other,
}

impl Flat<'_> {
    fn is(&self, wanted: &Value) -> bool {
        match self {
            Self::Text(text) => wanted.as_str() == Some(text),
            Self::Count(count) => wanted.as_u64() == Some(*count),
            Self::Other => false,
        }
    }
}

impl<'de> Deserialize<'de> for Flat<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfFlat;

        impl<'de> Visitor<'de> for OfFlat {
            type Value = Flat<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value that holds no others")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Flat<'de>, E> {
                Ok(Flat::Text(text))
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<Flat<'de>, E> {
                Ok(Flat::Other)
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<Flat<'de>, E> {
                Ok(Flat::Count(count))
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Flat<'de>, E> {
                Ok(Flat::Other)
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Flat<'de>, E> {
                Ok(Flat::Other)
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Flat<'de>, E> {
                Ok(Flat::Other)
            }

            fn visit_unit<E: Error>(self) -> Result<Flat<'de>, E> {
                Ok(Flat::Other)
            }
        }

        deserializer.deserialize_any(OfFlat)
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::ipc::ChildRole;
    use serde_json::json;

    use super::*;

    const COMPLETE: &str = r#"{"timestamp":"t","level":"info","message":"a \"b\"","process":"agent","pid":7,"agentName":"a","traceId":"4bf92f3577b34da6a3ce929d0e0e4736","turnId":null,"ms":-1,"share":0.5,"isLast":true}"#;

    fn is_passed_on(line: &str) -> bool {
        let identity = json!({"process": "agent", "pid": 7, "agentName": "a"});
        let own = "4bf92f3577b34da6a3ce929d0e0e4736".parse().unwrap();
        let traces = Traces::new(own, ChildRole::Agent);
        is_complete(line.as_bytes(), identity.as_object().unwrap(), &traces)
    }

    #[test]
    fn log_3_only_complete_unambiguous_lines_are_passed_on() {
        assert!(is_passed_on(COMPLETE));
        for (part, other) in [
            (r#""pid":7"#, r#""pid":8"#),
            (r#""pid":7"#, r#""pid":"7""#),
            (r#""pid":7,"#, ""),
            (r#""agentName":"a""#, r#""agentName":"b""#),
            (r#""agentName":"a""#, r#""agentName":"\u0061""#),
            (r#""agentName":"a""#, r#""agentName":["a"]"#),
            ("4bf9", "4BF9"),
            (r#""traceId""#, r#""trace""#),
            (r#""timestamp":"t","#, ""),
            (r#""level":"info","message""#, r#""message":"info","level""#),
            (r#""ms":-1"#, r#""pid":7"#),
            (r#""ms":-1"#, r#""p\u0069d":8"#),
            (r#""ms":-1"#, r#""ms":{"a":1}"#),
            (r#""ms":-1"#, r#""ms":1e999"#),
            (r#""ms":-1"#, r#""ms":"\ud800""#),
            ("true}", "true} "),
            ("true}", "true}}"),
            ("true}", "true"),
        ] {
            let line = COMPLETE.replacen(part, other, 1);
            assert_ne!(line, COMPLETE);
            assert!(!is_passed_on(&line), "{line}");
        }
        for line in ["", "{}", "[]", "7", "text}"] {
            assert!(!is_passed_on(line), "{line}");
        }
        let more: String = (0..FIELDS_MAX).map(|n| format!(r#","x{n}":1"#)).collect();
        assert!(!is_passed_on(&COMPLETE.replace('}', &format!("{more}}}"))));
    }
}
