//! Where a program wants to go.

use std::fmt;

use goondan_protocol::sandbox::{Host, InvalidHost};

/// Most characters that are repeated of what is no host.
const SHOWN_CHARS_MAX: usize = 100;

/// Where a program wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: Host,
    pub(super) port: u16,
}

/// What a program asks for is no host.
#[derive(Debug, thiserror::Error)]
#[error("`{asked}` {why}")]
pub(super) struct NoHost {
    asked: String,
    why: InvalidHost,
}

impl Target {
    /// The place of a host and a port, as a program names them.
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
