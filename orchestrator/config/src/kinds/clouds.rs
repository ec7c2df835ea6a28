//! Cloud platforms in a Model: `azure`, `vertex` and `bedrock`.

use goondan_protocol::cloud::{
    AwsAccessKey, AzureAccess, BedrockAccess, CloudPlatform, VertexAccess,
};
use goondan_protocol::definition::HostedProvider;
use goondan_protocol::oauth::OAuthNeed;

use super::{Context, value};
use crate::codes;
use crate::fields::{Fields, LocatedValue};
use crate::report::{Problem, SourceLocation};
use crate::shape::{Field, FieldConstraint, FieldDefault, FieldType, Shape};

/// Longest name of a region, a project or a version, in bytes.
const NAME_BYTES_MAX: usize = 128;

pub(crate) const AZURE: Field = Field::optional(
    "azure",
    FieldType::Mapping(&AZURE_SHAPE),
    "`openai` only: the model is a deployment of Azure OpenAI.",
);

pub(crate) const VERTEX: Field = Field::optional(
    "vertex",
    FieldType::Mapping(&VERTEX_SHAPE),
    "`anthropic` and `google` only: Google Cloud's Vertex AI serves the model.",
);

pub(crate) const BEDROCK: Field = Field::optional(
    "bedrock",
    FieldType::Mapping(&BEDROCK_SHAPE),
    "`anthropic` only: Amazon Bedrock serves the model.",
);

/// At most one platform serves a model.
pub(crate) const ONE_PLATFORM: &[FieldConstraint] = &[
    FieldConstraint::NotBoth("azure", "vertex"),
    FieldConstraint::NotBoth("azure", "bedrock"),
    FieldConstraint::NotBoth("vertex", "bedrock"),
];

static AZURE_SHAPE: Shape = Shape::of(
    "AzureAccess",
    "Access to Azure OpenAI.",
    &[Field::optional(
        "apiVersion",
        FieldType::Text,
        "Value of `api-version`, such as `2024-10-21`. Requests then use the URL of the deployment.",
    )
    .or(FieldDefault::Meaning("none, for the API `/openai/v1`"))],
);

static VERTEX_SHAPE: Shape = Shape::of(
    "VertexAccess",
    "Access to Vertex AI.",
    &[
        Field::required("project", FieldType::Text, "The Google Cloud project."),
        Field::required(
            "location",
            FieldType::Text,
            "Region that serves the model, such as `us-east5`, or `global`.",
        ),
        Field::optional(
            "serviceAccount",
            FieldType::Secret,
            "Key file of a service account, in JSON, which gets access tokens. Without it, `apiKey` \
             is an access token.",
        ),
    ],
);

static BEDROCK_SHAPE: Shape = Shape::of(
    "BedrockAccess",
    "Access to Amazon Bedrock.",
    &[
        Field::required(
            "region",
            FieldType::Text,
            "AWS region that serves the model, such as `us-east-1`.",
        ),
        Field::optional(
            "accessKeyId",
            FieldType::Secret,
            "Id of an AWS access key, which signs requests. Without it, `apiKey` is a Bedrock API key.",
        ),
        Field::optional(
            "secretAccessKey",
            FieldType::Secret,
            "Secret of the access key.",
        ),
        Field::optional(
            "sessionToken",
            FieldType::Secret,
            "Session token of temporary credentials.",
        ),
    ],
);

/// Platform of a Model, with its place.
pub(super) type LocatedPlatform = LocatedValue<CloudPlatform>;

/// Reads the platform; `None` without one, or if a problem was reported.
pub(super) fn read(
    spec: &mut Fields<'_>,
    provider: HostedProvider,
    cx: &mut Context<'_>,
) -> Option<LocatedPlatform> {
    let azure = spec.nested("azure", &mut cx.report);
    let vertex = spec.nested("vertex", &mut cx.report);
    let bedrock = spec.nested("bedrock", &mut cx.report);
    let (place, name, known, platform) = match (azure, vertex, bedrock) {
        (Some(fields), _, _) => {
            let known: &[HostedProvider] = &[HostedProvider::OpenAi];
            (fields.place, "azure", known, read_azure(fields, cx))
        }
        (None, Some(fields), _) => {
            let known: &[HostedProvider] = &[HostedProvider::Anthropic, HostedProvider::Google];
            (fields.place, "vertex", known, read_vertex(fields, cx))
        }
        (None, None, Some(fields)) => {
            let known: &[HostedProvider] = &[HostedProvider::Anthropic];
            (fields.place, "bedrock", known, read_bedrock(fields, cx))
        }
        (None, None, None) => return None,
    };
    if !known.contains(&provider) {
        let message =
            format!("`{name}` does not serve models with the protocol of this `provider`");
        let names: Vec<String> = known
            .iter()
            .map(|known| format!("`provider: {}`", name_of(*known)))
            .collect();
        cx.report.add(
            Problem::new(codes::INVALID_VALUE, place, message)
                .help(format!("write {}", names.join(" or "))),
        );
    }
    let value = platform?;
    Some(LocatedValue { value, place })
}

fn name_of(provider: HostedProvider) -> &'static str {
    match provider {
        HostedProvider::Anthropic => "anthropic",
        HostedProvider::OpenAi => "openai",
        HostedProvider::Google => "google",
    }
}

fn read_azure(mut fields: Fields<'_>, cx: &mut Context<'_>) -> Option<CloudPlatform> {
    let has_version = fields.has("apiVersion");
    let api_version = read_name(&mut fields, "apiVersion", cx);
    fields.close();
    let is_valid = api_version.is_some() || !has_version;
    is_valid.then_some(CloudPlatform::Azure(AzureAccess { api_version }))
}

