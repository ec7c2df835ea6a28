//! Hears a browser of this machine come back from an authorization server (RFC 8252).

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::exit::Exit;
use crate::failure::Failure;

/// Longest head of a request that is read, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Time a browser has for the head of its request, in milliseconds.
const HEAD_TIMEOUT_MS: u64 = 5_000;

/// Pause after a connection that could not be taken, in milliseconds.
const ACCEPT_PAUSE_MS: u64 = 100;

/// What a browser shows at the end. It repeats nothing of the request.
const PAGE: &str = "<!doctype html><meta charset=utf-8><title>goondan</title>\
    <p>That is all. You can close this page and go back to the terminal.";

/// A port of this machine that is listened on.
pub(super) struct Loopback {
    listener: TcpListener,
    port: u16,
}

impl Loopback {
    /// Listens on a port of this machine; 0 is any free one.
    pub(super) async fn bind(port: u16) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            Failure::new(
                Exit::TryAgain,
                format!("cannot listen on port {port} of this machine"),
                "free the port, or log in with `--paste`",
            )
            .caused_by(Some(&error))
        };
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = bound.map_err(cannot)?;
        let port = listener.local_addr().map_err(cannot)?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The listener that hears who is sent back to this address: this one, or one on another port; none if
    /// it is not of this machine.
    pub(super) async fn for_redirect(self, redirect_uri: &str) -> Result<Option<Self>, Failure> {
        match port_of(redirect_uri) {
            Some(port) if port == self.port => Ok(Some(self)),
            Some(port) => Self::bind(port).await.map(Some),
            None => Ok(None),
        }
    }

    /// Waits for a browser that comes back to this address, and gives the address with all that the server
    /// put behind it. Whoever asks for anything else is told that there is nothing.
    pub(super) async fn wait_for(&self, redirect_uri: &str) -> Result<String, Failure> {
        let path = path_of(redirect_uri);
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                continue;
            };
            let head = timeout(Duration::from_millis(HEAD_TIMEOUT_MS), read_head(&stream)).await;
            let Ok(Ok(head)) = head else { continue };
            let target = target_of(&head);
            let rest = target.and_then(|target| target.strip_prefix(path));
            let found = rest.filter(|rest| rest.starts_with('?'));
            let answer = match found {
                Some(_) => answer("200 OK", PAGE),
                None => answer("404 Not Found", "<p>There is nothing here."),
            };
            // The browser may have gone; what it brought counts all the same.
            write_all(&stream, answer.as_bytes()).await.ok();
            if let Some(rest) = found {
                return Ok(format!("{redirect_uri}{rest}"));
            }
        }
    }
}

/// The port of an address of this machine.
fn port_of(redirect_uri: &str) -> Option<u16> {
    let rest = redirect_uri.strip_prefix("http://")?;
    let authority = rest.split(['/', '?']).next()?;
    let (host, port) = authority.rsplit_once(':')?;
    matches!(host, "127.0.0.1" | "localhost").then(|| port.parse().ok())?
}

/// The path of such an address.
fn path_of(redirect_uri: &str) -> &str {
    let rest = redirect_uri.strip_prefix("http://").unwrap_or_default();
    let begin = rest.find('/').unwrap_or(rest.len());
    match rest.get(begin..) {
        Some("") | None => "/",
        Some(path) => path,
    }
}

/// What the first line of a request asks for.
fn target_of(head: &str) -> Option<&str> {
    let mut words = head.lines().next()?.split(' ');
    (words.next() == Some("GET")).then(|| words.next())?
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Reads until the empty line behind the head.
async fn read_head(stream: &TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut part = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.readable().await?;
        match stream.try_read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => head.extend(part.iter().take(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sys_4_only_addresses_of_this_machine_are_listened_on() {
        assert_eq!(port_of("http://127.0.0.1:4711/callback"), Some(4711));
        assert_eq!(port_of("http://localhost:80"), Some(80));
        for other in [
            "https://127.0.0.1:4711/callback",
            "http://127.0.0.1/callback",
            "http://127.0.0.1.evil.example:80/",
            "http://example.org:80/",
        ] {
            assert_eq!(port_of(other), None, "{other}");
        }
        assert_eq!(path_of("http://127.0.0.1:1/callback"), "/callback");
        assert_eq!(path_of("http://127.0.0.1:1"), "/");
        assert_eq!(
            target_of("GET /callback?x=1 HTTP/1.1\r\n"),
            Some("/callback?x=1")
        );
        assert_eq!(target_of("POST /callback HTTP/1.1\r\n"), None);
    }
}
