//! Identities of both sides of a relay: TLS 1.3, with certificates identified only by their
//! SHA-256.
//!
//! Certificate authorities and expiry dates are ignored: a certificate is valid while it is listed.
//! The handshake proves that its holder has the key.

use std::sync::Arc;

use goondan_log::error_chain;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, ServerConfig,
    SignatureScheme,
};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of a certificate in DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Parses 64 hexadecimal digits in either case; `None` for any other text.
    pub(super) fn of_hex(digits: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A client that may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PinnedClient {
    pub(super) name: String,
    pub(super) fingerprint: Fingerprint,
}

/// The client that presented these certificates, if it is listed.
pub(super) fn client_of<'c>(
    clients: &'c [PinnedClient],
    shown: Option<&[CertificateDer<'_>]>,
) -> Option<&'c PinnedClient> {
    let fingerprint = Fingerprint::of(shown?.first()?);
    clients
        .iter()
        .find(|client| client.fingerprint == fingerprint)
}

/// TLS configuration of a relay, which accepts only these clients.
///
/// # Errors
///
/// A description of why the certificate and its key cannot be used, without their contents.
pub(super) fn server_config(
    (certificate, key): (&str, &str),
    clients: Vec<PinnedClient>,
) -> Result<ServerConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = PinnedClients {
        clients,
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error_chain(&error))?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain(certificate)?, private_key(key)?)
        .map_err(|error| format!("failed to load `certificate` and `key`: {error}"))?;
    // A client must present its certificate on every connection.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// TLS configuration of the other side, which accepts only this relay.
///
/// # Errors
///
/// As [`server_config`].
pub(super) fn client_config(
    (certificate, key): (&str, &str),
    server: Fingerprint,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = PinnedServer {
        server,
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = builder(provider)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain(certificate)?, private_key(key)?)
        .map_err(|error| format!("failed to load `certificate` and `key`: {error}"))?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, String> {
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error_chain(&error))
}

fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) | Err(_) => Err("`certificate` holds no certificate in PEM".to_owned()),
    }
}

fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_no_key| "`key` holds no private key in PEM".to_owned())
}

/// Verifier that accepts the listed clients.
#[derive(Debug)]
struct PinnedClients {
    clients: Vec<PinnedClient>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for PinnedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match client_of(&self.clients, Some(std::slice::from_ref(end_entity))) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(not_listed(end_entity)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifier that accepts only this relay.
#[derive(Debug)]
struct PinnedServer {
    server: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if Fingerprint::of(end_entity) == self.server {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(not_listed(end_entity))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The presented certificate is not listed. Its fingerprint is not secret, and the administrator
/// needs it for comparison.
#[derive(Debug, thiserror::Error)]
#[error("the presented certificate, with the fingerprint {shown}, is not listed")]
struct UnknownCertificate {
    shown: Fingerprint,
}

fn not_listed(certificate: &CertificateDer<'_>) -> Error {
    let shown = Fingerprint::of(certificate);
    Error::Other(rustls::OtherError(Arc::new(UnknownCertificate { shown })))
}

/// Unreachable, because only TLS 1.3 is negotiated.
fn no_tls12() -> Error {
    Error::PeerMisbehaved(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_64_digits() {
        let digits = "0a".repeat(32);
        let fingerprint = Fingerprint::of_hex(&digits).unwrap();
        assert_eq!(fingerprint.to_string(), digits);
        assert_eq!(
            Fingerprint::of_hex(&digits.to_uppercase()),
            Some(fingerprint)
        );
        for bad in ["", "0a", &"0a".repeat(33), &"zz".repeat(32)] {
            assert_eq!(Fingerprint::of_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn relay_clients_are_identified_by_their_first_certificate() {
        let certificate = CertificateDer::from(vec![1, 2, 3]);
        let other = CertificateDer::from(vec![4]);
        let clients = [PinnedClient {
            name: "dmz".to_owned(),
            fingerprint: Fingerprint::of(&certificate),
        }];
        let shown = [certificate.clone(), other.clone()];
        assert_eq!(client_of(&clients, Some(&shown)), clients.first());
        assert_eq!(client_of(&clients, Some(&[other, certificate])), None);
        assert_eq!(client_of(&clients, Some(&[])), None);
        assert_eq!(client_of(&clients, None), None);
    }

    #[test]
    fn invalid_pem_is_rejected_without_quoting_it() {
        let client = || PinnedClient {
            name: "dmz".to_owned(),
            fingerprint: Fingerprint([0; 32]),
        };
        let error = server_config(("hunter2", "hunter2"), vec![client()]).unwrap_err();
        assert!(error.contains("`certificate` holds no"), "{error}");
        let certificate = include_str!("../../tests/fixtures/localhost.pem");
        let error = server_config((certificate, "hunter2"), vec![client()]).unwrap_err();
        assert!(error.contains("`key` holds no"), "{error}");
        assert!(!error.contains("hunter2"));
        let key = include_str!("../../tests/fixtures/localhost.key");
        assert!(server_config((certificate, key), vec![client()]).is_ok());
        assert!(client_config((certificate, key), Fingerprint([0; 32])).is_ok());
        let other = include_str!("../../tests/fixtures/authority.pem");
        let error = server_config((other, key), vec![client()]).unwrap_err();
        assert!(error.contains("failed to load"), "{error}");
    }
}
