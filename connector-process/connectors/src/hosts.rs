//! Hosts that requests may go to, as written in `goondan.yaml`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Entry for every host and port.
const ANY: &str = "*:*";

/// One permitted target of requests: `[scheme://]host[:port]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    is_tls: bool,
    host: Pattern,
    /// `None` for every port.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// `*:*`: every name and address, on every port.
    Any,
    /// `*`: every name, but no address.
    Every,
    /// `*.example.com`: every name below this one.
    Below(String),
    /// Exactly this name or address, in the form of URLs.
    Only(String),
}

impl AllowedHost {
    /// Parses an entry: `example.com`, `*.example.com`, `example.com:8443`, `http://10.0.0.7:8080`,
    /// `*`, `*:*`. The default scheme is `https`; the default port is the scheme's.
    ///
    /// # Errors
    ///
    /// A description of the problem.
    pub fn parse(entry: &str) -> Result<Self, &'static str> {
        let entry = entry.to_ascii_lowercase();
        let (is_tls, rest) = match entry.split_once("://") {
            None => (true, entry.as_str()),
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return Err("a scheme other than `https` and `http`"),
        };
        if rest.contains(['/', '?', '#', '@']) {
            return Err("more than a host and a port");
        }
        if rest == ANY {
            let (host, port) = (Pattern::Any, None);
            return Ok(Self { is_tls, host, port });
        }
        let (host, port) = match rest.rsplit_once(':') {
            // The colons belong to an IPv6 address without a port.
            Some((_, port)) if port.ends_with(']') => (rest, None),
            Some((host, port)) => {
                let number: u16 = port.parse().map_err(|_not_a_port| "an invalid port")?;
                (host, Some(number))
            }
            None => (rest, None),
        };
        let host = match host.strip_prefix("*.") {
            _ if host == "*" => Pattern::Every,
            Some(name) if is_name(name) && !is_address(name) => Pattern::Below(format!(".{name}")),
            None if is_name(host) || is_address(host) => Pattern::Only(host.to_owned()),
            Some(_) | None => return Err("an invalid host name"),
        };
        let usual = if is_tls { 443 } else { 80 };
        let port = Some(port.unwrap_or(usual));
        Ok(Self { is_tls, host, port })
    }

    /// True if a request may go to this target: `host` in the form of URLs, an IPv6 address in
    /// brackets.
    #[must_use]
    pub fn allows(&self, scheme: &str, host: &str, port: u16) -> bool {
        let is_scheme = scheme == if self.is_tls { "https" } else { "http" };
        is_scheme
            && self.port.is_none_or(|only| only == port)
            && match &self.host {
                Pattern::Any => true,
                Pattern::Every => !is_address(host),
                Pattern::Below(end) => {
                    !is_address(host) && host.len() > end.len() && host.ends_with(end.as_str())
                }
                Pattern::Only(only) => only == host,
            }
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_tls {
            f.write_str("http://")?;
        }
        match &self.host {
            Pattern::Any => f.write_str(ANY)?,
            Pattern::Every => f.write_str("*")?,
            Pattern::Below(end) => write!(f, "*{end}")?,
            Pattern::Only(only) => f.write_str(only)?,
        }
        let usual = if self.is_tls { 443 } else { 80 };
        match self.port {
            Some(port) if port != usual => write!(f, ":{port}"),
            Some(_) | None => Ok(()),
        }
    }
}

fn is_address(host: &str) -> bool {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match inner {
        // Only the canonical form, which URLs use, can match.
        Some(inner) => inner
            .parse()
            .is_ok_and(|address: Ipv6Addr| address.to_string() == inner),
        None => host.parse::<Ipv4Addr>().is_ok(),
    }
}

fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !label.is_empty() && label.len() <= 63 && label.bytes().all(is_part)
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(entry: &str, url: (&str, &str, u16)) -> bool {
        let (scheme, host, port) = url;
        AllowedHost::parse(entry)
            .unwrap()
            .allows(scheme, host, port)
    }

    #[test]
    fn host_entry_allows_exactly_its_scheme_host_and_port() {
        let site = ("https", "example.com", 443);
        assert!(allows("example.com", site));
        assert!(allows("https://EXAMPLE.com", site));
        for other in [
            ("http", "example.com", 80),
            ("http", "example.com", 443),
            ("https", "example.com", 8443),
            ("https", "a.example.com", 443),
            ("https", "example.com.evil.org", 443),
        ] {
            assert!(!allows("example.com", other), "{other:?}");
        }
        assert!(allows("*.example.com", ("https", "a.b.example.com", 443)));
        for other in ["example.com", "badexample.com", ".example.com"] {
            assert!(!allows("*.example.com", ("https", other, 443)), "{other}");
        }
        assert!(allows("http://10.0.0.7:8080", ("http", "10.0.0.7", 8080)));
        assert!(allows("[::1]:8443", ("https", "[::1]", 8443)));
        assert!(allows("[::1]", ("https", "[::1]", 443)));
        assert!(allows("*", site));
        assert!(!allows("*", ("https", "1.1.1.1", 443)));
        assert!(!allows("*", ("https", "[2606::1]", 443)));
        assert!(!allows("*", ("http", "example.com", 80)));
        assert!(allows("http://*:*", ("http", "127.0.0.1", 18_765)));
        assert!(allows("*:*", ("https", "example.com", 8443)));
        assert!(!allows("*:*", ("http", "example.com", 80)));
    }

    #[test]
    fn invalid_host_entries_are_rejected() {
        for entry in [
            "",
            "*.",
            "*.*",
            "a.*",
            "ftp://a",
            "a/b",
            "a:99999",
            "u@a",
            "*.1.2.3.4",
            "[::1",
            "a..b",
            "[0:0::1]",
            "a b",
            "*:x",
            "a.org:*",
        ] {
            assert!(AllowedHost::parse(entry).is_err(), "{entry}");
        }
    }

    #[test]
    fn an_entry_is_shown_as_it_may_be_written() {
        for entry in [
            "a.org",
            "*.a.org",
            "http://a.org:8080",
            "*",
            "*:*",
            "[::1]:8443",
        ] {
            assert_eq!(AllowedHost::parse(entry).unwrap().to_string(), entry);
        }
    }
}
