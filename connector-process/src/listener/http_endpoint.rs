//! Where a connector listens.

use goondan_connectors::Values;

/// Where a connector listens, and how much it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpEndpoint {
    /// The host or address it listens on.
    pub(crate) host: String,
    /// The port; 0 is any free one.
    pub(crate) port: u16,
    /// The one path it answers on.
    pub(crate) path: String,
    /// Largest body it takes, in bytes.
    pub(crate) body_bytes_max: usize,
}

impl HttpEndpoint {
    /// The endpoint that settings describe.
    pub(crate) fn new(values: &Values<'_>) -> Self {
        let body_bytes_max = values.number("maxBodyBytes").unwrap_or_default();
        Self {
            body_bytes_max: usize::try_from(body_bytes_max).unwrap_or_default(),
            ..Self::without_body(values)
        }
    }

    /// The same of one that takes no body.
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
