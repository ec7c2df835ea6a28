//! A git server over HTTP: the installed `git http-backend`, with Basic authentication.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Serves the bare repositories below a directory. Its threads end with the test's process.
#[derive(Debug)]
pub struct GitServer {
    address: SocketAddr,
}

impl GitServer {
    /// Starts a server that requires this user and token, also to read.
    ///
    /// # Panics
    ///
    /// If it cannot listen on the loopback interface.
    #[must_use]
    pub fn start(root: &Path, user: &str, token: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback can be listened on");
        let address = listener.local_addr().expect("it has an address");
        let credentials = STANDARD.encode(format!("{user}:{token}"));
        let site: Arc<(PathBuf, String)> =
            Arc::new((root.to_owned(), format!("Basic {credentials}")));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let site = Arc::clone(&site);
                std::thread::spawn(move || drop(serve(stream, &site.0, &site.1)));
            }
        });
        Self { address }
    }

    /// URL of a repository.
    #[must_use]
    pub fn url(&self, repository: &str) -> String {
        format!("http://{}/{repository}", self.address)
    }
}

fn serve(mut stream: TcpStream, root: &Path, authorization: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let header = |name: &str| {
        let found = headers.iter().find(|(found, _)| found == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let length = header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if header("authorization") != authorization {
        return stream.write_all(
            b"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"git\"\r\n\
              content-length: 0\r\nconnection: close\r\n\r\n",
        );
    }
    let mut backend = Command::new("git")
        .arg("http-backend")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROJECT_ROOT", root)
        .env("REMOTE_USER", "ada")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", length.to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = backend.stdin.take() {
        stdin.write_all(&body)?;
    }
    let output = backend.wait_with_output()?.stdout;
    let text = String::from_utf8_lossy(&output);
    let status = text.lines().find_map(|line| line.strip_prefix("Status: "));
    let head = format!(
        "HTTP/1.1 {}\r\nconnection: close\r\n",
        status.map_or("200 OK", str::trim)
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&output)
}
