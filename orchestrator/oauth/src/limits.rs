//! Every limit of OAuth, with its name and its one home.

/// How long a person has for a login, in milliseconds.
pub const LOGIN_TTL_MS: i64 = 10 * 60 * 1_000;

/// Logins of one workspace that may be open at one time. With one more, the oldest is given up.
pub const LOGINS_OPEN_MAX: usize = 16;

/// After which part of its life a token is renewed, in percent.
pub const REFRESH_AT_PERCENT: i64 = 80;

/// The shortest life of a token before it is renewed without being asked for, in milliseconds.
pub const REFRESH_PAUSE_MIN_MS: i64 = 1_000;

/// First pause after a refresh that failed, in milliseconds. Each further one is twice as long.
pub const RETRY_FIRST_MS: i64 = 2_000;

/// Longest pause between two tries of a refresh, in milliseconds.
pub const RETRY_MAX_MS: i64 = 300_000;

/// How often one refresh is sent, at most: a second time if nobody knows whether the first was heard.
pub const REFRESH_SENDINGS_MAX: u32 = 2;

/// How long after a renewal that a server's no has led to another no is answered by asking a person, in milliseconds.
pub const DECLINED_AGAIN_WITHIN_MS: i64 = 300_000;

/// Scopes that people are asked for at most beyond what the application says.
pub const WIDER_SCOPES_MAX: usize = 64;

/// How long a server may take to answer a request, in milliseconds.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;

/// Shortest pause between two questions whether a login on another device has ended, in milliseconds.
pub const DEVICE_POLL_MIN_MS: i64 = 1_000;

/// By how much that pause grows when the server asks for it, in milliseconds (RFC 8628).
pub const DEVICE_SLOW_DOWN_MS: i64 = 5_000;

/// Longest life of a token that is believed, in seconds: ten years.
pub const TOKEN_LIFE_MAX_S: u64 = 10 * 365 * 24 * 60 * 60;
