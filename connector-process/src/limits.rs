//! All limits of a connector process.
//!
//! The protocol's own limits are [`goondan_protocol::limits`].

use goondan_connectors::GITHUB_BODY_BYTES_MAX;
use goondan_protocol::limits::{
    MAX_CONNECTION_STATE_BYTES, MAX_DECISIONS_SHOWN, MAX_FRAME_BYTES, MAX_INPUT_BYTES,
};

/// Highest permitted value of `maxBodyBytes`, in bytes, where the entire body can become an event's
/// input: the protocol's limit for inputs. A GitHub payload can be larger, and only part of it is
/// kept.
pub const BODY_BYTES_CEILING: usize = MAX_INPUT_BYTES;

/// Concurrent connections. One more evicts a connection without a request in progress: from the
/// peer that holds the most, silent connections first, then the oldest.
pub const CONNECTIONS_MAX: usize = 256;

/// Concurrent requests that wait for the orchestrator, with their bodies read and their signatures
/// checked. One more is answered 429.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 64;

/// Concurrent requests that wait for an agent's reply, with their events durable. One more is
/// answered 202 immediately.
pub const REPLY_WAITERS_MAX: usize = 128;

/// Events of one batch of CloudEvents. A larger batch is refused as a whole.
pub const BATCH_EVENTS_MAX: usize = 100;

/// Pending replies of one webhook or chat connection. One more event is answered 429, or fetched
/// later.
pub const CALLBACKS_PROMISED_MAX: usize = 256;

/// Latest events of a chat connection that are known to have their reply. Telegram delivers at most
/// 100 updates at once.
pub const DELIVERED_EVENTS_MAX: usize = 256;

/// Latest messages of agents to chats, in turns whose event the connection has not seen accepted.
pub const EARLY_WRITES_MAX: usize = 256;

/// Concurrent reply deliveries of one webhook; further ones wait.
pub const CALLBACKS_AT_ONCE_MAX: usize = 8;

/// Delivery attempts per reply before it is abandoned. A restart resets the count.
pub const CALLBACK_ATTEMPTS_MAX: u32 = 12;

/// First pause before a reply is posted again, in milliseconds. Each further pause is twice as
/// long.
pub const CALLBACK_PAUSE_FIRST_MS: u64 = 1_000;

/// Longest pause before a reply is posted again, in milliseconds.
pub const CALLBACK_PAUSE_MAX_MS: u64 = 300_000;

/// Total memory of request bodies being read, in bytes. Beyond it, a sender is evicted, chosen as
/// by [`CONNECTIONS_MAX`].
pub const BODY_BYTES_HELD_MAX: usize = 64 * 1024 * 1024;

/// Longest query that an authorization server may append to a public address, in bytes; a longer
/// one completes no login.
pub const CALLBACK_QUERY_BYTES_MAX: usize = 16 * 1024;

/// Minimum mean rate of a body after [`BODY_RATE_GRACE_MS`], in bytes a second; a slower one is
/// answered 408.
pub const BODY_RATE_MIN_BYTES_S: u64 = 4 * 1024;

/// Time before the minimum rate of a body applies, in milliseconds.
pub const BODY_RATE_GRACE_MS: u64 = 5_000;

/// Maximum size of a text that a service wants back to check the address. A longer one is none.
pub const CHALLENGE_BYTES_MAX: usize = 4_096;

/// Maximum number of headers of one request. One more is answered 431.
pub const HEADERS_MAX: usize = 128;

/// Headers of one request to a connector that are parsed, so that a request with too many gets an
/// answer that gives the limit. One more is answered 431 without a body.
pub const HEADERS_PARSED_MAX: usize = 1024;

/// Signatures of one request that are compared.
pub const SIGNATURES_MAX: usize = 16;

/// Certificates of Amazon SNS that one webhook keeps.
pub const CERTIFICATES_MAX: usize = 16;

/// Largest certificate of Amazon SNS, in bytes.
pub const CERTIFICATE_BYTES_MAX: usize = 64 * 1024;

