//! Every limit of a connector process, with its name and its one home.
//!
//! The protocol's own limits are [`goondan_protocol::limits`].

use goondan_protocol::limits::{
    MAX_APPROVALS_SHOWN, MAX_CONNECTION_STATE_BYTES, MAX_FRAME_BYTES, MAX_INPUT_BYTES,
};

/// The most that `maxBodyBytes` may be set to, in bytes. The whole body may be an event's input, so
/// it is the protocol's limit of that.
pub const BODY_BYTES_CEILING: usize = MAX_INPUT_BYTES;

/// Connections open at one time. With one more, one that no request is worked on is cut off: of the
/// peer that holds the most, a silent one first, the oldest first.
pub const CONNECTIONS_MAX: usize = 256;

/// Requests at one time that wait for the orchestrator, their bodies read and their signatures checked.
/// One more is answered 429.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 64;

/// Requests at one time that wait for an agent's reply, their events durable. One more is answered 202 at once.
pub const REPLY_WAITERS_MAX: usize = 128;

/// Replies that one webhook may have promised to hand over. One more event is answered 429.
pub const CALLBACKS_PROMISED_MAX: usize = 256;

/// Replies of one webhook that are handed over at one time; further ones wait.
pub const CALLBACKS_AT_ONCE_MAX: usize = 8;

/// How often a reply is posted that is not taken; then it is given up. A restart counts anew.
pub const CALLBACK_ATTEMPTS_MAX: u32 = 12;

/// First pause before a reply is posted again, in milliseconds. Each further pause is twice as long.
pub const CALLBACK_PAUSE_FIRST_MS: u64 = 1_000;

/// Longest pause before a reply is posted again, in milliseconds.
pub const CALLBACK_PAUSE_MAX_MS: u64 = 300_000;

/// Memory that bodies which are being read may take together, in bytes. With more, one that sends is
/// cut off, chosen as by [`CONNECTIONS_MAX`].
pub const BODY_BYTES_HELD_MAX: usize = 64 * 1024 * 1024;

/// Longest query that an authorization server puts behind a public address, in bytes; with more it ends no login.
pub const CALLBACK_QUERY_BYTES_MAX: usize = 16 * 1024;

/// Mean rate at which a body must come once [`BODY_RATE_GRACE_MS`] are over, in bytes a second; slower,
/// and it is answered 408.
pub const BODY_RATE_MIN_BYTES_S: u64 = 4 * 1024;

/// Time a client has before the rate of its body counts, in milliseconds.
pub const BODY_RATE_GRACE_MS: u64 = 5_000;

/// Headers one request may have. One more is answered 431.
pub const HEADERS_MAX: usize = 64;

/// Bytes of one connection's read buffer; a request's head must fit in it, or is answered 431.
pub const READ_BUFFER_BYTES: usize = 32 * 1024;

/// Time a client has for the head of a request, in milliseconds. A connection kept alive is closed
/// after the same time without a request.
pub const HEADER_READ_TIMEOUT_MS: u64 = 10_000;

/// Time a client has for the body of a request, in milliseconds; then it is answered 408.
pub const BODY_READ_TIMEOUT_MS: u64 = 30_000;

/// Connections that the programs of one agent or connection may have to hosts at one time. One more is closed.
pub const EGRESS_CONNECTIONS_MAX: usize = 256;

/// Lines of the log in [`EGRESS_REFUSALS_INTERVAL_MS`] that tell of what was refused to the programs of one agent or
/// connection. The next one tells how many were left out.
pub const EGRESS_REFUSALS_TOLD: u32 = 20;

/// The time in which so many lines may be logged, in milliseconds.
pub const EGRESS_REFUSALS_INTERVAL_MS: u64 = 60_000;

/// Time for handing a program's connection over to the egress, in milliseconds.
pub const EGRESS_HANDOVER_TIMEOUT_MS: u64 = 5_000;

/// Time after which a connection of a program is closed on which nothing is said, in milliseconds.
pub const EGRESS_IDLE_TIMEOUT_MS: u64 = 300_000;

