//! Parses server-sent events from a body that arrives in parts of any size (pure).
//!
//! A line of JSON without a field name is an event as well: some servers send only such lines, and
//! some report an error in the middle of a stream this way.
//!
//! Memory is bounded by [`REPLY_EVENT_BYTES_MAX`] for any input: one event and the current part of
//! the body are held.

use crate::limits::REPLY_EVENT_BYTES_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Its name; empty if it has none.
    pub(super) name: String,
    /// The contents of its `data` lines.
    pub(super) data: String,
}

/// Reason why a body is not an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoEvent {
    /// One event exceeds the limit.
    #[error("one event of its stream has more than {REPLY_EVENT_BYTES_MAX} bytes")]
    TooLong,
    /// It is not UTF-8.
    #[error("its stream is not UTF-8")]
    NotText,
    /// A message is malformed, or its checksum does not match.
    #[error("its stream is damaged")]
    Damaged,
}

/// Parser of one body.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    /// True after a carriage return: a following line feed belongs to the same line end.
    after_return: bool,
    /// True if the event is JSON of several lines without field names.
    is_bare: bool,
}

impl Events {
    /// Adds the next part of the body. `take` receives each completed event and returns false to
    /// stop.
    ///
    /// # Errors
    ///
    /// [`NoEvent`], or an error of `take`.
    pub(super) fn feed<E: From<NoEvent>>(
        &mut self,
        mut part: &[u8],
        mut take: impl FnMut(SseEvent) -> Result<bool, E>,
    ) -> Result<bool, E> {
        while !part.is_empty() {
            if std::mem::take(&mut self.after_return) && part.first() == Some(&b'\n') {
                part = part.get(1..).unwrap_or_default();
                continue;
            }
            let end = part.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
            if held + end.unwrap_or(part.len()) > REPLY_EVENT_BYTES_MAX {
                return Err(NoEvent::TooLong.into());
            }
            let Some(end) = end else {
                self.line.extend_from_slice(part);
                return Ok(true);
            };
            let (line, rest) = part.split_at(end);
            self.line.extend_from_slice(line);
            self.after_return = rest.first() == Some(&b'\r');
            part = rest.get(1..).unwrap_or_default();
            if let Some(event) = self.end_line()?
                && !take(event)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Handles the end of the body: returns the last event if no empty line ended it. It may be
    /// incomplete.
    pub(super) fn finish(mut self) -> Option<SseEvent> {
        if !self.line.is_empty()
            && let Some(event) = self.end_line().ok()?
        {
            return Some(event);
        }
        self.event()
    }

    fn end_line(&mut self) -> Result<Option<SseEvent>, NoEvent> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8(line).map_err(|_| NoEvent::NotText)?;
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line);
        if line.is_empty() {
            return Ok(self.event());
        }
        if self.is_bare || line.starts_with('{') {
            return Ok(self.bare_line(line));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // Comments, `id` and `retry`.
            _ => {}
        }
        Ok(None)
    }

    /// Takes a line of JSON without a field name. Within an event, it continues the data, because some
    /// servers write line breaks into JSON.
    fn bare_line(&mut self, line: &str) -> Option<SseEvent> {
        if let Some(data) = &mut self.data {
            data.push('\n');
            data.push_str(line);
            // The last line of an indented object.
            let is_end = self.is_bare && line.starts_with('}');
            return is_end.then(|| self.event()).flatten();
        }
        self.data = Some(line.to_owned());
        self.is_bare = !line.trim_end().ends_with('}');
        (!self.is_bare).then(|| self.event()).flatten()
    }

    fn event(&mut self) -> Option<SseEvent> {
        self.is_bare = false;
        let name = std::mem::take(&mut self.name);
        let data = self.data.take()?;
        Some(SseEvent { name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &[u8], part_bytes: usize) -> Result<Vec<(String, String)>, NoEvent> {
        let mut events = Events::default();
        let mut found = Vec::new();
        for part in body.chunks(part_bytes) {
            events.feed(part, |event| {
                found.push((event.name, event.data));
                Ok::<_, NoEvent>(true)
            })?;
        }
        found.extend(events.finish().map(|event| (event.name, event.data)));
        Ok(found)
    }

    #[test]
    fn events_parse_across_any_chunk_boundary_and_line_ending() {
        let body = "\u{feff}: hello\r\nevent: a\r\ndata: 고양이\r\ndata:2\r\n\r\ndata: x\n\n\nid: 7\n\n\
                    retry: 1\revent: b\rdata: y\r\rdata: last";
        let expected = [("a", "고양이\n2"), ("", "x"), ("b", "y"), ("", "last")];
        let expected = expected.map(|(name, data)| (name.to_owned(), data.to_owned()));
        for part_bytes in [1, 2, 3, 7, body.len()] {
            assert_eq!(
                read(body.as_bytes(), part_bytes).unwrap(),
                expected,
                "{part_bytes}"
            );
        }
    }

    #[test]
    fn prov_1_lines_of_json_without_a_field_name_are_events() {
        let lines = "{\"a\": 1}\r\n{\"b\": 2}\r\n\r\n";
        let error = "data: {\"a\": 1}\n\n{\"error\": \"x\"}\n";
        let indented = "data: 1\n\n{\n  \"error\": {\n    \"a\": 1\n  }\n}\ndata: 2\n\n";
        let within = "data: {\"a\":\n{}}\n\n";
        let unnamed = |data: &[&str]| -> Vec<(String, String)> {
            let data = data.iter();
            data.map(|data| (String::new(), (*data).to_owned()))
                .collect()
        };
        for (body, expected) in [
            (lines, vec!["{\"a\": 1}", "{\"b\": 2}"]),
            (error, vec!["{\"a\": 1}", "{\"error\": \"x\"}"]),
            (
                indented,
                vec!["1", "{\n  \"error\": {\n    \"a\": 1\n  }\n}", "2"],
            ),
            (within, vec!["{\"a\":\n{}}"]),
            ("{\"a\": 1}", vec!["{\"a\": 1}"]),
        ] {
            for part_bytes in [1, 5, body.len()] {
                let found = read(body.as_bytes(), part_bytes).unwrap();
                assert_eq!(found, unnamed(&expected), "{part_bytes}");
            }
        }
    }

    #[test]
    fn sse_event_is_bounded_by_line_size_and_total_size() {
        let long = "x".repeat(REPLY_EVENT_BYTES_MAX + 1);
        assert_eq!(read(long.as_bytes(), 65_536), Err(NoEvent::TooLong));
        let line = format!("data: {}\n", "x".repeat(65_530));
        let many = line.repeat(REPLY_EVENT_BYTES_MAX / 65_536 + 2);
        assert_eq!(read(many.as_bytes(), 65_536), Err(NoEvent::TooLong));
        assert_eq!(read(b"data: \xff\n\n", 3), Err(NoEvent::NotText));
    }
}
