//! Registry signatures: a registry with keys signs the archive of each version (`PKG-1`).
//!
//! Signatures detect changes in a registry's storage or in a mirror after publication. They do not protect against a
//! malicious registry, because the keys come from the registry itself, as with npm.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_packages::limits::REGISTRY_KEYS_MAX;
use goondan_packages::{OfferedVersion, PackageName, RegistrySignature, Version};
use jiff::Timestamp;
use reqwest::Method;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde::Deserialize;

use super::registry::{ANSWER_BYTES_MAX, Registry, RegistryError, address};
use super::web::WebError;
use crate::exit::Exit;
use crate::failure::Failure;

/// Endpoint for a registry's keys.
const KEYS_PATH: &str = "-/npm/v1/keys";

/// The only supported scheme: ECDSA on P-256 with SHA-256.
const SCHEME: &str = "ecdsa-sha2-nistp256";

/// DER prefix of such a key, before the point.
const DER_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Status codes of registries without keys.
const NO_KEYS: [u16; 6] = [400, 403, 404, 405, 410, 501];

/// Keys of a registry, by id.
#[derive(Debug, Default)]
struct Keys(BTreeMap<String, RegistryKey>);

#[derive(Debug)]
struct RegistryKey {
    point: Vec<u8>,
    /// Time from which signatures are not valid.
    expires: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Wire {
    keys: Vec<WireKey>,
}

#[derive(Deserialize)]
struct WireKey {
    #[serde(default)]
    expires: Option<String>,
    keyid: String,
    scheme: String,
    key: String,
}

/// Reason why a version is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum SignatureRejection {
    #[error("is not signed, although its registry signs packages")]
    NotSigned,
    #[error("is not signed with a key of its registry")]
    UnknownKey,
    #[error("is signed with an expired key")]
    Expired,
    #[error("has an invalid signature")]
    Wrong,
}

/// Checks the signatures of versions to download, for registries that sign.
///
/// # Errors
///
/// A failure that names the version, or the registry whose keys cannot be read.
pub(super) async fn check(
    registry: &Registry<'_>,
    taken: &[(&PackageName, &Version, &OfferedVersion)],
) -> Result<(), Failure> {
    let mut known: BTreeMap<&str, Keys> = BTreeMap::new();
    for (name, version, offer) in taken {
        let of = registry.of(name)?.as_str();
        if !known.contains_key(of) {
            known.insert(of, ask(registry, of).await?);
        }
        let Some(keys) = known.get(of).filter(|keys| !keys.0.is_empty()) else {
            continue;
        };
        keys.prove(name, version, offer).map_err(|why| {
            Failure::new(
                Exit::Conflict,
                format!("`{name}` {version} {why}: {of}"),
                "nothing was changed: if the problem persists, ask the operator of the registry",
            )
        })?;
    }
    Ok(())
}

/// Fetches the keys of a registry; empty if it does not sign.
async fn ask(registry: &Registry<'_>, of: &str) -> Result<Keys, Failure> {
    let url = address(&format!("{}/{KEYS_PATH}", of.trim_end_matches('/')))?;
    let mut answer = Vec::new();
    let asked = registry.ask(Method::GET, url, None, ANSWER_BYTES_MAX, &mut answer);
    match asked.await {
        Ok(()) => {}
        Err(RegistryError::Web(WebError::Status { status, .. })) if NO_KEYS.contains(&status) => {
            return Ok(Keys::default());
        }
        Err(error) => return Err(error.into()),
    }
    // A registry without keys may treat the path as a package name and return other content.
    Ok(Keys::read(&answer).unwrap_or_default())
}

impl Keys {
    /// Parses a registry's response; none if it is not a list of keys. Keys of other types are skipped.
    fn read(answer: &[u8]) -> Option<Self> {
        let wire: Wire = serde_json::from_slice(answer).ok()?;
        let keys = wire.keys.into_iter().take(REGISTRY_KEYS_MAX);
        let keys = keys.filter(|key| key.scheme == SCHEME).filter_map(|key| {
            let der = STANDARD.decode(&key.key).ok()?;
            let point = der.strip_prefix(&DER_HEAD)?.to_vec();
            // A key with an unreadable expiry is skipped.
            let expires = key.expires.map(|it| it.parse()).transpose().ok()?;
            Some((key.keyid, RegistryKey { point, expires }))
        });
        Some(Self(keys.collect()))
    }

    /// Succeeds if a known key has signed this archive of a version, and no known key has a signature that does not
    /// match.
    fn prove(
        &self,
        name: &PackageName,
        version: &Version,
        offer: &OfferedVersion,
    ) -> Result<(), SignatureRejection> {
        if offer.signatures.is_empty() {
            return Err(SignatureRejection::NotSigned);
        }
        let message = format!("{name}@{version}:{}", offer.promised);
        let published = offer.published.as_deref().and_then(|it| it.parse().ok());
        let mut last = Err(SignatureRejection::UnknownKey);
        for signature in &offer.signatures {
            match self.prove_by(signature, message.as_bytes(), published) {
                Err(SignatureRejection::UnknownKey) => {}
                Err(why) => return Err(why),
                Ok(()) => last = Ok(()),
            }
        }
        last
    }

