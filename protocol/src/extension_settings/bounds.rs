//! Defaults and bounds of what the built-in extensions may be set to.

/// Fewest messages a window may leave: a question, its answer, and what stands between them.
pub const MESSAGE_WINDOW_MIN: usize = 4;
/// Most messages a window may leave.
pub const MESSAGE_WINDOW_MAX: usize = 1_000_000;
/// How often an agent is reminded of a required tool when its settings do not say.
pub const DEFAULT_REMINDERS: u32 = 2;
/// Largest size of a conversation that a compaction may be asked for at, in characters or tokens.
pub const COMPACTION_SIZE_MAX: u64 = 100_000_000;
/// Latest messages of earlier turns that a compaction leaves as they are when the settings do not say.
pub const DEFAULT_KEEP_MESSAGES: usize = 20;
/// Tools that one search finds when the settings do not say.
pub const DEFAULT_TOOL_RESULTS: usize = 5;
/// Most tools that one search finds.
pub const MAX_TOOL_RESULTS: usize = 32;
/// Most reminders of one turn.
pub const MAX_REMINDERS: u32 = 16;