/// Concurrent requests of one webhook to Amazon SNS. One more is answered 429.
pub const SNS_REQUESTS_MAX: usize = 4;

/// Size of one connection's read buffer, in bytes; a request whose head does not fit is answered
/// 431.
pub const READ_BUFFER_BYTES: usize = 32 * 1024;

/// Time limit for the head of a request, in milliseconds. An idle kept-alive connection is closed
/// after the same time.
pub const HEADER_READ_TIMEOUT_MS: u64 = 10_000;

/// Time limit for the body of a request, in milliseconds; then it is answered 408.
pub const BODY_READ_TIMEOUT_MS: u64 = 30_000;

/// Concurrent connections to hosts of the programs of one agent or connection. One more is closed.
pub const EGRESS_CONNECTIONS_MAX: usize = 256;

/// Log lines per [`EGRESS_REFUSALS_INTERVAL_MS`] about refusals to the programs of one agent or
/// connection. The next line gives the number of suppressed lines.
pub const EGRESS_REFUSALS_TOLD: u32 = 20;

/// Interval of that line limit, in milliseconds.
pub const EGRESS_REFUSALS_INTERVAL_MS: u64 = 60_000;

/// Time limit for passing a program's connection to the egress, in milliseconds.
pub const EGRESS_HANDOVER_TIMEOUT_MS: u64 = 5_000;

/// Idle time after which a program's connection is closed, in milliseconds.
pub const EGRESS_IDLE_TIMEOUT_MS: u64 = 300_000;

/// Time limit for resolving a name that a proxy resolves as well, in milliseconds.
pub const RESOLVE_TIMEOUT_MS: u64 = 5_000;

/// Time limit for resolving the name of a permitted host, in milliseconds.
pub const EGRESS_RESOLVE_TIMEOUT_MS: u64 = 10_000;

/// Time limit for connecting to one of its addresses, in milliseconds.
pub const EGRESS_CONNECT_TIMEOUT_MS: u64 = 10_000;

/// Maximum number of addresses of one name that are tried.
pub const EGRESS_ADDRESSES_MAX: usize = 4;

/// Maximum number of bytes buffered for a TLS `ClientHello`: one full record.
pub const EGRESS_HELLO_BYTES_MAX: usize = 16 * 1024 + 5;

/// Time limit for the orchestrator to accept or refuse an event, in milliseconds; then the client
/// is answered 503.
pub const REPLY_TIMEOUT_MS: u64 = 30_000;

/// Time for which the answer to an ignored event waits until the session can count the event, in
/// milliseconds.
pub const COUNT_TIMEOUT_MS: u64 = 500;

/// Time limit for the orchestrator if the service waits three seconds for its answer, in
/// milliseconds.
pub const SWIFT_REPLY_TIMEOUT_MS: u64 = 2_500;

/// Maximum difference between the time of a signed Slack request and this machine's clock, in
/// seconds.
pub const SLACK_WINDOW_S: u64 = 300;

/// Threads of Slack that are remembered because the app was mentioned in them. Of more, the latest.
pub const SLACK_THREADS_MAX: usize = 2_000;

/// Replies in Slack outside of threads, to slash commands, whose threads continue the conversation.
/// Of more, the latest.
pub const SLACK_ANSWERS_MAX: usize = 500;

/// Groups of one Telegram connection that became supergroups; further ones are not followed.
pub const CHATS_MIGRATED_MAX: usize = 256;

/// Messages of a Discord application whose threads continue the conversation of their channel. Of
/// more, the latest.
pub const DISCORD_THREADS_MAX: usize = 1_000;

/// Latest messages of a bot in Telegram whose reactions reach the agent.
pub const TELEGRAM_SENT_MAX: usize = 256;

/// Start of such a message that is shown with a reaction, in characters.
pub const TELEGRAM_SENT_CHARS_MAX: usize = 60;

/// Messages of one album in Telegram, as set by Telegram.
pub const TELEGRAM_ALBUM_MESSAGES_MAX: usize = 10;

/// Pause in which further messages of an album in Telegram can arrive, in milliseconds. It is
/// repeated if some arrive.
pub const TELEGRAM_ALBUM_PAUSE_MS: u64 = 500;