/// Time for resolving the name of a host that a program may reach, in milliseconds.
pub const EGRESS_RESOLVE_TIMEOUT_MS: u64 = 10_000;

/// Time for connecting to one address of it, in milliseconds.
pub const EGRESS_CONNECT_TIMEOUT_MS: u64 = 10_000;

/// Addresses of one name that are tried.
pub const EGRESS_ADDRESSES_MAX: usize = 4;

/// Longest beginning of TLS that is waited for, in bytes: one whole record.
pub const EGRESS_HELLO_BYTES_MAX: usize = 16 * 1024 + 5;

/// Time the orchestrator has to take or refuse an event, in milliseconds; then the client is
/// answered 503.
pub const REPLY_TIMEOUT_MS: u64 = 30_000;

/// The same for a service that waits three seconds for its answer, in milliseconds.
pub const SWIFT_REPLY_TIMEOUT_MS: u64 = 2_500;

/// How far the time of a signed request of Slack may be from this machine's clock, in seconds.
pub const SLACK_WINDOW_S: u64 = 300;

/// How long a command of Discord may be answered, in milliseconds. Discord says so.
pub const DISCORD_ANSWER_WINDOW_MS: u64 = 15 * 60 * 1_000;

/// Commands of Discord that may be answered at one time. With one more, the oldest is answered by a
/// message of the bot.
pub const DISCORD_INTERACTIONS_MAX: usize = 4_096;

/// Largest payload of GitHub that is put into an event's metadata, in bytes.
pub const GITHUB_PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// Longest text of GitHub that an event's input repeats, in characters.
pub const GITHUB_TEXT_CHARS_MAX: usize = 8_000;

/// Age at which a connection takes no further request, in milliseconds: no client keeps a place for
/// ever.
pub const CONNECTION_AGE_MAX_MS: u64 = 300_000;

/// Time after which a connection that takes no further request is closed whatever it does, in
/// milliseconds. The longest honest request fits in it; where one waits for a reply, that long more.
pub const CONNECTION_CLOSE_TIMEOUT_MS: u64 =
    HEADER_READ_TIMEOUT_MS + BODY_READ_TIMEOUT_MS + REPLY_TIMEOUT_MS + 5_000;

/// Bytes read and thrown away of a body that is refused unread, so that its sender sees the answer
/// and not a reset connection. Whoever sends more is cut off.
pub const DISCARDED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Time for throwing away a refused body, in milliseconds.
pub const DISCARD_TIMEOUT_MS: u64 = 5_000;

/// First pause before another try to open the listening socket, in milliseconds. Each further pause
/// is twice as long.
pub const BIND_RETRY_FIRST_MS: u64 = 250;

/// Longest pause between two tries to open the listening socket, in milliseconds.
pub const BIND_RETRY_MAX_MS: u64 = 30_000;

/// Pause after the system refused to accept a connection (no file descriptor is free, say), in
/// milliseconds.
pub const ACCEPT_RETRY_MS: u64 = 100;

/// `Retry-After` of a 429, in seconds.
pub const RETRY_AFTER_OVERLOADED_S: u64 = 1;

/// `Retry-After` of a 503, in seconds: about what a restart of the daemon takes.
pub const RETRY_AFTER_UNAVAILABLE_S: u64 = 5;

/// Top-level scalars of a JSON body that become properties of the event; further ones are left out.
pub const PROPERTIES_MAX: usize = 64;

/// Longest name and longest text of a property, in bytes; a longer one is left out.
pub const PROPERTY_BYTES_MAX: usize = 1024;

/// Longest text of a metadata field and of a logged path, in bytes; the rest is cut off.
pub const NOTE_BYTES_MAX: usize = 256;

/// Time for connecting to a service, in milliseconds.
pub const SERVICE_CONNECT_TIMEOUT_MS: u64 = 10_000;

/// Time a service has for an answer, beyond what it was asked to wait for, in milliseconds.
pub const SERVICE_TIMEOUT_MS: u64 = 20_000;

