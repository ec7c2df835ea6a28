//! Trace context: the ids that connect a webhook request to the turn, the tool calls and the reply.
//!
//! The ids and the `traceparent` format follow W3C Trace Context, so that a caller's trace
//! continues unbroken.

use std::fmt;
use std::str::FromStr;

use crate::ids::{StepId, ToolCallId, TurnId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Reason why a text is not a trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTrace {
    /// The text is not exactly the expected number of lower-case hexadecimal digits.
    #[error("expected {expected} lower-case hexadecimal digits")]
    NotHex {
        /// The number of digits.
        expected: usize,
    },
    /// All digits are zero, which the standard reserves for "no id".
    #[error("an id of zeros only is not valid")]
    Zero,
    /// The text does not match `00-<trace>-<span>-<flags>`.
    #[error("expected `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`")]
    NotTraceparent,
}

fn parse_hex<const N: usize>(text: &str) -> Result<[u8; N], InvalidTrace> {
    let not_hex = InvalidTrace::NotHex { expected: N * 2 };
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return Err(not_hex);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for &digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return Err(not_hex),
            };
            *byte = *byte << 4 | value;
        }
    }
    if bytes == [0; N] {
        Err(InvalidTrace::Zero)
    } else {
        Ok(bytes)
    }
}

/// Formats bytes as lower-case hexadecimal digits. It avoids a formatter because every frame and
/// log line contains several ids.
fn hex_text<const N: usize>(bytes: [u8; N], digits: &mut [[u8; 2]; N]) -> &str {
    let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
    for (pair, byte) in digits.iter_mut().zip(bytes) {
        *pair = [digit(byte >> 4), digit(byte & 0xf)];
    }
    std::str::from_utf8(digits.as_flattened()).unwrap_or_default()
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $len]);

        impl $name {
            /// Creates an id from random bytes. The invalid all-zero value becomes a fixed id.
            #[must_use]
            pub fn from_random(random: [u8; $len]) -> Self {
                if random == [0; $len] { Self([1; $len]) } else { Self(random) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(hex_text(self.0, &mut [[0; 2]; $len]))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidTrace;

            fn from_str(text: &str) -> Result<Self, InvalidTrace> {
                parse_hex(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(hex_text(self.0, &mut [[0; 2]; $len]))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::parse(deserializer)
            }
        }
    };
}

hex_id!(
    /// Identifies one trace: everything that one input event caused.
    TraceId, 16
);
hex_id!(
    /// Identifies one span of a trace: a turn, a step or a tool call.
    SpanId, 8
);

impl TraceId {
    /// Creates a trace id from a random UUID, whose 16 bytes it uses.
    #[must_use]
    pub fn from_uuid(uuid: uuid::Uuid) -> Self {
        Self::from_random(*uuid.as_bytes())
    }

    /// Derives the trace id of a turn whose event has none: two hashes of the turn's id.
    #[must_use]
    pub fn of_turn(turn_id: &TurnId) -> Self {
        let (SpanId(head), SpanId(tail)) = (
            SpanId::of_turn(turn_id),
            SpanId::of_id(&format!("trace {turn_id}")),
        );
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(head.into_iter().chain(tail)) {
            *to = from;
        }
        Self::from_random(bytes)
    }
}

impl SpanId {
    /// Creates a span id from the random half of a random UUID.
    #[must_use]
    pub fn from_uuid(uuid: uuid::Uuid) -> Self {
        let [.., a, b, c, d, e, f, g, h] = *uuid.as_bytes();
        Self::from_random([a, b, c, d, e, f, g, h])
    }

    /// Derives a span id from another id (FNV-1a), so that a span that starts before a crash ends
    /// as the same span after it.
    #[must_use]
    pub fn of_id(id: &str) -> Self {
        let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self::from_random(hash.to_be_bytes())
    }

    /// The span of a turn.
    #[must_use]
    pub fn of_turn(turn_id: &TurnId) -> Self {
        Self::of_id(turn_id.as_str())
    }

    /// The span of a step.
    #[must_use]
    pub fn of_step(step_id: &StepId) -> Self {
        Self::of_id(step_id.as_str())
    }

    /// The span of a tool call.
    #[must_use]
    pub fn of_call(step_id: &StepId, call_id: &ToolCallId) -> Self {
        Self::of_id(&format!("{step_id} {call_id}"))
    }
}

/// Position in a trace. Every frame carries it, and the router passes it on unchanged (`IPC-2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The current span.
    pub span_id: SpanId,
    /// The parent span, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<SpanId>,
}

impl TraceContext {
    /// The first span of a new trace.
    #[must_use]
    pub fn root(trace_id: TraceId, span_id: SpanId) -> Self {
        Self {
            trace_id,
            span_id,
            parent_span_id: None,
        }
    }

    /// A child span of this one.
    #[must_use]
    pub fn child(self, span_id: SpanId) -> Self {
        Self {
            trace_id: self.trace_id,
            span_id,
            parent_span_id: Some(self.span_id),
        }
    }

    /// Parses a W3C `traceparent` header. Of versions above 00 the first four fields are used, as
    /// the standard requires.
    ///
    /// # Errors
    ///
    /// [`InvalidTrace`] if the text does not have this form.
    pub fn from_traceparent(header: &str) -> Result<Self, InvalidTrace> {
        let mut fields = header.trim().split('-');
        let (Some(version), Some(trace), Some(span), Some(flags)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(InvalidTrace::NotTraceparent);
        };
        let hex = |text: &str| {
            text.len() == 2 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let surplus = fields.next().is_some() && version == "00";
        if !hex(version) || version == "ff" || !hex(flags) || surplus {
            return Err(InvalidTrace::NotTraceparent);
        }
        Ok(Self::root(trace.parse()?, span.parse()?))
    }

    /// Formats this span as a W3C `traceparent` header (sampled).
    #[must_use]
    pub fn to_traceparent(self) -> String {
        format!("00-{}-{}-01", self.trace_id, self.span_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_back() {
        let trace = TraceContext::from_traceparent(HEADER).unwrap();
        assert_eq!(
            trace.trace_id.to_string(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        assert_eq!(trace.to_traceparent(), HEADER);
    }

    #[test]
    fn invalid_traceparent_is_rejected() {
        for bad in [
            "",
            "00",
            "00-0-0-00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
        ] {
            assert!(
                TraceContext::from_traceparent(bad).is_err(),
                "{bad:?} was accepted"
            );
        }
        let future = format!("{}-extra", HEADER.replacen("00", "01", 1));
        assert!(TraceContext::from_traceparent(&future).is_ok());
    }

    #[test]
    fn a_child_span_keeps_the_trace_and_names_its_parent() {
        let root = TraceContext::from_traceparent(HEADER).unwrap();
        let child = root.child(SpanId::from_random([7; 8]));
        assert_eq!(child.trace_id, root.trace_id);
        assert_eq!(child.parent_span_id, Some(root.span_id));
    }
}
