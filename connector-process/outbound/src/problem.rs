//! Errors of HTTP clients that name the proxy or the certificate, and the next step.

use std::error::Error;
use std::fmt;
use std::io;

use goondan_log::error_chain;
use goondan_protocol::proxy::{CA_FILE_VAR, Proxy};
use reqwest::Url;
use rustls::{CertificateError, OtherError};

use crate::{PROXY_AUTHENTICATION_REQUIRED, proxy_for};

/// A problem of a proxy or a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkProblem {
    /// The failure and its reason, as the end of a sentence.
    pub message: String,
    /// The next step.
    pub hint: String,
}

impl fmt::Display for NetworkProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

/// A server's certificate is not trusted.
pub(crate) struct CertificateRefusal {
    pub(crate) server: String,
    pub(crate) issuer: Option<String>,
    pub(crate) why: CertificateError,
}

impl fmt::Display for CertificateRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the certificate of `{}`", self.server)?;
        if let Some(issuer) = &self.issuer {
            write!(f, ", issued by `{issuer}`,")?;
        }
        write!(f, " is not trusted: {}", self.why)
    }
}

impl fmt::Debug for CertificateRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for CertificateRefusal {}

impl CertificateRefusal {
    fn hint(&self) -> String {
        match &self.why {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => {
                "check the clock of this machine: `date`; otherwise the server must renew its certificate"
                    .to_owned()
            }
            CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. } => {
                "check the host in the URL; a proxy or a login page of the network may have answered instead"
                    .to_owned()
            }
            _ => format!(
                "if you trust this authority, such as that of a proxy that inspects TLS, name its PEM file in \
                 {CA_FILE_VAR} and restart the daemon"
            ),
        }
    }

    fn of<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Self> {
        let error = error.downcast_ref::<rustls::Error>()?;
        let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = error
        else {
            return None;
        };
        let other: &(dyn Error + 'static) = &**other;
        other.downcast_ref()
    }
}

/// Calls `visit` with an error and all its causes, until it returns something.
fn find<'e, T>(
    error: &'e (dyn Error + 'static),
    mut visit: impl FnMut(&'e (dyn Error + 'static)) -> Option<T>,
) -> Option<T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = visit(error) {
            return Some(found);
        }
        // The source of such an error is that of the error within.
        let within = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match within {
            Some(within) => Some(within),
            None => error.source(),
        };
    }
    None
}

/// The problem of a proxy or a certificate that caused an error, if one did.
#[must_use]
pub fn problem_of(error: &reqwest::Error) -> Option<NetworkProblem> {
    if let Some(refusal) = find(error, CertificateRefusal::of) {
        return Some(NetworkProblem {
            message: refusal.to_string(),
            hint: refusal.hint(),
        });
    }
    let url = error.url()?;
    if error
        .status()
        .is_some_and(|status| status.as_u16() == PROXY_AUTHENTICATION_REQUIRED)
    {
        return rejection_by_proxy(url);
    }
    let proxy = proxy_for(url).filter(|_| error.is_connect())?;
    Some(of_proxy(proxy, url, error))
}

/// The problem of a URL that was answered with [`PROXY_AUTHENTICATION_REQUIRED`]; `None` if it was
/// requested directly.
#[must_use]
pub fn rejection_by_proxy(url: &Url) -> Option<NetworkProblem> {
    proxy_for(url).map(authentication)
}

/// Describes an error: the problem of a proxy or a certificate with its hint, or the error with its
/// causes, without the URL.
#[must_use]
pub fn error_text(error: reqwest::Error) -> String {
    match problem_of(&error) {
        Some(problem) => problem.to_string(),
        None => error_chain(&error.without_url()),
    }
}

fn of_proxy(proxy: &Proxy, url: &Url, error: &reqwest::Error) -> NetworkProblem {
    let tunnel = find(error, |error| {
        let text = error.to_string();
        text.strip_prefix("tunnel error: ").map(str::to_owned)
    });
    let variable = proxy.variable;
    let host = url.host_str().unwrap_or_default();
    match tunnel.as_deref() {
        Some("proxy authorization required") => authentication(proxy),
        Some("unsuccessful" | "unexpected end of file" | "proxy response headers too long") => {
            NetworkProblem {
                message: format!("the proxy {proxy} refuses to connect to `{host}`"),
                hint: format!("allow the host at the proxy, or add `{host}` to NO_PROXY"),
            }
        }
        _ => {
            let reason = find(error, |error| {
                let is_cause = error.downcast_ref::<io::Error>().is_some();
                is_cause.then(|| error_chain(error))
            });
            let reason = reason.unwrap_or_else(|| error_chain(error));
            NetworkProblem {
                message: format!("failed to connect through the proxy {proxy}: {reason}"),
                hint: format!("check {variable}, or add `{host}` to NO_PROXY"),
            }
        }
    }
}

fn authentication(proxy: &Proxy) -> NetworkProblem {
    let variable = proxy.variable;
    match proxy.credentials() {
        Some(_) => NetworkProblem {
            message: format!("the proxy {proxy} rejects its user or password"),
            hint: format!(
                "correct them in {variable}; special characters are percent-encoded, such as `@` as `%40`"
            ),
        },
        None => NetworkProblem {
            message: format!("the proxy {proxy} requires a user and a password"),
            hint: format!("set {variable} to `http://USER:PASSWORD@HOST:PORT`"),
        },
    }
}