/// Largest answer of a service, in bytes.
pub const SERVICE_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Largest document in which a server says of itself how tokens are got, in bytes.
pub const OAUTH_DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// Most scopes of one list of a server that are believed.
pub const OAUTH_SCOPES_MAX: usize = 64;

/// Longest text of a server in what is said of how tokens are got that an error repeats, in characters.
pub const OAUTH_SAID_CHARS_MAX: usize = 200;

/// Redirects that one request of an agent follows.
pub const REDIRECTS_MAX: usize = 5;

/// Longest header that a model is told, in bytes; the rest is cut off.
pub const SHOWN_HEADER_BYTES_MAX: usize = 1_024;

/// First pause before a service that failed is asked again, in milliseconds. Each further pause is
/// twice as long.
pub const SERVICE_BACK_OFF_FIRST_MS: u64 = 1_000;

/// Longest pause before a service that failed is asked again, in milliseconds.
pub const SERVICE_BACK_OFF_MAX_MS: u64 = 60_000;

/// Longest time between two looks of `cron` at the clock, in milliseconds. A clock that is set is
/// noticed after so long at the latest.
pub const CLOCK_LOOK_MS: u64 = 10_000;

/// Longest line that a connector program may write to its stdout, in bytes: an event with the largest
/// input there may be, whatever must be escaped in it.
pub const PROGRAM_LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Events of a connector program that wait for the orchestrator at one time. With so many, its stdout
/// is not read until one of them is settled.
pub const PROGRAM_EVENTS_IN_FLIGHT_MAX: usize = 64;

/// Answers that a connector program leaves unread on its stdin, in bytes. With more, it is killed.
pub const PROGRAM_UNREAD_BYTES_MAX: usize = 1024 * 1024;

/// Time a connector program has to end after `shutdown`, in milliseconds; then it is killed.
pub const PROGRAM_STOP_TIMEOUT_MS: u64 = 10_000;

/// Time for reading what a connector program wrote before it ended, in milliseconds.
pub const PROGRAM_LAST_WORDS_TIMEOUT_MS: u64 = 1_000;

/// How often in a row a connector program that ended is started again at once (`SUP-4`).
pub const PROGRAM_IMMEDIATE_RESTARTS: u32 = 5;

/// The first pause after those, in milliseconds; each further one is twice as long (`SUP-4`).
pub const PROGRAM_BACK_OFF_FIRST_MS: u64 = 1_000;

/// The longest pause, in milliseconds (`SUP-4`). A program that ran for as long was well.
pub const PROGRAM_BACK_OFF_MAX_MS: u64 = 300_000;

/// How often in a row a program may not be started for a reason that stays, such as that it is missing or cannot be
/// confined. Then its connection is parked: nothing is tried before a restart (`SUP-4`).
pub const PROGRAM_START_FAULTS_MAX: u32 = 3;

/// Time for `node --version`, in milliseconds.
pub const VERSION_TIMEOUT_MS: u64 = 10_000;

/// How long a connection to a collector of traces may take, in milliseconds.
pub const EXPORT_CONNECT_MS: u64 = 5_000;

/// How long a collector has to take a batch of spans, in milliseconds.
pub const EXPORT_REQUEST_MS: u64 = 10_000;

/// How often a batch is sent that a collector cannot take now.
pub const EXPORT_ATTEMPTS_MAX: u32 = 4;

/// The pause before a batch is sent for the second time, in milliseconds; it doubles each time.
pub const EXPORT_PAUSE_FIRST_MS: u64 = 500;

/// How long a batch under way is waited for when the connection ends, in milliseconds.
pub const EXPORT_LAST_MS: u64 = 2_000;

/// How long a snapshot of metrics is told to whoever asks before the daemon is asked again, in milliseconds.
pub const METRICS_FRESH_MS: u64 = 1_000;

/// Spans without an end that are remembered; of the oldest the beginning is forgotten.
pub const EXPORT_OPEN_SPANS_MAX: usize = 10_000;

