//! URL, body and credentials of a request, which depend on the platform that serves a model.
//!
//! * Azure: the URL of a deployment, and the header `api-key`.
//! * Vertex AI: model and method in the URL, an access token, and for Anthropic a version in the
//!   body.
//! * Bedrock: the same with a signature of AWS, and a binary encoding of the stream.

use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::cloud::CloudPlatform;
use goondan_protocol::definition::{HostedModel, HostedProvider, OpenAiApi};
use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, HeaderName};
use reqwest::{Client, Url};
use serde_json::{Value, json};

use super::anthropic;
use super::service_account::AccessTokens;
use super::sigv4::{self, SigningScope, UnsignedRequest, encoded};

/// Placeholder for servers that need no key, because some clients and servers require one.
const NO_KEY: &str = "none";

/// Versions of Anthropic's API on platforms, in the body.
const ANTHROPIC_ON_VERTEX: &str = "vertex-2023-10-16";
const ANTHROPIC_ON_BEDROCK: &str = "bedrock-2023-05-31";

/// Service name in signatures for Bedrock.
const BEDROCK_SERVICE: &str = "bedrock";

/// Media type of requests.
pub(super) const JSON: &str = "application/json";

/// The URL of a request.
///
/// # Errors
///
/// The reason the configured endpoint is invalid.
pub(super) fn url_of(model: &HostedModel) -> Result<Url, String> {
    let mut url = Url::parse(&model.address()).map_err(|error| error.to_string())?;
    let base = url.path().trim_end_matches('/').to_owned();
    let name = model.model.strip_prefix("models/").unwrap_or(&model.model);
    let method = match model.api {
        OpenAiApi::Chat => "chat/completions",
        OpenAiApi::Responses => "responses",
    };
    let path = match (&model.platform, model.provider) {
        (Some(CloudPlatform::Azure(azure)), _) => {
            let query = azure.api_version.as_deref();
            if let Some(version) = query {
                url.query_pairs_mut().append_pair("api-version", version);
            }
            azure_path(&base, model, method, query.is_some())
        }
        (Some(CloudPlatform::Vertex(vertex)), provider) => {
            let (publisher, method) = match provider {
                HostedProvider::Anthropic => ("anthropic", "streamRawPredict"),
                HostedProvider::Google | HostedProvider::OpenAi => {
                    url.query_pairs_mut().append_pair("alt", "sse");
                    ("google", "streamGenerateContent")
                }
            };
            let (project, location) = (encoded(&vertex.project, false), &vertex.location);
            // `@` separates the version of a model of Anthropic.
            let name = encoded(name, false).replace("%40", "@");
            format!(
                "{base}/projects/{project}/locations/{location}/publishers/{publisher}/models/\
                 {name}:{method}"
            )
        }
        (Some(CloudPlatform::Bedrock(_)), _) => {
            // A model can be a resource name with slashes and colons.
            let name = encoded(&model.model, false);
            format!("{base}/model/{name}/invoke-with-response-stream")
        }
        (None, HostedProvider::Anthropic) => format!("{base}/messages"),
        (None, HostedProvider::OpenAi) => format!("{base}/{method}"),
        (None, HostedProvider::Google) => {
            url.query_pairs_mut().append_pair("alt", "sse");
            format!("{base}/models/{name}:streamGenerateContent")
        }
    };
    url.set_path(&path);
    Ok(url)
}

/// The API with a version has the deployment in its path, except for Responses. The newer one ends
/// in `/v1` and takes the deployment as the model.
fn azure_path(base: &str, model: &HostedModel, method: &str, has_version: bool) -> String {
    if !has_version || base.ends_with("/v1") {
        return format!("{base}/{method}");
    }
    let base = base.strip_suffix("/openai").unwrap_or(base);
    match model.api {
        OpenAiApi::Chat => {
            let deployment = encoded(&model.model, false);
            format!("{base}/openai/deployments/{deployment}/{method}")
        }
        OpenAiApi::Responses => format!("{base}/openai/{method}"),
    }
}

/// Changes the body of a request for the platform.
pub(super) fn adapt_body(model: &HostedModel, body: &mut Value) {
    let version = match (&model.platform, model.provider) {
        (Some(CloudPlatform::Vertex(_)), HostedProvider::Anthropic) => ANTHROPIC_ON_VERTEX,
        (Some(CloudPlatform::Bedrock(_)), _) => ANTHROPIC_ON_BEDROCK,
        (Some(CloudPlatform::Azure(_) | CloudPlatform::Vertex(_)) | None, _) => return,
    };
    if let Some(fields) = body.as_object_mut() {
        // The URL has the model, and on Bedrock the method says that the reply is streamed.
        fields.remove("model");
        if matches!(model.platform, Some(CloudPlatform::Bedrock(_))) {
            fields.remove("stream");
        }
        fields.insert("anthropic_version".to_owned(), json!(version));
    }
}

fn unauthorized(message: &str, model: &HostedModel, field: &str) -> CallError {
    CallError::new(CallErrorCode::Unauthorized, message)
        .suggest(format!("check `{field}` of Model `{}`", model.name))
}

