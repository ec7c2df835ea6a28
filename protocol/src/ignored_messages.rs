//! Counts of received messages that become no event, by reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Reason why an event or a request of a service has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IgnoreReason {
    /// No ingress rule matches the event.
    NoRule,
    /// A rule matches, but the agent or the conversation that it names is not valid.
    Unroutable,
    /// A channel, chat or repository that the connection does not list.
    OtherPlace,
    /// Written by goondan itself.
    Own,
    /// Written by a program.
    Bot,
    /// Without a text.
    NoText,
    /// A kind of event that the connector does not support.
    Unsupported,
    /// Without the required proof of its sender.
    Unverified,
    /// A test of the connection by the service.
    Ping,
}

impl IgnoreReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::NoRule,
        Self::Unroutable,
        Self::OtherPlace,
        Self::Own,
        Self::Bot,
        Self::NoText,
        Self::Unsupported,
        Self::Unverified,
        Self::Ping,
    ];

    /// The name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoRule => "noRule",
            Self::Unroutable => "unroutable",
            Self::OtherPlace => "otherPlace",
            Self::Own => "own",
            Self::Bot => "bot",
            Self::NoText => "noText",
            Self::Unsupported => "unsupported",
            Self::Unverified => "unverified",
            Self::Ping => "ping",
        }
    }

    /// The words for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::NoRule => "no rule",
            Self::Unroutable => "unroutable",
            Self::OtherPlace => "other place",
            Self::Own => "own",
            Self::Bot => "bot",
            Self::NoText => "no text",
            Self::Unsupported => "unsupported",
            Self::Unverified => "unverified",
            Self::Ping => "ping",
        }
    }
}

/// Number of ignored events by reason.
pub type IgnoredCounts = BTreeMap<IgnoreReason, u64>;

/// `event.ignored`: a connector received something and passed it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventIgnored {
    /// The reason.
    pub reason: IgnoreReason,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_1_reasons_have_one_name_everywhere() {
        for reason in IgnoreReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
    }
}
