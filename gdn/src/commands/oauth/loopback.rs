//! Receives the redirect of a local browser from an authorization server (RFC 8252).
//!
//! Every local program can connect. Connections are served concurrently, and only a request with the login's `state`
//! ends the wait, so idle or wrong connections do not block the browser.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::exit::Exit;
use crate::failure::Failure;

/// Maximum length of a request head, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Timeout for reading a request head, in milliseconds.
const HEAD_TIMEOUT_MS: u64 = 5_000;

/// Maximum number of concurrent connections. One more closes the oldest.
const CONNECTIONS_MAX: usize = 16;

/// Pause after a failed accept, in milliseconds.
const ACCEPT_PAUSE_MS: u64 = 100;

/// Page that the browser shows at the end. It echoes nothing from the request.
const PAGE: &str = "<!doctype html><meta charset=utf-8><title>goondan</title>\
    <p>Done. You can close this page and return to the terminal.";

/// A listener on a loopback port.
pub(super) struct Loopback {
    listener: TcpListener,
    port: u16,
}

impl Loopback {
    /// Listens on a loopback port; 0 selects any free one.
    pub(super) async fn bind(port: u16) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            Failure::new(
                Exit::TryAgain,
                format!("cannot listen on local port {port}"),
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

    /// Returns the listener for this redirect URI: this one, or one on another port; none if the URI is not on
    /// loopback.
    pub(super) async fn for_redirect(self, redirect_uri: &str) -> Result<Option<Self>, Failure> {
        match port_of(redirect_uri) {
            Some(port) if port == self.port => Ok(Some(self)),
            Some(port) => Self::bind(port).await.map(Some),
            None => Ok(None),
        }
    }

    /// Waits for a request to the redirect URI with this `state`, and returns the URI with the parameters that the
    /// server added. Other requests are answered with 404.
    pub(super) async fn wait_for(
        &self,
        redirect_uri: &str,
        state: &str,
    ) -> Result<String, Failure> {
        let expected = RedirectTarget {
            path: path_of(redirect_uri).to_owned(),
            state: state.to_owned(),
        };
        let mut connections = JoinSet::new();
        let mut handles: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    let Ok((stream, _)) = accepted else {
                        tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                        continue;
                    };
                    handles.retain(|handle| !handle.is_finished());
                    if handles.len() >= CONNECTIONS_MAX
                        && let Some(oldest) = handles.pop_front()
                    {
                        oldest.abort();
                    }
                    handles.push_back(connections.spawn(serve(stream, expected.clone())));
                }
                // A connection that was aborted or whose task failed has no result.
                Some(served) = connections.join_next() => if let Ok(Some(rest)) = served {
                    return Ok(format!("{redirect_uri}{rest}"));
                },
            }
        }
    }
}

/// Request that ends the wait.
#[derive(Debug, Clone)]
struct RedirectTarget {
    path: String,
    state: String,
}

impl RedirectTarget {
    /// Returns the part after the path if this is the expected request.
    fn rest_of<'t>(&self, target: &'t str) -> Option<&'t str> {
        let rest = target.strip_prefix(self.path.as_str())?;
        let query = rest.strip_prefix('?')?;
        (parameter(query, "state")? == self.state.as_bytes()).then_some(rest)
    }
}

/// Answers one request. Returns the part after the path if it is the expected request.
async fn serve(stream: TcpStream, expected: RedirectTarget) -> Option<String> {
    let limit = Duration::from_millis(HEAD_TIMEOUT_MS);
    let head = timeout(limit, read_head(&stream)).await.ok()?.ok()?;
    let found = target_of(&head).and_then(|target| expected.rest_of(target));
    let answer = match found {
        Some(_) => answer("200 OK", PAGE),
        None => answer("404 Not Found", "<p>Not found."),
    };
    // The browser may have disconnected; its request still counts.
    drop(timeout(limit, write_all(&stream, answer.as_bytes())).await);
    found.map(str::to_owned)
}

/// Returns the `state` in an authorization server's URL, which identifies the redirect.
pub(super) fn state_of(url: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let query = query.split('#').next()?;
    String::from_utf8(parameter(query, "state")?).ok()
}

/// Returns the first value of a query parameter.
fn parameter(query: &str, name: &str) -> Option<Vec<u8>> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(found, _)| *found == name)?;
    Some(percent_decoded(value))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let digit = |at: usize| {
            let digit = char::from(*others.get(at)?).to_digit(16)?;
            u8::try_from(digit).ok()
        };
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(high << 4 | low);
                rest = others.get(2..).unwrap_or_default();
            }
            (first, ..) => {
                decoded.push(if *first == b'+' { b' ' } else { *first });
                rest = others;
            }
        }
    }
    decoded
}

/// Returns the port of a loopback URL.
fn port_of(redirect_uri: &str) -> Option<u16> {
    let rest = redirect_uri.strip_prefix("http://")?;
    let authority = rest.split(['/', '?']).next()?;
    let (host, port) = authority.rsplit_once(':')?;
    matches!(host, "127.0.0.1" | "localhost").then(|| port.parse().ok())?
}

/// Returns the path of a loopback URL.
fn path_of(redirect_uri: &str) -> &str {
    let rest = redirect_uri.strip_prefix("http://").unwrap_or_default();
    let begin = rest.find('/').unwrap_or(rest.len());
    match rest.get(begin..) {
        Some("") | None => "/",
        Some(path) => path,
    }
}

/// Returns the target of a request's first line.
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

/// Reads up to the empty line after the head.
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

    /// Sends a request and returns the first line of the response.
    async fn ask(port: u16, target: &str) -> String {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        write_all(&stream, request.as_bytes()).await.unwrap();
        let head = read_head(&stream).await.unwrap();
        head.lines().next().unwrap().to_owned()
    }

    #[tokio::test]
    async fn sys_4_only_the_logins_own_state_ends_the_wait() {
        let loopback = Loopback::bind(0)
            .await
            .unwrap_or_else(|_| panic!("no port"));
        let port = loopback.port();
        let redirect_uri = format!("http://127.0.0.1:{port}/callback");
        let waiting = loopback.wait_for(&redirect_uri, "s 1");
        let others = async {
            // Idle connections do not block others.
            let mut idle = Vec::new();
            for _ in 0..2 * CONNECTIONS_MAX {
                idle.push(
                    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                        .await
                        .unwrap(),
                );
            }
            for wrong in [
                "/callback?x",
                "/callback?state=other&code=c",
                "/favicon.ico",
            ] {
                assert_eq!(ask(port, wrong).await, "HTTP/1.1 404 Not Found");
            }
            assert_eq!(
                ask(port, "/callback?code=c&state=s%201").await,
                "HTTP/1.1 200 OK"
            );
            drop(idle);
        };
        let both = async { tokio::join!(waiting, others).0 };
        // Less than the timeout of the idle connections.
        let limit = Duration::from_millis(HEAD_TIMEOUT_MS);
        let came = timeout(limit, both).await.unwrap();
        let came = came.unwrap_or_else(|_| panic!("no callback"));
        assert_eq!(came, format!("{redirect_uri}?code=c&state=s%201"));
    }

    #[test]
    fn sys_4_the_state_is_read_from_the_servers_address() {
        let url = "https://as.example/authorize?client_id=a&state=a%2Fb&scope=x#state=no";
        assert_eq!(state_of(url).unwrap(), "a/b");
        assert_eq!(state_of("https://as.example/authorize?client_id=a"), None);
        assert_eq!(percent_decoded("a%2"), b"a%2");
    }

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
