//! A tiny HTTP client that can also misbehave.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::PATIENCE;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The code in an error's body, which must have exactly the documented form.
    pub(crate) fn error_code(&self) -> String {
        let json = self.json();
        let error = json["error"].as_object().unwrap();
        assert_eq!(json.as_object().unwrap().len(), 1);
        assert_eq!(error.len(), 2);
        assert!(!error["message"].as_str().unwrap().is_empty());
        error["code"].as_str().unwrap().to_owned()
    }
}

/// A request to `/` as bytes, with a `content-length`.
pub(crate) fn post(headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    request("POST", "/", headers, body)
}

/// A request as bytes, with a `content-length`.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let len = body.len().to_string();
    let mut bytes = head(method, path, headers, &[("content-length", &len)]);
    bytes.extend_from_slice(body);
    bytes
}

/// The head of a request as bytes.
pub(crate) fn head(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    more_headers: &[(&str, &str)],
) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
    for (name, value) in headers.iter().chain(more_headers) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// A body in chunks of `size` bytes, encoded for `transfer-encoding: chunked`.
pub(crate) fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in body.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Connects, sends, and leaves the response unread.
    pub(crate) fn sending(address: SocketAddr, bytes: &[u8]) -> Self {
        let mut client = Self::connect(address);
        client.send(bytes);
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap();
    }

    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads one response, or returns how the connection ended instead.
    pub(crate) fn try_response(&mut self) -> std::io::Result<Response> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").unwrap();
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut response = Response {
            status,
            headers,
            body: Vec::new(),
        };
        let len = response.header("content-length").unwrap_or("0");
        response.body = vec![0; len.parse().unwrap()];
        self.stream.read_exact(&mut response.body)?;
        Ok(response)
    }

    pub(crate) fn response(&mut self) -> Response {
        self.try_response().unwrap()
    }

    /// Checks that no byte of a response has arrived.
    pub(crate) fn expect_nothing_yet(&mut self) {
        assert!(self.stream.buffer().is_empty());
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true).unwrap();
        let peeked = stream.peek(&mut [0; 1]);
        stream.set_nonblocking(false).unwrap();
        assert_eq!(peeked.unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    /// Reads until the other side closes, and returns the bytes before that.
    pub(crate) fn expect_close(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if crate::orchestrator::is_closed(&error) => rest,
            Err(error) => panic!("the connection stays open: {error}"),
        }
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}
