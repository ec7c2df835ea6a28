//! HTTP endpoint of a connector.

use goondan_connectors::Values;

/// The address on which a connector listens, and its body limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpEndpoint {
    /// The host or address it listens on.
    pub(crate) host: String,
    /// The port; 0 selects a free one.
    pub(crate) port: u16,
    /// The only path it serves.
    pub(crate) path: String,
    /// Largest accepted body, in bytes.
    pub(crate) body_bytes_max: usize,
}

impl HttpEndpoint {
    /// Creates the endpoint from settings.
    pub(crate) fn new(values: &Values<'_>) -> Self {
        let body_bytes_max = values.number("maxBodyBytes").unwrap_or_default();
        Self {
            body_bytes_max: usize::try_from(body_bytes_max).unwrap_or_default(),
            ..Self::without_body(values)
        }
    }

    /// Creates an endpoint that accepts no body.
    pub(crate) fn without_body(values: &Values<'_>) -> Self {
        let text = |name| values.text(name).unwrap_or_default().to_owned();
        let port = values.number("port").unwrap_or_default();
        Self {
            host: text("host"),
            port: u16::try_from(port).unwrap_or_default(),
            path: text("path"),
            body_bytes_max: 0,
        }
    }
}