/// Connections to a relay that have not shown a listed certificate yet, at one time. With one more, the peer that holds
/// the most loses its oldest.
pub const RELAY_HANDSHAKES_MAX: usize = 16;

/// Time a connection to a relay has for TLS and its greeting, and a relay for its own, in milliseconds.
pub const RELAY_HANDSHAKE_TIMEOUT_MS: u64 = 10_000;

/// Longest greeting of whoever connects to a relay, in bytes.
pub const RELAY_HELLO_BYTES_MAX: usize = 4 * 1024;

/// Lines of the log in [`RELAY_REFUSALS_INTERVAL_MS`] that tell of who was refused by a relay. The next one tells how
/// many were left out.
pub const RELAY_REFUSALS_TOLD: u32 = 20;

/// The time in which so many lines may be logged, in milliseconds.
pub const RELAY_REFUSALS_INTERVAL_MS: u64 = 60_000;

/// How often each side of a relay is asked whether it is there, in milliseconds.
pub const RELAY_PING_MS: u64 = 10_000;

/// Time in which nothing at all came from the other side of a relay, in milliseconds, after which the link is given up.
pub const RELAY_SILENCE_MS: u64 = 30_000;

/// First pause before another try to reach a relay, in milliseconds. Each further pause is twice as long.
pub const RELAY_BACK_OFF_FIRST_MS: u64 = 250;

/// Longest pause between two tries to reach a relay, in milliseconds.
pub const RELAY_BACK_OFF_MAX_MS: u64 = 30_000;

/// Requests of one relayed connector without an answer yet, on either side. The connector's side refuses one more; at
/// the daemon's, one more ends the link.
pub const RELAY_UNANSWERED_MAX: usize = 1_024;

/// Memory that those may take on either side, in bytes. Beyond, it is the same; the first one may be larger.
pub const RELAY_UNANSWERED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Frames that wait to be written to one side of a relay. With one more, that side does not read, and is given up.
pub const RELAY_FRAMES_WAITING_MAX: usize = 2 * RELAY_UNANSWERED_MAX;

/// Parts of a relayed call's result that wait; a further one is left out.
pub const RELAY_PIECES_WAITING_MAX: usize = 64;

/// Time a relayed connector has to end once its relay is to, in milliseconds; then it is killed.
pub const RELAY_STOP_TIMEOUT_MS: u64 = 10_000;

/// Largest file that says what is relayed, and largest file that it names, in bytes.
pub const RELAY_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Commands of connector tasks that wait for the session. A task whose command finds no place waits.
pub const SESSION_COMMANDS_WAITING_MAX: usize = 16;

/// Frames with events, requests and statuses of a connector that wait to be written to the orchestrator. Further
/// ones wait where they come from, and take less memory there than as frames.
pub const EVENT_FRAMES_WAITING_MAX: usize = 4;

/// How long words of a reply are gathered before they are sent on, in milliseconds.
pub const PIECE_INTERVAL_MS: u64 = 40;

/// Bytes of a reply's words that are gathered at most.
pub const PIECE_BYTES_MAX: usize = 4096;

/// Longest reply of a model, thoughts and arguments of calls included, in bytes.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Most tool calls of one reply; an agent takes no more.
pub const REPLY_CALLS_MAX: usize = 64;

/// Longest event in the stream of a reply, and longest reply that comes without a stream, as a server
/// writes them, in bytes.
pub const REPLY_EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest stream of one reply, as a server writes it, in bytes: what is around a word is many times as
/// long as the word.
pub const REPLY_STREAM_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Longest error of a server that is read, in bytes; the rest is left unread.
pub const REPLY_ERROR_BYTES_MAX: usize = 64 * 1024;

/// Frames about agents' calls, pieces and results, that wait to be written. Further ones wait in their
/// calls.
pub const CALL_FRAMES_WAITING_MAX: usize = 16;

/// All other frames that wait to be written; they go before events. With one more, the orchestrator
/// pings and does not read, and the process gives up.
pub const CONTROL_FRAMES_WAITING_MAX: usize = 16;

