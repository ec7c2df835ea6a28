//! Verifies that a request comes from a holder of the webhook's secret, by a signature preset and
//! the settings that override it. Pure, and in constant time.
//!
//! * `twilio`: the text that Twilio signs.

mod twilio;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_connectors::Values;
use goondan_connectors::signatures::{
    HashAlgorithm, SignatureEncoding, SignaturePreset, SignatureScheme, SignedPart, SignedTime,
    TOLERANCE_S,
};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use crate::limits::SIGNATURES_MAX;
use crate::listener::{SignatureError, only_value};

/// The parts of a request that a signature can cover.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignedRequest<'r> {
    pub(crate) headers: &'r HeaderMap,
    pub(crate) uri: &'r Uri,
    pub(crate) body: &'r [u8],
    /// The time, in seconds since 1970-01-01T00:00:00Z.
    pub(crate) now_s: u64,
}

#[derive(Clone)]
pub(crate) struct Verifier {
    scheme: SignatureScheme,
    /// The first one that a request has counts.
    headers: Vec<HeaderName>,
    algorithm: HashAlgorithm,
    encoding: SignatureEncoding,
    prefix: String,
    separator: Option<char>,
    signed: &'static [SignedPart],
    time: SignedTime,
    tolerance_s: u64,
    /// The public URL of the webhook, without a query.
    url: Option<String>,
    /// The current key, and the previous one during a rotation. Not empty.
    keys: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier")
            .field("scheme", &self.scheme)
            .field("headers", &self.headers)
            .field("algorithm", &self.algorithm)
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

impl Verifier {
    /// Creates a verifier of `preset`, with the settings of `signature` and secrets that passed
    /// [`goondan_connectors::check()`]; `None` without a secret.
    pub(crate) fn new(
        preset: &'static SignaturePreset,
        signature: &Values<'_>,
        secrets: &[&str],
    ) -> Option<Self> {
        let keys: Vec<Vec<u8>> = secrets
            .iter()
            .filter_map(|secret| preset.secret.key(secret))
            .collect();
        if keys.is_empty() {
            return None;
        }
        let headers = match signature.text("header") {
            Some(header) => vec![header.parse().ok()?],
            None => preset
                .headers
                .iter()
                .map(|header| HeaderName::from_static(header))
                .collect(),
        };
        let algorithm = signature.text("algorithm").and_then(HashAlgorithm::named);
        let encoding = signature
            .text("encoding")
            .and_then(SignatureEncoding::named);
        Some(Self {
            scheme: preset.scheme,
            headers,
            algorithm: algorithm.unwrap_or(preset.algorithm),
            encoding: encoding.unwrap_or(preset.encoding),
            prefix: signature.text("prefix").unwrap_or(preset.prefix).to_owned(),
            separator: preset.separator,
            signed: preset.signed,
            time: preset.time,
            tolerance_s: signature.number("toleranceSeconds").unwrap_or(TOLERANCE_S),
            url: signature.text("url").map(str::to_owned),
            keys,
        })
    }

    /// Verifies the signature of a request, and its age if the scheme signs a time.
    ///
    /// # Errors
    ///
    /// [`SignatureError`] if the signature is missing, duplicated, expired or wrong.
    pub(crate) fn verify(&self, request: &SignedRequest<'_>) -> Result<(), SignatureError> {
        match self.scheme {
            SignatureScheme::Hmac => self.verify_hmac(request),
            SignatureScheme::Token => {
                let (header, given) = self.given(request)?;
                self.check_secret(header, given)
            }
            SignatureScheme::Basic => {
                let (header, given) = self.given(request)?;
                self.check_secret(header, &login(given).unwrap_or_default())
            }
            SignatureScheme::Twilio => self.verify_twilio(request),
            // Verified with a certificate instead of a secret.
            SignatureScheme::Sns => Err(SignatureError::Refused {
                reason: "the request is not a message of Amazon SNS",
            }),
        }
    }

    /// The keyed hash of `text` by the current key, in hexadecimal digits, as the answer to a
    /// challenge.
    pub(crate) fn answer_to(&self, text: &str) -> String {
        let Some(key) = self.keys.first() else {
            return String::new();
        };
        let Ok(mut keyed) = <Hmac<Sha256> as Mac>::new_from_slice(key) else {
            return String::new();
        };
        keyed.update(text.as_bytes());
        hex::encode(keyed.finalize().into_bytes())
    }

    /// The header that a request was signed in, and its value.
    fn given<'r>(
        &self,
        request: &SignedRequest<'r>,
    ) -> Result<(&HeaderName, &'r [u8]), SignatureError> {
        let mut headers = self.headers.iter();
        let present = headers.find(|header| request.headers.contains_key(*header));
        let Some(header) = present.or(self.headers.first()) else {
            return Err(SignatureError::Missing {
                header: AUTHORIZATION,
            });
        };
        Ok((header, only_value(request.headers, header)?))
    }

