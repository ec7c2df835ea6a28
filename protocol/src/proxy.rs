//! Proxies and certificate authorities of outgoing connections (`PROV-2`), as environment variables
//! configure them. Pure: the caller passes the variables.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Environment variables that name proxies, and the hosts that are reached without one. The lower
/// case applies first, as in curl.
pub const PROXY_VARIABLES: [&str; 8] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// Environment variable with the path of a PEM file: certificate authorities that are trusted in
/// addition to the system's.
pub const CA_FILE_VAR: &str = "GOONDAN_CA_FILE";

/// Environment variables that replace the system's certificate authorities.
pub const SYSTEM_CA_VARS: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Environment variables that name files or directories of certificate authorities.
pub const CA_VARIABLES: [&str; 3] = [SYSTEM_CA_VARS[0], SYSTEM_CA_VARS[1], CA_FILE_VAR];

/// A proxy. Its `Display` has no credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The variable that names it.
    pub variable: &'static str,
    /// True if the connection to the proxy uses TLS.
    pub is_https: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// Port, from the URL or the default.
    pub port: u16,
    credentials: Option<(String, String)>,
}

impl Proxy {
    /// User and password, decoded.
    #[must_use]
    pub fn credentials(&self) -> Option<(&str, &str)> {
        let (user, password) = self.credentials.as_ref()?;
        Some((user, password))
    }

    /// The proxy's URL without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        format!("{scheme}://{host}:{}", self.port)
    }

    fn parse(variable: &'static str, text: &str) -> Result<Self, ProxyProblem> {
        let wrong = |why| Err(ProxyProblem { variable, why });
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            "socks" | "socks4" | "socks4a" | "socks5" | "socks5h" => {
                return wrong("it names a SOCKS proxy; expected `http://` or `https://`");
            }
            _ => return wrong("expected `http://HOST:PORT` or `https://HOST:PORT`"),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let usual = if is_https { 443 } else { 80 };
        let Some((host, port)) = host_and_port(place) else {
            return wrong("its host or port is not valid");
        };
        let credentials = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (percent_decoded(name), percent_decoded(password))
        });
        Ok(Self {
            variable,
            is_https,
            host: host.to_owned(),
            port: port.unwrap_or(usual),
            credentials,
        })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.url(), self.variable)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A variable that names no usable proxy. Does not contain the variable's value, which can contain
/// a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{variable}` names no usable proxy: {why}")]
pub struct ProxyProblem {
    /// The variable.
    pub variable: &'static str,
    why: &'static str,
}

/// The proxies of all outgoing connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxySettings {
    http: Option<Proxy>,
    https: Option<Proxy>,
    direct: Vec<DirectHost>,
    /// The variable that lists the hosts that are reached without a proxy.
    direct_by: Option<&'static str>,
}

/// Settings of a process, for people. No credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkSettings {
    /// Proxy of `http` URLs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// Proxy of `https` URLs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts that are reached without a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// Variables that name certificate authorities, with their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificate_authorities: Vec<String>,
    /// Reason why the proxy variables are not usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl NetworkSettings {
    /// Reads the settings from environment variables.
    #[must_use]
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let authorities = CA_VARIABLES
            .into_iter()
            .filter_map(|name| Some(format!("{name}={}", variable(name)?)));
        let mut settings = Self {
            certificate_authorities: authorities.collect(),
            ..Self::default()
        };
        match ProxySettings::of(&variable) {
            Ok(proxies) => {
                settings.http_proxy = proxies.http.as_ref().map(ToString::to_string);
                settings.https_proxy = proxies.https.as_ref().map(ToString::to_string);
                settings.no_proxy = proxies.direct_by.and_then(variable);
            }
            Err(problem) => settings.problem = Some(problem.to_string()),
        }
        settings
    }
}