/// Longest wait for the messages of one album, in milliseconds; later ones are a turn of their own.
pub const TELEGRAM_ALBUM_WAIT_MAX_MS: u64 = 3_000;

/// Messages of one Matrix room that are read after a pause, before those of the answer itself. Of
/// more, the latest.
pub const MATRIX_MISSED_EVENTS_MAX: usize = 1_000;

/// Rooms of a Matrix account whose names and members are kept in memory.
pub const MATRIX_ROOMS_MAX: usize = 1_000;

/// Encrypted Matrix rooms that are known to have the notice about encryption. Of more, the
/// latest.
pub const MATRIX_ENCRYPTED_ROOMS_MAX: usize = 100;

/// Largest e-mail that is read, in bytes; a larger one is passed over.
pub const EMAIL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Parts of an e-mail; one with more is passed over. This bounds the depth of nested parts, too.
pub const EMAIL_PARTS_MAX: usize = 200;

/// Longest text of an e-mail that an event's input repeats, in bytes; the rest is cut off.
pub const EMAIL_TEXT_BYTES_MAX: usize = 128 * 1024;

/// Attachments of an e-mail that are listed; further ones are counted.
pub const EMAIL_FILES_MAX: usize = 50;

/// Longest Message-ID that is followed, in bytes.
pub const EMAIL_ID_BYTES_MAX: usize = 250;

/// Longest line of an IMAP server, in bytes: a search that finds about a million messages.
pub const IMAP_LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Time after which IDLE is renewed, in milliseconds. Routers forget idle connections after five
/// minutes.
pub const IMAP_IDLE_MS: u64 = 240_000;

/// Longest line of an SMTP server's reply, in bytes.
pub const SMTP_LINE_BYTES_MAX: usize = 4 * 1024;

/// Most lines of one reply of an SMTP server.
pub const SMTP_REPLY_LINES_MAX: usize = 128;

/// Time limit for an SMTP server to accept a message that was sent to it, in milliseconds.
pub const SMTP_ACCEPT_TIMEOUT_MS: u64 = 60_000;

/// Longest start of an answered message that is shown with an answer, in characters.
pub const QUOTE_CHARS_MAX: usize = 300;

/// Time in which a Discord command can be answered, in milliseconds, as set by Discord.
pub const DISCORD_ANSWER_WINDOW_MS: u64 = 15 * 60 * 1_000;

/// Concurrent Discord commands that can be answered. With one more, the oldest is answered by a
/// message of the bot.
pub const DISCORD_INTERACTIONS_MAX: usize = 4_096;

/// Largest payload in an event's metadata, in bytes of JSON. Longer texts and lists in it are cut.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// Longest text of a GitHub or GitLab event that its input repeats, in characters.
pub const EVENT_TEXT_CHARS_MAX: usize = 8_000;

/// Longest name or title in a sentence about a GitHub or GitLab event, in characters.
pub const EVENT_NAME_CHARS_MAX: usize = 300;

/// Longest diff of one file that an agent gets from GitLab, in characters.
pub const GITLAB_DIFF_CHARS_MAX: usize = 6_000;

/// Longest text that is kept of a large payload, in bytes; the rest is cut off.
pub const BOUNDED_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Items of one list that are kept of a large payload; the rest are counted.
pub const BOUNDED_ITEMS_MAX: usize = 100;

/// Values that are kept of a large payload; further ones are dropped.
pub const BOUNDED_VALUES_MAX: usize = 200_000;

/// Age at which a connection accepts no further request, in milliseconds, so that no client
/// occupies a slot forever.
pub const CONNECTION_AGE_MAX_MS: u64 = 300_000;

/// Time after which a connection that accepts no further request is closed unconditionally, in
/// milliseconds. The longest valid request fits in it; a request that waits for a reply gets that
/// much more.
pub const CONNECTION_CLOSE_TIMEOUT_MS: u64 =
    HEADER_READ_TIMEOUT_MS + BODY_READ_TIMEOUT_MS + REPLY_TIMEOUT_MS + 5_000;