/// Longest text about a tool call in a chat, in UTF-16 units: with our words around it, it fits a message of Telegram
/// (4096). A call that is longer is cut, and cannot be approved there.
pub const APPROVAL_MESSAGE_UNITS_MAX: usize = 3_600;

/// How much of a tool call is kept for the message that says what became of it, in characters.
pub const APPROVAL_KEPT_CHARS_MAX: usize = 400;

/// What the orchestrator tells of tool calls that wait for a person and that was not heard yet. What is told beyond
/// that is shown by the next process.
pub const APPROVAL_NEWS_WAITING_MAX: usize = 256;

/// People who pressed a button and were not told yet what came of it. One more is told nothing; the message says it.
pub const APPROVAL_NOTES_WAITING_MAX: usize = 64;

/// JSON writes a control character in six bytes (`\u0000`); nothing takes more.
const JSON_GROWTH_MAX: usize = 6;

/// Values of `env` and `headers` from this length on are hidden in errors, in bytes; shorter ones are settings.
pub const MCP_HIDDEN_BYTES_MIN: usize = 8;

/// How long a question of an MCP server waits for other calls to be over when it may be of any of several,
/// in milliseconds. Then it is refused.
pub const MCP_QUESTION_PLACE_TIMEOUT_MS: u64 = 30_000;

/// How often one call of an MCP server's tool is made again since the server wants to know something first.
pub const MCP_ROUNDS_MAX: usize = 10;

/// Pause before a call is made again for which the server wants to know nothing, in milliseconds.
pub const MCP_ROUND_PAUSE_MS: u64 = 1_000;

/// Tools of one MCP server that agents are offered; further ones are left out.
pub const MCP_TOOLS_MAX: usize = 256;

/// Resources or prompts of one MCP server that an agent is told at one time; further ones are left out.
pub const MCP_LISTED_MAX: usize = 512;

/// Pages of one list that an MCP server is asked for at most.
pub const MCP_PAGES_MAX: usize = 64;

/// Time in which calls of an MCP server are answered when its connector stops, in milliseconds. Then they are broken
/// off.
pub const MCP_CALLS_END_TIMEOUT_MS: u64 = 5_000;

/// Time a program that speaks no MCP has to end once it was told to, in milliseconds, so that it can be
/// said how it ended.
pub const MCP_LAST_WORDS_TIMEOUT_MS: u64 = 2_000;

const _: () = assert!(PROGRAM_LINE_BYTES_MAX < MAX_FRAME_BYTES);
// What is kept of the calls that are shown fits the state of a connection, whatever characters they have.
const _: () =
    assert!(MAX_APPROVALS_SHOWN * (4 * APPROVAL_KEPT_CHARS_MAX + 512) < MAX_CONNECTION_STATE_BYTES);
const _: () = assert!(SWIFT_REPLY_TIMEOUT_MS < REPLY_TIMEOUT_MS);
// Whoever waits cannot be cut off: there is room for others.
const _: () = assert!(REQUESTS_IN_FLIGHT_MAX + REPLY_WAITERS_MAX < CONNECTIONS_MAX);
const _: () = assert!(CALLBACK_PAUSE_FIRST_MS <= CALLBACK_PAUSE_MAX_MS);
const _: () = assert!(BODY_BYTES_HELD_MAX >= 2 * BODY_BYTES_CEILING);
const _: () = assert!(BODY_RATE_GRACE_MS < BODY_READ_TIMEOUT_MS);
const _: () = assert!(BIND_RETRY_FIRST_MS <= BIND_RETRY_MAX_MS);
// Whatever a client sends, the frame with its event fits.
const _: () = assert!(
    JSON_GROWTH_MAX
        * (BODY_BYTES_CEILING + PROPERTIES_MAX * 2 * PROPERTY_BYTES_MAX + GITHUB_PAYLOAD_BYTES_MAX)
        + 64 * 1024
        < MAX_FRAME_BYTES
);
