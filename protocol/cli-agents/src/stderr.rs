//! Standard error of a program: its last lines, and their classification.

use std::collections::VecDeque;

use crate::event::CliEvent;
use crate::failure::is_session_lost;
use crate::limits::{STDERR_LINE_CHARS_MAX, STDERR_LINES_MAX, TEXT_LINE_BYTES_MAX};
use crate::lines::{OutputLine, OutputLineSplitter, text_of};

/// Reads the standard error of one run.
#[derive(Debug)]
pub(crate) struct Stderr {
    lines: OutputLineSplitter,
    is_resumed: bool,
    tail: VecDeque<String>,
}

impl Stderr {
    pub(crate) fn new(is_resumed: bool) -> Self {
        Self {
            lines: OutputLineSplitter::new(TEXT_LINE_BYTES_MAX),
            is_resumed,
            tail: VecDeque::new(),
        }
    }

    /// Processes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<CliEvent> {
        let mut found = Vec::new();
        self.lines.push(bytes, |line| found.push(shown(&line)));
        self.take(found)
    }

    /// Handles the end of the output: the last event contains the last lines, if any.
    pub(crate) fn end(&mut self) -> Vec<CliEvent> {
        let mut found = Vec::new();
        self.lines.end(|line| found.push(shown(&line)));
        let mut events = self.take(found);
        if !self.tail.is_empty() {
            let tail: Vec<String> = self.tail.drain(..).collect();
            events.push(CliEvent::Stderr(tail.join("\n")));
        }
        events
    }

    fn take(&mut self, lines: Vec<String>) -> Vec<CliEvent> {
        let mut events = Vec::new();
        for line in lines {
            if line.trim().is_empty() {
                continue;
            }
            if self.is_resumed && is_session_lost(&line) {
                self.is_resumed = false;
                events.push(CliEvent::SessionRefused(line.clone()));
            }
            if self.tail.len() >= STDERR_LINES_MAX {
                self.tail.pop_front();
            }
            self.tail.push_back(line);
        }
        events
    }
}

fn shown(line: &OutputLine<'_>) -> String {
    let (OutputLine::Whole(bytes) | OutputLine::Cut(bytes, _)) = line;
    let text = text_of(bytes);
    text.trim_end()
        .chars()
        .take(STDERR_LINE_CHARS_MAX)
        .collect()
}

/// Returns the most informative line of an error output: the last one that names an error, else the
/// last one with words.
#[must_use]
pub fn telling_line(stderr: &str) -> Option<&str> {
    let has_words = |line: &&str| line.chars().filter(|c| c.is_alphabetic()).count() > 2;
    let mut lines = stderr.lines().rev().map(str::trim).filter(has_words);
    let last = lines.clone().next();
    lines
        .find(|line| line.to_lowercase().contains("error"))
        .or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_6_the_last_lines_of_an_error_output_are_kept() {
        let mut stderr = Stderr::new(false);
        for number in 0..STDERR_LINES_MAX + 5 {
            assert_eq!(stderr.push(format!("line {number}\n\n").as_bytes()), []);
        }
        stderr.push("\u{1b}[31mError: no key\u{1b}[0m".as_bytes());
        let [CliEvent::Stderr(tail)] = &stderr.end()[..] else {
            panic!("no tail");
        };
        assert_eq!(tail.lines().count(), STDERR_LINES_MAX);
        assert!(tail.ends_with("\nError: no key"), "{tail}");
        assert_eq!(telling_line(tail), Some("Error: no key"));
        assert_eq!(telling_line("it broke\n}\n"), Some("it broke"));
        assert_eq!(telling_line("}\n"), None);
    }
}