/// Bytes of a refused body that are read and discarded, so that the sender sees the answer instead
/// of a connection reset. A sender of more is disconnected.
pub const DISCARDED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Time limit for discarding a refused body, in milliseconds.
pub const DISCARD_TIMEOUT_MS: u64 = 5_000;

/// First pause before another attempt to open the listening socket, in milliseconds. Each further
/// pause is twice as long.
pub const BIND_RETRY_FIRST_MS: u64 = 250;

/// Longest pause between attempts to open the listening socket, in milliseconds.
pub const BIND_RETRY_MAX_MS: u64 = 30_000;

/// Pause after the system refused to accept a connection, for example because no file descriptor is
/// free, in milliseconds.
pub const ACCEPT_RETRY_MS: u64 = 100;

/// `Retry-After` of a 429, in seconds.
pub const RETRY_AFTER_OVERLOADED_S: u64 = 1;

/// `Retry-After` of a 503, in seconds: about the duration of a daemon restart.
pub const RETRY_AFTER_UNAVAILABLE_S: u64 = 5;

/// Top-level scalars of a JSON body that become properties of the event; further ones are omitted.
pub const PROPERTIES_MAX: usize = 64;

/// Longest name and longest text of a property, in bytes; a longer one is omitted.
pub const PROPERTY_BYTES_MAX: usize = 1024;

/// Longest text of a metadata field and of a logged path, in bytes; the rest is truncated.
pub const NOTE_BYTES_MAX: usize = 256;

/// Time limit for connecting to a service, in milliseconds.
pub const SERVICE_CONNECT_TIMEOUT_MS: u64 = 10_000;

/// Time limit for a service's answer, in addition to the wait requested in long polling, in
/// milliseconds.
pub const SERVICE_TIMEOUT_MS: u64 = 20_000;

/// Largest answer of a service, in bytes.
pub const SERVICE_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Largest OAuth metadata document of a server, in bytes.
pub const OAUTH_DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of scopes used from one list of a server.
pub const OAUTH_SCOPES_MAX: usize = 64;

/// Longest text from OAuth metadata that an error repeats, in characters.
pub const OAUTH_SAID_CHARS_MAX: usize = 200;

/// Maximum number of redirects that one request of an agent follows.
pub const REDIRECTS_MAX: usize = 5;

/// Maximum number of redirects in the older contract, as in `fetch` of JavaScript.
pub const OLDER_REDIRECTS_MAX: usize = 20;

/// Encoded bytes of a body that are decoded before its length is checked. Deflate expands them by a
/// factor of about 1,000.
pub const ENCODED_PIECE_BYTES: usize = 1_024;

/// Longest header shown to a model, in bytes; the rest is truncated.
pub const SHOWN_HEADER_BYTES_MAX: usize = 1_024;

/// First pause before a failed service is asked again, in milliseconds. Each further pause is twice
/// as long.
pub const SERVICE_BACK_OFF_FIRST_MS: u64 = 1_000;

/// Longest pause before a failed service is asked again, in milliseconds.
pub const SERVICE_BACK_OFF_MAX_MS: u64 = 60_000;

/// Longest time between two clock checks of `cron`, in milliseconds. A change of the clock is
/// noticed within this time.
pub const CLOCK_LOOK_MS: u64 = 10_000;

/// Longest line of a connector program's stdout, in bytes: an event with the largest input, with
/// every character escaped.
pub const PROGRAM_LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Events of a connector program that concurrently wait for the orchestrator. At this number, its
/// stdout is not read until one is settled.
pub const PROGRAM_EVENTS_IN_FLIGHT_MAX: usize = 64;

/// Bytes of answers that a connector program leaves unread on its stdin. With more, it is killed.
pub const PROGRAM_UNREAD_BYTES_MAX: usize = 1024 * 1024;

/// Time for a connector program to end after `shutdown`, in milliseconds; then it is killed.
pub const PROGRAM_STOP_TIMEOUT_MS: u64 = 10_000;

