//! `kind: Model`: a model and its provider.

use goondan_protocol::definition::{
    HostedModel, HostedProvider, ModelDefinition, ModelParams, ModelProvider, ModelTimeouts,
    OpenAiApi,
};
use goondan_protocol::ids::ResourceName;
use goondan_protocol::script::Script;
use goondan_protocol::usage::PriceTable;

use super::{
    Context, clouds, id, params, prices, process_limits, read_named_file, script, thinking, value,
};
use crate::advice;
use crate::codes;
use crate::document::Document;
use crate::fields::{Fields, Label, LocatedValue};
use crate::kind::ResourceKind;
use crate::limits::{DEFAULT_CONNECTOR_MEMORY_MIB, MAX_YAML_BYTES};
use crate::report::{Problem, ProblemReport};
use crate::shape::{Case, Field, FieldConstraint, FieldDefault, FieldType, Shape, ShapeChoice};
use crate::tree;

/// Provider of the embedded model, and the name of its only model.
const SCRIPTED: &str = "scripted";

/// Providers reached over the network.
const HOSTED: &[&str] = &["anthropic", "openai", "google"];

const PROVIDER: Field = Field::required(
    "provider",
    FieldType::Word(&[SCRIPTED, "anthropic", "openai", "google"]),
    "The provider. `scripted` is built in, needs no network and plays a script.",
);

const CAPABILITIES: Field = Field::optional(
    "capabilities",
    FieldType::Mapping(&CAPABILITIES_SHAPE),
    "Capabilities of the model. Needed if they do not follow from its name.",
);

static CAPABILITIES_SHAPE: Shape = Shape::of(
    "Capabilities",
    "Capabilities of a model.",
    &[
        Field::optional(
            "toolCalling",
            FieldType::Boolean,
            "True if the model can call tools.",
        ),
        Field::optional(
            "streaming",
            FieldType::Boolean,
            "True if the model can stream its answers.",
        ),
        Field::optional(
            "images",
            FieldType::Boolean,
            "True if the model accepts images.",
        ),
    ],
);

impl ResourceKind {
    pub(crate) const MODEL: Self = Self::named("Model");
}

/// Shape of a Model's `spec`.
pub(crate) static SPEC: ShapeChoice = ShapeChoice {
    field: "provider",
    cases: &[
        (Case::Is(&[SCRIPTED]), &SCRIPTED_SPEC),
        (Case::Is(HOSTED), &HOSTED_SPEC),
    ],
    otherwise: &UNKNOWN_SPEC,
};

static SCRIPTED_SPEC: Shape = Shape::of(
    "ScriptedModelSpec",
    "The built-in model, which plays a script deterministically.",
    &[
        PROVIDER,
        Field::optional("model", FieldType::Text, "Display name.").or(FieldDefault::Text(SCRIPTED)),
        Field::required(
            "options",
            FieldType::Mapping(&SCRIPTED_OPTIONS),
            "The script.",
        ),
        CAPABILITIES,
    ],
);

static SCRIPTED_OPTIONS: Shape = Shape::of(
    "ScriptedModelOptions",
    "The script of the built-in model.",
    &[
        Field::optional(
            "script",
            FieldType::Path,
            "Path of a script file: one YAML document with the field `rules`.",
        ),
        Field::optional(
            "rules",
            FieldType::List(&FieldType::Mapping(&script::RULE)),
            "The rules themselves.",
        ),
    ],
)
.with(&[
    FieldConstraint::NotBoth("script", "rules"),
    FieldConstraint::AnyOf(
        &["script", "rules"],
        "set a script file: `script: path/of/script.yaml`",
    ),
]);

