//! Filters requests (`OBS-5`): only a browser's requests for our own page are accepted.
//!
//! * The `Host` must exactly equal one of ours, which excludes a foreign name that resolves to this
//!   machine (DNS rebinding).
//! * Requests for anything but files must have our own page as `Origin`. Foreign pages cannot send
//!   it, and a client that sends none is not a browser that shows our page.
//! * `Sec-Fetch-Site`, which pages cannot forge, must agree if the browser sends it.

use axum::http::{HeaderMap, HeaderName, Method, header};

use crate::public_address::PublicAddress;

/// The addresses of the page.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    addresses: Vec<PageAddress>,
}

/// One address of the page, as the headers of requests to it have it.
#[derive(Debug, Clone)]
struct PageAddress {
    /// `127.0.0.1:4711`, in lower case.
    host: String,
    /// `http://127.0.0.1:4711`
    origin: String,
}

/// Reason for rejecting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GuardRejection {
    #[error("the request names a host that is not this page's")]
    Host,
    #[error("the request does not come from this page")]
    Origin,
    #[error("the request is not JSON")]
    NotJson,
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl Guard {
    /// Creates a guard for a page on this port of this machine, with additional addresses
    /// (`name:port`), and the address of a reverse proxy.
    pub(crate) fn new(port: u16, more: &[String], public: Option<&PublicAddress>) -> Self {
        let own = ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}"));
        let more = more.iter().map(|host| host.to_ascii_lowercase());
        let plain = own.into_iter().chain(more).map(|host| PageAddress {
            origin: format!("http://{host}"),
            host,
        });
        let public = public.map(|address| PageAddress {
            host: address.host().to_owned(),
            origin: address.origin(),
        });
        Self {
            addresses: plain.chain(public).collect(),
        }
    }

    /// Checks a request.
    ///
    /// # Errors
    ///
    /// [`GuardRejection`] with the reason.
    pub(crate) fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), GuardRejection> {
        let host = only(headers, &header::HOST).ok_or(GuardRejection::Host)?;
        let mut own = self
            .addresses
            .iter()
            .filter(|own| own.host == host)
            .peekable();
        if own.peek().is_none() {
            return Err(GuardRejection::Host);
        }
        let is_ask = method != Method::GET && method != Method::HEAD;
        match only(headers, &SEC_FETCH_SITE) {
            // Typed or followed from outside of the browser. API requests always come from the
            // page.
            Some("none") if !is_ask => {}
            Some("same-origin") => {}
            None if !headers.contains_key(SEC_FETCH_SITE) => {}
            _ => return Err(GuardRejection::Origin),
        }
        if !is_ask {
            return Ok(());
        }
        // It must be the requested address, not just any of the page's addresses.
        let origin = only(headers, &header::ORIGIN).ok_or(GuardRejection::Origin)?;
        if !own.any(|own| own.origin == origin) {
            return Err(GuardRejection::Origin);
        }
        match only(headers, &header::CONTENT_TYPE) {
            Some("application/json") => Ok(()),
            _ => Err(GuardRejection::NotJson),
        }
    }
}