/// Time limit for reading the remaining output of an ended connector program, in milliseconds.
pub const PROGRAM_LAST_WORDS_TIMEOUT_MS: u64 = 1_000;

/// Consecutive immediate restarts of a connector program that ended (`SUP-4`).
pub const PROGRAM_IMMEDIATE_RESTARTS: u32 = 5;

/// First pause after the immediate restarts, in milliseconds; each further pause is twice as long
/// (`SUP-4`).
pub const PROGRAM_BACK_OFF_FIRST_MS: u64 = 1_000;

/// Longest pause between restarts, in milliseconds (`SUP-4`). A program that ran at least this long
/// counts as healthy.
pub const PROGRAM_BACK_OFF_MAX_MS: u64 = 300_000;

/// Maximum number of consecutive failed starts of a program for a permanent reason, such as a
/// missing file or failed confinement. Then its connection is parked until a restart (`SUP-4`).
pub const PROGRAM_START_FAULTS_MAX: u32 = 3;

/// Time for `node --version`, in milliseconds.
pub const VERSION_TIMEOUT_MS: u64 = 10_000;

/// Time limit for connecting to a trace collector, in milliseconds.
pub const EXPORT_CONNECT_MS: u64 = 5_000;

/// Part of a collector's answer that is read, in bytes.
pub const EXPORT_ANSWER_BYTES_MAX: usize = 4_096;

/// Part of a collector's answer that is shown, in characters.
pub const EXPORT_ANSWER_CHARS_MAX: usize = 200;

/// Time limit for a collector to accept a batch of spans, in milliseconds.
pub const EXPORT_REQUEST_MS: u64 = 10_000;

/// Attempts to send a batch that a collector cannot accept at the moment.
pub const EXPORT_ATTEMPTS_MAX: u32 = 4;

/// Pause before the second attempt to send a batch, in milliseconds; it doubles each time.
pub const EXPORT_PAUSE_FIRST_MS: u64 = 500;

/// Time to wait for an in-flight batch when the connection ends, in milliseconds.
pub const EXPORT_LAST_MS: u64 = 2_000;

/// Time for which a metrics snapshot is reused before the daemon is asked again, in milliseconds.
pub const METRICS_FRESH_MS: u64 = 1_000;

/// Maximum number of open spans; beyond it, the starts of the oldest are dropped.
pub const EXPORT_OPEN_SPANS_MAX: usize = 10_000;

/// Concurrent connections to a relay that have not presented a listed certificate yet. With one
/// more, the peer that holds the most loses its oldest.
pub const RELAY_HANDSHAKES_MAX: usize = 16;

/// Time limit for TLS and the greeting of a connection to a relay, and for the relay's own
/// greeting, in milliseconds.
pub const RELAY_HANDSHAKE_TIMEOUT_MS: u64 = 10_000;

/// Longest greeting of a client of a relay, in bytes.
pub const RELAY_HELLO_BYTES_MAX: usize = 4 * 1024;

/// Log lines per [`RELAY_REFUSALS_INTERVAL_MS`] about clients refused by a relay. The next line
/// gives the number of suppressed lines.
pub const RELAY_REFUSALS_TOLD: u32 = 20;

/// Interval of that line limit, in milliseconds.
pub const RELAY_REFUSALS_INTERVAL_MS: u64 = 60_000;

/// Interval of pings between the sides of a relay, in milliseconds.
pub const RELAY_PING_MS: u64 = 10_000;

/// Time without any data from the other side of a relay after which the link is dropped, in
/// milliseconds.
pub const RELAY_SILENCE_MS: u64 = 30_000;

/// First pause before another attempt to reach a relay, in milliseconds. Each further pause is
/// twice as long.
pub const RELAY_BACK_OFF_FIRST_MS: u64 = 250;

/// Longest pause between attempts to reach a relay, in milliseconds.
pub const RELAY_BACK_OFF_MAX_MS: u64 = 30_000;

/// Unanswered requests of one relayed connector, on either side. The connector's side refuses one
/// more; on the daemon's side, one more ends the link.
pub const RELAY_UNANSWERED_MAX: usize = 1_024;

