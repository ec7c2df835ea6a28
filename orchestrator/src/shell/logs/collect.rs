//! Collects the stdout and stderr of a child (`LOG-2`, `LOG-3`).
//!
//! A line that is a JSON object keeps its fields and gets the process's identity, unless it already
//! has it; any other line is wrapped in an object. The identity comes from the orchestrator, not
//! from the line. A line that is too long is split without splitting secret values, and each part
//! is numbered: for goondan's own lines the message is split ([`split`](super::split)), for others
//! the bytes.

use std::io;
use std::sync::Arc;

use goondan_log::{line_bytes, line_head, unix_millis_now};
use goondan_protocol::JsonObject;
use goondan_protocol::limits::MAX_LOG_LINE_BYTES;
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::own_line::WHO;
use super::split::{self, OWN_LINE_BYTES_MAX, PartNumbers};
use super::traces::Traces;
use super::{LogHub, own_line};
use crate::shell::masking::Masks;

/// Read buffer size in bytes.
const READ_BYTES: usize = 64 * 1024;

/// Source of the lines, and their traces.
#[derive(Debug, Clone)]
pub(in crate::shell) struct Collector {
    pub(in crate::shell) hub: Arc<LogHub>,
    /// `process`, `pid` and the owner of the process.
    pub(in crate::shell) identity: JsonObject,
    /// Traces that its lines may belong to.
    pub(in crate::shell) traces: Arc<Traces>,
}

/// Reads a child's output to its end and sends every line to the hub.
pub(in crate::shell) async fn collect(
    mut output: impl AsyncRead + Unpin,
    collector: Collector,
) -> io::Result<()> {
    let mut lines = LineSplitter::default();
    let mut numbers = PartNumbers::default();
    // Each process has one of these buffers, so memory is not touched before it is filled.
    let mut chunk = Vec::with_capacity(READ_BYTES);
    loop {
        chunk.clear();
        let read = output.read_buf(&mut chunk).await?;
        let pieces = match read {
            0 => lines.finish(),
            _ => lines.push(&chunk, collector.hub.masks()),
        };
        let masks = collector.hub.masks();
        for piece in pieces {
            let at = Timestamp::from_unix_millis(unix_millis_now());
            for piece in shortened(piece, masks, &mut numbers) {
                collector.hub.write(render(&collector, piece, at));
            }
        }
        if read == 0 {
            return Ok(());
        }
    }
}

/// A line, or a part of an overlong one.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    bytes: Vec<u8>,
    /// Number of the part, starting at 1; `None` for a whole line.
    part: Option<u32>,
    /// True if the stream ended within the line.
    is_cut: bool,
}

/// Splits one of goondan's own lines that is too long.
fn shortened(piece: Piece, masks: &Masks, numbers: &mut PartNumbers) -> Vec<Piece> {
    let is_whole = piece.part.is_none() && !piece.is_cut;
    if is_whole && let Some(lines) = split::message_parts(&piece.bytes, masks, numbers) {
        let pieces = lines.into_iter().map(|bytes| Piece {
            bytes,
            part: None,
            is_cut: false,
        });
        return pieces.collect();
    }
    if piece.bytes.len() <= MAX_LOG_LINE_BYTES {
        return vec![piece];
    }
    let mut splitter = LineSplitter {
        pending: piece.bytes,
        parts: 0,
    };
    let mut pieces = splitter.cut(masks);
    pieces.extend(splitter.finish().into_iter().map(|last| Piece {
        is_cut: piece.is_cut,
        ..last
    }));
    pieces
}

/// Splits a byte stream into lines of at most [`MAX_LOG_LINE_BYTES`]; goondan's own lines, which
/// are JSON objects, have at most [`OWN_LINE_BYTES_MAX`].
#[derive(Debug, Default)]
struct LineSplitter {
    pending: Vec<u8>,
    parts: u32,
}

