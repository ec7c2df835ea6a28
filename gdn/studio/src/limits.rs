//! All limits of Studio.

/// Time in which a ticket in an address can be exchanged for a token, in milliseconds.
pub(crate) const TICKET_LIFE_MS: u64 = 60_000;

/// Lifetime of a token, in milliseconds: a day of work.
pub(crate) const TOKEN_LIFE_MS: u64 = 12 * 60 * 60 * 1_000;

/// Maximum number of valid tickets, and of valid tokens; a new one replaces the oldest.
pub(crate) const SESSIONS_MAX: usize = 16;

/// Maximum number of open connections. One more closes the oldest idle connection.
pub(crate) const CONNECTIONS_MAX: usize = 128;

/// Time limit for the headers of a request, in milliseconds; then its connection is closed.
pub(crate) const HEADER_READ_TIMEOUT_MS: u64 = 10_000;

/// Time limit for the body of a request, in milliseconds.
pub(crate) const BODY_READ_TIMEOUT_MS: u64 = 30_000;

/// Pause after a connection could not be accepted, in milliseconds.
pub(crate) const ACCEPT_RETRY_MS: u64 = 100;

/// Longest body of a request, in bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// Requests that are answered soon and decide nothing, at one time; further ones wait.
pub(crate) const CALLS_MAX: usize = 8;

/// Requests that decide something or end a wait, at one time; further ones wait.
pub(crate) const DECISIONS_MAX: usize = 8;

/// Requests that wait for a turn or a person, at one time; a further one is refused.
pub(crate) const WAITS_MAX: usize = 8;

/// Streams that are open at one time; a further one is refused.
pub(crate) const STREAMS_MAX: usize = 16;
// Each has a connection, and so has a request that is answered soon.
const _: () = assert!(
    STREAMS_MAX + WAITS_MAX + CALLS_MAX + DECISIONS_MAX + SEARCHES_MAX < CONNECTIONS_MAX / 2
);

/// Searches at one time; further ones wait.
pub(crate) const SEARCHES_MAX: usize = 2;

/// Longest text of a search, in bytes.
pub(crate) const SEARCH_TEXT_BYTES_MAX: usize = 256;

/// Hits of one answer; the page asks for the next ones. A list that is already
/// read is searched to its end.
pub(crate) const SEARCH_HITS_MAX: usize = 100;

/// Requests to the daemon for one answer; then the page asks for the rest of the search.
pub(crate) const SEARCH_REQUESTS_MAX: usize = 2_000;

/// Messages of a conversation that are read at once, at most about 1 MiB.
pub(crate) const SEARCH_PAGE_MESSAGES: usize = 500;

/// Items of a list that are read at once.
pub(crate) const SEARCH_PAGE_ITEMS: usize = 100;

/// Bytes of the patch of one proposal that are searched.
pub(crate) const SEARCH_PATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Lines of the log that are found, the latest ones.
pub(crate) const SEARCH_LOG_HITS_MAX: usize = 100;

/// Lines of the log that are searched: all that the daemon keeps.
pub(crate) const SEARCH_LOG_LINES: usize = 2_000;

/// Characters before and after a found text.
pub(crate) const EXCERPT_CHARS: usize = 80;

/// Unread lines of a search; with more, it waits.
pub(crate) const SEARCH_LINES_MAX: usize = 16;

/// Shortest time between reports of a search's progress, in milliseconds.
pub(crate) const SEARCH_PROGRESS_MS: u64 = 200;

/// Unread lines of a stream; with more, the browser is disconnected and resumes with its cursor.
pub(crate) const STREAM_LINES_MAX: usize = 4_096;

/// Unread parts of a task's stream; the next one is requested when the browser has taken the previous one.
pub(crate) const STREAM_PARTS_MAX: usize = 1;

/// Silent interval after which a stream sends a keep-alive line, in milliseconds.
pub(crate) const STREAM_ALIVE_MS: u64 = 15_000;