static HOSTED_SPEC: Shape = Shape::of(
    "HostedModelSpec",
    "A provider's model. A separate connector process holds the key and makes the calls.",
    &[
        PROVIDER,
        Field::required(
            "model",
            FieldType::Text,
            "The provider's own name of the model.",
        ),
        Field::optional(
            "apiKey",
            FieldType::Secret,
            "The provider's API key. Your own server at `endpoint` may not need one.",
        ),
        Field::optional(
            "endpoint",
            FieldType::Text,
            "URL of the provider, if it is not the standard one, up to and including the version, \
             such as `http://127.0.0.1:8080/v1`.",
        ),
        Field::optional(
            "api",
            FieldType::Word(&["chat", "responses"]),
            "`openai` only: the API to use, Chat Completions or Responses.",
        )
        .or(FieldDefault::Text("chat")),
        clouds::AZURE,
        clouds::VERTEX,
        clouds::BEDROCK,
        Field::optional(
            "params",
            FieldType::Mapping(&params::PARAMS),
            "Parameters of each call; an agent can override them.",
        ),
        Field::optional("timeouts", FieldType::Mapping(&TIMEOUTS), "Timeouts."),
        Field::optional(
            "promptCaching",
            FieldType::Boolean,
            "`anthropic` only: marks the beginning of each request for the provider's cache.",
        )
        .or(FieldDefault::Meaning("true")),
        Field::optional(
            "sendReasoning",
            FieldType::Boolean,
            "`openai` only: sends the model's reasoning of the turn back as `reasoning_content`.",
        )
        .or(FieldDefault::Meaning(
            "true if the service is known to require it",
        )),
        Field::optional(
            "options",
            FieldType::Entries(&FieldType::Anything),
            "Fields that are added to each request unchanged.",
        ),
        prices::PRICES,
        Field::optional(
            "limits",
            FieldType::Mapping(&process_limits::LIMITS),
            "Limits of its connector process.",
        ),
        CAPABILITIES,
    ],
)
.with(clouds::ONE_PLATFORM);

const TIMEOUT_MS_MAX: u64 = 3_600_000;

static TIMEOUTS: Shape = Shape::of(
    "ModelTimeouts",
    "Timeouts in milliseconds.",
    &[
        Field::optional(
            "connectMs",
            FieldType::Number(1, TIMEOUT_MS_MAX),
            "Time to connect to the provider.",
        )
        .or(FieldDefault::Number(10_000)),
        Field::optional(
            "firstByteMs",
            FieldType::Number(1, TIMEOUT_MS_MAX),
            "Time until the answer begins.",
        )
        .or(FieldDefault::Number(300_000)),
        Field::optional(
            "stallMs",
            FieldType::Number(1, TIMEOUT_MS_MAX),
            "Time until the next part of the answer.",
        )
        .or(FieldDefault::Number(120_000)),
        Field::optional(
            "totalMs",
            FieldType::Number(1, TIMEOUT_MS_MAX),
            "Time for the whole answer.",
        )
        .or(FieldDefault::Number(1_500_000)),
    ],
);

/// Shape for an unknown provider, whose other fields cannot be checked.
static UNKNOWN_SPEC: Shape = Shape::of("ModelSpec", "The model that answers.", &[PROVIDER]).open();

/// A provider's model and its prices.
#[derive(Debug)]
pub(crate) struct ModelWithPrices {
    pub(crate) model: HostedModel,
    pub(crate) prices: PriceTable,
}

