//! Verification that an archive matches the lockfile.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha512};

/// SHA-512 of an archive, in the format of registries: `sha512-` and base64 (`PKG-3`).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Integrity([u8; 64]);

/// Text without a valid SHA-512.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` has no SHA-512 of the form `sha512-…`")]
pub struct InvalidIntegrity(String);

const PREFIX: &str = "sha512-";

impl Integrity {
    /// Returns the digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha512::digest(bytes).into())
    }

    /// Returns the digest of a reader's content.
    ///
    /// # Errors
    ///
    /// I/O errors of the reader.
    pub fn of_reader(mut reader: impl Read) -> io::Result<Self> {
        let mut hasher = Sha512::new();
        io::copy(&mut reader, &mut hasher)?;
        Ok(Self(hasher.finalize().into()))
    }
}

impl FromStr for Integrity {
    type Err = InvalidIntegrity;

    /// Parses the first SHA-512 in a list of digests. Weaker digests are ignored.
    fn from_str(text: &str) -> Result<Self, InvalidIntegrity> {
        let invalid = || InvalidIntegrity(text.to_owned());
        let mut digests = text.split_ascii_whitespace();
        let digest = digests.find_map(|it| it.strip_prefix(PREFIX));
        let digest = digest.ok_or_else(invalid)?;
        let digest = digest.split('?').next().unwrap_or_default();
        let bytes = STANDARD.decode(digest).map_err(|_not_base64| invalid())?;
        bytes.try_into().map(Self).map_err(|_length| invalid())
    }
}

impl TryFrom<String> for Integrity {
    type Error = InvalidIntegrity;

    fn try_from(text: String) -> Result<Self, InvalidIntegrity> {
        text.parse()
    }
}

impl From<Integrity> for String {
    fn from(integrity: Integrity) -> Self {
        integrity.to_string()
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_3_an_integrity_is_a_sha_512_and_nothing_weaker() {
        let own = Integrity::of(b"content");
        assert_eq!(own.to_string().parse::<Integrity>().unwrap(), own);
        assert_eq!(Integrity::of_reader(&b"content"[..]).unwrap(), own);
        assert_ne!(Integrity::of(b"Content"), own);
        let listed = format!("sha1-AAAA {own}?x sha512-BBBB");
        assert_eq!(listed.parse::<Integrity>().unwrap(), own);
        for wrong in [
            "",
            "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=",
            "sha512-",
            "sha512-AAAA",
            "sha512-%",
        ] {
            assert!(wrong.parse::<Integrity>().is_err(), "{wrong}");
        }
    }
}
