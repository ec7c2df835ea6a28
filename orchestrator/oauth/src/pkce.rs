//! Proof that one client begins and ends a login (RFC 7636).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use goondan_protocol::secret::SecretValue;
use sha2::{Digest as _, Sha256};

/// Random bytes for one login.
pub const ENTROPY_BYTES: usize = 64;

/// Derives verifier and state. Each has 256 bits, and neither reveals the other.
pub(crate) fn secrets_of(entropy: &[u8; ENTROPY_BYTES]) -> (SecretValue, SecretValue) {
    let part = |name: &[u8]| {
        let mut hash = Sha256::new();
        hash.update(name);
        hash.update(entropy);
        SecretValue::new(URL_SAFE_NO_PAD.encode(hash.finalize()))
    };
    (part(b"code_verifier"), part(b"state"))
}

/// Returns the challenge for a verifier (`S256`).
pub(crate) fn challenge(verifier: &SecretValue) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.expose().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sys_4_the_challenge_is_that_of_rfc_7636() {
        let verifier = SecretValue::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned());
        let expected = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert_eq!(challenge(&verifier), expected);
    }

    #[test]
    fn sys_4_verifier_and_state_differ_and_are_long_enough() {
        let (verifier, state) = secrets_of(&[7; ENTROPY_BYTES]);
        assert_ne!(verifier, state);
        assert_eq!((verifier.expose().len(), state.expose().len()), (43, 43));
        let (other, _) = secrets_of(&[8; ENTROPY_BYTES]);
        assert_ne!(verifier, other);
    }
}
