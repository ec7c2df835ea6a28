//! A forward proxy: `CONNECT` and requests with a whole URL, with Basic authentication, and a mode
//! that intercepts TLS with its own certificate authority.
//!
//! Hosts below `example.test` exist only behind it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Authority whose certificates the proxy presents.
#[must_use]
pub fn authority() -> PathBuf {
    fixture("intercepting-authority.pem")
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// A proxy. Its threads end with the test's process.
pub struct ForwardProxy {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

struct ProxySetup {
    authorization: Option<String>,
    hosts: BTreeMap<String, SocketAddr>,
    intercepts: Option<Arc<ServerConfig>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl ForwardProxy {
    /// Starts a proxy that reaches only these hosts, each at an address `http://HOST:PORT/…`, and
    /// requires `credentials` (`user:password`).
    ///
    /// # Panics
    ///
    /// If it cannot listen on the loopback interface.
    #[must_use]
    pub fn start(credentials: Option<&str>, hosts: &[(&str, String)]) -> Self {
        Self::with(credentials, hosts, None)
    }

    /// Starts a proxy without authentication that intercepts TLS: it presents certificates of
    /// [`authority`], and forwards plain requests.
    #[must_use]
    pub fn intercepting(hosts: &[(&str, String)]) -> Self {
        let chain = vec![CertificateDer::from_pem_file(fixture("intercepted.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(fixture("intercepted.key")).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self::with(None, hosts, Some(Arc::new(config)))
    }

    fn with(
        credentials: Option<&str>,
        hosts: &[(&str, String)],
        intercepts: Option<Arc<ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let hosts = hosts.iter().map(|(host, url)| {
            let authority = url.split("://").nth(1).unwrap().split('/').next().unwrap();
            ((*host).to_owned(), authority.parse().unwrap())
        });
        let setup = Arc::new(ProxySetup {
            authorization: credentials.map(|it| format!("Basic {}", STANDARD.encode(it))),
            hosts: hosts.collect(),
            intercepts,
            seen: Arc::clone(&seen),
        });
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let setup = Arc::clone(&setup);
                // A client may disconnect at any time.
                std::thread::spawn(move || drop(setup.serve(stream)));
            }
        });
        Self { address, seen }
    }

    /// Its URL, with these credentials.
    #[must_use]
    pub fn url(&self, credentials: &str) -> String {
        match credentials {
            "" => format!("http://{}", self.address),
            credentials => format!("http://{credentials}@{}", self.address),
        }
    }

    /// The requests so far: `METHOD URL`, or `CONNECT HOST:PORT`, and their result if it is refused.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        let seen = self.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ProxySetup {
    fn note(&self, text: String) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(text);
    }

    fn serve(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        let Some(head) = RequestHead::read(&mut reader)? else {
            return Ok(());
        };
        let asked = format!("{} {}", head.method, head.target);
        if head.header("proxy-authorization") != self.authorization.as_deref() {
            self.note(format!("{asked} 407"));
            return stream.write_all(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
        }
        let host = head.host();
        let Some(address) = self.hosts.get(&host) else {
            self.note(format!("{asked} 403"));
            return stream.write_all(
                b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
        };
        self.note(asked);
        if head.method != "CONNECT" {
            return forward(&head, &mut reader, &mut stream, *address);
        }
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        let Some(config) = &self.intercepts else {
            return pass_on(stream, *address);
        };
        let connection =
            ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
        let mut reader = BufReader::new(StreamOwned::new(connection, stream));
        let Some(head) = RequestHead::read(&mut reader)? else {
            return Ok(());
        };
        self.note(format!("{} https://{host}{}", head.method, head.target));
        let mut body = vec![0; head.body_bytes()];
        reader.read_exact(&mut body)?;
        let mut client = reader.into_inner();
        forward(&head, &mut body.as_slice(), &mut client, *address)?;
        client.conn.send_close_notify();
        client.flush()
    }
}

/// Forwards one request and its response, without a further request on either connection.
fn forward(
    head: &RequestHead,
    body: &mut impl Read,
    client: &mut impl Write,
    address: SocketAddr,
) -> Result<()> {
    let mut content = vec![0; head.body_bytes()];
    body.read_exact(&mut content)?;
    let mut server = TcpStream::connect(address)?;
    let path = head
        .target
        .split_once("://")
        .map_or(head.target.as_str(), |(_, rest)| {
            let at = rest.find('/');
            at.and_then(|at| rest.get(at..)).unwrap_or("/")
        });
    let mut request = format!("{} {path} HTTP/1.1\r\nconnection: close\r\n", head.method);
    for (name, value) in &head.headers {
        if !matches!(
            name.as_str(),
            "connection" | "proxy-authorization" | "proxy-connection"
        ) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    request.push_str("\r\n");
    server.write_all(request.as_bytes())?;
    server.write_all(&content)?;
    let mut buffer = [0; 8 * 1024];
    loop {
        let bytes = server.read(&mut buffer)?;
        if bytes == 0 {
            return client.flush();
        }
        client.write_all(&buffer[..bytes])?;
        client.flush()?;
    }
}

/// Connects both sides until one closes.
fn pass_on(client: TcpStream, address: SocketAddr) -> Result<()> {
    let server = TcpStream::connect(address)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        drop(std::io::copy(&mut from_client, &mut to_server));
        drop(to_server.shutdown(Shutdown::Write));
    });
    let (mut from_server, mut to_client) = (server, client);
    std::io::copy(&mut from_server, &mut to_client)?;
    to_client.shutdown(Shutdown::Write)
}

struct RequestHead {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
}

impl RequestHead {
    fn read(reader: &mut impl BufRead) -> Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ').map(str::to_owned);
        let mut head = Self {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            headers: Vec::new(),
        };
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                return Ok(Some(head));
            };
            head.headers
                .push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    fn body_bytes(&self) -> usize {
        let length = self.header("content-length");
        length.map_or(0, |length| length.parse().unwrap())
    }

    /// Name of the target, without its port.
    fn host(&self) -> String {
        let authority = self
            .target
            .split_once("://")
            .map_or(self.target.as_str(), |it| it.1);
        let authority = authority.split('/').next().unwrap();
        authority.split(':').next().unwrap().to_owned()
    }
}