/// Memory used by unanswered requests on either side, in bytes. Exceeding it has the same effect;
/// the first request may be larger.
pub const RELAY_UNANSWERED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Frames that wait to be written to one side of a relay. One more means that the side does not
/// read, and its link is dropped.
pub const RELAY_FRAMES_WAITING_MAX: usize = 2 * RELAY_UNANSWERED_MAX;

/// Pieces of a relayed call's result that wait; a further one is dropped.
pub const RELAY_PIECES_WAITING_MAX: usize = 64;

/// Time for a relayed connector to end when its relay stops, in milliseconds; then it is killed.
pub const RELAY_STOP_TIMEOUT_MS: u64 = 10_000;

/// Largest relay configuration file, and largest file that it names, in bytes.
pub const RELAY_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Commands of connector tasks that wait for the session. A task waits while the queue is full.
pub const SESSION_COMMANDS_WAITING_MAX: usize = 16;

/// Frames with events, requests and statuses of a connector that wait to be written to the
/// orchestrator. Further ones wait at their origin, where they take less memory than as frames.
pub const EVENT_FRAMES_WAITING_MAX: usize = 4;

/// Time for which words of a reply are buffered before they are sent, in milliseconds.
pub const PIECE_INTERVAL_MS: u64 = 40;

/// Maximum number of buffered bytes of a reply's words.
pub const PIECE_BYTES_MAX: usize = 4096;

/// Longest reply of a model, including thoughts and arguments of calls, in bytes.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum number of tool calls of one reply; an agent accepts no more.
pub const REPLY_CALLS_MAX: usize = 64;

/// Maximum number of output items of one reply of the Responses API: texts, calls, reasoning, and
/// calls of tools that the provider runs.
pub const REPLY_ITEMS_MAX: usize = 1024;

/// Longest event in the stream of a reply, and longest non-streamed reply, as encoded by the
/// server, in bytes.
pub const REPLY_EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest stream of one reply, as encoded by the server, in bytes. The envelope of a word is many
/// times as long as the word.
pub const REPLY_STREAM_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Maximum number of bytes read of a server's error; the rest is left unread.
pub const REPLY_ERROR_BYTES_MAX: usize = 64 * 1024;

/// Frames about agents' calls, pieces and results, that wait to be written. Further ones wait in
/// their calls.
pub const CALL_FRAMES_WAITING_MAX: usize = 16;

/// All other frames that wait to be written; they precede events. One more means that the
/// orchestrator pings but does not read, and the process exits.
pub const CONTROL_FRAMES_WAITING_MAX: usize = 16;

/// Longest text about a decision in a chat, in UTF-16 units: with the surrounding words it fits a
/// Telegram message (4096). A longer one is truncated and cannot be approved or answered there.
pub const DECISION_MESSAGE_UNITS_MAX: usize = 3_600;

/// Longest outcome without a decision that a message shows, in UTF-16 units. With the other words,
/// the first lines fit a Discord message (2000).
pub const DECISION_DEFAULT_UNITS_MAX: usize = 100;

/// Characters of a decision that are kept for the message about its outcome.
pub const DECISION_KEPT_CHARS_MAX: usize = 400;

/// Queue of notifications about waiting decisions. Notifications beyond it are shown by the next
/// process.
pub const DECISION_NEWS_WAITING_MAX: usize = 256;

/// Pending notices to users who pressed a button or replied. Further notices are dropped; the
/// message itself shows the result.
pub const DECISION_NOTES_WAITING_MAX: usize = 64;

/// JSON escapes a control character in six bytes (`\u0000`), the longest escape.
const JSON_GROWTH_MAX: usize = 6;

/// Minimum length of `env` and `headers` values that errors hide, in bytes; shorter values are
/// considered settings.
pub const MCP_HIDDEN_BYTES_MIN: usize = 8;

/// Time for which a question of an MCP server waits for other calls to end if it could belong to
/// several calls, in milliseconds. Then it is refused.
pub const MCP_QUESTION_PLACE_TIMEOUT_MS: u64 = 30_000;

