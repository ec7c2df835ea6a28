//! Target of a program's connection.

use std::fmt;

use goondan_protocol::sandbox::{Host, InvalidHost};

/// Maximum number of characters of an invalid host that are repeated.
const SHOWN_CHARS_MAX: usize = 100;

/// Target of a program's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: Host,
    pub(super) port: u16,
}

/// The requested target is not a valid host.
#[derive(Debug, thiserror::Error)]
#[error("`{asked}` {why}")]
pub(super) struct NoHost {
    asked: String,
    why: InvalidHost,
}

impl Target {
    /// Parses a host and a port as a program names them.
    pub(super) fn read(host: &str, port: u16) -> Result<Self, NoHost> {
        let host = host.parse().map_err(|why| NoHost {
            asked: host.chars().take(SHOWN_CHARS_MAX).collect(),
            why,
        })?;
        Ok(Self { host, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
