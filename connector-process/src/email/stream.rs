//! Connections to mail servers: lines and bytes, encrypted before a password is sent.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use goondan_clock::timeout;
use goondan_connectors::Values;
use goondan_log::error_chain;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio_rustls::TlsConnector;

use crate::limits::{SERVICE_CONNECT_TIMEOUT_MS, SERVICE_TIMEOUT_MS};
use crate::tcp;

/// Encryption of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    /// TLS from the start.
    Tls,
    /// TLS after the command STARTTLS.
    StartTls,
    /// None, within this machine.
    Plain,
}

/// A mail server.
#[derive(Clone)]
pub(super) struct MailServer {
    host: String,
    port: u16,
    security: Security,
    tls: Arc<ClientConfig>,
}

impl fmt::Debug for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target())
    }
}

impl MailServer {
    /// The server of validated settings, with its usual ports for TLS from the start, and for the
    /// other forms.
    ///
    /// # Errors
    ///
    /// If a password would be sent over the network without encryption.
    pub(super) fn of(
        values: &Values<'_>,
        (tls_port, plain_port): (u16, u16),
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, String> {
        let host = values.text("host").unwrap_or_default().to_owned();
        let security = match values.text("security") {
            Some("starttls") => Security::StartTls,
            Some("none") => Security::Plain,
            _ => Security::Tls,
        };
        if security == Security::Plain && !is_this_machine(&host) {
            return Err(format!(
                "`security: none` is possible on this machine only, not at `{host}`; use `tls` or \
                 `starttls`"
            ));
        }
        let usual = match security {
            Security::Tls => tls_port,
            Security::StartTls | Security::Plain => plain_port,
        };
        let port = values.number("port").and_then(|port| port.try_into().ok());
        Ok(Self {
            host,
            port: port.unwrap_or(usual),
            security,
            tls: Arc::clone(tls),
        })
    }

    pub(super) fn security(&self) -> Security {
        self.security
    }

    fn target(&self) -> String {
        match self.host.parse() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{}", self.port),
            Ok(IpAddr::V4(_)) | Err(_) => format!("{}:{}", self.host, self.port),
        }
    }

    /// Connects, encrypted if the server expects that from the start.
    ///
    /// # Errors
    ///
    /// [`StreamError`] if the server cannot be reached.
    pub(super) async fn connect(&self) -> Result<MailStream, StreamError> {
        let connecting = async {
            let stream = tcp::connect(&self.target()).await.map_err(StreamError)?;
            // Best effort: without it, short commands are only delayed.
            stream.set_nodelay(true).ok();
            let stream: Box<dyn Socket> = Box::new(stream);
            match self.security {
                Security::Tls => self.encrypt(stream).await,
                Security::StartTls | Security::Plain => Ok(stream),
            }
        };
        let limit = Duration::from_millis(SERVICE_CONNECT_TIMEOUT_MS);
        let stream = timeout(limit, connecting)
            .await
            .unwrap_or_else(|_elapsed| {
                let ms = SERVICE_CONNECT_TIMEOUT_MS;
                Err(StreamError(format!("no connection within {ms} ms")))
            })?;
        Ok(MailStream {
            socket: BufReader::new(stream),
        })
    }

    async fn encrypt(&self, stream: Box<dyn Socket>) -> Result<Box<dyn Socket>, StreamError> {
        let failed = |reason: String| StreamError(format!("TLS failed: {reason}"));
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|error| failed(error_chain(&error)))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let encrypted = connector.connect(name, stream).await;
        let encrypted = encrypted.map_err(|error| failed(error_chain(&error)))?;
        Ok(Box::new(encrypted))
    }
}

/// True if a host is certainly this machine.
fn is_this_machine(host: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    host.eq_ignore_ascii_case("localhost") || address.is_some_and(|address| address.is_loopback())
}

/// The connection is gone, or was never there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct StreamError(pub(super) String);

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// A connection to a mail server.
pub(super) struct MailStream {
    socket: BufReader<Box<dyn Socket>>,
}

impl MailStream {
    /// Encrypts the connection, after the server has agreed to STARTTLS.
    ///
    /// # Errors
    ///
    /// [`StreamError`] if TLS fails, or if the server, or a machine in between, has already sent
    /// data that would count as encrypted.
    pub(super) async fn encrypt(self, server: &MailServer) -> Result<Self, StreamError> {
        if !self.socket.buffer().is_empty() {
            let reason = "the server sent data before encryption began";
            return Err(StreamError(reason.to_owned()));
        }
        let stream = within(server.encrypt(self.socket.into_inner())).await?;
        Ok(Self {
            socket: BufReader::new(stream),
        })
    }

    /// The next line, without its end. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// [`StreamError`] if the connection ends, or the line is longer than `bytes_max`.
    pub(super) async fn line(&mut self, bytes_max: usize) -> Result<Vec<u8>, StreamError> {
        within(self.next_line(bytes_max)).await
    }

    /// As [`Self::line`], and waits without a limit.
    pub(super) async fn next_line(&mut self, bytes_max: usize) -> Result<Vec<u8>, StreamError> {
        let mut line = Vec::new();
        let limit = u64::try_from(bytes_max)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let mut limited = (&mut self.socket).take(limit);
        let read = limited.read_until(b'\n', &mut line).await;
        read.map_err(|error| broken(&error))?;
        if line.pop_if(|byte| *byte == b'\n').is_none() {
            return Err(StreamError(if line.len() > bytes_max {
                format!("the server sent a line of more than {bytes_max} bytes")
            } else {
                "the server closed the connection".to_owned()
            }));
        }
        line.pop_if(|byte| *byte == b'\r');
        Ok(line)
    }

    /// The next `count` bytes. Those beyond `bytes_max` are read and dropped.
    ///
    /// # Errors
    ///
    /// [`StreamError`] if the connection ends.
    pub(super) async fn bytes(
        &mut self,
        count: u64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, StreamError> {
        let mut kept = Vec::new();
        let mut left = count;
        while left > 0 {
            let available = within(async {
                let available = self.socket.fill_buf().await;
                available.map(<[u8]>::len).map_err(|error| broken(&error))
            });
            let available = available.await?;
            if available == 0 {
                return Err(StreamError("the server closed the connection".to_owned()));
            }
            let taken = usize::try_from(left).map_or(available, |left| left.min(available));
            let space = bytes_max.saturating_sub(kept.len()).min(taken);
            kept.extend_from_slice(self.socket.buffer().get(..space).unwrap_or_default());
            self.socket.consume(taken);
            left = left.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
        }
        Ok(kept)
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// [`StreamError`] if the connection ends.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        // In pieces, so that only a server that reads nothing is given up.
        for piece in bytes.chunks(64 * 1024) {
            let writing = async {
                let written = self.socket.write_all(piece).await;
                written.map_err(|error| broken(&error))
            };
            within(writing).await?;
        }
        let flushing = async { self.socket.flush().await.map_err(|error| broken(&error)) };
        within(flushing).await
    }
}

fn broken(error: &std::io::Error) -> StreamError {
    StreamError(format!("the connection broke: {}", error_chain(error)))
}

/// Gives a server [`SERVICE_TIMEOUT_MS`] for one step.
async fn within<T>(step: impl Future<Output = Result<T, StreamError>>) -> Result<T, StreamError> {
    let limit = Duration::from_millis(SERVICE_TIMEOUT_MS);
    timeout(limit, step).await.unwrap_or_else(|_elapsed| {
        let ms = SERVICE_TIMEOUT_MS;
        Err(StreamError(format!("no answer within {ms} ms")))
    })
}
