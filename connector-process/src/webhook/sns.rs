//! Messages of Amazon SNS: verified with the certificate that a message names, which is only
//! requested from Amazon's hosts, over TLS.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::ignored_messages::IgnoreReason;
use reqwest::{Client, Url};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};
use serde_json::Value;
use tokio::sync::Semaphore;
use webpki::EndEntityCert;

use crate::http;
use crate::limits::{
    CERTIFICATE_BYTES_MAX, CERTIFICATES_MAX, SERVICE_TIMEOUT_MS, SNS_REQUESTS_MAX,
};
use crate::listener::{
    DirectResponse, InboundRequest, MalformedRequest, RequestRejection, SignatureError,
};
use crate::payload::required;
use crate::service::{ExchangeFailure, HttpAnswer, exchange_within};

/// Signed fields of a notification, in order. Absent ones are omitted.
static NOTIFICATION: [&str; 6] = [
    "Message",
    "MessageId",
    "Subject",
    "Timestamp",
    "TopicArn",
    "Type",
];

/// Signed fields of a message about a subscription, in order.
static SUBSCRIPTION: [&str; 7] = [
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
];

pub(crate) struct Sns {
    client: Client,
    /// The only topics that are listened to, because every customer of Amazon can create one.
    topics: Vec<String>,
    /// Verified certificates by address.
    certificates: Mutex<BTreeMap<String, CertificateDer<'static>>>,
    requests: Semaphore,
}

impl std::fmt::Debug for Sns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sns")
            .field("topics", &self.topics)
            .finish_non_exhaustive()
    }
}

impl Sns {
    /// Creates a verifier for messages of these topics.
    ///
    /// # Errors
    ///
    /// A description of why the HTTP client cannot be built.
    pub(crate) fn new(topics: Vec<String>) -> Result<Self, String> {
        Ok(Self {
            client: http::service_client()?,
            topics,
            certificates: Mutex::default(),
            requests: Semaphore::new(SNS_REQUESTS_MAX),
        })
    }

    /// Verifies the signature of a message.
    ///
    /// # Errors
    ///
    /// [`RequestRejection`] if the message is not signed, or its certificate cannot be requested.
    pub(crate) async fn authenticate(&self, message: &Value) -> Result<(), RequestRejection> {
        let refused = |reason| RequestRejection::NotSigned(SignatureError::Refused { reason });
        let topic = field(message, "TopicArn").ok_or_else(|| {
            refused("the body is not a message of Amazon SNS; disable raw message delivery")
        })?;
        if !self.topics.iter().any(|allowed| allowed == topic) {
            return Err(refused("`TopicArn` is not one of `signature.topics`"));
        }
        let address = field(message, "SigningCertURL").and_then(amazon_address);
        let address = address.filter(|address| address.path().ends_with(".pem"));
        let address = address.ok_or_else(|| {
            refused("`SigningCertURL` is not the address of a certificate of Amazon SNS")
        })?;
        let certificate = self.certificate(&address).await?;
        let does_fit = is_signed(message, &certificate);
        does_fit
            .then_some(())
            .ok_or_else(|| refused("`Signature` does not fit the message"))
    }

    /// The certificate at an address, requested once.
    async fn certificate(
        &self,
        address: &Url,
    ) -> Result<CertificateDer<'static>, RequestRejection> {
        const PURPOSE: &str = "request the certificate of the message";
        if let Some(known) = self.known(address.as_str()) {
            return Ok(known);
        }
        let answer = self.request(PURPOSE, address).await?;
        let certificate = CertificateDer::from_pem_slice(&answer.body);
        let certificate = certificate.map_err(|_not_pem| RequestRejection::ServiceUnreachable {
            purpose: PURPOSE,
            reason: "the answer is not a certificate".to_owned(),
        })?;
        self.remember(address.as_str(), &certificate);
        Ok(certificate)
    }

    fn known(&self, address: &str) -> Option<CertificateDer<'static>> {
        let certificates = self.certificates.lock();
        let certificates = certificates.unwrap_or_else(PoisonError::into_inner);
        certificates.get(address).cloned()
    }

    fn remember(&self, address: &str, certificate: &CertificateDer<'static>) {
        let certificates = self.certificates.lock();
        let mut certificates = certificates.unwrap_or_else(PoisonError::into_inner);
        if certificates.len() >= CERTIFICATES_MAX {
            certificates.clear();
        }
        certificates.insert(address.to_owned(), certificate.clone());
    }

    /// Confirms a subscription.
    ///
    /// # Errors
    ///
    /// [`RequestRejection`] if Amazon SNS does not confirm it; it sends the message again.
    pub(crate) async fn confirm(&self, address: &str) -> Result<(), RequestRejection> {
        let Some(address) = amazon_address(address) else {
            return Err(SignatureError::Refused {
                reason: "`SubscribeURL` is not an address of Amazon SNS",
            }
            .into());
        };
        self.request("confirm the subscription", &address).await?;
        tracing::info!("confirmed a subscription of Amazon SNS");
        Ok(())
    }

    async fn request(
        &self,
        purpose: &'static str,
        address: &Url,
    ) -> Result<HttpAnswer, RequestRejection> {
        let permit = self.requests.try_acquire();
        let _permit = permit.map_err(|_none_free| RequestRejection::Busy)?;
        let within = Duration::from_millis(SERVICE_TIMEOUT_MS);
        let request = self.client.get(address.clone());
        let answer = exchange_within(request, within, CERTIFICATE_BYTES_MAX).await;
        let failed = |reason| RequestRejection::ServiceUnreachable { purpose, reason };
        let answer = answer.map_err(|failure: ExchangeFailure| failed(failure.to_string()))?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        Err(failed(format!("the answer is {}", answer.status)))
    }
}