/// The headers that authenticate a request.
///
/// # Errors
///
/// If no access token can be obtained.
pub(super) async fn credentials_of(
    model: &HostedModel,
    client: &Client,
    tokens: &AccessTokens,
    url: &Url,
    body: &[u8],
) -> Result<Vec<(HeaderName, String)>, CallError> {
    let key = model.api_key.as_deref().unwrap_or(NO_KEY);
    let bearer = |token: &str| vec![(AUTHORIZATION, format!("Bearer {token}"))];
    let headers = match (&model.platform, model.provider) {
        (Some(CloudPlatform::Azure(_)), _) => {
            vec![(HeaderName::from_static("api-key"), key.to_owned())]
        }
        (Some(CloudPlatform::Vertex(vertex)), _) => {
            let account = vertex.key().map_err(|_| {
                let message = "the key file of the service account is invalid";
                unauthorized(message, model, "vertex.serviceAccount")
            })?;
            match account {
                Some(account) => bearer(&tokens.get(model, client, &account).await?),
                None => bearer(key),
            }
        }
        (Some(CloudPlatform::Bedrock(bedrock)), _) => match &bedrock.access_key {
            Some(access_key) => {
                let request = UnsignedRequest {
                    method: "POST",
                    url,
                    headers: &[("content-type", JSON)],
                    body,
                };
                let scope = SigningScope {
                    region: &bedrock.region,
                    service: BEDROCK_SERVICE,
                };
                let signed = sigv4::headers_of(request, access_key, scope, Timestamp::now());
                let signed = signed.into_iter();
                signed
                    .map(|(name, value)| (HeaderName::from_static(name), value))
                    .collect()
            }
            None => bearer(key),
        },
        (None, HostedProvider::Anthropic) => vec![
            (HeaderName::from_static("x-api-key"), key.to_owned()),
            (
                HeaderName::from_static("anthropic-version"),
                anthropic::VERSION.to_owned(),
            ),
        ],
        (None, HostedProvider::OpenAi) => bearer(key),
        (None, HostedProvider::Google) => {
            vec![(HeaderName::from_static("x-goog-api-key"), key.to_owned())]
        }
    };
    Ok(headers)
}

/// The configured credentials, which errors must not quote.
pub(super) fn secrets_of(model: &HostedModel) -> Vec<&str> {
    let mut secrets: Vec<&str> = model.api_key.as_deref().into_iter().collect();
    match &model.platform {
        Some(CloudPlatform::Bedrock(bedrock)) => {
            if let Some(key) = &bedrock.access_key {
                secrets.extend([key.id.as_str(), key.secret.as_str()]);
                secrets.extend(key.session_token.as_deref());
            }
        }
        Some(CloudPlatform::Vertex(vertex)) => secrets.extend(vertex.service_account.as_deref()),
        Some(CloudPlatform::Azure(_)) | None => {}
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(fields: &Value) -> HostedModel {
        let mut whole = json!({"name": "m", "model": "m"});
        let fields = fields.as_object().unwrap().clone();
        whole.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn prov_1_each_platform_has_its_own_urls() {
        let arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-v1:0";
        for (fields, expected) in [
            (
                json!({"provider": "openai", "api": "responses"}),
                "https://api.openai.com/v1/responses",
            ),
            (
                json!({"provider": "openai", "endpoint": "https://r.openai.azure.com/openai/v1/",
                    "platform": {"azure": {}}}),
                "https://r.openai.azure.com/openai/v1/chat/completions",
            ),
            (
                json!({"provider": "openai", "endpoint": "https://r.openai.azure.com/openai/v1",
                    "api": "responses", "platform": {"azure": {"apiVersion": "preview"}}}),
                "https://r.openai.azure.com/openai/v1/responses?api-version=preview",
            ),
            (
                json!({"provider": "openai", "endpoint": "https://r.openai.azure.com", "model": "gpt 5",
                    "platform": {"azure": {"apiVersion": "2024-10-21"}}}),
                "https://r.openai.azure.com/openai/deployments/gpt%205/chat/completions?api-version=2024-10-21",
            ),
            (
                json!({"provider": "openai", "endpoint": "https://r.openai.azure.com/openai/",
                    "api": "responses", "platform": {"azure": {"apiVersion": "2025-04-01-preview"}}}),
                "https://r.openai.azure.com/openai/responses?api-version=2025-04-01-preview",
            ),
            (
                json!({"provider": "anthropic", "model": "claude-sonnet-4-5@20250929",
                    "platform": {"vertex": {"project": "shop", "location": "us-east5"}}}),
                "https://us-east5-aiplatform.googleapis.com/v1/projects/shop/locations/us-east5/publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict",
            ),
            (
                json!({"provider": "google", "model": "gemini-2.5-pro",
                    "platform": {"vertex": {"project": "shop", "location": "global"}}}),
                "https://aiplatform.googleapis.com/v1/projects/shop/locations/global/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            ),
            (
                json!({"provider": "anthropic", "model": arn,
                    "platform": {"bedrock": {"region": "us-east-1"}}}),
                "https://bedrock-runtime.us-east-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.anthropic.claude-v1%3A0/invoke-with-response-stream",
            ),
            (
                json!({"provider": "google", "model": "models/gemini-2.5-pro"}),
                "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            ),
        ] {
            assert_eq!(
                url_of(&model(&fields)).unwrap().as_str(),
                expected,
                "{fields}"
            );
        }
    }

    #[test]
    fn prov_1_anthropic_on_a_platform_has_its_version_in_the_body() {
        let body = |platform: Value| {
            let model = model(&json!({"provider": "anthropic", "platform": platform}));
            let mut body = json!({"model": "m", "stream": true, "max_tokens": 1});
            adapt_body(&model, &mut body);
            body
        };
        assert_eq!(
            body(json!({"vertex": {"project": "p", "location": "global"}})),
            json!({"stream": true, "max_tokens": 1, "anthropic_version": ANTHROPIC_ON_VERTEX})
        );
        assert_eq!(
            body(json!({"bedrock": {"region": "us-east-1"}})),
            json!({"max_tokens": 1, "anthropic_version": ANTHROPIC_ON_BEDROCK})
        );
        assert_eq!(
            body(Value::Null),
            json!({"model": "m", "stream": true, "max_tokens": 1})
        );
    }
}
