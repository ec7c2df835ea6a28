//! Compression and encryption of contents.
//!
//! Each backup has a random key, which is encrypted for the recipients. The key of a pack is derived
//! from it, and the offset of a chunk is its nonce, so no nonce is used twice with one key.

use std::io::{Read as _, Write as _};
use std::path::Path;

use age::x25519;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac};

use crate::error::BackupError;

pub(crate) const KEY_BYTES: usize = 32;

/// Largest file with identities, in bytes.
const IDENTITY_BYTES_MAX: u64 = 64 * 1024;

/// First byte of a stored content: the encoding of the rest.
const PLAIN: u8 = 0;
const DEFLATED: u8 = 1;

/// Key of a backup or of a pack.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key([u8; KEY_BYTES]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    pub(crate) fn random() -> Result<Self, BackupError> {
        let mut bytes = [0; KEY_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| BackupError::Encryption("no random numbers are available".to_owned()))?;
        Ok(Self(bytes))
    }

    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        Some(Self(hex::decode(text).ok()?.try_into().ok()?))
    }

    pub(crate) fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Key for one use.
    pub(crate) fn derive(&self, purpose: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let tag = hmac::sign(&key, purpose.as_bytes());
        let mut bytes = [0; KEY_BYTES];
        for (byte, derived) in bytes.iter_mut().zip(tag.as_ref()) {
            *byte = *derived;
        }
        Self(bytes)
    }

    fn cipher(&self) -> Result<LessSafeKey, BackupError> {
        let key = UnboundKey::new(&AES_256_GCM, &self.0);
        key.map(LessSafeKey::new)
            .map_err(|_| BackupError::Encryption("the key is not usable".to_owned()))
    }
}

fn nonce(at: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    for (byte, part) in bytes.iter_mut().rev().zip(at.to_le_bytes()) {
        *byte = part;
    }
    Nonce::assume_unique_for_key(bytes)
}

/// Compresses a content, and encrypts it with a key. `at` must be unique for the key.
pub(crate) fn seal(
    key: Option<&Key>,
    at: u64,
    about: &[u8],
    content: &[u8],
) -> Result<Vec<u8>, BackupError> {
    let io = |error: std::io::Error| BackupError::Encryption(error.to_string());
    let mut encoder = DeflateEncoder::new(vec![DEFLATED], Compression::fast());
    encoder.write_all(content).map_err(io)?;
    let mut stored = encoder.finish().map_err(io)?;
    if stored.len() > content.len() {
        stored.clear();
        stored.push(PLAIN);
        stored.extend_from_slice(content);
    }
    if let Some(key) = key {
        key.cipher()?
            .seal_in_place_append_tag(nonce(at), Aad::from(about), &mut stored)
            .map_err(|_| BackupError::Encryption("the content is too long".to_owned()))?;
    }
    Ok(stored)
}

/// Opens a stored content, which has at most `len_max` bytes.
pub(crate) fn open(
    key: Option<&Key>,
    at: u64,
    about: &[u8],
    mut stored: Vec<u8>,
    len_max: u64,
) -> Result<Vec<u8>, String> {
    if let Some(key) = key {
        let cipher = key.cipher().map_err(|error| error.to_string())?;
        let opened = cipher
            .open_in_place(nonce(at), Aad::from(about), &mut stored)
            .map_err(|_| "a part was changed, or belongs elsewhere".to_owned())?
            .len();
        stored.truncate(opened);
    }
    let (encoding, rest) = stored.split_first().ok_or("a part is empty")?;
    let content = match *encoding {
        PLAIN => rest.to_vec(),
        DEFLATED => {
            let mut content = Vec::new();
            let decoder = DeflateDecoder::new(rest);
            decoder
                .take(len_max.saturating_add(1))
                .read_to_end(&mut content)
                .map_err(|error| format!("a part cannot be decompressed: {error}"))?;
            content
        }
        _ => return Err("a part has an unknown encoding".to_owned()),
    };
    if u64::try_from(content.len()).unwrap_or(u64::MAX) > len_max {
        return Err("a part is longer than the list of files says".to_owned());
    }
    Ok(content)
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(content: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, content))
}

/// Public keys of the identities that decrypt a backup.
#[derive(Debug, Clone, Default)]
pub struct Recipients(Vec<x25519::Recipient>);

