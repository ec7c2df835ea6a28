//! HTTP client of `gdn package`, with size and time limits and protection against unintended addresses.

use std::cell::OnceCell;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use goondan_connectors::{AddressReachability, reach_of};
use goondan_outbound::{ClientError, NetworkProblem};
use goondan_packages::limits::{
    REGISTRY_ANSWER_TIMEOUT_MS, REGISTRY_CONNECT_TIMEOUT_MS, REGISTRY_REDIRECTS_MAX,
    REGISTRY_STALL_TIMEOUT_MS,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};

use crate::exit::Exit;
use crate::failure::Failure;

pub(super) struct WebRequest<'q> {
    pub(super) method: Method,
    pub(super) url: Url,
    /// Sent only to the origin of the URL.
    pub(super) token: Option<&'q SecretString>,
    pub(super) body: Option<Vec<u8>>,
    /// Maximum size of the response, in bytes.
    pub(super) bytes_max: u64,
    /// True if the user named the server: only then may it be in a private network or on this machine.
    pub(super) is_named: bool,
    /// True if redirects are followed.
    pub(super) follows: bool,
}

/// Reason why there is no response. Messages never contain a token.
#[derive(Debug, thiserror::Error)]
pub(super) enum WebError {
    #[error("cannot create the HTTP client")]
    Client(#[source] ClientError),
    #[error("cannot reach {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("cannot reach {url}: {}", problem.message)]
    Network {
        url: String,
        problem: NetworkProblem,
    },
    #[error("{url} stopped responding: no data for {} s", REGISTRY_STALL_TIMEOUT_MS / 1000)]
    Stalled { url: String },
    #[error("{url} did not respond within {} s", REGISTRY_ANSWER_TIMEOUT_MS / 1000)]
    Slow { url: String },
    #[error("{url} answered {status}{}", reason_suffix(reason))]
    Status {
        url: String,
        status: u16,
        reason: String,
    },
    #[error("{url} sent more than {max} bytes")]
    TooLarge { url: String, max: u64 },
    #[error("{url} redirects to {to}, {why}")]
    Forbidden {
        url: String,
        to: String,
        why: &'static str,
    },
    #[error("cannot store the answer of {url}")]
    Keep {
        url: String,
        #[source]
        source: std::io::Error,
    },
}

/// Maximum length of an error's text in messages, in bytes.
const REASON_BYTES_MAX: u64 = 4096;

fn reason_suffix(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(
            ": {}",
            crate::output::text::fit(&crate::output::text::one_line(reason), 200)
        )
    }
}

impl From<WebError> for Failure {
    fn from(error: WebError) -> Self {
        let (exit, hint) = match &error {
            WebError::Client(ClientError::Proxy(problem)) => (
                Exit::Usage,
                format!("correct or unset {}", problem.variable),
            ),
            WebError::Client(ClientError::Http(_)) => (
                Exit::Internal,
                "check that the system has certificates: install `ca-certificates`".to_owned(),
            ),
            WebError::Network { problem, .. } => (Exit::TryAgain, problem.hint.clone()),
            WebError::Unreachable { .. } => (
                Exit::TryAgain,
                "check the address and the network; installed packages need neither".to_owned(),
            ),
            WebError::Stalled { .. } | WebError::Slow { .. } => (
                Exit::TryAgain,
                "nothing was changed: try again later".to_owned(),
            ),
            WebError::Status { url, status, .. } => match status {
                401 | 403 => (Exit::Conflict, token_hint(url)),
                404 | 410 => (Exit::NotFound, "check the name and the address".to_owned()),
                429 | 500.. => (
                    Exit::TryAgain,
                    "nothing was changed: try again later".to_owned(),
                ),
                _ => (
                    Exit::Conflict,
                    "nothing was changed: check the address".to_owned(),
                ),
            },
            WebError::TooLarge { .. } | WebError::Forbidden { .. } => (
                Exit::Conflict,
                "nothing was changed: use another source for the package".to_owned(),
            ),
            WebError::Keep { .. } => (
                Exit::Internal,
                "check whether the disk is full: `df -h ~`".to_owned(),
            ),
        };
        Self::of(exit, &error, hint)
    }
}

/// Hint on how to authenticate with a registry.
fn token_hint(url: &str) -> String {
    let host = Url::parse(url).ok().as_ref().and_then(host_key);
    let host = host.unwrap_or_else(|| "HOST".to_owned());
    format!("store a token for it: `gdn secret set registry {host}`")
}

