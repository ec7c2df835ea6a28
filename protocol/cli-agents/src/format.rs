//! The forms of output that are read.

/// A form of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text of any program. All of it counts as the assistant's own.
    Plain,
    /// `claude --print --verbose --output-format stream-json`.
    ClaudeStreamJson,
    /// `codex exec --json`.
    CodexJson,
    /// The Agent Client Protocol, version 1, over standard input and output.
    Acp,
}

impl Format {
    /// Whether a run ends with an [`Event::Result`](crate::Event::Result). Of one that does not, the exit says how it went.
    #[must_use]
    pub fn tells_result(self) -> bool {
        self != Self::Plain
    }
}
