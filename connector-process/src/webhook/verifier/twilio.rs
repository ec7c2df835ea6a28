//! Twilio signs its URL of the webhook, followed by the names and values of the form, sorted by
//! name. For other bodies, the query of the URL contains the SHA-256 of the body.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderName, Uri};
use goondan_connectors::signatures::HashAlgorithm;
use sha2::{Digest as _, Sha256};

use super::{SignedRequest, Verifier};
use crate::listener::SignatureError;
use crate::payload::{form_pairs, is_form};

/// Parameter of the query with the hash of a body that is not a form.
const BODY_HASH: &str = "bodySHA256";

/// The header that names the algorithm of a shared key.
const SETTINGS_HEADER: HeaderName = HeaderName::from_static("x-twilio-webhooks-signature-settings");

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

impl Verifier {
    pub(super) fn verify_twilio(&self, request: &SignedRequest<'_>) -> Result<(), SignatureError> {
        let (header, given) = self.given(request)?;
        let given = std::str::from_utf8(given).unwrap_or_default();
        let signatures = self.decoded(&[given]);
        let form = match body_hash(request.uri) {
            Some(hash) => {
                if hash != hex::encode(Sha256::digest(request.body)) {
                    return Err(SignatureError::Refused {
                        reason: "`bodySHA256` in the URL does not fit the body",
                    });
                }
                String::new()
            }
            None if request.body.is_empty() => String::new(),
            None if is_form(request.headers) => sorted_form(request.body),
            None => {
                return Err(SignatureError::Refused {
                    reason: "a body that is not a form needs `bodySHA256` in the URL, which Twilio adds",
                });
            }
        };
        let algorithm = match setting(request.headers) {
            Some("HMAC_SHA256") => HashAlgorithm::Sha256,
            Some(_) | None => self.algorithm,
        };
        let urls = self.public_urls(request);
        let is_signed = urls.iter().any(|url| {
            let parts = [url.as_bytes(), form.as_bytes()];
            self.fits(algorithm, &parts, &signatures)
        });
        is_signed
            .then_some(())
            .ok_or_else(|| SignatureError::WrongUrl {
                header: header.clone(),
            })
    }

    /// URLs that Twilio may have signed: as configured or forwarded, with the default port, and
    /// without a port. Twilio's libraries accept the same.
    fn public_urls(&self, request: &SignedRequest<'_>) -> Vec<String> {
        let first = |name: &HeaderName| {
            let value = request.headers.get(name)?.to_str().ok()?;
            value.split(',').next().map(str::trim)
        };
        let base = match &self.url {
            Some(url) => url.clone(),
            None => {
                let scheme = first(&FORWARDED_PROTO).unwrap_or("http");
                let host = first(&FORWARDED_HOST).or_else(|| first(&HOST));
                format!(
                    "{scheme}://{}{}",
                    host.unwrap_or_default(),
                    request.uri.path()
                )
            }
        };
        let url = match request.uri.query() {
            Some(query) => format!("{base}?{query}"),
            None => base,
        };
        let other = with_other_port(&url);
        std::iter::once(url).chain(other).collect()
    }
}

/// The URL without its port, or with the default port if it has none.
fn with_other_port(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let port = authority
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let is_https = scheme.eq_ignore_ascii_case("https");
    let default = if is_https { 443 } else { 80 };
    Some(match port {
        Some((host, _)) => format!("{scheme}://{host}{path}"),
        None => format!("{scheme}://{authority}:{default}{path}"),
    })
}

/// The algorithm that the request names, as with a shared key.
fn setting(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(SETTINGS_HEADER)?.to_str().ok()?;
    let mut items = value.split(',').filter_map(|item| item.split_once('='));
    items.find_map(|(name, value)| (name.trim() == "algorithm").then(|| value.trim()))
}

fn body_hash(uri: &Uri) -> Option<String> {
    let pairs = form_pairs(uri.query()?);
    let mut hashes = pairs.into_iter().filter(|(name, _)| name == BODY_HASH);
    hashes.next().map(|(_, hash)| hash)
}

/// Names and values of a form, sorted; equal fields count once.
fn sorted_form(body: &[u8]) -> String {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, value) in form_pairs(text) {
        fields.entry(name).or_default().insert(value);
    }
    let mut sorted = String::with_capacity(body.len());
    for (name, values) in fields {
        for value in values {
            sorted.push_str(&name);
            sorted.push_str(&value);
        }
    }
    sorted
}