/// Key of a server in the secret `registry`: its host, with the port unless it is the default.
pub(super) fn host_key(url: &Url) -> Option<String> {
    let host = url.host_str()?.trim_matches(['[', ']']).replace(':', "_");
    Some(match url.port() {
        None => host,
        Some(port) => format!("{host}-{port}"),
    })
}

/// URL without parts that may be secret.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// HTTP clients, created on first use.
#[derive(Default)]
pub(super) struct Web {
    named: OnceCell<Client>,
    public: OnceCell<Client>,
}

impl Web {
    /// Sends a request and writes the response body.
    pub(super) async fn ask(
        &self,
        question: &WebRequest<'_>,
        answer: &mut impl Write,
    ) -> Result<(), WebError> {
        let limit = Duration::from_millis(REGISTRY_ANSWER_TIMEOUT_MS);
        match tokio::time::timeout(limit, self.follow(question, answer)).await {
            Ok(done) => done,
            Err(_elapsed) => Err(WebError::Slow {
                url: shown(&question.url),
            }),
        }
    }

    async fn follow(
        &self,
        question: &WebRequest<'_>,
        answer: &mut impl Write,
    ) -> Result<(), WebError> {
        let mut url = question.url.clone();
        for _ in 0..=REGISTRY_REDIRECTS_MAX {
            let is_own = url.origin() == question.url.origin();
            let response = self.send(question, &url, is_own).await?;
            if response.status().is_success() {
                return read(response, &url, question.bytes_max, answer).await;
            }
            match next(&response, &url).filter(|_| question.follows) {
                Some(next) => url = next,
                None => return Err(refused(response, &url).await),
            }
        }
        Err(WebError::Forbidden {
            url: shown(&question.url),
            to: shown(&url),
            why: "and redirects again",
        })
    }

    async fn send(
        &self,
        question: &WebRequest<'_>,
        url: &Url,
        is_own: bool,
    ) -> Result<Response, WebError> {
        let is_named = is_own && question.is_named;
        let client = self.client(url, is_named)?;
        if !is_named {
            check_proxied(url).await?;
        }
        let mut request = client.request(question.method.clone(), url.clone());
        request = request.header(ACCEPT, "application/json, application/octet-stream, */*");
        if let (Some(token), true) = (question.token, is_own) {
            let value = format!("Bearer {}", token.expose_secret());
            if let Ok(mut value) = HeaderValue::try_from(value) {
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
        }
        if let Some(body) = &question.body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let response = request.send().await.map_err(|error| failed(error, url))?;
        if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
            && let Some(problem) = goondan_outbound::rejection_by_proxy(url)
        {
            let url = shown(url);
            return Err(WebError::Network { url, problem });
        }
        Ok(response)
    }

    fn client(&self, url: &Url, is_named: bool) -> Result<&Client, WebError> {
        let kept = match (url.scheme(), is_named) {
            ("http" | "https", true) => &self.named,
            ("https", false) => &self.public,
            _ => {
                return Err(forbidden(url, "which has no TLS"));
            }
        };
        if !is_named {
            check_literal(url)?;
        }
        if let Some(client) = kept.get() {
            return Ok(client);
        }
        let made = make(is_named).map_err(WebError::Client)?;
        Ok(kept.get_or_init(|| made))
    }
}

fn make(is_named: bool) -> Result<Client, ClientError> {
    let mut builder = goondan_outbound::builder()?
        .connect_timeout(Duration::from_millis(REGISTRY_CONNECT_TIMEOUT_MS))
        .read_timeout(Duration::from_millis(REGISTRY_STALL_TIMEOUT_MS));
    if !is_named {
        builder = builder.dns_resolver(PublicOnly);
    }
    Ok(builder.build()?)
}

fn forbidden(url: &Url, why: &'static str) -> WebError {
    WebError::Forbidden {
        url: "an address that is not configured".to_owned(),
        to: shown(url),
        why,
    }
}

/// Checks a literal IP address, which is not resolved.
fn check_literal(url: &Url) -> Result<(), WebError> {
    let host = url.host_str().unwrap_or_default();
    let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    match address {
        Ok(address) if reach_of(address) != AddressReachability::Public => {
            Err(forbidden(url, "which is not on the public internet"))
        }
        _ => Ok(()),
    }
}

/// Checks a name that a proxy resolves: one that this machine resolves only to addresses that are not
/// public is refused. The proxy decides about other names.
async fn check_proxied(url: &Url) -> Result<(), WebError> {
    let host = url.host_str().unwrap_or_default();
    if goondan_outbound::proxy_for(url).is_none() && !goondan_outbound::is_proxy(host) {
        return Ok(());
    }
    let Ok(mut all) = tokio::net::lookup_host((host, 0)).await else {
        return Ok(());
    };
    match all.any(|address| reach_of(address.ip()) == AddressReachability::Public) {
        true => Ok(()),
        false => Err(forbidden(url, "which is not on the public internet")),
    }
}

/// Resolves names to public addresses only, and that of a proxy to any.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let all = tokio::net::lookup_host((host.as_str(), 0)).await?;
            if goondan_outbound::is_proxy(&host) {
                let all: Addrs = Box::new(all.collect::<Vec<_>>().into_iter());
                return Ok(all);
            }
            let public: Vec<SocketAddr> = all
                .filter(|address| reach_of(address.ip()) == AddressReachability::Public)
                .collect();
            if public.is_empty() {
                return Err(
                    format!("`{host}` is not on the public internet, and not configured").into(),
                );
            }
            let public: Addrs = Box::new(public.into_iter());
            Ok(public)
        })
    }
}

