//! One encrypted value as SOPS writes it: `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`.

use aes_gcm::aead::consts::U32;
use aes_gcm::aead::rand_core::RngCore as _;
use aes_gcm::aead::{AeadInPlace as _, KeyInit as _, OsRng};
use aes_gcm::aes::Aes256;
use aes_gcm::{AesGcm, Key, Nonce, Tag};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::zeroize::Zeroizing;

use crate::error::DocumentError;

/// Bytes of a data key.
pub(crate) const DATA_KEY_BYTES: usize = 32;
/// Bytes of an initialization vector: more than the usual 12, because SOPS uses this size.
const IV_BYTES: usize = 32;
/// Bytes of an authentication tag.
const TAG_BYTES: usize = 16;

type Cipher = AesGcm<Aes256, U32>;

/// The key that encrypts the values of one document.
pub(crate) struct DataKey(Zeroizing<[u8; DATA_KEY_BYTES]>);

/// A value with its SOPS type.
#[derive(Clone)]
pub(crate) struct Plain {
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    pub(crate) kind: String,
}

/// True if a text has the form of an encrypted value.
pub(crate) fn is_sealed(text: &str) -> bool {
    text.starts_with("ENC[") && text.ends_with(']')
}

impl DataKey {
    pub(crate) fn generate() -> Result<Self, DocumentError> {
        let mut key = Zeroizing::new([0; DATA_KEY_BYTES]);
        fill(key.as_mut_slice())?;
        Ok(Self(key))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let key: [u8; DATA_KEY_BYTES] = bytes.try_into().ok()?;
        Some(Self(Zeroizing::new(key)))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn cipher(&self) -> Cipher {
        Cipher::new(Key::<Cipher>::from_slice(self.0.as_slice()))
    }

    /// Encrypts a value, bound to its path.
    pub(crate) fn seal(&self, plain: &Plain, bound_to: &str) -> Result<String, DocumentError> {
        let mut iv = [0; IV_BYTES];
        fill(&mut iv)?;
        let mut data = plain.bytes.to_vec();
        let tag = self
            .cipher()
            .encrypt_in_place_detached(Nonce::from_slice(&iv), bound_to.as_bytes(), &mut data)
            .map_err(|error| DocumentError::Crypto(error.to_string()))?;
        Ok(format!(
            "ENC[AES256_GCM,data:{},iv:{},tag:{},type:{}]",
            STANDARD.encode(&data),
            STANDARD.encode(iv),
            STANDARD.encode(tag),
            plain.kind
        ))
    }

    /// Decrypts a value at the path `bound_to`. `None` if the value or its path was altered.
    pub(crate) fn open(&self, sealed: &str, bound_to: &str) -> Option<Plain> {
        let inner = sealed.strip_prefix("ENC[AES256_GCM,")?.strip_suffix(']')?;
        let mut parts = inner.split(',');
        let mut part = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix(':');
        let data = STANDARD.decode(part("data")?).ok()?;
        let iv = STANDARD.decode(part("iv")?).ok()?;
        let tag = STANDARD.decode(part("tag")?).ok()?;
        let kind = part("type")?.to_owned();
        if parts.next().is_some() || iv.len() != IV_BYTES || tag.len() != TAG_BYTES {
            return None;
        }
        let mut bytes = Zeroizing::new(data);
        let (nonce, tag) = (Nonce::from_slice(&iv), Tag::from_slice(&tag));
        self.cipher()
            .decrypt_in_place_detached(nonce, bound_to.as_bytes(), &mut bytes, tag)
            .ok()?;
        Some(Plain { bytes, kind })
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), DocumentError> {
    OsRng
        .try_fill_bytes(bytes)
        .map_err(|error| DocumentError::Crypto(error.to_string()))
}
