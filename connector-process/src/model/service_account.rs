//! Access tokens of a Google Cloud service account (RFC 7523): a token that its key signs is
//! exchanged for an access token.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use goondan_clock::{Instant, timeout};
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::cloud::ServiceAccountKey;
use goondan_protocol::definition::HostedModel;
use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use super::failure;
use crate::limits::{OAUTH_DOCUMENT_BYTES_MAX, SERVICE_TIMEOUT_MS};

/// Rights of the token.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Validity of the signed token; Google accepts at most an hour.
const ASSERTION_SECONDS: i64 = 3_600;

/// A token is replaced this long before it expires, because a request with it may take a while to
/// arrive.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
struct HeldToken {
    token: String,
    renewed_at: Instant,
}

/// The current access token of a model's service account.
#[derive(Default)]
pub(super) struct AccessTokens {
    held: Mutex<Option<HeldToken>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: u64,
}

impl AccessTokens {
    /// The current token, which is requested if there is none. Calls at the same time share it.
    ///
    /// # Errors
    ///
    /// If the key is invalid, or no token can be obtained.
    pub(super) async fn get(
        &self,
        model: &HostedModel,
        client: &Client,
        key: &ServiceAccountKey,
    ) -> Result<String, CallError> {
        let mut held = self.held.lock().await;
        if let Some(held) = held
            .as_ref()
            .filter(|held| Instant::now() < held.renewed_at)
        {
            return Ok(held.token.clone());
        }
        let assertion = assertion(key, Timestamp::now()).map_err(|problem| {
            CallError::new(
                CallErrorCode::Unauthorized,
                format!("the key of the service account cannot be used: {problem}"),
            )
            .suggest(format!(
                "check `vertex.serviceAccount` of Model `{}`",
                model.name
            ))
        })?;
        let answer = requested(model, client, key, &assertion).await?;
        let valid = Duration::from_secs(answer.expires_in).saturating_sub(RENEWED_BEFORE);
        *held = Some(HeldToken {
            token: answer.access_token.clone(),
            renewed_at: Instant::now() + valid,
        });
        Ok(answer.access_token)
    }

    /// Forgets a token that the provider rejected.
    pub(super) async fn forget(&self) {
        self.held.lock().await.take();
    }

    /// The current token, to remove it from errors.
    pub(super) async fn current(&self) -> Option<String> {
        let held = self.held.lock().await;
        held.as_ref().map(|held| held.token.clone())
    }
}

/// A signed token that proves possession of the key.
fn assertion(key: &ServiceAccountKey, now: Timestamp) -> Result<String, &'static str> {
    let mut head = json!({"alg": "RS256", "typ": "JWT"});
    if let (Some(id), Some(fields)) = (&key.private_key_id, head.as_object_mut()) {
        fields.insert("kid".to_owned(), json!(id));
    }
    let issued = now.as_second();
    let claims = json!({"iss": key.client_email, "scope": SCOPE, "aud": key.token_uri,
        "iat": issued, "exp": issued.saturating_add(ASSERTION_SECONDS)});
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&head), part(&claims));
    let der = PrivatePkcs8KeyDer::from_pem_slice(key.private_key.as_bytes())
        .map_err(|_| "`private_key` is not a PKCS #8 key in PEM")?;
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der())
        .map_err(|_| "`private_key` is not an RSA key of at least 2048 bits")?;
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        signed.as_bytes(),
        &mut signature,
    )
    .map_err(|_| "signing failed")?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

async fn requested(
    model: &HostedModel,
    client: &Client,
    key: &ServiceAccountKey,
    assertion: &str,
) -> Result<TokenAnswer, CallError> {
    let body = format!(
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}"
    );
    let request = client
        .post(&key.token_uri)
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(body);
    let failed = |code, problem: &str| {
        let message = format!(
            "failed to get an access token for Model `{}` from `{}`: {problem}",
            model.name, key.token_uri
        );
        CallError::new(code, message)
    };
    let exchange = async {
        let mut response = request.send().await?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await? {
            body.extend_from_slice(&part);
            if body.len() > OAUTH_DOCUMENT_BYTES_MAX {
                break;
            }
        }
        Ok::<_, reqwest::Error>((status, body))
    };
    let exchanged = timeout(Duration::from_millis(SERVICE_TIMEOUT_MS), exchange).await;
    let (status, body) = match exchanged {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            let problem = goondan_log::error_chain(&error);
            return Err(failed(CallErrorCode::Unavailable, &problem)
                .suggest("check the network; `gdn doctor --network` tests it")
                .later(None));
        }
        Err(_elapsed) => {
            let problem = format!("no answer within {SERVICE_TIMEOUT_MS} ms");
            return Err(failed(CallErrorCode::TimedOut, &problem).later(None));
        }
    };
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(failed(CallErrorCode::Overloaded, &format!("status {status}")).later(None));
    }
    let text = String::from_utf8_lossy(&body);
    if !status.is_success() {
        let problem = format!("status {status}: {}", failure::quoted(&text));
        return Err(
            failed(CallErrorCode::Unauthorized, &problem).suggest(format!(
                "check `vertex.serviceAccount` of Model `{}`",
                model.name
            )),
        );
    }
    // The answer contains the token, so it is not quoted.
    serde_json::from_slice(&body)
        .map_err(|_| failed(CallErrorCode::Internal, "the answer has no `access_token`"))
}
