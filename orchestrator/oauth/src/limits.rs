//! All limits of OAuth.

/// Time limit for a login, in milliseconds.
pub const LOGIN_TTL_MS: i64 = 10 * 60 * 1_000;

/// Most open logins of one workspace. A further login abandons the oldest.
pub const LOGINS_OPEN_MAX: usize = 16;

/// Part of a token's lifetime after which it is renewed, in percent.
pub const REFRESH_AT_PERCENT: i64 = 80;

/// Minimum age of a token before it is renewed automatically, in milliseconds.
pub const REFRESH_PAUSE_MIN_MS: i64 = 1_000;

/// Delay after the first failed refresh, in milliseconds. It doubles with each failure.
pub const RETRY_FIRST_MS: i64 = 2_000;

/// Longest delay between two attempts of a refresh, in milliseconds.
pub const RETRY_MAX_MS: i64 = 300_000;

/// Most transmissions of one refresh request: a second one if the outcome of the first is unknown.
pub const REFRESH_SENDINGS_MAX: u32 = 2;

/// Time after a renewal caused by a rejection in which another rejection requires a login, in
/// milliseconds.
pub const DECLINED_AGAIN_WITHIN_MS: i64 = 300_000;

/// Most scopes requested from users beyond the application's own.
pub const WIDER_SCOPES_MAX: usize = 64;

/// Timeout for a request to a server, in milliseconds.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;

/// Minimum poll interval of a login on another device, in milliseconds.
pub const DEVICE_POLL_MIN_MS: i64 = 1_000;

/// Increase of the poll interval when the server requests it, in milliseconds (RFC 8628).
pub const DEVICE_SLOW_DOWN_MS: i64 = 5_000;

/// Longest accepted token lifetime, in seconds: ten years.
pub const TOKEN_LIFE_MAX_S: u64 = 10 * 365 * 24 * 60 * 60;