/// A header that occurs exactly once and is text.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none());
    value?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &[(&str, &str)] = &[
        ("host", "127.0.0.1:4711"),
        ("origin", "http://127.0.0.1:4711"),
        ("content-type", "application/json"),
        ("sec-fetch-site", "same-origin"),
    ];

    /// A request of our own page with one header changed, or omitted if `None`.
    fn check(
        method: &Method,
        name: &'static str,
        value: Option<&'static str>,
    ) -> Result<(), GuardRejection> {
        let guard = Guard::new(4711, &["desk.example:8080".to_owned()], None);
        let mut headers = HeaderMap::new();
        for (header, own) in OWN {
            let own = if *header == name { value } else { Some(*own) };
            if let Some(own) = own {
                headers.insert(*header, own.parse().unwrap());
            }
        }
        guard.check(method, &headers)
    }

    #[test]
    fn obs_5_our_own_page_is_heard() {
        assert_eq!(check(&Method::POST, "-", None), Ok(()));
        assert_eq!(check(&Method::GET, "-", None), Ok(()));
        // Older browsers do not send the header.
        assert_eq!(check(&Method::POST, "sec-fetch-site", None), Ok(()));
        assert_eq!(check(&Method::GET, "sec-fetch-site", Some("none")), Ok(()));
        assert_eq!(check(&Method::GET, "origin", None), Ok(()));
    }

    #[test]
    fn obs_5_a_name_that_was_made_to_point_here_is_refused() {
        for host in [
            "attacker.example:4711",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:4711.",
        ] {
            for method in [Method::GET, Method::POST] {
                assert_eq!(
                    check(&method, "host", Some(host)),
                    Err(GuardRejection::Host),
                    "{host}"
                );
            }
        }
        assert_eq!(check(&Method::GET, "host", None), Err(GuardRejection::Host));
    }

    #[test]
    fn obs_5_pages_of_others_and_no_page_are_refused() {
        let others = [
            None,
            Some("null"),
            Some("http://attacker.example"),
            Some("https://127.0.0.1:4711"),
            Some("http://127.0.0.1:4712"),
            // Our own addresses, but not the requested one.
            Some("http://localhost:4711"),
            Some("http://127.0.0.1:4711/"),
        ];
        for origin in others {
            assert_eq!(
                check(&Method::POST, "origin", origin),
                Err(GuardRejection::Origin),
                "{origin:?}"
            );
        }
        for site in ["cross-site", "same-site", "none", "?"] {
            let of_post = check(&Method::POST, "sec-fetch-site", Some(site));
            assert_eq!(of_post, Err(GuardRejection::Origin), "{site}");
        }
        let of_get = check(&Method::GET, "sec-fetch-site", Some("cross-site"));
        assert_eq!(of_get, Err(GuardRejection::Origin));
    }

    #[test]
    fn obs_5_content_types_of_html_forms_are_rejected() {
        for kind in [
            None,
            Some("text/plain"),
            Some("application/x-www-form-urlencoded"),
        ] {
            assert_eq!(
                check(&Method::POST, "content-type", kind),
                Err(GuardRejection::NotJson),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn a_further_address_is_heard_as_it_was_given() {
        let guard = Guard::new(4711, &["Desk.example:8080".to_owned()], None);
        let mut headers = HeaderMap::new();
        headers.insert("host", "desk.example:8080".parse().unwrap());
        assert_eq!(guard.check(&Method::GET, &headers), Ok(()));
    }

    #[test]
    fn obs_5_page_behind_a_tls_proxy_needs_its_own_origin() {
        let public = "https://desk.example/studio".parse().unwrap();
        let guard = Guard::new(4711, &[], Some(&public));
        let check = |host: &str, origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("host", host.parse().unwrap());
            headers.insert("origin", origin.parse().unwrap());
            headers.insert("content-type", "application/json".parse().unwrap());
            guard.check(&Method::POST, &headers)
        };
        assert_eq!(check("desk.example", "https://desk.example"), Ok(()));
        assert_eq!(check("127.0.0.1:4711", "http://127.0.0.1:4711"), Ok(()));
        for (host, origin) in [
            ("desk.example", "http://desk.example"),
            ("desk.example", "http://127.0.0.1:4711"),
            ("desk.example", "https://desk.example:8443"),
            ("127.0.0.1:4711", "https://desk.example"),
        ] {
            assert_eq!(
                check(host, origin),
                Err(GuardRejection::Origin),
                "{host} {origin}"
            );
        }
        // The proxy must pass the host that the browser named.
        let of_proxy = check("desk.example:80", "https://desk.example");
        assert_eq!(of_proxy, Err(GuardRejection::Host));
    }

    #[test]
    fn duplicated_header_is_rejected() {
        let guard = Guard::new(4711, &[], None);
        let mut headers = HeaderMap::new();
        headers.append("host", "127.0.0.1:4711".parse().unwrap());
        headers.append("host", "127.0.0.1:4711".parse().unwrap());
        assert_eq!(
            guard.check(&Method::GET, &headers),
            Err(GuardRejection::Host)
        );
    }
}
