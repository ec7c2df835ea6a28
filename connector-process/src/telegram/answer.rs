//! Parses answers of the Bot API. Pure.

use std::time::Duration;

use serde_json::Value;

use crate::back_off::back_off;
use crate::limits::{SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS};

/// Reason for a failed request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApiError {
    /// The token is invalid or was revoked.
    #[error("Telegram rejects the bot's token ({status}); get a new one from @BotFather")]
    BadToken { status: u16 },
    /// Another client receives the bot's updates.
    #[error("another client polls this bot, or it has a webhook: {0}")]
    Conflict(String),
    #[error("Telegram requests a pause of {retry_after_s} s")]
    TooMany {
        /// Time to wait, in seconds.
        retry_after_s: u64,
    },
    /// The group became a supergroup.
    #[error("the group is now a supergroup with the ID {to}; use this ID")]
    Migrated {
        /// Its ID.
        to: i64,
    },
    #[error("Telegram answered {status}: {description}")]
    Refused { status: u16, description: String },
    #[error("failed to connect to Telegram: {0}")]
    Unreachable(String),
    /// The connection broke or timed out after Telegram may have received the request.
    #[error("failed to connect to Telegram: {0}")]
    Lost(String),
    /// The answer cannot be parsed.
    #[error("unexpected answer from Telegram: {0}")]
    Strange(String),
    /// The daemon did not accept an event at the moment.
    #[error("the daemon accepts no events at the moment: {0}")]
    NotTaken(String),
}

impl ApiError {
    /// Pause after this error, for the n-th consecutive failure.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        let back_off =
            |failures| back_off(failures, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS);
        match self {
            Self::TooMany { retry_after_s } => Duration::from_secs(*retry_after_s).max(back_off(1)),
            // Only a person can fix the token.
            Self::BadToken { .. } => Duration::from_millis(SERVICE_BACK_OFF_MAX_MS),
            Self::Conflict(_)
            | Self::Migrated { .. }
            | Self::Refused { .. }
            | Self::Unreachable(_)
            | Self::Lost(_)
            | Self::Strange(_)
            | Self::NotTaken(_) => back_off(failures),
        }
    }
}

/// Longest description from Telegram that is repeated, in characters.
const DESCRIPTION_CHARS_MAX: usize = 200;

/// The result in an answer; `null` if it has none, because not every server of the Bot API sends one
/// for an action.
///
/// # Errors
///
/// [`ApiError`] if the answer is not successful.
pub(super) fn read(status: u16, body: &[u8]) -> Result<Value, ApiError> {
    let answer: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    if status == 200 && answer.get("ok") == Some(&Value::Bool(true)) {
        return Ok(answer.get("result").cloned().unwrap_or_default());
    }
    if let Some(to) = answer
        .pointer("/parameters/migrate_to_chat_id")
        .and_then(Value::as_i64)
    {
        return Err(ApiError::Migrated { to });
    }
    let description = answer.get("description").and_then(Value::as_str);
    let description: String = description
        .unwrap_or("nothing further")
        .chars()
        .take(DESCRIPTION_CHARS_MAX)
        .collect();
    Err(match status {
        // A malformed token yields a path that does not exist.
        401 | 404 => ApiError::BadToken { status },
        409 => ApiError::Conflict(description),
        429 => ApiError::TooMany {
            retry_after_s: answer
                .pointer("/parameters/retry_after")
                .and_then(Value::as_u64)
                .unwrap_or(1),
        },
        200 => ApiError::Strange("not a success".to_owned()),
        status => ApiError::Refused {
            status,
            description,
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_answer_is_understood() {
        let error = |status, body: Value| read(status, body.to_string().as_bytes()).unwrap_err();
        assert_eq!(read(200, br#"{"ok":true,"result":[1]}"#), Ok(json!([1])));
        assert_eq!(read(200, br#"{"ok":true}"#), Ok(Value::Null));
        let unauthorized = json!({"ok": false, "description": "Unauthorized"});
        assert_eq!(
            error(401, unauthorized.clone()),
            ApiError::BadToken { status: 401 }
        );
        assert!(
            error(409, json!({"description": "terminated by other"}))
                .to_string()
                .contains("terminated by other")
        );
        let asked = json!({"parameters": {"retry_after": 7}});
        assert_eq!(error(429, asked), ApiError::TooMany { retry_after_s: 7 });
        let moved = json!({"ok": false, "error_code": 400, "description": "Bad Request: group chat was \
            upgraded to a supergroup chat", "parameters": {"migrate_to_chat_id": -1001}});
        let moved = error(400, moved);
        assert_eq!(moved, ApiError::Migrated { to: -1001 });
        assert!(moved.to_string().contains("-1001"));
        assert!(matches!(
            error(502, json!("x")),
            ApiError::Refused { status: 502, .. }
        ));
        assert!(matches!(error(200, unauthorized), ApiError::Strange(_)));
        assert!(matches!(read(200, b"<html>"), Err(ApiError::Strange(_))));
    }

    #[test]
    fn telegram_retry_pauses_grow_and_obey_retry_after() {
        let refused = ApiError::Unreachable(String::new());
        let pauses: Vec<u64> = (1..=8).map(|n| refused.pause(n).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        let asked = ApiError::TooMany { retry_after_s: 300 };
        assert_eq!(asked.pause(9).as_secs(), 300);
        assert_eq!(ApiError::BadToken { status: 401 }.pause(1).as_secs(), 60);
    }
}