/// Interprets an authenticated message; `None` for a notification, which is an event.
///
/// # Errors
///
/// [`MalformedRequest`] if a field is missing.
pub(crate) fn answer_to(message: &Value) -> Result<Option<InboundRequest>, MalformedRequest> {
    match required(message, "/Type")? {
        "Notification" => Ok(None),
        "SubscriptionConfirmation" => {
            let address = required(message, "/SubscribeURL")?;
            Ok(Some(InboundRequest::Confirmation(address.to_owned())))
        }
        _ => Ok(Some(InboundRequest::Answer(DirectResponse::ignored(
            IgnoreReason::Unsupported,
            "it is not a notification",
        )))),
    }
}

fn field<'m>(message: &'m Value, name: &str) -> Option<&'m str> {
    message.get(name).and_then(Value::as_str)
}

/// The address, if it is one of Amazon SNS over TLS: `sns.REGION.amazonaws.com`, in China with
/// `.cn`.
fn amazon_address(address: &str) -> Option<Url> {
    let address = Url::parse(address).ok()?;
    let host = address.host_str()?;
    let host = host.strip_suffix(".cn").unwrap_or(host);
    let region = host.strip_prefix("sns.")?.strip_suffix(".amazonaws.com")?;
    let in_region = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_good = address.scheme() == "https"
        && region.len() >= 3
        && region.bytes().all(in_region)
        && address.port().is_none()
        && address.username().is_empty()
        && address.password().is_none();
    is_good.then_some(address)
}

/// True if the key of the certificate signed the message.
fn is_signed(message: &Value, certificate: &CertificateDer<'_>) -> bool {
    let algorithm: &dyn SignatureVerificationAlgorithm = match field(message, "SignatureVersion") {
        Some("1") => &RSA_SHA1,
        Some("2") => webpki::ring::RSA_PKCS1_2048_8192_SHA256,
        Some(_) | None => return false,
    };
    let Some(Ok(signature)) = field(message, "Signature").map(|digits| STANDARD.decode(digits))
    else {
        return false;
    };
    let Ok(certificate) = EndEntityCert::try_from(certificate) else {
        return false;
    };
    let text = signed_text(message);
    certificate
        .verify_signature(algorithm, text.as_bytes(), &signature)
        .is_ok()
}

/// Names and values of the signed fields, each in its own line.
fn signed_text(message: &Value) -> String {
    let names = match field(message, "Type") {
        Some("Notification") => NOTIFICATION.as_slice(),
        Some(_) | None => SUBSCRIPTION.as_slice(),
    };
    let fields = names
        .iter()
        .filter_map(|name| Some((name, field(message, name)?)));
    fields
        .map(|(name, value)| format!("{name}\n{value}\n"))
        .collect()
}

/// RSA with SHA-1, the default of topics.
static RSA_SHA1: RsaSha1 = RsaSha1;

#[derive(Debug)]
struct RsaSha1;

impl SignatureVerificationAlgorithm for RsaSha1 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let algorithm = &ring::signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
        let key = ring::signature::UnparsedPublicKey::new(algorithm, public_key);
        key.verify(message, signature)
            .map_err(|_differs| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    /// Only used for certificates, which this algorithm does not verify.
    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_PKCS1_SHA256
    }
}

#[cfg(test)]
#[path = "sns_tests.rs"]
mod tests;
