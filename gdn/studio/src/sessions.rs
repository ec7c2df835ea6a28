//! Authentication (`OBS-5`): the address that `gdn studio` prints contains a short-lived,
//! single-use ticket, which is exchanged for a token.
//!
//! Only digests are stored, so that neither can be read from memory, and comparisons reveal
//! nothing.

use sha2::{Digest as _, Sha256};

use crate::limits::{SESSIONS_MAX, TICKET_LIFE_MS, TOKEN_LIFE_MS};

/// Bytes of a ticket and of a token.
const SECRET_BYTES: usize = 16;

/// A ticket or a token: 128 random bits, as hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Creates a random secret.
    ///
    /// # Errors
    ///
    /// If the system provides no randomness.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(hex::encode(bytes)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Stored digest of a ticket or a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CredentialDigest {
    digest: [u8; 32],
    until_ms: u64,
}

/// The valid tickets and tokens.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    tickets: Vec<CredentialDigest>,
    tokens: Vec<CredentialDigest>,
}

impl Sessions {
    /// Makes a ticket valid.
    pub(crate) fn admit(&mut self, ticket: &Secret, now_ms: u64) {
        keep(&mut self.tickets, ticket, now_ms, TICKET_LIFE_MS);
    }

    /// Consumes a ticket and makes the token valid if the ticket was. Returns true on success.
    pub(crate) fn exchange(&mut self, ticket: &str, token: &Secret, now_ms: u64) -> bool {
        let was_good = take(&mut self.tickets, ticket, now_ms);
        if was_good {
            keep(&mut self.tokens, token, now_ms, TOKEN_LIFE_MS);
        }
        was_good
    }

    /// True if a token is valid.
    pub(crate) fn knows(&self, token: &str, now_ms: u64) -> bool {
        let digest = digest(token);
        let mut tokens = self.tokens.iter();
        tokens.any(|kept| kept.digest == digest && now_ms < kept.until_ms)
    }

    pub(crate) fn end(&mut self, token: &str, now_ms: u64) {
        take(&mut self.tokens, token, now_ms);
    }
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn keep(all: &mut Vec<CredentialDigest>, secret: &Secret, now_ms: u64, life_ms: u64) {
    all.retain(|kept| now_ms < kept.until_ms);
    if all.len() >= SESSIONS_MAX {
        all.remove(0);
    }
    all.push(CredentialDigest {
        digest: digest(secret.as_str()),
        until_ms: now_ms.saturating_add(life_ms),
    });
}

/// Removes a secret. Returns true if it existed and was valid.
fn take(all: &mut Vec<CredentialDigest>, secret: &str, now_ms: u64) -> bool {
    let digest = digest(secret);
    let at = all.iter().position(|kept| kept.digest == digest);
    at.is_some_and(|at| now_ms < all.remove(at).until_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret(text.to_owned())
    }

    #[test]
    fn obs_5_a_ticket_is_good_once_and_for_a_minute() {
        let mut sessions = Sessions::default();
        sessions.admit(&secret("a"), 1_000);
        assert!(!sessions.exchange("b", &secret("t1"), 1_000));
        assert!(!sessions.knows("t1", 1_000), "another ticket was none");
        assert!(sessions.exchange("a", &secret("t2"), 1_000 + TICKET_LIFE_MS - 1));
        assert!(sessions.knows("t2", 2_000));
        assert!(!sessions.exchange("a", &secret("t3"), 2_000), "it was used");
        sessions.admit(&secret("late"), 1_000);
        assert!(!sessions.exchange("late", &secret("t4"), 1_000 + TICKET_LIFE_MS));
        assert!(!sessions.knows("t3", 2_000) && !sessions.knows("t4", 2_000));
        assert!(!sessions.knows("a", 2_000), "a ticket is not a token");
    }

    #[test]
    fn obs_5_token_ends_at_expiry_or_logout() {
        let mut sessions = Sessions::default();
        for (ticket, token) in [("a", "t1"), ("b", "t2")] {
            sessions.admit(&secret(ticket), 0);
            assert!(sessions.exchange(ticket, &secret(token), 0));
        }
        assert!(sessions.knows("t1", TOKEN_LIFE_MS - 1));
        assert!(!sessions.knows("t1", TOKEN_LIFE_MS));
        sessions.end("t1", 1);
        assert!(!sessions.knows("t1", 1));
        assert!(sessions.knows("t2", 1));
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut sessions = Sessions::default();
        for number in 0..=SESSIONS_MAX {
            sessions.admit(&secret(&number.to_string()), 0);
        }
        assert!(!sessions.exchange("0", &secret("t"), 1));
        assert!(sessions.exchange("1", &secret("t"), 1));
    }

    #[test]
    fn no_two_secrets_are_alike_and_each_has_128_bits() {
        let (a, b) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(a.as_str(), b.as_str());
        assert_eq!(a.as_str().len(), 32);
    }
}
