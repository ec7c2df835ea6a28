//! Why calls fail: words that calls and configurations share.

use serde::{Deserialize, Serialize};

/// Why a call failed: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallErrorCode {
    /// The parameters are wrong.
    Invalid,
    /// There is no such target, method or model.
    NotFound,
    /// The key is missing, wrong or may not do this.
    Unauthorized,
    /// The other side declines.
    Refused,
    /// A budget does not allow it.
    OverBudget,
    /// The input is more than the other side takes.
    TooLarge,
    /// Too many calls with this credential.
    RateLimited,
    /// The other side, or the queue to it, is full.
    Overloaded,
    /// The other side or its connector cannot be reached.
    Unavailable,
    /// The deadline passed.
    TimedOut,
    /// It broke off in the middle; whether it had its effect is unknown.
    Interrupted,
    /// Whoever wanted it gave it up.
    Cancelled,
    /// The other side does not keep to its own protocol, or goondan has a fault.
    Internal,
}

impl CallErrorCode {
    /// The code as it is written.
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
