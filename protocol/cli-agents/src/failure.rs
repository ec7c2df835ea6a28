//! Classification of failures by their message, for the next run.
//!
//! Only messages of the program or the provider are classified, never the model's text: an agent
//! that works on a login page may write "401 Unauthorized" as often as it likes.

/// Returns true if the message reports that the session to resume no longer exists.
#[must_use]
pub fn is_session_lost(words: &str) -> bool {
    const MARKS: [&str; 6] = [
        // claude
        "no conversation found with session id",
        // codex
        "no rollout found",
        // opencode
        "session not found",
        // gemini
        "no previous sessions found",
        "invalid session identifier",
        // qwen
        "no saved session found",
    ];
    has_mark(words, &MARKS)
}

/// Returns true if a retry cannot succeed: a person must change a key, a login, a model or the
/// sandbox first.
#[must_use]
pub fn is_permanent(words: &str) -> bool {
    const MARKS: [&str; 23] = [
        "not logged in",
        "please run /login",
        "invalid api key",
        "invalid x-api-key",
        "incorrect api key",
        "api key not valid",
        "api_key_invalid",
        "missing environment variable",
        "authentication_error",
        "authentication_failed",
        "authenticationerror",
        "authentication required",
        "401 unauthorized",
        "status 401",
        "code: 401",
        "\"code\":401",
        "unauthenticated",
        "credit balance is too low",
        "insufficient_quota",
        "model_not_found",
        "does not exist or you do not have access",
        "connect failed with status 403",
        "not allowed by the sandbox",
    ];
    has_mark(words, &MARKS)
}

/// Returns true if a connection failed because the sandbox does not list its host.
#[must_use]
pub fn is_refused_host(words: &str) -> bool {
    has_mark(
        words,
        &[
            "connect failed with status 403",
            "not allowed by the sandbox",
        ],
    )
}

fn has_mark(words: &str, marks: &[&str]) -> bool {
    let words = words.to_lowercase();
    marks.iter().any(|mark| words.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_6_permanent_failures_are_distinguished_from_others() {
        for permanent in [
            "Not logged in · Please run /login",
            "unexpected status 401 Unauthorized: invalid x-api-key",
            "URL error: Proxy connection failed: HTTP CONNECT failed with status 403",
        ] {
            assert!(is_permanent(permanent), "{permanent}");
        }
        for passing in [
            "API Error: Request rejected (429) · This request would exceed your rate limit",
            "Internal server error",
            "No conversation found with session ID: f730",
        ] {
            assert!(!is_permanent(passing), "{passing}");
        }
        assert!(is_session_lost(
            "No conversation found with session ID: f730"
        ));
        assert!(is_session_lost(
            "Error: thread/resume failed: no rollout found for thread id 01 (code -32600)"
        ));
    }
}
