//! Error codes of calls, which results of calls and configurations contain.

use serde::{Deserialize, Serialize};

/// Error code of a call; the list is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallErrorCode {
    /// The parameters are invalid.
    Invalid,
    /// The target, method or model does not exist.
    NotFound,
    /// The key is missing, wrong or lacks permission.
    Unauthorized,
    /// The remote server refused.
    Refused,
    /// A budget does not allow it.
    OverBudget,
    /// The input exceeds the remote server's limit.
    TooLarge,
    /// Too many calls with this credential.
    RateLimited,
    /// The remote server or the queue to it is full.
    Overloaded,
    /// The remote server or its connector is unreachable.
    Unavailable,
    /// The deadline passed.
    TimedOut,
    /// The call was interrupted; its outcome is unknown.
    Interrupted,
    /// The caller canceled it.
    Cancelled,
    /// The remote server violates its own protocol, or goondan has a bug.
    Internal,
}

impl CallErrorCode {
    /// The serialized form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "notFound",
            Self::Unauthorized => "unauthorized",
            Self::Refused => "refused",
            Self::OverBudget => "overBudget",
            Self::TooLarge => "tooLarge",
            Self::RateLimited => "rateLimited",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timedOut",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }
}