fn read_vertex(mut fields: Fields<'_>, cx: &mut Context<'_>) -> Option<CloudPlatform> {
    let project = read_name(&mut fields, "project", cx);
    let location = read_name(&mut fields, "location", cx);
    let place = fields.place_of("serviceAccount");
    let service_account = read_fixed_secret(&mut fields, "serviceAccount", cx);
    fields.close();
    if place.is_some() && service_account.is_none() {
        // Reported already.
        return None;
    }
    let access = VertexAccess {
        project: project?,
        location: location?,
        service_account,
    };
    if let (Some(place), Err(_)) = (place, access.key()) {
        let message = "`serviceAccount` must be the key file of a service account: JSON with \
            `client_email` and `private_key`";
        cx.report.add(
            Problem::new(codes::INVALID_VALUE, place, message)
                .help("create a key in JSON for the service account, and store the whole file"),
        );
    }
    Some(CloudPlatform::Vertex(access))
}

fn read_bedrock(mut fields: Fields<'_>, cx: &mut Context<'_>) -> Option<CloudPlatform> {
    let region = read_name(&mut fields, "region", cx);
    let present =
        ["accessKeyId", "secretAccessKey", "sessionToken"].map(|name| fields.place_of(name));
    let id = read_fixed_secret(&mut fields, "accessKeyId", cx);
    let secret = read_fixed_secret(&mut fields, "secretAccessKey", cx);
    let session_token = read_fixed_secret(&mut fields, "sessionToken", cx);
    fields.close();
    if let [None, Some(place), _] | [Some(place), None, _] | [None, None, Some(place)] = present {
        let message = "an access key has both `accessKeyId` and `secretAccessKey`";
        cx.report.add(
            Problem::new(codes::INVALID_VALUE, place, message)
                .help("write both, or use a Bedrock API key as `apiKey`"),
        );
        return None;
    }
    let access_key = match (id, secret) {
        (Some(id), Some(secret)) => Some(AwsAccessKey {
            id,
            secret,
            session_token,
        }),
        (None, None) if present == [None, None, None] => None,
        // Reported already.
        (Some(_), None) | (None, _) => return None,
    };
    Some(CloudPlatform::Bedrock(BedrockAccess {
        region: region?,
        access_key,
    }))
}

/// Reads a name that becomes part of a URL.
fn read_name(fields: &mut Fields<'_>, name: &'static str, cx: &mut Context<'_>) -> Option<String> {
    let label = fields.label.field(name);
    let written = fields.text(name, &mut cx.report)?;
    let is_host_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':');
    // A project may belong to a domain: `example.com:shop`. A region is part of a host name.
    let may_have_marks = matches!(name, "project" | "apiVersion");
    let is_valid = !written.value.is_empty()
        && written.value.len() <= NAME_BYTES_MAX
        && written.value.chars().all(is_host_char)
        && (may_have_marks || !written.value.contains(['.', ':']));
    if !is_valid {
        let message = format!("{label} must consist of letters, digits and `-`");
        cx.report
            .add(Problem::new(codes::INVALID_VALUE, written.place, message));
        return None;
    }
    Some(written.value.to_owned())
}

/// Reads a secret that cannot be the token of an authorization server, which changes.
fn read_fixed_secret(
    fields: &mut Fields<'_>,
    name: &'static str,
    cx: &mut Context<'_>,
) -> Option<String> {
    let place: Option<SourceLocation> = fields.place_of(name);
    let secret = value::read_secret(fields, name, cx)?;
    if let Some(place) = place.filter(|_| OAuthNeed::of_placeholder(&secret).is_some()) {
        let message = format!("`{name}` cannot be a token of an authorization server");
        cx.report.add(
            Problem::new(codes::INVALID_VALUE, place, message)
                .help("write `valueFrom` with `env` or `secretRef`, or use `apiKey`"),
        );
        return None;
    }
    Some(secret)
}

/// Reports a platform without credentials, or with several. A server at a custom `endpoint` may need
/// none.
pub(super) fn check_credentials(
    platform: &LocatedPlatform,
    has_key: bool,
    has_endpoint: bool,
    cx: &mut Context<'_>,
) {
    let (own, field) = match &platform.value {
        CloudPlatform::Azure(_) => (false, None),
        CloudPlatform::Vertex(vertex) => (
            vertex.service_account.is_some(),
            Some("vertex.serviceAccount"),
        ),
        CloudPlatform::Bedrock(bedrock) => {
            (bedrock.access_key.is_some(), Some("bedrock.accessKeyId"))
        }
    };
    let problem = match field {
        Some(field) if own && has_key => Problem::new(
            codes::INVALID_VALUE,
            platform.place,
            format!("`apiKey` and `{field}` are two credentials for one model"),
        )
        .help(format!("remove `apiKey` or `{field}`")),
        Some(field) if !own && !has_key && !has_endpoint => Problem::new(
            codes::INVALID_VALUE,
            platform.place,
            "the platform needs credentials",
        )
        .help(format!(
            "write `{field}` or `apiKey`, each with a `valueFrom`"
        )),
        None if !has_endpoint => Problem::new(
            codes::INVALID_VALUE,
            platform.place,
            "a model of Azure needs the `endpoint` of its resource",
        )
        .help("write `endpoint: https://RESOURCE.openai.azure.com/openai/v1`"),
        Some(_) | None => return,
    };
    cx.report.add(problem);
}
