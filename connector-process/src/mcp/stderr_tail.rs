//! Last lines of a server's program on stderr, as an explanation of its failure.

use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::{MCP_LAST_WORDS_CHARS_MAX, MCP_LAST_WORDS_LINES_MAX};

/// The lines most likely to say why a program fails: the first that mention an error, or the last.
#[derive(Debug, Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    errors: Vec<String>,
    last: Option<String>,
}

impl LastWords {
    /// Forgets the lines of an earlier program.
    pub(super) fn clear(&self) {
        self.update(|lines| *lines = Lines::default());
    }

    /// Takes notice of a line.
    pub(super) fn hear(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text: String = text.trim().chars().take(MCP_LAST_WORDS_CHARS_MAX).collect();
        if text.is_empty() {
            return;
        }
        self.update(|lines| {
            let is_error = text.to_lowercase().contains("error");
            if is_error && lines.errors.len() < MCP_LAST_WORDS_LINES_MAX {
                lines.errors.push(text.clone());
            }
            lines.last = Some(text);
        });
    }

    /// Adds the lines to a reason.
    pub(super) fn explain(&self, reason: String) -> String {
        let mut said = Vec::new();
        self.update(|lines| {
            said.clone_from(&lines.errors);
            if said.is_empty() {
                said.extend(lines.last.clone());
            }
        });
        match said.as_slice() {
            [] => reason,
            lines => format!("{reason}: {}", lines.join("; ")),
        }
    }

    fn update(&self, change: impl FnOnce(&mut Lines)) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(lines: &[&str]) -> String {
        let words = LastWords::default();
        words.hear(b"of an earlier program: Error");
        words.clear();
        for line in lines {
            words.hear(line.as_bytes());
        }
        words.explain("it exited with code 1".to_owned())
    }

    #[test]
    fn prov_1_a_failed_program_is_quoted() {
        let npm = [
            "npm error code E404",
            "npm error 404 Not Found - GET https://packages.example.org/none",
            "npm error A complete log of this run can be found in: /tmp/x.log",
        ];
        assert_eq!(
            explained(&npm),
            "it exited with code 1: npm error code E404; \
             npm error 404 Not Found - GET https://packages.example.org/none"
        );
        let node = [
            "node:internal/modules/cjs/loader:1228",
            "  throw err;",
            "",
            "Error: Cannot find module 'x'",
            "Node.js v20.20.2",
        ];
        assert_eq!(
            explained(&node),
            "it exited with code 1: Error: Cannot find module 'x'"
        );
        assert_eq!(
            explained(&["usage: server DIR", " "]),
            "it exited with code 1: usage: server DIR"
        );
        assert_eq!(explained(&[]), "it exited with code 1");
    }
}