impl ProxySettings {
    /// Reads the settings from environment variables. An empty variable counts as not set.
    ///
    /// # Errors
    ///
    /// [`ProxyProblem`] if a variable names no usable proxy.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyProblem> {
        let set = |names: &[&'static str]| {
            names.iter().find_map(|name| {
                let value = variable(name)?.trim().to_owned();
                (!value.is_empty()).then_some((*name, value))
            })
        };
        let proxy = |names: &[&'static str]| {
            set(names)
                .map(|(name, value)| Proxy::parse(name, &value))
                .transpose()
        };
        let [
            http_lower,
            http,
            https_lower,
            https,
            all_lower,
            all,
            no_lower,
            no,
        ] = PROXY_VARIABLES;
        let direct = set(&[no_lower, no]);
        Ok(Self {
            http: proxy(&[http_lower, http, all_lower, all])?,
            https: proxy(&[https_lower, https, all_lower, all])?,
            direct_by: direct.as_ref().map(|(name, _)| *name),
            direct: direct.map_or_else(Vec::new, |(_, value)| {
                let parts = value.split([',', ' ', '\t', '\n']);
                parts.filter_map(DirectHost::parse).collect()
            }),
        })
    }

    /// The proxy of a URL's scheme, regardless of its host.
    #[must_use]
    pub fn of_scheme(&self, scheme: &str) -> Option<&Proxy> {
        match scheme {
            "https" | "wss" => self.https.as_ref(),
            "http" | "ws" => self.http.as_ref(),
            _ => None,
        }
    }

    /// The proxy through which a URL is requested; `None` if it is requested directly.
    ///
    /// Requests to this machine go directly if the proxy is on another machine, which could only
    /// reach its own loopback interface.
    #[must_use]
    pub fn proxy_for(&self, scheme: &str, host: &str, port: u16) -> Option<&Proxy> {
        let proxy = self.of_scheme(scheme)?;
        let host = host.trim_matches(['[', ']']);
        let host = host.strip_suffix('.').unwrap_or(host);
        if self.direct.iter().any(|direct| direct.matches(host, port)) {
            return None;
        }
        let is_unreachable = is_loopback(host) && !is_loopback(&proxy.host);
        (!is_unreachable).then_some(proxy)
    }

    /// Every configured proxy.
    pub fn all(&self) -> impl Iterator<Item = &Proxy> {
        self.http.iter().chain(&self.https)
    }
}

fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

/// An entry of `NO_PROXY`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DirectHost {
    All,
    /// A name and all names below it.
    Name(String, Option<u16>),
    /// Addresses that share this many leading bits.
    Network(IpAddr, u8),
    Address(IpAddr, Option<u16>),
}

impl DirectHost {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let bits: u8 = bits.parse().ok()?;
            return (bits <= bits_of(address)).then_some(Self::Network(address, bits));
        }
        if let Ok(address) = text.parse() {
            return Some(Self::Address(address, None));
        }
        let (host, port) = host_and_port(text)?;
        if let Ok(address) = host.parse() {
            return Some(Self::Address(address, port));
        }
        let name = host.strip_prefix('*').unwrap_or(host);
        let name = name.trim_matches('.').to_ascii_lowercase();
        (!name.is_empty()).then_some(Self::Name(name, port))
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        let is_port = |listed: &Option<u16>| listed.is_none_or(|listed| listed == port);
        match self {
            Self::All => true,
            Self::Name(name, listed) => {
                let host = host.to_ascii_lowercase();
                let below = host.strip_suffix(name.as_str());
                is_port(listed) && below.is_some_and(|left| left.is_empty() || left.ends_with('.'))
            }
            Self::Address(address, listed) => is_port(listed) && host.parse() == Ok(*address),
            Self::Network(network, bits) => host
                .parse()
                .is_ok_and(|address| shares_bits(*network, address, *bits)),
        }
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn shares_bits(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let rest = u32::from(bits_of(one) - bits);
    let differing = number(one) ^ number(other);
    one.is_ipv4() == other.is_ipv4() && differing.checked_shr(rest).unwrap_or(0) == 0
}

