//! Ways to close an action with an unknown outcome without a person. Pure.

/// Way to resolve an action with an unknown outcome after a crash or a broken connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Repeating the action has no further effect, so it is repeated.
    Repeatable,
    /// The request carries a key by which the service recognizes a repetition, so it is repeated
    /// while the service remembers the key.
    Key {
        /// The key, as the service names it.
        name: &'static str,
        /// Time for which the service certainly remembers it, in milliseconds.
        valid_ms: u64,
    },
    /// The connector checks at the service whether the action took effect. The text names the
    /// place.
    LookBack(&'static str),
    /// Only a person can determine the outcome, for this reason.
    Unknown(&'static str),
}

impl Recovery {
    /// True if repeating the action has no further effect.
    #[must_use]
    pub fn is_repeatable(self) -> bool {
        matches!(self, Self::Repeatable)
    }

    /// True if the connector resolves the action after a crash without a person.
    #[must_use]
    pub fn is_automatic(self) -> bool {
        match self {
            Self::Key { .. } | Self::LookBack(_) => true,
            Self::Repeatable | Self::Unknown(_) => false,
        }
    }

    /// The reason why only a person can determine the outcome, if so.
    #[must_use]
    pub fn why_unknown(self) -> Option<&'static str> {
        match self {
            Self::Unknown(why) => Some(why),
            Self::Repeatable | Self::Key { .. } | Self::LookBack(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::SERVICES;

    #[test]
    fn msg_13_each_action_declares_how_its_outcome_is_found_out() {
        let mut automatic = Vec::new();
        for service in SERVICES {
            for action in service.actions {
                let name = format!("{}.{}", service.connector, action.name);
                match action.recovery {
                    Recovery::Repeatable => {}
                    Recovery::Key {
                        name: key,
                        valid_ms,
                    } => {
                        assert!(!key.is_empty() && valid_ms > 0, "{name}");
                        automatic.push(name);
                    }
                    Recovery::LookBack(place) => {
                        assert!(!place.is_empty(), "{name}");
                        automatic.push(name);
                    }
                    Recovery::Unknown(why) => assert!(why.len() > 20, "{name}: {why}"),
                }
            }
        }
        let expected = [
            "discord.send",
            "discord.sendFile",
            "github.comment",
            "http.request",
            "matrix.send",
            "matrix.sendFile",
            "matrix.delete",
            "slack.send",
        ];
        assert_eq!(automatic, expected);
    }
}
