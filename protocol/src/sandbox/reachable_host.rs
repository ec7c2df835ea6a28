//! Hosts that confined programs may reach, as `goondan.yaml` lists them, and hosts as programs name
//! them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The ports of an entry that names none: those of HTTP and HTTPS.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// Longest name of a host, in bytes, and of one of its parts, as DNS has it.
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Minimum number of labels in a wildcard's base name: everything below `*.org`, for example,
/// cannot be trusted.
const MIN_WILDCARD_LABELS: usize = 2;

/// A host as a program asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A name in lower case, without a dot at its end.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// Reason why a text is not a valid host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// It holds a character that no name has.
    #[error("is not a valid host name: use letters, digits, `-`, `_` and `.`")]
    NoName,
    /// It has letters beyond ASCII.
    #[error("has letters beyond ASCII; write the name as `xn--…`")]
    NotAscii,
    /// It has capitals.
    #[error("has capitals; write it in lower case")]
    Capitals,
    /// A number that some programs take for an address.
    #[error("looks like an address in another notation; write it as `192.0.2.1`")]
    Number,
    /// More than a host and a port.
    #[error("is more than a host and a port; remove `https://`, the path and the user")]
    NotOnlyAHost,
    /// The port is invalid.
    #[error("has an invalid port; write a number from 1 to 65535")]
    Port,
    /// A wildcard that matches too much, or is not at the front.
    #[error("has a wildcard that matches too much; write one like `*.example.org`")]
    Wildcard,
    /// An IPv6 address without brackets.
    #[error("is an IPv6 address without brackets; write it as `[2001:db8::1]:443`")]
    Brackets,
}

impl FromStr for Host {
    type Err = InvalidHost;

    /// Reads a host as requests name it: capitals and one dot at the end make no difference.
    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(InvalidHost::Brackets)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| InvalidHost::NoName)?;
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return match address {
                IpAddr::V4(_) => Ok(Self::Address(address)),
                IpAddr::V6(_) => Err(InvalidHost::Brackets),
            };
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        check_name(&name)?;
        Ok(Self::Name(name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

fn check_name(name: &str) -> Result<(), InvalidHost> {
    if !name.is_ascii() {
        return Err(InvalidHost::NotAscii);
    }
    if name.contains([':', '/', '@', '?', '#']) {
        return Err(InvalidHost::NotOnlyAHost);
    }
    let is_label = |label: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !label.is_empty() && label.len() <= MAX_LABEL_BYTES && label.bytes().all(is_part)
    };
    if name.len() > MAX_NAME_BYTES || !name.split('.').all(is_label) {
        return Err(InvalidHost::NoName);
    }
    // As in browsers: a name whose last label is a number is an address, in any notation.
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_number {
        return Err(InvalidHost::Number);
    }
    Ok(())
}

/// One entry of a list: `host[:port]`. Without a port, the ports of HTTP and HTTPS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReachableHost {
    host: Pattern,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// This name or address.
    Only(Host),
    /// `*.example.org`: every name below this one.
    Below(String),
}

impl ReachableHost {
    /// True if the entry allows a program to connect to `host` and `port`.
    #[must_use]
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        let is_port = match self.port {
            Some(only) => only == port,
            None => USUAL_PORTS.contains(&port),
        };
        is_port
            && match (&self.host, host) {
                (Pattern::Only(only), host) => only == host,
                (Pattern::Below(parent), Host::Name(name)) => name
                    .strip_suffix(parent.as_str())
                    .is_some_and(|front| front.len() > 1 && front.ends_with('.')),
                (Pattern::Below(_), Host::Address(_)) => false,
            }
    }

    /// The hosts and ports that both entries allow; `None` if there are none.
    #[must_use]
    pub fn common(&self, other: &Self) -> Option<Self> {
        let is_below = |name: &str, parent: &str| {
            let front = name.strip_suffix(parent);
            front.is_some_and(|front| front.len() > 1 && front.ends_with('.'))
        };
        let host = match (&self.host, &other.host) {
            (one, another) if one == another => one,
            (Pattern::Below(parent), only @ Pattern::Only(Host::Name(name)))
            | (only @ Pattern::Only(Host::Name(name)), Pattern::Below(parent))
                if is_below(name, parent) =>
            {
                only
            }
            (Pattern::Below(parent), deeper @ Pattern::Below(name))
            | (deeper @ Pattern::Below(name), Pattern::Below(parent))
                if is_below(name, parent) =>
            {
                deeper
            }
            _ => return None,
        };
        let port = match (self.port, other.port) {
            (one, another) if one == another => one,
            (None, Some(port)) | (Some(port), None) if USUAL_PORTS.contains(&port) => Some(port),
            _ => return None,
        };
        let host = host.clone();
        Some(Self { host, port })
    }

    /// True if it is exactly this host, at any port.
    #[must_use]
    pub fn is_host(&self, host: &Host) -> bool {
        matches!(&self.host, Pattern::Only(only) if only == host)
    }

    /// The address, if the entry is one. A person who writes it means it, wherever it leads.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match &self.host {
            Pattern::Only(Host::Address(address)) => Some(*address),
            Pattern::Only(Host::Name(_)) | Pattern::Below(_) => None,
        }
    }
}