impl LineSplitter {
    fn push(&mut self, mut bytes: &[u8], masks: &Masks) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let room = self.bytes_max(bytes).saturating_sub(self.pending.len());
            let end = bytes.iter().take(room + 1).position(|byte| *byte == b'\n');
            match end {
                Some(at) => {
                    let (line, rest) = bytes.split_at(at);
                    // Includes space for the newline, in case the line is passed on unchanged.
                    self.pending.reserve_exact(line.len() + 1);
                    self.pending.extend_from_slice(line);
                    let part = (self.parts > 0).then_some(self.parts + 1);
                    self.parts = 0;
                    pieces.push(self.take(part, false));
                    bytes = rest.get(1..).unwrap_or_default();
                }
                None if bytes.len() > room => {
                    let (head, rest) = bytes.split_at(room);
                    self.pending.extend_from_slice(head);
                    pieces.extend(self.cut(masks));
                    bytes = rest;
                }
                None => {
                    self.pending.extend_from_slice(bytes);
                    bytes = &[];
                }
            }
        }
        pieces.retain(|piece| !piece.bytes.is_empty());
        pieces
    }

    /// The maximum size of the line that continues with `next`.
    fn bytes_max(&self, next: &[u8]) -> usize {
        let first = self.pending.first().or(next.first());
        if self.parts == 0 && first == Some(&b'{') {
            OWN_LINE_BYTES_MAX
        } else {
            MAX_LOG_LINE_BYTES
        }
    }

    /// The first parts of an unfinished line, until the rest is shorter than the limit.
    fn cut(&mut self, masks: &Masks) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while self.pending.len() >= MAX_LOG_LINE_BYTES {
            let first = self.pending.get(..MAX_LOG_LINE_BYTES).unwrap_or_default();
            let cut = masks.cut_beside_values(first);
            let kept_back = self.pending.split_off(cut);
            self.parts += 1;
            pieces.push(self.take(Some(self.parts), false));
            self.pending = kept_back;
        }
        pieces
    }

    /// The last line, if it has no newline.
    fn finish(&mut self) -> Vec<Piece> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let part = (self.parts > 0).then_some(self.parts + 1);
        vec![self.take(part, true)]
    }

    fn take(&mut self, part: Option<u32>, is_cut: bool) -> Piece {
        Piece {
            bytes: std::mem::take(&mut self.pending),
            part,
            is_cut,
        }
    }
}

fn render(collector: &Collector, mut piece: Piece, at: Timestamp) -> Vec<u8> {
    let (identity, traces) = (&collector.identity, &*collector.traces);
    let whole = piece.part.is_none() && !piece.is_cut;
    if whole && own_line::is_complete(&piece.bytes, identity, traces) {
        piece.bytes.push(b'\n');
        return piece.bytes;
    }
    let parsed = whole
        .then(|| serde_json::from_slice::<JsonObject>(&piece.bytes).ok())
        .flatten();
    let mut line = match parsed {
        Some(theirs) => {
            let mut line = line_head(at, "info", "");
            line.extend(theirs);
            line
        }
        None => {
            let text = String::from_utf8_lossy(&piece.bytes);
            let mut line = line_head(at, "info", text.trim_end_matches('\r'));
            if let Some(part) = piece.part {
                line.insert("splitPart".to_owned(), json!(part));
            }
            if piece.is_cut {
                line.insert("cutShort".to_owned(), json!(true));
            }
            line
        }
    };
    for name in WHO.iter().filter(|name| !identity.contains_key(**name)) {
        line.shift_remove(*name);
    }
    line.extend(identity.clone());
    let has_trace = line
        .get("traceId")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .is_some_and(|trace| traces.knows(trace));
    if !has_trace {
        line.insert("traceId".to_owned(), json!(traces.current()));
    }
    line_bytes(&line)
}

#[cfg(test)]
mod tests {
    use goondan_protocol::ipc::ChildRole;
    use goondan_protocol::trace::TraceId;

    use super::*;

    fn collector(role: ChildRole) -> Collector {
        let (hub, _guard) = LogHub::start(
            Some(tempfile::tempdir().unwrap().path()),
            &goondan_store::root::LogConfig::default(),
            Arc::default(),
        )
        .unwrap();
        let identity = json!({"process": "agent", "pid": 7, "agentName": "a"});
        let own = TraceId::from_random([1; 16]);
        let traces = Arc::new(Traces::new(own, role));
        Collector {
            hub,
            identity: identity.as_object().unwrap().clone(),
            traces,
        }
    }

    fn rendered(bytes: &[u8]) -> JsonObject {
        rendered_of(ChildRole::Agent, bytes)
    }

