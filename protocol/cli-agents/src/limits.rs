//! Limits for the output of command-line agents.

/// Maximum characters of one field of a protocol block (`PROTO-1`).
pub const FIELD_CHARS_MAX: usize = 10_000;

/// Maximum bytes of one protocol block, including its tags (`PROTO-1`).
pub const BLOCK_BYTES_MAX: usize = 100 * 1024;

/// Maximum documents of one completion.
pub const DOCUMENTS_MAX: usize = 1000;

/// Maximum options of one question.
pub const OPTIONS_MAX: usize = 100;

/// Maximum bytes parsed of one line of text; the rest of the line is skipped.
pub const TEXT_LINE_BYTES_MAX: usize = 100 * 1024;

/// Maximum bytes of one line of structured output; longer lines are skipped.
pub const JSON_LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum wait for the answer to a request of `acp` before the prompt, in milliseconds.
pub const ACP_ANSWER_TIMEOUT_MS: u64 = 120_000;

/// Minimum consecutive lines of a prompt that count as its echo, unless the prompt is shorter.
pub const ECHO_LINES_MIN: usize = 3;

/// Maximum messages whose usage is tracked individually; older ones can no longer be corrected.
pub const USAGE_MESSAGES_MAX: usize = 4096;

/// Maximum characters of an unstructured line that are passed on.
pub const NOISE_CHARS_MAX: usize = 1000;

/// Maximum lines of a program's standard error that are kept; the last ones are kept.
pub const STDERR_LINES_MAX: usize = 20;

/// Maximum characters of a line of standard error.
pub const STDERR_LINE_CHARS_MAX: usize = 500;

/// Maximum bytes of text in one item of a task's stream; longer texts become several items.
pub const ITEM_TEXT_BYTES_MAX: usize = 8 * 1024;

/// Maximum characters of a result or an error in a task's stream.
pub const ITEM_RESULT_CHARS_MAX: usize = 4000;

/// Maximum characters of a tool call's command or arguments in a task's stream.
pub const TOOL_INPUT_CHARS_MAX: usize = 4000;

/// Maximum characters of a tool call's output in a task's stream; the last ones are kept.
pub const TOOL_OUTPUT_CHARS_MAX: usize = 4000;

/// Maximum characters of all diffs of a tool call in a task's stream.
pub const TOOL_DIFF_CHARS_MAX: usize = 16_000;

/// Maximum files of a tool call in a task's stream.
pub const TOOL_FILES_MAX: usize = 50;

/// Maximum characters of a file's path in a task's stream.
pub const TOOL_PATH_CHARS_MAX: usize = 500;

/// Maximum open tool calls whose details are kept until they end.
pub const TOOL_CALLS_KEPT: usize = 64;

/// Maximum characters of a permission request's diff or command.
pub const PERMISSION_DETAIL_CHARS_MAX: usize = 8000;

/// Maximum bytes of a message to the server of goondan's tools.
pub const MCP_LINE_BYTES_MAX: usize = 1024 * 1024;
