//! Server trust: certificates are verified against the system's trust store.
//!
//! The system's certificates are loaded when the first server presents one, because a process that
//! only talks to `http://127.0.0.1` needs none. A system without certificates, such as a bare
//! container, gets the built-in Mozilla roots, with a log line. If `SSL_CERT_FILE` or
//! `SSL_CERT_DIR` is set, its certificates replace the system's; if they are unreadable, no server
//! is trusted. Those of `GOONDAN_CA_FILE` are trusted in addition.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use goondan_protocol::proxy::{CA_FILE_VAR, SYSTEM_CA_VARS};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme,
};
use rustls_platform_verifier::Verifier;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use crate::issuer::issuer_of;
use crate::problem::CertificateRefusal;

/// The TLS configuration of every client. The crypto provider must have been installed.
#[must_use]
pub fn client_config() -> ClientConfig {
    let trust = SystemTrust::of_environment();
    // rustls calls every custom verifier dangerous. This one only delays the creation of the
    // platform's verifier, and describes its refusals.
    ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
        .with_no_client_auth()
}

/// Checks that certificate authorities can be loaded.
///
/// # Errors
///
/// The reason why no server is trusted.
pub fn check_authorities() -> Result<(), String> {
    let trust = SystemTrust::of_environment();
    trust.verifier().map(drop).map_err(|error| match error {
        Error::General(why) => why,
        other => other.to_string(),
    })
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
    fn of_environment() -> Self {
        Self {
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            named_by: SYSTEM_CA_VARS
                .into_iter()
                .find(|name| std::env::var_os(name).is_some()),
            verifier: OnceLock::new(),
        }
    }

    fn verifier(&self) -> Result<&Verifier, Error> {
        let made = self.verifier.get_or_init(|| self.load());
        made.as_ref().map_err(Clone::clone)
    }

    fn load(&self) -> Result<Verifier, Error> {
        let added = std::env::var_os(CA_FILE_VAR).filter(|file| !file.is_empty());
        let added = match added {
            Some(file) => in_file(Path::new(&file))?,
            None => Vec::new(),
        };
        match Verifier::new(Arc::clone(&self.provider)) {
            Ok(verifier) if added.is_empty() => Ok(verifier),
            Ok(_) => Verifier::new_with_extra_roots(added, Arc::clone(&self.provider)),
            Err(none) => self.fall_back(&none, added),
        }
    }

    fn fall_back(
        &self,
        none: &Error,
        added: Vec<CertificateDer<'static>>,
    ) -> Result<Verifier, Error> {
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
        let roots = TLS_SERVER_ROOT_CERTS.iter().cloned().chain(added);
        Verifier::new_with_extra_roots(roots, Arc::clone(&self.provider))
    }
}

/// Reads the certificates in a PEM file.
fn in_file(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |why: String| {
        let file = file.display();
        Error::General(format!(
            "no certificate could be read from `{file}` ({CA_FILE_VAR}): {why}; expected a PEM file"
        ))
    };
    let found = CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    match found.is_empty() {
        true => Err(wrong("it has none".to_owned())),
        false => Ok(found),
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
        let verified =
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.map_err(|error| match error {
            Error::InvalidCertificate(why) => {
                let refusal = CertificateRefusal {
                    server: server_name.to_str().into_owned(),
                    issuer: issuer_of(end_entity),
                    why,
                };
                let refusal = OtherError(Arc::new(refusal));
                Error::InvalidCertificate(CertificateError::Other(refusal))
            }
            other => other,
        })
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
        trust(None).fall_back(&none(), Vec::new()).unwrap();
        let named = trust(Some("SSL_CERT_DIR"));
        let error = named.fall_back(&none(), Vec::new()).unwrap_err();
        assert!(error.to_string().contains("SSL_CERT_DIR"), "{error}");
    }

    #[test]
    fn prov_2_unreadable_additional_authorities_are_named() {
        let error = in_file(Path::new("/nonexistent/ca.pem")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/nonexistent/ca.pem") && text.contains("GOONDAN_CA_FILE"));
    }
}
