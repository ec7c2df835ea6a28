//! Connections through a proxy (`CONNECT`), for other protocols than HTTP.

use std::io;

use goondan_protocol::proxy::Proxy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{PROXY_AUTHENTICATION_REQUIRED, authorization};

/// Maximum size of the proxy's response, in bytes.
const RESPONSE_BYTES_MAX: usize = 8 * 1024;

/// Reason why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The proxy uses TLS.
    #[error(
        "{0} is an `https://` proxy, which only HTTP clients support; expected `http://HOST:PORT`"
    )]
    Encrypted(String),
    /// The proxy cannot be reached.
    #[error("failed to connect to the proxy {proxy}: {source}; check {variable}")]
    Unreachable {
        /// The proxy.
        proxy: String,
        /// The variable that names it.
        variable: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The proxy requires another user or password.
    #[error("the proxy {proxy} rejects its user or password, or requires both; correct {variable}")]
    Unauthorized {
        /// The proxy.
        proxy: String,
        /// The variable that names it.
        variable: &'static str,
    },
    /// The proxy does not connect to the target.
    #[error(
        "the proxy {proxy} refuses to connect to `{target}`: {said}; allow the host at the proxy, or add it to NO_PROXY"
    )]
    Refused {
        /// The proxy.
        proxy: String,
        /// Host and port.
        target: String,
        /// The proxy's status line.
        said: String,
    },
}

/// Connects to a proxy that does not use TLS.
///
/// # Errors
///
/// [`TunnelError::Encrypted`], [`TunnelError::Unreachable`].
pub async fn connect_to(proxy: &Proxy) -> Result<TcpStream, TunnelError> {
    if proxy.is_https {
        return Err(TunnelError::Encrypted(proxy.to_string()));
    }
    let connected = TcpStream::connect((proxy.host.as_str(), proxy.port)).await;
    connected.map_err(|source| unreachable(proxy, source))
}

/// Connects to `target` (`host:port`) through a proxy.
///
/// # Errors
///
/// [`TunnelError`].
pub async fn open(proxy: &Proxy, target: &str) -> Result<TcpStream, TunnelError> {
    let mut stream = connect_to(proxy).await?;
    let asked = ask(proxy, target, &mut stream).await;
    let said = asked.map_err(|source| unreachable(proxy, source))?;
    let mut words = said.split_whitespace();
    let status: u16 = words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    match status {
        200..300 => Ok(stream),
        PROXY_AUTHENTICATION_REQUIRED => Err(TunnelError::Unauthorized {
            proxy: proxy.to_string(),
            variable: proxy.variable,
        }),
        _ => Err(TunnelError::Refused {
            proxy: proxy.to_string(),
            target: target.to_owned(),
            said: said.chars().filter(|c| !c.is_control()).take(200).collect(),
        }),
    }
}

fn unreachable(proxy: &Proxy, source: io::Error) -> TunnelError {
    TunnelError::Unreachable {
        proxy: proxy.to_string(),
        variable: proxy.variable,
        source,
    }
}

/// Requests a tunnel, and returns the status line of the response.
async fn ask(proxy: &Proxy, target: &str, stream: &mut TcpStream) -> io::Result<String> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(value) = authorization(proxy) {
        let value = value.to_str().unwrap_or_default();
        request.push_str(&format!("Proxy-Authorization: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    // Byte by byte, because the bytes after the headers belong to the target.
    while !response.ends_with(b"\r\n\r\n") {
        if response.len() >= RESPONSE_BYTES_MAX {
            return Err(io::Error::other("its response is too long"));
        }
        response.push(stream.read_u8().await?);
    }
    let line = response
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use goondan_protocol::proxy::ProxySettings;
    use tokio::net::TcpListener;

    use super::*;

    /// A proxy that answers once, and the tunnel through it or its error.
    async fn answered(answer: &str) -> Result<TcpStream, TunnelError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://ann:word@{}", listener.local_addr().unwrap());
        let settings = ProxySettings::of(|name| (name == "https_proxy").then(|| url.clone()));
        let settings = settings.unwrap();
        let proxy = settings.of_scheme("https").unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let request = String::from_utf8(request).unwrap();
            assert!(
                request.starts_with("CONNECT far.test:443 HTTP/1.1\r\n"),
                "{request}"
            );
            assert!(request.contains("Basic YW5uOndvcmQ="), "{request}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (opened, ()) = tokio::join!(open(proxy, "far.test:443"), serve);
        opened
    }

    #[tokio::test]
    async fn prov_2_a_tunnel_begins_after_the_answer_of_the_proxy() {
        let mut stream = answered("HTTP/1.1 200 OK\r\nvia: x\r\n\r\nhello")
            .await
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        for (answer, part) in [
            ("HTTP/1.1 407 Authenticate\r\n\r\n", "user or password"),
            ("HTTP/1.1 403 Not Allowed\r\n\r\n", "403 Not Allowed"),
            ("nonsense\r\n\r\n", "nonsense"),
            ("HTTP/1.1", "failed to connect to the proxy"),
        ] {
            let error = answered(answer).await.unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("word@"), "{error}");
        }
    }
}
