//! A small HTTP client: one request a connection.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::PATIENCE;

#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body, as text.
    pub body: String,
}

impl HttpResponse {
    #[must_use]
    pub fn read(answer: &[u8]) -> Self {
        let text = String::from_utf8_lossy(answer);
        parse(&text, true).unwrap_or_else(|| panic!("no response: {text:?}"))
    }

    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Posts `body`, and reads the whole response.
///
/// # Errors
///
/// If no server accepts the connection, or the connection closes before the response is complete.
pub fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<HttpResponse> {
    request(address, "POST", path, headers, body)
}

/// Sends a request, and reads the whole answer.
///
/// # Errors
///
/// As [`post`].
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<HttpResponse> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    if !matches!(method, "GET" | "HEAD") {
        request.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(body);
    answer_to(stream, &request, method != "HEAD")
}

/// Requests a path, and reads the whole response.
///
/// # Errors
///
/// If no server accepts the connection, or the connection closes before the response is complete.
pub fn get(address: SocketAddr, path: &str) -> io::Result<HttpResponse> {
    request(address, "GET", path, &[], "")
}

fn answer_to(mut stream: TcpStream, request: &str, has_body: bool) -> io::Result<HttpResponse> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer), has_body)
        .ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

fn parse(answer: &str, has_body: bool) -> Option<HttpResponse> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut response = HttpResponse {
        status,
        headers,
        body: body.to_owned(),
    };
    if has_body && response.header("transfer-encoding") == Some("chunked") {
        response.body = joined(body)?;
        return Some(response);
    }
    let len: usize = response.header("content-length")?.parse().ok()?;
    let expected = if has_body { len } else { 0 };
    (response.body.len() == expected).then_some(response)
}

/// The text of a body in chunks; none if its end is missing.
fn joined(mut chunks: &str) -> Option<String> {
    let mut text = String::new();
    loop {
        let (size, rest) = chunks.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        let chunk = rest.get(..size)?;
        chunks = rest.get(size..)?.strip_prefix("\r\n")?;
        if size == 0 {
            return Some(text);
        }
        text.push_str(chunk);
    }
}