impl Recipients {
    /// Reads recipients such as `age1…`. None means no encryption.
    ///
    /// # Errors
    ///
    /// [`BackupError::Recipient`].
    pub fn parse(all: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, BackupError> {
        let parsed = all.into_iter().map(|text| {
            let text = text.as_ref();
            let recipient = text.trim().parse::<x25519::Recipient>();
            recipient.map_err(|_| BackupError::Recipient {
                recipient: text.to_owned(),
            })
        });
        Ok(Self(parsed.collect::<Result<_, _>>()?))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// Encrypts a key for every recipient, as armored text.
    pub(crate) fn wrap(&self, key: &Key) -> Result<String, BackupError> {
        let failed = |error: &dyn std::fmt::Display| BackupError::Encryption(error.to_string());
        let recipients = self
            .0
            .iter()
            .map(|recipient| recipient as &dyn age::Recipient);
        let encryptor =
            age::Encryptor::with_recipients(recipients).map_err(|error| failed(&error))?;
        let mut armored = Vec::new();
        let format = age::armor::Format::AsciiArmor;
        let written = age::armor::ArmoredWriter::wrap_output(&mut armored, format)
            .and_then(|armor| encryptor.wrap_output(armor))
            .and_then(|mut writer| {
                writer.write_all(&key.0)?;
                writer.finish()?.finish()
            });
        written.map_err(|error| failed(&error))?;
        String::from_utf8(armored).map_err(|error| failed(&error))
    }
}

/// Private keys that decrypt backups.
#[derive(Clone, Default)]
pub struct Identities(Vec<x25519::Identity>);

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identities({})", self.0.len())
    }
}

impl Identities {
    /// Reads a file as `age-keygen` writes it.
    ///
    /// # Errors
    ///
    /// [`BackupError`]; it quotes nothing of the file.
    pub fn read(path: &Path) -> Result<Self, BackupError> {
        let io = |source| BackupError::Io {
            doing: "read",
            path: path.to_owned(),
            source,
        };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(io)?;
        file.take(IDENTITY_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(io)?;
        let lines = text.lines().map(str::trim);
        let named = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parsed: Result<Vec<x25519::Identity>, _> = named.map(str::parse).collect();
        match parsed {
            Ok(identities) if !identities.is_empty() => Ok(Self(identities)),
            _ => Err(BackupError::Identity {
                path: path.to_owned(),
            }),
        }
    }

    /// Identities that are known already.
    #[must_use]
    pub fn of(identities: Vec<x25519::Identity>) -> Self {
        Self(identities)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decrypts the key of a backup; `None` if it is encrypted for others.
    pub(crate) fn unwrap(&self, armored: &str) -> Result<Option<Key>, String> {
        let reader = age::armor::ArmoredReader::new(armored.as_bytes());
        let decryptor = age::Decryptor::new_buffered(reader).map_err(|error| error.to_string())?;
        let identities = self.0.iter().map(|identity| identity as &dyn age::Identity);
        let opened = match decryptor.decrypt(identities) {
            Ok(opened) => opened,
            Err(age::DecryptError::NoMatchingKeys) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut bytes = Vec::new();
        let most = u64::try_from(KEY_BYTES + 1).unwrap_or(u64::MAX);
        opened
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(|error| error.to_string())?;
        let key = bytes.try_into().map_err(|_| "its key has another length")?;
        Ok(Some(Key(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_content_is_bound_to_its_place_and_length() {
        let key = Key::random().unwrap();
        let content = b"a line, a line, a line, a line, a line, a line".repeat(10);
        for key in [None, Some(&key)] {
            let stored = seal(key, 7, b"pack", &content).unwrap();
            assert!(stored.len() < content.len());
            let opened = open(key, 7, b"pack", stored.clone(), 460).unwrap();
            assert_eq!(opened, content);
            let too_long = open(key, 7, b"pack", stored, 459).unwrap_err();
            assert!(too_long.contains("longer"), "{too_long}");
        }
        let stored = seal(Some(&key), 7, b"pack", &content).unwrap();
        for (at, about) in [(8, b"pack".as_slice()), (7, b"other")] {
            open(Some(&key), at, about, stored.clone(), 460).unwrap_err();
        }
        let mut changed = stored;
        changed[3] ^= 1;
        open(Some(&key), 7, b"pack", changed, 460).unwrap_err();
    }

    #[test]
    fn key_is_opened_by_each_recipient_and_no_other() {
        let identities: Vec<x25519::Identity> =
            (0..3).map(|_| x25519::Identity::generate()).collect();
        let names: Vec<String> = identities
            .iter()
            .map(|identity| identity.to_public().to_string())
            .collect();
        let recipients = Recipients::parse(names.iter().take(2).map(String::as_str)).unwrap();
        let key = Key::random().unwrap();
        let armored = recipients.wrap(&key).unwrap();
        for identity in &identities[..2] {
            let opened = Identities::of(vec![identity.clone()]).unwrap(&armored);
            assert_eq!(opened.unwrap(), Some(key.clone()));
        }
        let other = Identities::of(vec![identities[2].clone()]);
        assert_eq!(other.unwrap(&armored).unwrap(), None);
        Recipients::parse(["age1nonsense"]).unwrap_err();
    }
}