fn host_and_port(place: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => match place.find(':') {
            Some(colon) => place.split_at(colon),
            None => (place, ""),
        },
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        None => return None,
        Some("") => None,
        Some(port) => Some(port.parse().ok()?),
    };
    let is_host = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '@');
    is_host.then_some((host, port))
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        let code = bytes.get(index + 1..index + 3);
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match code.filter(|_| *byte == b'%') {
            Some(code) => {
                decoded.push(code);
                index += 3;
            }
            None => {
                decoded.push(*byte);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(set: &[(&str, &str)]) -> Result<ProxySettings, ProxyProblem> {
        ProxySettings::of(|name| {
            let found = set.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn used(set: &[(&str, &str)], scheme: &str, host: &str, port: u16) -> Option<String> {
        let settings = settings(set).unwrap();
        settings.proxy_for(scheme, host, port).map(Proxy::url)
    }

    #[test]
    fn prov_2_each_scheme_has_its_proxy_and_lower_case_first() {
        let set = [
            ("HTTP_PROXY", "a:1"),
            ("HTTPS_PROXY", "http://b:2/"),
            ("https_proxy", "https://c"),
        ];
        let at = |scheme| used(&set, scheme, "example.org", 443);
        assert_eq!(at("http").as_deref(), Some("http://a:1"));
        assert_eq!(at("https").as_deref(), Some("https://c:443"));
        let all = [("all_proxy", "http://[::1]:3128"), ("HTTPS_PROXY", " ")];
        for scheme in ["http", "https"] {
            let url = used(&all, scheme, "example.org", 1);
            assert_eq!(url.as_deref(), Some("http://[::1]:3128"));
        }
        assert_eq!(used(&all, "ftp", "example.org", 21), None);
    }

    #[test]
    fn prov_2_hosts_in_no_proxy_are_reached_directly() {
        let listed =
            "Example.org, .corp, *.lab.net 10.0.0.0/8,[fd00::1],192.168.0.7, a.b:8443,fd12::/16";
        let set = [("HTTPS_PROXY", "http://p:1"), ("no_proxy", listed)];
        for (host, port, is_direct) in [
            ("example.org", 443, true),
            ("API.example.org.", 443, true),
            ("notexample.org", 443, false),
            ("x.corp", 443, true),
            ("corp", 443, true),
            ("a.lab.net", 443, true),
            ("10.200.3.4", 443, true),
            ("11.0.0.1", 443, false),
            ("192.168.0.7", 443, true),
            ("192.168.0.8", 443, false),
            ("[fd00::1]", 443, true),
            ("fd12:3::4", 443, true),
            ("fd13::4", 443, false),
            ("a.b", 8443, true),
            ("a.b", 443, false),
            ("localhost", 443, true),
            ("127.0.0.1", 443, true),
        ] {
            assert_eq!(
                used(&set, "https", host, port).is_none(),
                is_direct,
                "{host}"
            );
        }
        let all = [("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "*")];
        assert_eq!(used(&all, "https", "example.org", 443), None);
        // A proxy on this machine can reach this machine.
        let here = [("http_proxy", "127.0.0.1:9")];
        assert!(used(&here, "http", "localhost", 80).is_some());
    }

    #[test]
    fn prov_2_credentials_of_a_proxy_are_never_shown() {
        let set = [("https_proxy", "http://corp%5Cann:p%40ss:w@proxy.corp:3128")];
        let settings = settings(&set).unwrap();
        let proxy = settings.of_scheme("https").unwrap();
        assert_eq!(proxy.credentials(), Some(("corp\\ann", "p@ss:w")));
        for shown in [format!("{proxy}"), format!("{settings:?}")] {
            assert!(shown.contains("http://proxy.corp:3128"), "{shown}");
            assert!(!shown.contains("ss") && !shown.contains("ann"), "{shown}");
        }
    }

    #[test]
    fn prov_2_a_variable_without_a_usable_proxy_is_named() {
        for (value, said) in [
            ("socks5://h:1", "SOCKS"),
            ("ftp://h:1", "http://HOST:PORT"),
            ("http://h:none", "host or port"),
            ("http://u:secret@:1", "host or port"),
        ] {
            let problem = settings(&[("ALL_PROXY", value)]).unwrap_err().to_string();
            assert!(problem.contains("`ALL_PROXY`"), "{problem}");
            assert!(
                problem.contains(said) && !problem.contains("secret"),
                "{problem}"
            );
        }
    }
}