/// Reads a Model document, with its script or its connector's parameters.
pub(crate) fn read(
    document: &Document<'_>,
    cx: &mut Context<'_>,
) -> Option<(ModelDefinition, Option<ModelWithPrices>)> {
    let name = id(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let provider = spec.word_or(
        "provider",
        |written| Some(advice::provider(written)),
        &mut cx.report,
    )?;
    let hosted_provider = match provider.value {
        "anthropic" => HostedProvider::Anthropic,
        "openai" => HostedProvider::OpenAi,
        "google" => HostedProvider::Google,
        _ => return read_scripted(name, spec, cx).map(|model| (model, None)),
    };
    let hosted = read_hosted(name, hosted_provider, &provider, spec, cx)?;
    let model = ModelDefinition {
        name: hosted.model.name.clone(),
        model: hosted.model.model.clone(),
        provider: ModelProvider::Connector {
            params: ModelParams::default(),
            fallbacks: Vec::new(),
        },
    };
    Some((model, Some(hosted)))
}

fn read_scripted(
    name: Option<ResourceName>,
    mut spec: Fields<'_>,
    cx: &mut Context<'_>,
) -> Option<ModelDefinition> {
    let model = spec.text("model", &mut cx.report);
    let options = spec.nested("options", &mut cx.report);
    read_capabilities(&mut spec, cx);
    spec.close();
    let script = read_script(options?, cx);
    Some(ModelDefinition {
        name: name?,
        model: model.map_or_else(|| SCRIPTED.to_owned(), |model| model.value.to_owned()),
        provider: ModelProvider::Scripted { script: script? },
    })
}

fn read_hosted(
    name: Option<ResourceName>,
    provider: HostedProvider,
    written: &LocatedValue<&str>,
    mut spec: Fields<'_>,
    cx: &mut Context<'_>,
) -> Option<ModelWithPrices> {
    let model = spec.text("model", &mut cx.report);
    let has_key = spec.has("apiKey");
    let api_key = value::read_secret(&mut spec, "apiKey", cx);
    let endpoint = spec.text("endpoint", &mut cx.report);
    if let Some(endpoint) = &endpoint {
        check_endpoint(endpoint, cx);
    }
    let api = read_api(&mut spec, provider, cx);
    let has_platform = ["azure", "vertex", "bedrock"]
        .iter()
        .any(|name| spec.has(name));
    let platform = clouds::read(&mut spec, provider, cx);
    if let Some(platform) = &platform {
        clouds::check_credentials(platform, has_key, endpoint.is_some(), cx);
    } else if endpoint.is_none() && !has_key && !has_platform {
        let message = format!("a model of `{}` needs an `apiKey`", written.value);
        cx.report.add(
            Problem::new(codes::MISSING_FIELD, written.place, message).help(
                "write `apiKey: {valueFrom: {env: NAME}}`, or set `endpoint` to your own server",
            ),
        );
    }
    let params_place = spec.place_of("params");
    let params = params::read(&mut spec, cx);
    let timeouts = read_timeouts(&mut spec, cx);
    let prompt_caching = read_switch(
        &mut spec,
        "promptCaching",
        provider == HostedProvider::Anthropic,
        cx,
    );
    let send_reasoning = read_switch(
        &mut spec,
        "sendReasoning",
        provider == HostedProvider::OpenAi,
        cx,
    );
    let options = spec.entries("options", &mut cx.report);
    let options = options
        .iter()
        .map(|entry| (entry.key.clone(), entry.node.to_json()))
        .collect();
    let prices = prices::read(&mut spec, provider, cx);
    let limits = process_limits::read(&mut spec, DEFAULT_CONNECTOR_MEMORY_MIB, cx);
    read_capabilities(&mut spec, cx);
    spec.close();
    let model = HostedModel {
        name: name?,
        provider,
        api,
        platform: platform.map(|platform| platform.value),
        model: model?.value.to_owned(),
        endpoint: endpoint.map(|endpoint| endpoint.value.to_owned()),
        api_key,
        params,
        timeouts,
        prompt_caching: prompt_caching.unwrap_or(true),
        send_reasoning,
        options,
        limits,
    };
    if let Some(place) = params_place {
        thinking::check(&model, &model.params, place, &mut cx.report);
    }
    Some(ModelWithPrices { model, prices })
}

fn read_api(spec: &mut Fields<'_>, provider: HostedProvider, cx: &mut Context<'_>) -> OpenAiApi {
    let Some(written) = spec.word("api", &mut cx.report) else {
        return OpenAiApi::default();
    };
    if provider != HostedProvider::OpenAi {
        let message = "`api` has no effect with this provider, which has one API";
        cx.report
            .add(Problem::warning(codes::NO_EFFECT, written.place, message).help("remove it"));
        return OpenAiApi::default();
    }
    match written.value {
        "responses" => OpenAiApi::Responses,
        _ => OpenAiApi::Chat,
    }
}

/// Reads a boolean that only some providers support.
fn read_switch(
    spec: &mut Fields<'_>,
    name: &'static str,
    is_known: bool,
    cx: &mut Context<'_>,
) -> Option<bool> {
    let place = spec.place_of(name);
    let switch = spec.boolean(name, &mut cx.report);
    if let Some(place) = place.filter(|_| !is_known) {
        let message = format!("`{name}` has no effect with this provider");
        cx.report
            .add(Problem::warning(codes::NO_EFFECT, place, message).help("remove it"));
    }
    switch
}

/// Checks that an endpoint is an HTTP URL without a key, which belongs in `apiKey`.
fn check_endpoint(endpoint: &LocatedValue<&str>, cx: &mut Context<'_>) {
    let rest = endpoint
        .value
        .strip_prefix("https://")
        .or_else(|| endpoint.value.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    let is_address = host.is_some_and(|host| {
        !host.is_empty() && !host.contains('@') && !host.contains(char::is_whitespace)
    });
    if !is_address {
        let message = "`endpoint` must be the URL of a server and must not contain a key";
        cx.report.add(
            Problem::new(codes::INVALID_VALUE, endpoint.place, message)
                .help("write it like `http://127.0.0.1:8080/v1`"),
        );
    }
}

fn read_timeouts(spec: &mut Fields<'_>, cx: &mut Context<'_>) -> ModelTimeouts {
    let default = ModelTimeouts::default();
    let Some(mut timeouts) = spec.nested("timeouts", &mut cx.report) else {
        return default;
    };
    let mut read = |name, otherwise| {
        let written = timeouts.number(name, &mut cx.report);
        written.unwrap_or(otherwise)
    };
    let read = ModelTimeouts {
        connect_ms: read("connectMs", default.connect_ms),
        first_byte_ms: read("firstByteMs", default.first_byte_ms),
        stall_ms: read("stallMs", default.stall_ms),
        total_ms: read("totalMs", default.total_ms),
    };
    timeouts.close();
    read
}

fn read_capabilities(spec: &mut Fields<'_>, cx: &mut Context<'_>) {
    if let Some(mut capabilities) = spec.nested("capabilities", &mut cx.report) {
        for name in ["toolCalling", "streaming", "images"] {
            let _says = capabilities.boolean(name, &mut cx.report);
        }
        capabilities.close();
    }
}

fn read_script(mut options: Fields<'_>, cx: &mut Context<'_>) -> Option<Script> {
    let path = options.text("script", &mut cx.report);
    let rules = if options.has("rules") {
        script::read_rules(&mut options, &mut cx.report)
    } else {
        let _absent = options.get("rules");
        None
    };
    options.close();
    let Some(path) = path else { return rules };
    let (path, text) = read_named_file(&path, MAX_YAML_BYTES, cx)?;
    read_script_file(&path, &text, &mut cx.report)
}

fn read_script_file(
    path: &std::path::Path,
    text: &str,
    report: &mut ProblemReport,
) -> Option<Script> {
    let text = crate::syntax::with_yaml_line_ends(text);
    let file = report.add_file(path, text.as_ref());
    let documents = tree::parse(file, &text, report)?;
    let label = Label::of("the script");
    let [document] = documents.as_slice() else {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                crate::report::SourceLocation::start_of(file),
                format!(
                    "expected one YAML document in the script `{}`, found {}",
                    path.display(),
                    documents.len()
                ),
            )
            .help("begin the file with `rules:`"),
        );
        return None;
    };
    let content = FieldType::Mapping(&script::SCRIPT);
    let mut fields = Fields::open(document, document.place, label, content, report)?;
    let script = script::read_rules(&mut fields, report);
    fields.close();
    script
}
