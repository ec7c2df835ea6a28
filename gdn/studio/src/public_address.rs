//! Address of the page behind a reverse proxy (`OBS-5`), which terminates TLS and may serve the page below a path.
//!
//! The operator names the address. Headers such as `X-Forwarded-Host` are not evaluated, because any
//! client could send them.

use std::str::FromStr;

/// Ports that a browser omits in `Host` and `Origin`, by scheme.
const SCHEMES: [(&str, &str); 2] = [("https://", ":443"), ("http://", ":80")];

/// Address under which browsers reach the page through a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicAddress {
    /// `https://`
    scheme: &'static str,
    /// `desk.example` or `desk.example:8443`, in lower case.
    host: String,
    /// `/` or `/studio/`.
    base: String,
}

/// Target of a request path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublicPath<'p> {
    /// Path without the base.
    Page(&'p str),
    /// The base without its final slash: relative references of the page would miss the base.
    MissingSlash,
}

/// Reason for rejecting an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write it as the browser shows it, such as https://desk.example/studio/")]
pub(crate) struct InvalidPublicAddress;

impl PublicAddress {
    /// The `Host` of requests to the page.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The `Origin` of requests of the page.
    pub(crate) fn origin(&self) -> String {
        format!("{}{}", self.scheme, self.host)
    }

    /// The complete address.
    pub(crate) fn url(&self) -> String {
        format!("{}{}{}", self.scheme, self.host, self.base)
    }

    /// The base path, with slashes at both ends.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Removes the base from a path, unless the proxy has already removed it.
    pub(crate) fn page_path<'p>(&self, path: &'p str) -> PublicPath<'p> {
        let base = self.base.trim_end_matches('/');
        match path.strip_prefix(base) {
            Some("") if !base.is_empty() => PublicPath::MissingSlash,
            Some(rest) if rest.starts_with('/') => PublicPath::Page(rest),
            _ => PublicPath::Page(path),
        }
    }
}

impl FromStr for PublicAddress {
    type Err = InvalidPublicAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, default_port, rest) = SCHEMES
            .iter()
            .find_map(|(scheme, port)| Some((*scheme, *port, text.strip_prefix(scheme)?)))
            .ok_or(InvalidPublicAddress)?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix(default_port).unwrap_or(&host);
        let path = path.trim_end_matches('/');
        let is_host = |char: char| char.is_ascii_alphanumeric() || "-.:[]".contains(char);
        let is_segment = |segment: &str| {
            let is_plain = |char: char| char.is_ascii_alphanumeric() || "-._~".contains(char);
            !segment.is_empty()
                && segment != "."
                && segment != ".."
                && segment.chars().all(is_plain)
        };
        let is_valid = !host.is_empty()
            && host.chars().all(is_host)
            && (path.is_empty() || path.split('/').all(is_segment));
        match is_valid {
            true => Ok(Self {
                scheme,
                host: host.to_owned(),
                base: match path {
                    "" => "/".to_owned(),
                    path => format!("/{path}/"),
                },
            }),
            false => Err(InvalidPublicAddress),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> PublicAddress {
        text.parse().unwrap()
    }

    #[test]
    fn obs_5_public_address_is_as_the_browser_shows_it() {
        for (text, host, url) in [
            (
                "https://Desk.example",
                "desk.example",
                "https://desk.example/",
            ),
            (
                "https://desk.example:443/",
                "desk.example",
                "https://desk.example/",
            ),
            (
                "https://desk.example:8443/a",
                "desk.example:8443",
                "https://desk.example:8443/a/",
            ),
            (
                "http://desk.example:80/a/b/",
                "desk.example",
                "http://desk.example/a/b/",
            ),
        ] {
            assert_eq!(address(text).host(), host);
            assert_eq!(address(text).url(), url);
        }
        assert_eq!(
            address("https://desk.example/a").origin(),
            "https://desk.example"
        );
    }

    #[test]
    fn obs_5_public_address_rejects_everything_else() {
        for text in [
            "desk.example",
            "ftp://desk.example",
            "https://",
            "https:///studio",
            "https://user@desk.example",
            "https://desk.example/../x",
            "https://desk.example/a//b",
            "https://desk.example/a?b",
            "https://desk.example/#t",
        ] {
            assert!(text.parse::<PublicAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn obs_5_base_path_is_removed_once() {
        let below = address("https://desk.example/studio");
        for (path, page) in [
            ("/studio/", "/"),
            ("/studio/api/call", "/api/call"),
            // The proxy has removed it.
            ("/", "/"),
            ("/api/call", "/api/call"),
            ("/studios", "/studios"),
        ] {
            assert_eq!(below.page_path(path), PublicPath::Page(page), "{path}");
        }
        assert_eq!(below.page_path("/studio"), PublicPath::MissingSlash);
        let root = address("https://desk.example");
        assert_eq!(root.page_path("/"), PublicPath::Page("/"));
        assert_eq!(root.page_path("/api/call"), PublicPath::Page("/api/call"));
    }
}