    fn rendered_of(role: ChildRole, bytes: &[u8]) -> JsonObject {
        let piece = Piece {
            bytes: bytes.to_vec(),
            part: None,
            is_cut: false,
        };
        let line = render(&collector(role), piece, Timestamp::from_unix_millis(0));
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn log_3_a_line_that_is_no_json_is_wrapped_and_never_lost() {
        for text in [
            &b"plain text"[..],
            b"{broken",
            b"[1]",
            b"\xff\xfe",
            b"\"text\"",
        ] {
            let line = rendered(text);
            assert_eq!(line["message"], String::from_utf8_lossy(text).as_ref());
            assert_eq!(line["agentName"], "a");
            assert_eq!(line["traceId"], "01".repeat(16));
        }
    }

    #[test]
    fn log_3_json_line_keeps_its_fields_but_not_a_forged_identity() {
        let line = rendered(br#"{"message":"m","level":"warn","pid":1,"agentName":"b","x":[1]}"#);
        assert_eq!(line["pid"], 7);
        assert_eq!(line["agentName"], "a");
        for text in [
            br#"{"message":"m","connection":"hook","model":"big","role":"model","instanceKey":"x"}"#
                .to_vec(),
            format!(
                r#"{{"timestamp":"2026-01-01T00:00:00.000Z","level":"info","message":"m","process":"agent","pid":7,"agentName":"a","connection":"hook","traceId":"{}"}}"#,
                "02".repeat(16)
            )
            .into_bytes(),
        ] {
            let lie = rendered(&text);
            for field in ["connection", "model", "role", "instanceKey"] {
                assert!(!lie.contains_key(field), "{lie:?}");
            }
        }
        assert_eq!((&line["level"], &line["x"]), (&json!("warn"), &json!([1])));
    }

    #[test]
    fn log_3_line_keeps_its_trace_id_or_gets_that_of_its_process() {
        let text = br#"{"message":"m","traceId":"4bf92f3577b34da6a3ce929d0e0e4736"}"#;
        let of_a_request = rendered_of(ChildRole::Connector, text);
        assert_eq!(of_a_request["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        // An agent may only name the traces of its turns.
        assert_eq!(rendered(text)["traceId"], "01".repeat(16));
        for text in [
            &br#"{"message":"m"}"#[..],
            br#"{"message":"m","traceId":"x"}"#,
        ] {
            assert_eq!(rendered(text)["traceId"], "01".repeat(16));
        }
    }

    #[test]
    fn log_3_long_lines_are_split_and_marked_across_any_chunks() {
        let long = vec![b'x'; MAX_LOG_LINE_BYTES * 2 + 10];
        let stream = [b"a\n".as_slice(), &long, b"\n\nb\nrest"].concat();
        for chunk in [1_000, 64 * 1024, 1 << 20] {
            let mut splitter = LineSplitter::default();
            let mut pieces: Vec<Piece> = stream
                .chunks(chunk)
                .flat_map(|chunk| splitter.push(chunk, &Masks::default()))
                .collect();
            pieces.extend(splitter.finish());
            let shape: Vec<_> = pieces
                .iter()
                .map(|p| (p.bytes.len(), p.part, p.is_cut))
                .collect();
            let expected = [
                (1, None, false),
                (MAX_LOG_LINE_BYTES, Some(1), false),
                (MAX_LOG_LINE_BYTES, Some(2), false),
                (10, Some(3), false),
                (1, None, false),
                (4, None, true),
            ];
            assert_eq!(shape, expected, "chunks of {chunk}");
        }
    }

    #[test]
    fn log_3_a_long_message_of_our_own_is_split_and_not_its_line() {
        let text: String = (0..20_000).map(|n| format!("{n:05}\u{e9}\n")).collect();
        let line = json!({"message": text, "level": "info", "source": "stderr"}).to_string() + "\n";
        let (mut splitter, mut numbers) = (LineSplitter::default(), PartNumbers::default());
        let masks = Masks::default();
        let chunks = line.as_bytes().chunks(READ_BYTES);
        let pieces = chunks.flat_map(|chunk| splitter.push(chunk, &masks));
        let pieces: Vec<Piece> = pieces
            .collect::<Vec<_>>()
            .into_iter()
            .flat_map(|piece| shortened(piece, &masks, &mut numbers))
            .collect();
        assert!(pieces.len() > 1);
        let mut joined = String::new();
        for (number, piece) in pieces.into_iter().enumerate() {
            assert!(piece.bytes.len() < MAX_LOG_LINE_BYTES);
            let line = render(
                &collector(ChildRole::Connector),
                piece,
                Timestamp::from_unix_millis(0),
            );
            let line: JsonObject = serde_json::from_slice(&line).unwrap();
            assert_eq!(line["splitPart"], number + 1);
            assert_eq!(line["source"], "stderr");
            joined += line["message"].as_str().unwrap();
        }
        assert_eq!(joined, text);
    }

    #[test]
    fn log_3_overlong_structured_line_is_split_like_plain_text() {
        let masks = Masks::default();
        for long in [
            [b"{".as_slice(), &[b'x'; 300_000]].concat(),
            [b"{".as_slice(), &vec![b'x'; OWN_LINE_BYTES_MAX + 10]].concat(),
        ] {
            let mut splitter = LineSplitter::default();
            let stream = [long.as_slice(), b"\n"].concat();
            let pieces = splitter.push(&stream, &masks).into_iter();
            let pieces: Vec<Piece> = pieces
                .flat_map(|piece| shortened(piece, &masks, &mut PartNumbers::default()))
                .collect();
            let bytes: Vec<u8> = pieces.iter().flat_map(|it| it.bytes.clone()).collect();
            assert_eq!(bytes, long);
            for (number, piece) in (1..).zip(&pieces) {
                assert!(piece.bytes.len() <= MAX_LOG_LINE_BYTES);
                assert_eq!(piece.part, Some(number));
            }
        }
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_whole() {
        let mut splitter = LineSplitter::default();
        let line = [vec![b'x'; MAX_LOG_LINE_BYTES], b"\n".to_vec()].concat();
        let pieces = splitter.push(&line, &Masks::default());
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].part, None);
    }
}