impl FromStr for ReachableHost {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        if text.contains(['/', '@', '?', '#']) {
            return Err(InvalidHost::NotOnlyAHost);
        }
        let is_bare_v6 = !text.starts_with('[') && text.matches(':').count() > 1;
        if is_bare_v6 {
            return Err(InvalidHost::Brackets);
        }
        let (host, port) = match text.rsplit_once(':') {
            // The colons of an address without a port.
            Some((_, port)) if port.ends_with(']') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => return Err(InvalidHost::Port),
        };
        if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(InvalidHost::Capitals);
        }
        let host = match host.strip_prefix("*.") {
            Some(parent) => {
                check_name(parent)?;
                if parent.split('.').count() < MIN_WILDCARD_LABELS {
                    return Err(InvalidHost::Wildcard);
                }
                Pattern::Below(parent.to_owned())
            }
            None if host.contains('*') => return Err(InvalidHost::Wildcard),
            None => Pattern::Only(host.parse()?),
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for ReachableHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Pattern::Only(host) => host.fmt(f)?,
            Pattern::Below(parent) => write!(f, "*.{parent}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for ReachableHost {
    type Error = InvalidHost;

    fn try_from(text: String) -> Result<Self, InvalidHost> {
        text.parse()
    }
}

impl From<ReachableHost> for String {
    fn from(host: ReachableHost) -> Self {
        host.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(entry: &str, host: &str, port: u16) -> bool {
        let entry: ReachableHost = entry.parse().unwrap();
        host.parse().is_ok_and(|host| entry.allows(&host, port))
    }

    #[test]
    fn sec_3_an_entry_means_its_host_and_port_and_nothing_else() {
        for (entry, host, port) in [
            ("a.org", "a.org", 443),
            ("a.org", "A.ORG.", 80),
            ("a.org:8443", "a.org", 8443),
            ("*.a.org", "x.a.org", 443),
            ("*.a.org", "y.x.a.org", 443),
            ("127.0.0.1:8080", "127.0.0.1", 8080),
            ("[::1]:8080", "[::1]", 8080),
        ] {
            assert!(allows(entry, host, port), "{entry} {host}:{port}");
        }
        for (entry, host, port) in [
            ("a.org", "a.org", 8443),
            ("a.org:8443", "a.org", 443),
            ("a.org", "x.a.org", 443),
            ("a.org", "a.org.evil.net", 443),
            ("a.org", "evila.org", 443),
            ("*.a.org", "a.org", 443),
            ("*.a.org", ".a.org", 443),
            ("*.a.org", "xa.org", 443),
            ("a.org", "a.org..", 443),
            ("127.0.0.1", "2130706433", 80),
            ("127.0.0.1", "0x7f.1", 80),
            ("127.0.0.1", "127.1", 80),
            ("127.0.0.1", "[::ffff:127.0.0.1]", 80),
            ("127.0.0.1", "[::ffff:7f00:1]", 80),
        ] {
            assert!(!allows(entry, host, port), "{entry} {host}:{port}");
        }
    }

    #[test]
    fn sec_3_overly_broad_host_entries_are_invalid() {
        use InvalidHost as Is;
        for (entry, why) in [
            ("*", Is::Wildcard),
            ("*.", Is::NoName),
            ("*.org", Is::Wildcard),
            ("a.*.org", Is::Wildcard),
            ("*.*.org", Is::NoName),
            ("*:443", Is::Wildcard),
            ("https://a.org", Is::NotOnlyAHost),
            ("a.org/x", Is::NotOnlyAHost),
            ("me@a.org", Is::NotOnlyAHost),
            ("A.org", Is::Capitals),
            ("bücher.example", Is::NotAscii),
            ("2130706433", Is::Number),
            ("0x7f.1", Is::Number),
            ("127.1", Is::Number),
            ("a.0x7f", Is::Number),
            ("::1", Is::Brackets),
            ("[::1", Is::Brackets),
            ("a.org:0", Is::Port),
            ("a.org:99999", Is::Port),
            ("a.org:", Is::Port),
            ("", Is::NoName),
            ("a..org", Is::NoName),
            ("a b.org", Is::NoName),
            ("*.1", Is::Number),
        ] {
            let read: Result<ReachableHost, _> = entry.parse();
            assert_eq!(read, Err(why), "{entry}");
        }
    }

    #[test]
    fn sec_3_host_entries_intersect_to_the_hosts_that_both_allow() {
        let read = |text: &str| text.parse::<ReachableHost>().unwrap();
        for (one, other, common) in [
            ("a.org", "a.org", "a.org"),
            ("a.org", "a.org:443", "a.org:443"),
            ("*.a.org", "x.a.org:80", "x.a.org:80"),
            ("*.a.org:443", "x.a.org", "x.a.org:443"),
            ("*.a.org", "*.x.a.org", "*.x.a.org"),
            ("*.a.org:8443", "*.a.org:8443", "*.a.org:8443"),
            ("127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1:8080"),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                let found = read(one).common(&read(other)).map(|it| it.to_string());
                assert_eq!(found.as_deref(), Some(common), "{one} {other}");
            }
        }
        for (one, other) in [
            ("a.org", "b.org"),
            ("a.org", "a.org:8443"),
            ("*.a.org", "a.org"),
            ("*.a.org", "*.b.org"),
            ("*.a.org", "xa.org"),
            ("a.org:80", "a.org:443"),
            ("127.0.0.1", "[::1]"),
        ] {
            assert_eq!(read(one).common(&read(other)), None, "{one} {other}");
            assert_eq!(read(other).common(&read(one)), None, "{other} {one}");
        }
    }

    #[test]
    fn an_entry_is_written_as_it_is_read() {
        for text in ["a.org", "*.a.org:8443", "10.0.0.7:80", "[::1]:443", "[::1]"] {
            let entry: ReachableHost = text.parse().unwrap();
            assert_eq!(entry.to_string(), text);
        }
    }
}
