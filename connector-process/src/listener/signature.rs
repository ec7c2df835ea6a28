//! HMAC signatures: checks that a request comes from a holder of the secret.
//!
//! The scheme is the one that GitHub made common: a header with a prefix and the hexadecimal
//! HMAC-SHA256 of the raw body, optionally preceded by other text.

use axum::http::{HeaderMap, HeaderName};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Reason why a request is not authenticated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureError {
    #[error("the request has no `{header}` header, and every request must be signed")]
    Missing {
        /// The header that holds signatures.
        header: HeaderName,
    },
    /// The time in the header is too far in the past or future; the request may be a replay.
    #[error("`{header}` differs by more than {window_s} seconds from this machine's clock")]
    Stale {
        /// The header with the time.
        header: HeaderName,
        /// Maximum difference, in seconds.
        window_s: u64,
    },
    /// The header contains another secret.
    #[error("the secret in `{header}` is wrong")]
    WrongSecret {
        /// The header that holds the secret.
        header: HeaderName,
    },
    /// An item of the signature header is missing.
    #[error("`{header}` contains no `{item}`")]
    NoItem {
        /// The header that holds signatures.
        header: HeaderName,
        /// The beginning of the item.
        item: &'static str,
    },
    /// The signature does not match the URL and the body.
    #[error(
        "the signature in `{header}` does not fit the URL and the body; if a proxy changes the URL, set `signature.url`"
    )]
    WrongUrl {
        /// The header that holds signatures.
        header: HeaderName,
    },
    /// Another part of the scheme does not match.
    #[error("{reason}")]
    Refused {
        /// The part, without expected values.
        reason: &'static str,
    },
    /// The signature does not match the body. The error deliberately omits details and the expected
    /// signature.
    #[error("the signature in `{header}` does not fit the body")]
    Wrong {
        /// The header that holds signatures.
        header: HeaderName,
    },
}

#[derive(Clone)]
pub(crate) struct SignatureCheck {
    header: HeaderName,
    prefix: String,
    keyed: Hmac<Sha256>,
}

impl std::fmt::Debug for SignatureCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignatureCheck")
            .field("header", &self.header)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl SignatureCheck {
    /// Creates a check with `secret`; `None` if the secret is empty, because anyone could guess it.
    pub(crate) fn new(header: HeaderName, prefix: String, secret: &str) -> Option<Self> {
        if secret.is_empty() {
            return None;
        }
        let keyed = Hmac::new_from_slice(secret.as_bytes()).ok()?;
        Some(Self {
            header,
            prefix,
            keyed,
        })
    }

    /// Checks that `headers` contain a signature of `body`, in constant time.
    ///
    /// # Errors
    ///
    /// [`SignatureError`] if the signature is missing, duplicated or wrong.
    pub(crate) fn check(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), SignatureError> {
        self.check_parts(headers, &[body])
    }

    /// Checks that `headers` contain a signature of a text in several parts.
    ///
    /// # Errors
    ///
    /// As [`SignatureCheck::check`].
    pub(crate) fn check_parts(
        &self,
        headers: &HeaderMap,
        parts: &[&[u8]],
    ) -> Result<(), SignatureError> {
        let wrong = || SignatureError::Wrong {
            header: self.header.clone(),
        };
        let digits = only_value(headers, &self.header)?
            .strip_prefix(self.prefix.as_bytes())
            .ok_or_else(wrong)?;
        let mac = hex::decode(digits).map_err(|_not_hex| wrong())?;
        let mut keyed = self.keyed.clone();
        for part in parts {
            keyed.update(part);
        }
        keyed.verify_slice(&mac).map_err(|_differs| wrong())
    }
}

/// The single value of a header that a signature requires.
///
/// # Errors
///
/// [`SignatureError`] if the header is missing or duplicated.
pub(crate) fn only_value<'h>(
    headers: &'h HeaderMap,
    header: &HeaderName,
) -> Result<&'h [u8], SignatureError> {
    let mut values = headers.get_all(header).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value.as_bytes()),
        (None, _) => Err(SignatureError::Missing {
            header: header.clone(),
        }),
        (Some(_), Some(_)) => Err(SignatureError::Wrong {
            header: header.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2.
    const SECRET: &str = "Jefe";
    const BODY: &[u8] = b"what do ya want for nothing?";
    const DIGITS: &str = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";

    fn check() -> SignatureCheck {
        let header = HeaderName::from_static("x-signature");
        SignatureCheck::new(header, "sha256=".into(), SECRET).unwrap()
    }

    fn signed(values: &[String]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-signature", value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_standards_example_is_accepted() {
        let headers = signed(&[format!("sha256={DIGITS}")]);
        assert_eq!(check().check(&headers, BODY), Ok(()));
        let upper = signed(&[format!("sha256={}", DIGITS.to_uppercase())]);
        assert_eq!(check().check(&upper, BODY), Ok(()));
    }

    #[test]
    fn everything_else_is_refused() {
        let missing = check().check(&HeaderMap::new(), BODY);
        assert!(matches!(missing, Err(SignatureError::Missing { .. })));
        let good = format!("sha256={DIGITS}");
        let one_bit_off = good.replace("5b", "5a");
        let wrong: [&[String]; 8] = [
            &[DIGITS.to_owned()],
            &["sha256=".to_owned()],
            &[one_bit_off],
            &[good.chars().take(good.len() - 2).collect()],
            &[format!("{good}00")],
            &[format!("{good}zz")],
            &[format!("sha1={DIGITS}")],
            &[good.clone(), good.clone()],
        ];
        for values in wrong {
            let result = check().check(&signed(values), BODY);
            assert!(
                matches!(result, Err(SignatureError::Wrong { .. })),
                "{values:?}"
            );
        }
        let other_body = check().check(&signed(&[good]), b"something else");
        assert!(matches!(other_body, Err(SignatureError::Wrong { .. })));
    }

    #[test]
    fn the_secret_is_never_empty_and_never_shown() {
        let header = HeaderName::from_static("x-signature");
        assert!(SignatureCheck::new(header, String::new(), "").is_none());
        let shown = format!("{:?}", check());
        assert!(
            !shown.contains(SECRET) && !shown.contains("keyed"),
            "{shown}"
        );
    }
}
