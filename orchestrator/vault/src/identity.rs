//! The keys that open secrets: age X25519 identities, as `age-keygen` writes them.

use std::fmt;
use std::io::Read as _;

use age::x25519;
use goondan_protocol::time::Timestamp;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::IdentityError;
use crate::limits::{IDENTITIES_MAX, IDENTITY_BYTES_MAX};
use crate::sealed_value::{DATA_KEY_BYTES, DataKey};

/// One or more identities. Secrets are encrypted for the first; the others only open older
/// documents.
#[derive(Clone)]
pub struct Identities {
    current: x25519::Identity,
    former: Vec<x25519::Identity>,
}

/// Result of an attempt to open a data key.
pub(crate) enum UnwrapResult {
    Key(DataKey),
    NotOurs,
    /// The text is not in age's format.
    Damaged,
}

impl Identities {
    #[must_use]
    pub fn generate() -> Self {
        Self {
            current: x25519::Identity::generate(),
            former: Vec::new(),
        }
    }

    /// Only the identity for which secrets are encrypted.
    #[must_use]
    pub fn current(&self) -> Self {
        Self {
            current: self.current.clone(),
            former: Vec::new(),
        }
    }

    /// Parses identities in the format of `age-keygen`: one per line, with comments and empty
    /// lines.
    ///
    /// # Errors
    ///
    /// [`IdentityError`], which quotes no content.
    pub fn parse(text: &[u8]) -> Result<Self, IdentityError> {
        let text = std::str::from_utf8(text)
            .ok()
            .filter(|text| text.len() <= IDENTITY_BYTES_MAX)
            .ok_or(IdentityError::NotText)?;
        let mut found = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let identity = line.parse::<x25519::Identity>();
            let line = index + 1;
            found.push(identity.map_err(|_| IdentityError::NotAnIdentity { line })?);
        }
        if found.len() > IDENTITIES_MAX {
            return Err(IdentityError::TooMany);
        }
        let mut found = found.into_iter();
        Ok(Self {
            current: found.next().ok_or(IdentityError::Empty)?,
            former: found.collect(),
        })
    }

    /// Content of a file for a new identity, in the format of `age-keygen`.
    #[must_use]
    pub fn file(&self, created_at: Timestamp) -> SecretString {
        let secret = self.current.to_string();
        SecretString::from(format!(
            "# created: {created_at}\n# public key: {}\n{}\n",
            self.recipient(),
            secret.expose_secret()
        ))
    }

    /// Public key of the identity for which secrets are encrypted: `age1…`.
    #[must_use]
    pub fn recipient(&self) -> String {
        self.current.to_public().to_string()
    }

    fn each(&self) -> impl Iterator<Item = &x25519::Identity> {
        std::iter::once(&self.current).chain(&self.former)
    }

    /// True if a public key belongs to one of these identities.
    pub(crate) fn is_ours(&self, recipient: &str) -> bool {
        self.each()
            .any(|identity| identity.to_public().to_string() == recipient)
    }

    /// Encrypts a data key, as armored text.
    pub(crate) fn wrap(&self, key: &DataKey) -> Result<String, age::EncryptError> {
        age::encrypt_and_armor(&self.current.to_public(), key.as_bytes())
    }

    /// Opens a data key that is encrypted for one of these identities.
    pub(crate) fn unwrap(&self, armored: &str) -> UnwrapResult {
        let reader = age::armor::ArmoredReader::new(armored.as_bytes());
        let Ok(decryptor) = age::Decryptor::new_buffered(reader) else {
            return UnwrapResult::Damaged;
        };
        let identities = self.each().map(|identity| identity as &dyn age::Identity);
        let opened = match decryptor.decrypt(identities) {
            Ok(opened) => opened,
            Err(age::DecryptError::NoMatchingKeys) => return UnwrapResult::NotOurs,
            Err(_) => return UnwrapResult::Damaged,
        };
        // One byte more than a key has, to detect a longer one.
        let mut bytes = Zeroizing::new(Vec::with_capacity(DATA_KEY_BYTES + 1));
        let most = u64::try_from(DATA_KEY_BYTES + 1).unwrap_or(u64::MAX);
        if opened.take(most).read_to_end(&mut bytes).is_err() {
            return UnwrapResult::Damaged;
        }
        DataKey::from_bytes(&bytes).map_or(UnwrapResult::Damaged, UnwrapResult::Key)
    }
}

impl fmt::Debug for Identities {
    /// Shows the public half.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identities({})", self.recipient())
    }
}