/// Maximum number of repetitions of one MCP tool call whose server asks questions first.
pub const MCP_ROUNDS_MAX: usize = 10;

/// Pause before such a call is repeated if the server asks nothing, in milliseconds.
pub const MCP_ROUND_PAUSE_MS: u64 = 1_000;

/// Maximum length of one message of an MCP server over HTTP, in bytes.
pub const MCP_MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of an error of an MCP server over HTTP that are read.
pub const MCP_ERROR_BYTES_MAX: usize = 65_536;

/// Tools of one MCP server that are listed; further ones are omitted. Agents get a smaller number.
pub const MCP_TOOLS_MAX: usize = 2_048;

/// Resources or prompts of one MCP server shown to an agent at once; further ones are omitted.
pub const MCP_LISTED_MAX: usize = 512;

/// Maximum number of pages requested of one MCP list.
pub const MCP_PAGES_MAX: usize = 64;

/// Time for an MCP server's open calls to end when its connector stops, in milliseconds. Then they
/// are aborted.
pub const MCP_CALLS_END_TIMEOUT_MS: u64 = 5_000;

/// Time for a program that does not speak MCP to exit after the request, in milliseconds, so that
/// its exit can be reported.
pub const MCP_LAST_WORDS_TIMEOUT_MS: u64 = 2_000;

/// Time to find out whether a server offers only the older transport, in milliseconds.
pub const MCP_OLDER_TRANSPORT_TIMEOUT_MS: u64 = 3_000;

/// Bytes of its answer that are read for it.
pub const MCP_OLDER_TRANSPORT_BYTES_MAX: usize = 4_096;

/// Lines of a server's stderr in the reason of its failure.
pub const MCP_LAST_WORDS_LINES_MAX: usize = 2;

/// Characters of each of these lines.
pub const MCP_LAST_WORDS_CHARS_MAX: usize = 120;

/// Packages that the runner of an MCP server keeps between starts, in bytes; a larger cache is
/// cleared before the next start.
pub const PACKAGE_CACHE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Time in which such a cache is cleared at most once after failed starts, in milliseconds.
pub const PACKAGE_CACHE_CLEAR_MS: u64 = 3_600_000;

/// Bytes for which each file and directory of such a cache counts at least.
pub const PACKAGE_CACHE_FILE_BYTES_MIN: u64 = 4_096;

/// Minimum start timeout of an MCP server whose packages are not in its cache yet, in milliseconds.
pub const PACKAGE_DOWNLOAD_TIMEOUT_MS: u64 = 300_000;

const _: () = assert!(PROGRAM_LINE_BYTES_MAX < MAX_FRAME_BYTES);
// The kept texts of shown decisions fit the state of a connection even with every character at its
// largest size.
const _: () =
    assert!(MAX_DECISIONS_SHOWN * (4 * DECISION_KEPT_CHARS_MAX + 512) < MAX_CONNECTION_STATE_BYTES);
const _: () = assert!(SWIFT_REPLY_TIMEOUT_MS < REPLY_TIMEOUT_MS);
// Requests in progress cannot be evicted, so there must be capacity for others.
const _: () = assert!(REQUESTS_IN_FLIGHT_MAX + REPLY_WAITERS_MAX < CONNECTIONS_MAX);
const _: () = assert!(CALLBACK_PAUSE_FIRST_MS <= CALLBACK_PAUSE_MAX_MS);
const _: () = assert!(BODY_BYTES_HELD_MAX >= 2 * GITHUB_BODY_BYTES_MAX);
const _: () = assert!(BODY_RATE_GRACE_MS < BODY_READ_TIMEOUT_MS);
const _: () = assert!(BIND_RETRY_FIRST_MS <= BIND_RETRY_MAX_MS);
// The frame with an event fits for any input of a client.
const _: () = assert!(
    JSON_GROWTH_MAX
        * (BODY_BYTES_CEILING + PROPERTIES_MAX * 2 * PROPERTY_BYTES_MAX + PAYLOAD_BYTES_MAX)
        + 64 * 1024
        < MAX_FRAME_BYTES
);
