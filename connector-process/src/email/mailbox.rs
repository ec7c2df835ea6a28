//! State of a mailbox that survives restarts: the last message that was processed, and the key of
//! proofs.

use std::time::Duration;

use goondan_clock::sleep;
use hmac::{Hmac, Mac as _};
use jiff::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::Sha256;

use crate::back_off::back_off;
use crate::gateway::Gateway;
use crate::limits::{SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS};

/// Difference to the server's time that is tolerated, in seconds: its zone, and a wrong clock.
const TOLERANCE_S: i64 = 36 * 60 * 60;

/// Bytes of a proof: too many to guess.
const PROOF_BYTES: usize = 16;

/// The last message of a folder that was processed. Every later message has a higher UID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Position {
    pub(super) folder: String,
    pub(super) uid_validity: u32,
    pub(super) uid: u32,
    /// Time of its processing, in seconds since 1970.
    pub(super) at_s: i64,
}

/// Fields of the connection's state.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMailbox {
    #[serde(default)]
    mailbox: Option<Position>,
    #[serde(default)]
    proof_key: Option<String>,
}

/// The stored state, once loaded.
pub(super) struct Mailbox {
    pub(super) position: Option<Position>,
    pub(super) key: ProofKey,
}

impl Mailbox {
    /// Loads the state, and stores a new key the first time. Retries until it succeeds.
    pub(super) async fn load(gateway: &Gateway) -> Self {
        let StoredMailbox {
            mailbox: position,
            proof_key,
        } = gateway.stored("position in the mailbox").await;
        let stored = proof_key.and_then(|key| ProofKey::parse(&key));
        let key = match stored {
            Some(key) => key,
            None => ProofKey::create(gateway).await,
        };
        Self { position, key }
    }
}

impl Position {
    /// Stores the position. Durable when it returns.
    ///
    /// # Errors
    ///
    /// A description of the failure.
    pub(super) async fn keep(&self, gateway: &Gateway) -> Result<(), String> {
        gateway.keep_fields(&json!({"mailbox": self})).await
    }

    /// A day before which all messages have certainly been processed, as IMAP writes it.
    pub(super) fn day_before(&self) -> String {
        let day = Timestamp::from_second(self.at_s.saturating_sub(TOLERANCE_S));
        day.unwrap_or_default().strftime("%-d-%b-%Y").to_string()
    }
}

/// Key of proofs that the connector itself described a message. An agent's process cannot forge
/// them.
#[derive(Clone)]
pub(super) struct ProofKey([u8; 32]);

impl std::fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProofKey")
    }
}

impl ProofKey {
    fn fresh() -> Result<Self, String> {
        let mut key = [0; 32];
        let filled = SystemRandom::new().fill(&mut key);
        filled.map_err(|_unspecified| "the system has no random numbers".to_owned())?;
        Ok(Self(key))
    }

    /// Creates and stores a key; retries until it succeeds.
    async fn create(gateway: &Gateway) -> Self {
        let mut failures = 0_u32;
        loop {
            let reason = match Self::fresh() {
                Ok(key) => {
                    let fields = json!({"proofKey": hex::encode(key.0)});
                    match gateway.keep_fields(&fields).await {
                        Ok(()) => return key,
                        Err(reason) => reason,
                    }
                }
                Err(reason) => reason,
            };
            tracing::warn!(reason, "failed to store a key of proofs; retrying");
            failures = failures.saturating_add(1);
            let pause = back_off(failures, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS);
            sleep(pause).await;
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Some(Self(hex::decode(text).ok()?.try_into().ok()?))
    }

    #[cfg(test)]
    pub(super) fn for_test() -> Self {
        Self([7; 32])
    }

    /// A proof of these parts, as hexadecimal digits.
    pub(super) fn proof(&self, parts: &[&str]) -> String {
        let code = self.mac(parts).map(|mac| mac.finalize().into_bytes());
        let code = code.as_deref().and_then(|code| code.get(..PROOF_BYTES));
        code.map(hex::encode).unwrap_or_default()
    }

    /// True if this is the proof of these parts.
    pub(super) fn is_proof(&self, parts: &[&str], proof: &str) -> bool {
        let Ok(proof) = hex::decode(proof) else {
            return false;
        };
        proof.len() == PROOF_BYTES
            && self
                .mac(parts)
                .is_some_and(|mac| mac.verify_truncated_left(&proof).is_ok())
    }

    fn mac(&self, parts: &[&str]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for part in parts {
            // With the lengths, other parts cannot have the same bytes.
            mac.update(part.len().to_string().as_bytes());
            mac.update(b":");
            mac.update(part.as_bytes());
        }
        Some(mac)
    }
}

/// Time to wait after an error, by the number of consecutive failures.
pub(super) fn pause(failures: u32) -> Duration {
    back_off(failures, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_proof_is_of_exactly_its_parts() {
        let key = ProofKey::for_test();
        let proof = key.proof(&["ada@example.com", "t"]);
        assert_eq!(proof.len(), 2 * PROOF_BYTES);
        assert!(key.is_proof(&["ada@example.com", "t"], &proof));
        for parts in [&["ada@example.comt", ""][..], &["ada@example.com"], &[]] {
            assert!(!key.is_proof(parts, &proof), "{parts:?}");
        }
        for wrong in ["", "00", proof.get(2..).unwrap(), "x"] {
            assert!(!key.is_proof(&["ada@example.com", "t"], wrong));
        }
        let other = ProofKey::fresh().unwrap();
        assert!(!other.is_proof(&["ada@example.com", "t"], &proof));
        let parsed = ProofKey::parse(&hex::encode(key.0)).unwrap();
        assert!(parsed.is_proof(&["ada@example.com", "t"], &proof));
    }

    #[test]
    fn conn_1_position_is_stored_with_the_time() {
        let position = Position {
            folder: "INBOX".to_owned(),
            uid_validity: 3,
            uid: 9,
            at_s: "2026-03-01T10:00:00Z"
                .parse::<Timestamp>()
                .unwrap()
                .as_second(),
        };
        let text = serde_json::to_string(&json!({"mailbox": position, "callbacks": []})).unwrap();
        let read: StoredMailbox = serde_json::from_str(&text).unwrap();
        assert_eq!(read.mailbox.unwrap(), position);
        assert_eq!(position.day_before(), "27-Feb-2026");
    }
}