    fn prove_by(
        &self,
        by: &RegistrySignature,
        message: &[u8],
        published: Option<Timestamp>,
    ) -> Result<(), SignatureRejection> {
        let key = self
            .0
            .get(&by.key_id)
            .ok_or(SignatureRejection::UnknownKey)?;
        let at = published.unwrap_or_else(Timestamp::now);
        if key.expires.is_some_and(|expires| at >= expires) {
            return Err(SignatureRejection::Expired);
        }
        let signature = STANDARD.decode(&by.signature);
        let signature = signature.map_err(|_not_base64| SignatureRejection::Wrong)?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &key.point);
        let right = key.verify(message, &signature);
        right.map_err(|_unspecified| SignatureRejection::Wrong)
    }
}

#[cfg(test)]
mod tests {
    use goondan_packages::{Packument, limits::SIGNATURES_MAX};
    use goondan_tests::registry::Signer;
    use serde_json::{Value, json};

    use super::*;

    const INTEGRITY: &str = "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==";

    fn offer(signatures: &Value) -> OfferedVersion {
        let answer = json!({
            "name": "words", "time": {"1.0.0": "2026-01-01T00:00:00Z"},
            "versions": {"1.0.0": {"name": "words", "version": "1.0.0", "dist": {
                "tarball": "https://h/a.tgz", "integrity": INTEGRITY, "signatures": signatures,
            }}},
        });
        let name = "words".parse().unwrap();
        let read = Packument::read(&name, answer.to_string().as_bytes(), "none").unwrap();
        read.offers.into_values().next().unwrap()
    }

    fn proven(keys: &Value, signatures: &Value) -> Result<(), SignatureRejection> {
        let keys = Keys::read(json!({"keys": keys}).to_string().as_bytes()).unwrap();
        let (name, version) = ("words".parse().unwrap(), Version::parse("1.0.0").unwrap());
        keys.prove(&name, &version, &offer(signatures))
    }

    #[test]
    fn pkg_1_signature_needs_known_valid_key_and_the_same_archive() {
        let (signer, other) = (Signer::new("one"), Signer::new("two"));
        let message = format!("words@1.0.0:{INTEGRITY}");
        let right = signer.signature(&message);
        let foreign = other.signature(&message);
        let wrong = signer.signature(&message.replace("1.0.0", "1.0.1"));
        let (key, old) = (
            signer.key(None),
            signer.key(Some("2025-12-31T00:00:00.000Z")),
        );
        let late = signer.key(Some("2026-01-02T00:00:00.000Z"));
        let odd = json!({"keyid": "odd", "scheme": "rsa", "key": "AAAA", "keytype": "rsa"});
        let mut broken = right.clone();
        broken["sig"] = json!("not base64!");
        let many = vec![json!(7); SIGNATURES_MAX];
        for (keys, signatures, expected) in [
            (json!([key, odd]), json!([right]), Ok(())),
            (json!([late]), json!([right]), Ok(())),
            (json!([key]), json!([foreign, right]), Ok(())),
            (json!([key]), json!([]), Err(SignatureRejection::NotSigned)),
            (
                json!([key]),
                json!(many),
                Err(SignatureRejection::NotSigned),
            ),
            (
                json!([key]),
                json!([foreign]),
                Err(SignatureRejection::UnknownKey),
            ),
            (
                json!([old]),
                json!([right]),
                Err(SignatureRejection::Expired),
            ),
            (json!([key]), json!([wrong]), Err(SignatureRejection::Wrong)),
            (
                json!([key]),
                json!([right, wrong]),
                Err(SignatureRejection::Wrong),
            ),
            (
                json!([key]),
                json!([broken]),
                Err(SignatureRejection::Wrong),
            ),
        ] {
            assert_eq!(proven(&keys, &signatures), expected, "{keys} {signatures}");
        }
    }

    #[test]
    fn pkg_1_key_parses_in_registry_format_and_no_other() {
        // First signing key of npm's registry, as published.
        let key = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE1Olb3zMAFFxXKHiIkQO5cJ3Yhl5i6UPp+IhuteBJbuHcA5UogKo0EWtlWwW6KSaKoTNEYL7J\
                   lCQiVnkhBktUgg==";
        let answer = json!({"keys": [{
            "expires": null, "keyid": "SHA256:jl3bwswu80PjjokCgh0o2w5c2U4LhQAE57gj9cz1kzA",
            "keytype": SCHEME, "scheme": SCHEME, "key": key,
        }]});
        let keys = Keys::read(answer.to_string().as_bytes()).unwrap();
        let points: Vec<usize> = keys.0.values().map(|key| key.point.len()).collect();
        assert_eq!(points, [65]);
        for other in ["", "{}", "[]", "{\"name\":\"-/npm/v1/keys\"}", "<html>"] {
            assert!(Keys::read(other.as_bytes()).is_none(), "{other}");
        }
    }
}
