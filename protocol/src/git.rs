//! Invocation of git on untrusted files (`PKG-3`, `PROP-7`).
//!
//! git receives an empty environment plus [`ENVIRONMENT`], and [`ARGUMENTS`] before its own
//! arguments. No setting of the machine, a user or a repository can then choose a program for it to
//! start, and it neither prompts nor uses the network. The caller sets the repository, or declares
//! that there is none.
//!
//! Repositories that people name are [addresses](RepositoryAddress) that git cannot take for an
//! option or for a program to start.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::proxy::{CA_FILE_VAR, PROXY_VARIABLES, SYSTEM_CA_VARS};

/// Options before the command. They prevent a repository's settings from starting programs.
pub const ARGUMENTS: [&str; 12] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.attributesFile=/dev/null",
    "-c",
    "credential.helper=",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];

/// Environment variables besides `PATH`.
pub const ENVIRONMENT: [(&str, &str); 8] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "/bin/false"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_ALLOW_PROTOCOL", ""),
    ("LC_ALL", "C"),
];

/// Environment variables for git when it uses the network: the proxies, and the certificate
/// authorities in git's own variables, because its HTTP library ignores `SSL_CERT_FILE`.
#[must_use]
pub fn network_environment(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let passed_on = PROXY_VARIABLES.into_iter().chain(SYSTEM_CA_VARS);
    let mut set: Vec<_> = passed_on
        .filter_map(|name| Some((name, variable(name)?)))
        .collect();
    let [file_var, directory_var] = SYSTEM_CA_VARS;
    let file = variable(CA_FILE_VAR);
    let usual_directory = || file.is_some().then(|| OsString::from(SYSTEM_CA_DIRECTORY));
    let directory = variable(directory_var).or_else(usual_directory);
    set.extend(directory.map(|directory| ("GIT_SSL_CAPATH", directory)));
    let file = file.or_else(|| variable(file_var));
    set.extend(file.map(|file| ("GIT_SSL_CAINFO", file)));
    set
}

/// The system's certificate authorities, which git trusts in addition to those of a file.
const SYSTEM_CA_DIRECTORY: &str = "/etc/ssl/certs";

/// Advice if the error output of git shows a problem with a proxy or a certificate.
#[must_use]
pub fn network_advice(said: &str) -> Option<&'static str> {
    let said = said.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if says(&[
        "from proxy",
        "connect tunnel",
        "proxy connect",
        "resolve proxy",
        "connect to proxy",
    ]) {
        return Some(
            "check the proxy in `HTTPS_PROXY`, its user and its password: `gdn doctor --network`",
        );
    }
    let of_trust = [
        "certificate verif",
        "certificate problem",
        "gnutls_handshake",
    ];
    says(&of_trust).then_some(
        "if you trust the certificate's authority, name its PEM file in GOONDAN_CA_FILE, and restart the daemon",
    )
}

/// Longest address of a repository, in bytes.
const ADDRESS_BYTES_MAX: usize = 2_048;

/// Longest name of a branch, a tag or a commit, in bytes.
const REFERENCE_BYTES_MAX: usize = 255;

/// Address of a git repository that a person named (`REPO-1`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepositoryAddress {
    /// An absolute path on this machine.
    Path(PathBuf),
    /// An `https` URL, or an `http` URL of the loopback interface.
    Url(RepositoryUrl),
}

/// URL of a repository, without credentials, query and fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryUrl {
    text: String,
    /// Bytes of the scheme.
    scheme: usize,
    /// Bytes up to the path.
    origin: usize,
}

impl RepositoryUrl {
    /// The URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its scheme: the only protocol that git may use.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.text.get(..self.scheme).unwrap_or_default()
    }

    /// Scheme, host and port: credentials for one repository are used for no other origin.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.text.get(..self.origin).unwrap_or_default()
    }

    /// `owner/name`, if the path consists of these.
    #[must_use]
    pub fn owner_and_name(&self) -> Option<&str> {
        let path = self.text.get(self.origin..)?.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let is_name = |name: &str| !name.is_empty() && !name.contains('/');
        let (owner, name) = path.split_once('/')?;
        (is_name(owner) && is_name(name)).then_some(path)
    }
}

impl RepositoryAddress {
    /// Parses an absolute path or a URL.
    ///
    /// # Errors
    ///
    /// The reason, to follow "`ADDRESS` …".
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() || text.len() > ADDRESS_BYTES_MAX {
            return Err("is empty or too long for the address of a repository");
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("contains a space or a control character");
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return Self::parse_url(text, scheme, rest);
        }
        if text.starts_with('/') {
            return Ok(Self::Path(PathBuf::from(text)));
        }
        if text.contains(':') {
            return Err("is not supported: use `https://HOST/PATH`, with a token from a secret");
        }
        Err("is neither an absolute path nor an `https` URL")
    }

    fn parse_url(text: &str, scheme: &str, rest: &str) -> Result<Self, &'static str> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err("contains credentials: put the token into a secret instead");
        }
        let is_authority = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        let is_named = authority.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[');
        if !is_named || !authority.bytes().all(is_authority) {
            return Err("has no valid host");
        }
        if path.trim_matches('/').is_empty() || path.contains(['?', '#']) {
            return Err("has no path of a repository, or has a query or a fragment");
        }
        let is_loopback = || {
            let host = match authority.rsplit_once(':') {
                Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
                _ => authority,
            };
            let address = host.parse::<std::net::Ipv4Addr>();
            host == "localhost" || host == "[::1]" || address.is_ok_and(|it| it.is_loopback())
        };
        match scheme {
            "https" => {}
            "http" if is_loopback() => {}
            "http" => return Err("is not encrypted: use `https`"),
            _ => return Err("does not use `https`"),
        }
        Ok(Self::Url(RepositoryUrl {
            scheme: scheme.len(),
            origin: text.len().saturating_sub(path.len() + 1),
            text: text.to_owned(),
        }))
    }
}

