//! Cloud platforms that serve the models of providers at other URLs and with other credentials.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Cloud platform that serves a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloudPlatform {
    /// Azure `OpenAI`.
    Azure(AzureAccess),
    /// Google Cloud's Vertex AI.
    Vertex(VertexAccess),
    /// Amazon Bedrock.
    Bedrock(BedrockAccess),
}

/// Access to Azure `OpenAI`. The key is that of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AzureAccess {
    /// Version of the API with deployments in its URLs; `None` for the API `/openai/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
}

/// Access to Vertex AI. Without a service account, the key of the model is an access token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VertexAccess {
    /// The Google Cloud project.
    pub project: String,
    /// Region, or `global`, `us` or `eu`.
    pub location: String,
    /// Key file of a service account, in JSON. Never logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
}

/// Key of a Google Cloud service account, as in its key file. Other fields are ignored.
#[derive(Clone, Deserialize)]
pub struct ServiceAccountKey {
    /// The account.
    pub client_email: String,
    /// RSA key in PKCS #8 and PEM. Never logged.
    pub private_key: String,
    /// Id of the key.
    #[serde(default)]
    pub private_key_id: Option<String>,
    /// URL that issues access tokens.
    #[serde(default = "usual_token_uri")]
    pub token_uri: String,
}

fn usual_token_uri() -> String {
    "https://oauth2.googleapis.com/token".to_owned()
}

impl VertexAccess {
    /// The key of the service account, if there is one.
    ///
    /// # Errors
    ///
    /// If it is not a key file of a service account.
    pub fn key(&self) -> Result<Option<ServiceAccountKey>, serde_json::Error> {
        let file = self.service_account.as_deref();
        file.map(serde_json::from_str).transpose()
    }
}

/// Access to Amazon Bedrock. Without an access key, the key of the model is a Bedrock API key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BedrockAccess {
    /// AWS region.
    pub region: String,
    /// Key that signs requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key: Option<AwsAccessKey>,
}

/// An access key of AWS.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwsAccessKey {
    /// Its id.
    pub id: String,
    /// Its secret. Never logged.
    pub secret: String,
    /// Token of temporary credentials. Never logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<String>,
}

impl CloudPlatform {
    /// Its default URL; `None` if each customer has another one.
    #[must_use]
    pub fn usual_endpoint(&self) -> Option<String> {
        match self {
            Self::Azure(_) => None,
            Self::Vertex(vertex) => {
                let host = match vertex.location.as_str() {
                    "global" => "aiplatform.googleapis.com".to_owned(),
                    several @ ("us" | "eu") => format!("aiplatform.{several}.rep.googleapis.com"),
                    region => format!("{region}-aiplatform.googleapis.com"),
                };
                Some(format!("https://{host}/v1"))
            }
            Self::Bedrock(bedrock) => {
                let region = &bedrock.region;
                let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
                Some(format!(
                    "https://bedrock-runtime.{region}.amazonaws.com{suffix}"
                ))
            }
        }
    }

    /// The same platform without its credentials.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let mut platform = self.clone();
        match &mut platform {
            Self::Azure(_) => {}
            Self::Vertex(vertex) => vertex.service_account = None,
            Self::Bedrock(bedrock) => bedrock.access_key = None,
        }
        platform
    }
}

impl fmt::Debug for VertexAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VertexAccess")
            .field("project", &self.project)
            .field("location", &self.location)
            .field(
                "service_account",
                &self.service_account.as_ref().map(|_| "…"),
            )
            .finish()
    }
}

impl fmt::Debug for BedrockAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BedrockAccess")
            .field("region", &self.region)
            .field("access_key", &self.access_key)
            .finish()
    }
}

impl fmt::Debug for AwsAccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsAccessKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_each_region_has_its_own_default_url() {
        let vertex = |location: &str| {
            CloudPlatform::Vertex(VertexAccess {
                project: "p".to_owned(),
                location: location.to_owned(),
                service_account: Some("{}".to_owned()),
            })
        };
        let bedrock = |region: &str| {
            CloudPlatform::Bedrock(BedrockAccess {
                region: region.to_owned(),
                access_key: None,
            })
        };
        for (platform, expected) in [
            (
                vertex("us-east5"),
                "https://us-east5-aiplatform.googleapis.com/v1",
            ),
            (vertex("global"), "https://aiplatform.googleapis.com/v1"),
            (vertex("eu"), "https://aiplatform.eu.rep.googleapis.com/v1"),
            (
                bedrock("eu-central-1"),
                "https://bedrock-runtime.eu-central-1.amazonaws.com",
            ),
            (
                bedrock("cn-north-1"),
                "https://bedrock-runtime.cn-north-1.amazonaws.com.cn",
            ),
        ] {
            assert_eq!(platform.usual_endpoint().as_deref(), Some(expected));
        }
        let shown = format!("{:?}", vertex("global"));
        assert!(!shown.contains("{}"), "{shown}");
    }

    #[test]
    fn prov_1_a_service_account_key_is_read_from_its_file() {
        let access = |file: &str| VertexAccess {
            project: "p".to_owned(),
            location: "global".to_owned(),
            service_account: Some(file.to_owned()),
        };
        let file = r#"{"type": "service_account", "client_email": "a@b", "private_key": "k"}"#;
        let key = access(file).key().unwrap().unwrap();
        assert_eq!(key.client_email, "a@b");
        assert_eq!(key.token_uri, "https://oauth2.googleapis.com/token");
        assert!(access("ya29.token").key().is_err());
    }

    #[test]
    fn prov_1_a_secret_access_key_is_never_shown() {
        let key = AwsAccessKey {
            id: "AKID".to_owned(),
            secret: "hush".to_owned(),
            session_token: Some("quiet".to_owned()),
        };
        let shown = format!("{key:?}");
        assert!(shown.contains("AKID"), "{shown}");
        assert!(
            !shown.contains("hush") && !shown.contains("quiet"),
            "{shown}"
        );
    }
}
