//! Defaults and limits of the built-in extensions' settings.

/// Minimum size of a message window: a question, its answer, and a tool call with its result
/// between them.
pub const MESSAGE_WINDOW_MIN: usize = 4;
/// Maximum size of a message window.
pub const MESSAGE_WINDOW_MAX: usize = 1_000_000;
/// Default number of reminders of a required tool.
pub const DEFAULT_REMINDERS: u32 = 2;
/// Largest threshold of a compaction, in characters or tokens.
pub const COMPACTION_SIZE_MAX: u64 = 100_000_000;
/// Default number of latest messages of earlier turns that are never summarized.
pub const DEFAULT_KEEP_MESSAGES: usize = 20;
/// Default number of results per tool search.
pub const DEFAULT_TOOL_RESULTS: usize = 5;
/// Maximum number of results per tool search.
pub const MAX_TOOL_RESULTS: usize = 32;
/// Maximum number of reminders per turn.
pub const MAX_REMINDERS: u32 = 16;