/// Checks the name of a branch, a tag or a commit.
///
/// # Errors
///
/// The reason, to follow "`NAME` …".
pub fn check_reference(name: &str) -> Result<(), &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/+=@#,%".contains(&byte);
    let is_plain = !name.is_empty()
        && name.len() <= REFERENCE_BYTES_MAX
        && name.bytes().all(is_allowed)
        && !name.starts_with(['-', '/', '.', '+', '@'])
        && !name.ends_with(['/', '.'])
        && !["..", "//", "/."].iter().any(|part| name.contains(part));
    match is_plain {
        true => Ok(()),
        false => Err("is not the name of a branch, a tag or a commit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_2_git_gets_proxies_and_authorities_in_its_own_words() {
        let set = |set: &'static [(&str, &str)]| {
            network_environment(move |name| {
                let found = set.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let value = |set: &[(&'static str, OsString)], name: &str| {
            let found = set.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| value.to_string_lossy().into_owned())
        };
        let file = set(&[("HTTPS_PROXY", "http://p:1"), ("SSL_CERT_FILE", "/a.pem")]);
        assert_eq!(value(&file, "HTTPS_PROXY").as_deref(), Some("http://p:1"));
        assert_eq!(value(&file, "GIT_SSL_CAINFO").as_deref(), Some("/a.pem"));
        assert_eq!(
            value(&file, "GIT_SSL_CAPATH"),
            None,
            "replaces the system's"
        );
        let more = set(&[("GOONDAN_CA_FILE", "/b.pem")]);
        assert_eq!(value(&more, "GIT_SSL_CAINFO").as_deref(), Some("/b.pem"));
        assert!(
            value(&more, "GIT_SSL_CAPATH").is_some(),
            "adds to the system's"
        );
        let refused = "fatal: unable to access 'https://h/': CONNECT tunnel failed, response 407";
        assert!(network_advice(refused).is_some_and(|advice| advice.contains("HTTPS_PROXY")));
        assert_eq!(network_advice("fatal: repository not found"), None);
    }

    #[test]
    fn repo_1_addresses_and_references_cannot_lead_elsewhere() {
        let url = |text: &str| match RepositoryAddress::parse(text) {
            Ok(RepositoryAddress::Url(url)) => url,
            other => panic!("{text}: {other:?}"),
        };
        let shop = url("https://git.example.org:8443/acme/shop.git");
        assert_eq!(shop.scheme(), "https");
        assert_eq!(shop.origin(), "https://git.example.org:8443");
        assert_eq!(shop.owner_and_name(), Some("acme/shop"));
        assert_eq!(url("https://h/shop").owner_and_name(), None);
        assert_eq!(url("https://h/a/b/c").owner_and_name(), None);
        assert_eq!(
            url("http://127.0.0.1:80/a/b").origin(),
            "http://127.0.0.1:80"
        );
        let path = RepositoryAddress::parse("/srv/git/shop.git");
        assert_eq!(
            path,
            Ok(RepositoryAddress::Path("/srv/git/shop.git".into()))
        );
        for other in [
            "",
            "-oProxyCommand=x",
            "--upload-pack=touch x",
            "shop",
            "ext::sh -c touch% x",
            "ext::sh",
            "git@example.org:acme/shop",
            "ssh://example.org/shop",
            "file:///srv/shop",
            "http://example.org/shop",
            "http://127.0.0.1.example.org/shop",
            "https://user:token@example.org/shop",
            "https://-h/shop",
            "https:///shop",
            "https://h",
            "https://h/?x",
            "https://h/a b",
            "https://h/a\nb",
            "/srv/a\0b",
        ] {
            assert!(RepositoryAddress::parse(other).is_err(), "{other}");
        }
        for name in ["main", "release/1.2", "v1.0", &"0a".repeat(20), "fix-#7"] {
            assert_eq!(check_reference(name), Ok(()), "{name}");
        }
        for other in [
            "",
            "-x",
            "--upload-pack=x",
            "a..b",
            "a:b",
            "+a",
            "a b",
            "a^{x}",
            "@",
            "a@{1}",
            "a~1",
            "/a",
            "a/",
            "../a",
            "a/.b",
            "é",
        ] {
            assert!(check_reference(other).is_err(), "{other}");
        }
    }
}