/// Target of a redirect.
fn next(response: &Response, url: &Url) -> Option<Url> {
    if !response.status().is_redirection() {
        return None;
    }
    let to = response.headers().get(LOCATION)?.to_str().ok()?;
    url.join(to).ok()
}

async fn refused(response: Response, url: &Url) -> WebError {
    let status = response.status().as_u16();
    let mut text = Vec::new();
    let read = read(response, url, REASON_BYTES_MAX, &mut text).await;
    let reason = read.ok().and_then(|()| {
        let said: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let said = said.get("error").or_else(|| said.get("message"))?;
        said.as_str().map(str::to_owned)
    });
    WebError::Status {
        url: shown(url),
        status,
        reason: reason.unwrap_or_default(),
    }
}

async fn read(
    mut response: Response,
    url: &Url,
    max: u64,
    answer: &mut impl Write,
) -> Result<(), WebError> {
    let mut left = max;
    while let Some(part) = response.chunk().await.map_err(|error| failed(error, url))? {
        let Some(rest) = left.checked_sub(part.len() as u64) else {
            let url = shown(url);
            return Err(WebError::TooLarge { url, max });
        };
        left = rest;
        answer.write_all(&part).map_err(|source| WebError::Keep {
            url: shown(url),
            source,
        })?;
    }
    Ok(())
}

fn failed(error: reqwest::Error, url: &Url) -> WebError {
    let url = shown(url);
    if let Some(problem) = goondan_outbound::problem_of(&error) {
        return WebError::Network { url, problem };
    }
    if error.is_timeout() && !error.is_connect() {
        return WebError::Stalled { url };
    }
    WebError::Unreachable {
        url,
        source: error.without_url(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_3_unlisted_url_must_be_https_on_the_public_internet() {
        let web = Web::default();
        for wrong in [
            "http://packages.example.org/a.tgz",
            "https://127.0.0.1/a.tgz",
            "https://[::1]/a.tgz",
            "https://10.0.0.1/a.tgz",
            "https://169.254.169.254/latest",
            "https://[::ffff:192.168.0.1]/",
            "file:///etc/passwd",
            "ftp://example.org/",
        ] {
            let url = Url::parse(wrong).unwrap();
            assert!(web.client(&url, false).is_err(), "{wrong}");
        }
        let named = Url::parse("http://127.0.0.1:4873/a").unwrap();
        assert!(web.client(&named, true).is_ok());
    }

    #[test]
    fn pkg_3_url_is_shown_without_query_or_fragment() {
        let url = Url::parse("https://h:8443/a.tgz?signature=x#y").unwrap();
        assert_eq!(shown(&url), "https://h:8443/a.tgz");
        assert_eq!(host_key(&url).as_deref(), Some("h-8443"));
        let usual = Url::parse("https://packages.example.org/npm/").unwrap();
        assert_eq!(host_key(&usual).as_deref(), Some("packages.example.org"));
    }
}