    fn check_secret(&self, header: &HeaderName, given: &[u8]) -> Result<(), SignatureError> {
        let is_right = self.keys.iter().any(|key| is_same(key, given));
        is_right
            .then_some(())
            .ok_or_else(|| SignatureError::WrongSecret {
                header: header.clone(),
            })
    }

    fn verify_hmac(&self, request: &SignedRequest<'_>) -> Result<(), SignatureError> {
        let (header, given) = self.given(request)?;
        let given = std::str::from_utf8(given).map_err(|_not_text| wrong(header))?;
        let items: Vec<&str> = match self.separator {
            Some(separator) => given.split(separator).map(str::trim).collect(),
            None => vec![given],
        };
        let (time_header, time) = self.time(request, header, &items)?;
        let mut parts = Vec::with_capacity(self.signed.len());
        for part in self.signed {
            parts.push(match part {
                SignedPart::Text(text) => text.as_bytes(),
                SignedPart::Header(name) => {
                    only_value(request.headers, &HeaderName::from_static(name))?
                }
                SignedPart::Time => time,
                SignedPart::Body => request.body,
            });
        }
        if !self.fits(self.algorithm, &parts, &self.decoded(&items)) {
            return Err(wrong(header));
        }
        // The time counts only after the signature that covers it.
        if self.time == SignedTime::None || self.is_fresh(time, request.now_s) {
            return Ok(());
        }
        Err(SignatureError::Stale {
            header: time_header,
            window_s: self.tolerance_s,
        })
    }

    /// The signed time as written, and the header that contains it.
    fn time<'r>(
        &self,
        request: &SignedRequest<'r>,
        header: &HeaderName,
        items: &[&'r str],
    ) -> Result<(HeaderName, &'r [u8]), SignatureError> {
        match self.time {
            SignedTime::None => Ok((header.clone(), b"".as_slice())),
            SignedTime::Header(name) => {
                let name = HeaderName::from_static(name);
                let time = only_value(request.headers, &name)?;
                Ok((name, time))
            }
            SignedTime::Item(prefix) => {
                let time = items.iter().find_map(|item| item.strip_prefix(prefix));
                let time = time.ok_or_else(|| SignatureError::NoItem {
                    header: header.clone(),
                    item: prefix,
                })?;
                Ok((header.clone(), time.as_bytes()))
            }
        }
    }

    fn is_fresh(&self, time: &[u8], now_s: u64) -> bool {
        let seconds = std::str::from_utf8(time)
            .ok()
            .and_then(|time| time.parse::<u64>().ok());
        seconds.is_some_and(|seconds| seconds.abs_diff(now_s) <= self.tolerance_s)
    }

    /// The signatures among the items of the header.
    fn decoded(&self, items: &[&str]) -> Vec<Vec<u8>> {
        items
            .iter()
            .filter_map(|item| item.strip_prefix(self.prefix.as_str()))
            .take(SIGNATURES_MAX)
            .filter_map(|digits| match self.encoding {
                SignatureEncoding::Hex => hex::decode(digits).ok(),
                SignatureEncoding::Base64 => STANDARD.decode(digits).ok(),
            })
            .collect()
    }

    /// True if one of the signatures is that of a text in several parts, by any key.
    fn fits(&self, algorithm: HashAlgorithm, parts: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
        self.keys.iter().any(|key| match algorithm {
            HashAlgorithm::Sha1 => is_signed::<Hmac<Sha1>>(key, parts, signatures),
            HashAlgorithm::Sha256 => is_signed::<Hmac<Sha256>>(key, parts, signatures),
            HashAlgorithm::Sha512 => is_signed::<Hmac<Sha512>>(key, parts, signatures),
        })
    }
}

fn wrong(header: &HeaderName) -> SignatureError {
    SignatureError::Wrong {
        header: header.clone(),
    }
}

/// True if one of the signatures is that of a text in several parts. The text is hashed once.
fn is_signed<M: Mac + KeyInit + Clone>(
    key: &[u8],
    parts: &[&[u8]],
    signatures: &[Vec<u8>],
) -> bool {
    let Ok(mut keyed) = <M as Mac>::new_from_slice(key) else {
        return false;
    };
    for part in parts {
        keyed.update(part);
    }
    signatures
        .iter()
        .any(|signature| keyed.clone().verify_slice(signature).is_ok())
}

/// True if a text is the secret. Hashes are compared, so the time does not depend on the secret.
fn is_same(secret: &[u8], given: &[u8]) -> bool {
    let Ok(keyed) = <Hmac<Sha256> as Mac>::new_from_slice(secret) else {
        return false;
    };
    let expected = keyed.clone().chain_update(secret).finalize().into_bytes();
    keyed.chain_update(given).verify_slice(&expected).is_ok()
}

/// The user and password of HTTP Basic authentication.
fn login(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, digits) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("basic").then_some(())?;
    STANDARD.decode(digits.trim()).ok()
}

#[cfg(test)]
#[path = "verifier_tests.rs"]
mod tests;
