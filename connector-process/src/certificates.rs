//! Server trust: certificates are verified against the system's trust store.
//!
//! The system's certificates are loaded when the first server presents one, because a connector
//! that only talks to `http://127.0.0.1` needs none. A system without certificates, such as a bare
//! container, gets the built-in Mozilla roots, with a log line. If `SSL_CERT_FILE` or
//! `SSL_CERT_DIR` is set, only those certificates count; if they are unreadable, no server is
//! trusted.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

/// Variables that replace the system's certificates.
const NAMED_BY: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The TLS configuration of every client. The crypto provider must have been installed.
pub(crate) fn client_config() -> ClientConfig {
    let trust = SystemTrust {
        provider: Arc::new(rustls::crypto::ring::default_provider()),
        named_by: NAMED_BY
            .into_iter()
            .find(|name| std::env::var_os(name).is_some()),
        verifier: OnceLock::new(),
    };
    // rustls calls every custom verifier dangerous. This one only delays the creation of the
    // platform's verifier.
    ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
        .with_no_client_auth()
}

/// The platform's verifier, created when the first certificate must be verified.
#[derive(Debug)]
struct SystemTrust {
    provider: Arc<CryptoProvider>,
    /// The variable that names the certificates, if set.
    named_by: Option<&'static str>,
    verifier: OnceLock<Result<Verifier, Error>>,
}

impl SystemTrust {
    fn verifier(&self) -> Result<&Verifier, Error> {
        let made = self.verifier.get_or_init(|| self.load());
        made.as_ref().map_err(Clone::clone)
    }

    fn load(&self) -> Result<Verifier, Error> {
        Verifier::new(Arc::clone(&self.provider)).or_else(|none| self.fall_back(&none))
    }

    fn fall_back(&self, none: &Error) -> Result<Verifier, Error> {
        if let Some(name) = self.named_by {
            return Err(Error::General(format!(
                "no certificate could be read from where `{name}` points; correct or unset it"
            )));
        }
        tracing::warn!(
            error = none as &dyn std::error::Error,
            roots = TLS_SERVER_ROOT_CERTS.len(),
            "this system has no certificates; the built-in roots of Mozilla are used; \
             install the package `ca-certificates` to use the system's"
        );
        Verifier::new_with_extra_roots(
            TLS_SERVER_ROOT_CERTS.iter().cloned(),
            Arc::clone(&self.provider),
        )
    }
}

impl ServerCertVerifier for SystemTrust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = self.verifier()?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust(named_by: Option<&'static str>) -> SystemTrust {
        SystemTrust {
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            named_by,
            verifier: OnceLock::new(),
        }
    }

    #[test]
    fn missing_system_certificates_use_built_in_ones_by_default() {
        let none = || Error::General("none".to_owned());
        trust(None).fall_back(&none()).unwrap();
        let error = trust(Some("SSL_CERT_DIR")).fall_back(&none()).unwrap_err();
        assert!(error.to_string().contains("SSL_CERT_DIR"), "{error}");
    }
}
