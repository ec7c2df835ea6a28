//! Outgoing TCP connections of protocols other than HTTP.

use goondan_log::error_chain;
use tokio::net::TcpStream;

/// Connects to `host:port`, through the proxy for `https` if one applies.
///
/// # Errors
///
/// A description of the failure.
pub(crate) async fn connect(target: &str) -> Result<TcpStream, String> {
    let proxy = match reqwest::Url::parse(&format!("https://{target}")) {
        Ok(url) => goondan_outbound::proxy_for(&url),
        Err(_) => None,
    };
    match proxy {
        Some(proxy) => {
            let opened = goondan_outbound::tunnel::open(proxy, target).await;
            opened.map_err(|error| error_chain(&error))
        }
        None => {
            let stream = TcpStream::connect(target).await;
            stream.map_err(|error| error_chain(&error))
        }
    }
}
