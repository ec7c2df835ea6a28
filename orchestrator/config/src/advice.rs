//! What people write who know another system, or have only begun with this one, and what to write here.
//!
//! Pure tables and searches: each gives words for a problem that a reader has found already.

use crate::document::{FRAME, Kind};
use crate::kinds;
use crate::shape::{Content, Shape};
use crate::tree::{Entry, Value};

/// How deep a field is looked for below the mapping in which it was written.
const MAX_SEARCH_DEPTH: usize = 3;

/// Servers that speak the protocol of `openai`: their usual names, and the address to write.
const OPENAI_COMPATIBLE: &[(&[&str], &str)] = &[
    (&["ollama"], "http://127.0.0.1:11434/v1"),
    (
        &["lmstudio", "lm-studio", "lm_studio"],
        "http://127.0.0.1:1234/v1",
    ),
    (&["vllm"], "http://127.0.0.1:8000/v1"),
    (
        &["llamacpp", "llama.cpp", "llama-cpp", "llama"],
        "http://127.0.0.1:8080/v1",
    ),
    (&["litellm"], "http://127.0.0.1:4000/v1"),
    (&["openrouter"], "https://openrouter.ai/api/v1"),
    (&["groq"], "https://api.groq.com/openai/v1"),
    (&["mistral", "mistralai"], "https://api.mistral.ai/v1"),
    (&["deepseek"], "https://api.deepseek.com/v1"),
    (&["together", "togetherai"], "https://api.together.xyz/v1"),
    (&["fireworks"], "https://api.fireworks.ai/inference/v1"),
    (&["xai", "grok"], "https://api.x.ai/v1"),
    (
        &["azure", "azure-openai", "azure_openai", "azureopenai"],
        "https://RESOURCE.openai.azure.com/openai/v1",
    ),
];

/// Other names of the providers there are.
const PROVIDER_ALIASES: &[(&[&str], &str)] = &[
    (&["claude"], "anthropic"),
    (&["gpt", "chatgpt", "open-ai", "open_ai"], "openai"),
    (&["gemini", "googleai", "google-ai", "google_ai"], "google"),
    (&["mock", "fake", "test", "script"], "scripted"),
];

/// What to write for a provider that there is not.
pub(crate) fn provider(written: &str) -> String {
    let lower = written.to_lowercase();
    let is = |names: &[&str]| names.contains(&lower.as_str());
    if let Some((_, name)) = PROVIDER_ALIASES.iter().find(|(names, _)| is(names)) {
        return format!("write `provider: {name}`");
    }
    match OPENAI_COMPATIBLE.iter().find(|(names, _)| is(names)) {
        Some((_, endpoint)) => format!(
            "{written} speaks the protocol of `openai`: write `provider: openai` and `endpoint: {endpoint}`"
        ),
        None => "a server that speaks the protocol of one of these is named by its address: write \
                 `provider: openai` and `endpoint: URL`, up to and with the version, such as \
                 `http://127.0.0.1:8080/v1`"
            .to_owned(),
    }
}

/// Fields of other systems, by the shape they were written in; an empty one is any shape.
const OTHER_NAMES: &[(&str, &[&str], &str)] = &[
    (
        "AgentSpec",
        &["model", "llm", "modelRef", "modelName"],
        "a model is a document of its own, `kind: Model`; write `modelConfig: {modelRef: Model/name}` here",
    ),
    (
        "ModelConfig",
        &["model", "name", "provider", "llm"],
        "a model is a document of its own, `kind: Model`; write `modelRef: Model/name` here",
    ),
    (
        "AgentSpec",
        &[
            "systemPrompt",
            "system_prompt",
            "instructions",
            "instruction",
            "role",
            "persona",
        ],
        "write `prompt: {system: …}`, or `prompt: {systemRef: prompts/name.md}`",
    ),
    (
        "AgentSpec",
        &["mcp", "mcpServers", "mcp_servers"],
        "an MCP server is a Connection with the connector `mcp`; its tools are a Tool that names it",
    ),
    (
        "AgentSpec",
        &["memory", "mem", "cpu", "cpus", "resources", "limits"],
        "what its process may take stands in `runtime: {limits: {memoryMiB: 512}}`; what the agent \
         remembers is kept without a setting",
    ),
    (
        "ModelSpec",
        &["memory", "mem", "cpu", "cpus", "resources"],
        "what its process may take stands in `limits: {memoryMiB: 512}`",
    ),
    (
        "ConnectionSpec",
        &["memory", "mem", "cpu", "cpus", "resources"],
        "what its process may take stands in `limits: {memoryMiB: 512}`",
    ),
    (
        "ModuleToolSpec",
        &["memory", "mem", "cpu", "cpus", "resources"],
        "what its process may take stands in `limits: {memoryMiB: 512}`",
    ),
    (
        "ProcessLimits",
        &["memory", "mem", "memoryMB", "memoryBytes"],
        "write `memoryMiB: 512`, a number without a unit",
    ),
    (
        "HostLimits",
        &["memory", "mem", "memoryMB", "memoryBytes"],
        "write `memoryMiB: 512`, a number without a unit",
    ),
    (
        "HostedModelSpec",
        &[
            "baseUrl", "baseURL", "base_url", "url", "apiBase", "api_base", "host",
        ],
        "write `endpoint: URL`, up to and with the version, such as `http://127.0.0.1:8080/v1`",
    ),
    (
        "HostedModelSpec",
        &["memory", "mem", "cpu", "cpus", "resources"],
        "what its process may take stands in `limits: {memoryMiB: 512}`",
    ),
    (
        "HostedModelSpec",
        &["api_key", "key", "token"],
        "write `apiKey: {valueFrom: {env: NAME}}`",
    ),
    (
        "HostedModelSpec",
        &["name", "modelName", "model_name"],
        "write `model: NAME`, the provider's own name of the model",
    ),
    (
        "",
        &["env", "environment"],
        "a value of the environment is taken where it is used, by `valueFrom: {env: NAME}`; \
         `.env.local` sets variables",
    ),
];

/// What to do about a field that a mapping of this shape does not have.
pub(crate) fn unknown_field(shape: &'static Shape, key: &str) -> Option<String> {
    let known = OTHER_NAMES
        .iter()
        .find(|(name, keys, _)| (name.is_empty() || *name == shape.name) && keys.contains(&key));
    if let Some((_, _, words)) = known {
        return Some((*words).to_owned());
    }
    let is_frame = std::ptr::eq(shape, &raw const FRAME);
    let path = path_below(shape, key, MAX_SEARCH_DEPTH).or_else(|| {
        let is_known = is_frame && Kind::ALL.iter().any(|kind| spec_has(*kind, key));
        is_known.then(|| "spec".to_owned())
    })?;
    Some(format!(
        "`{key}` is a field of `{path}`: write it below that, further to the right"
    ))
}

/// What to do about a field that stands too far to the right, and is one of the `spec` itself.
pub(crate) fn field_of_spec(kind: Kind, key: &str) -> Option<String> {
    spec_has(kind, key).then(|| {
        format!(
            "`{key}` is a field of `spec`: begin it in the same column as those beside it there"
        )
    })
}

fn spec_has(kind: Kind, key: &str) -> bool {
    match kinds::spec_of(kind) {
        Content::Mapping(shape) => shape.field(key).is_some(),
        Content::Choice(choice) => {
            let mut shapes = choice.cases.iter().map(|(_, shape)| *shape);
            shapes.any(|shape| shape.field(key).is_some())
        }
        _ => false,
    }
}

/// Where below a mapping of this shape a field of this name belongs: the shortest path.
fn path_below(shape: &'static Shape, key: &str, depth: usize) -> Option<String> {
    let below = |content| match content {
        Content::Mapping(shape) => Some(shape),
        _ => None,
    };
    let mut level: Vec<(String, &'static Shape)> = vec![(String::new(), shape)];
    for _ in 0..depth {
        let next = level.iter().flat_map(|(path, shape)| {
            let fields = shape.fields.iter();
            fields.filter_map(move |field| {
                let dot = if path.is_empty() { "" } else { "." };
                Some((format!("{path}{dot}{}", field.name), below(field.content)?))
            })
        });
        level = next.collect();
        if let Some((path, _)) = level.iter().find(|(_, shape)| shape.field(key).is_some()) {
            return Some(path.clone());
        }
    }
    None
}

/// What a document is that is none of goondan's, by its outermost fields; and what to do about it.
pub(crate) struct Foreign {
    pub(crate) message: String,
    pub(crate) help: &'static str,
}

const BEGIN: &str =
    "make a project with `gdn init`, or name the directory of one: `gdn --project DIR …`";

/// Recognizes a document that has nothing of goondan's at its outermost level.
pub(crate) fn foreign(entries: &[Entry]) -> Option<Foreign> {
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    let has_any = |keys: &[&str]| keys.iter().any(|key| has(key));
    if let Some(version) = text_of(entries, "apiVersion") {
        let is_cluster = !version.contains("goondan")
            && (version == "v1" || version.ends_with("/v1") || version.contains("k8s.io"));
        let kind = text_of(entries, "kind")?;
        let is_ours = Kind::from_name(kind).is_some();
        return (is_cluster && !is_ours).then(|| Foreign {
            message: format!("this is a `{kind}` of Kubernetes, no resource of goondan"),
            help: BEGIN,
        });
    }
    if has_any(&["kind", "metadata", "spec"]) {
        return None;
    }
    let what = if has("services") {
        "a file of Docker Compose"
    } else if has("jobs") && has_any(&["on", "true"]) {
        "a workflow of GitHub Actions"
    } else if has_any(&["dependencies", "devDependencies", "scripts"]) {
        "the manifest of a JavaScript package"
    } else if has_any(&["openapi", "swagger"]) {
        "the description of an HTTP interface"
    } else if entries.is_empty() || has_any(&["name", "agents", "agent", "model", "tools"]) {
        return (!entries.is_empty()).then(|| Foreign {
            message: "this document has none of the fields of a resource: `apiVersion`, `kind`, \
                      `metadata` and `spec`"
                .to_owned(),
            help: "begin it with `apiVersion: goondan.ai/v1`, `kind: Agent` and `metadata: {name: …}`, \
                   and write the rest below `spec:`; `gdn init` makes an example",
        });
    } else {
        return None;
    };
    Some(Foreign {
        message: format!("this is {what}, no project of goondan"),
        help: BEGIN,
    })
}

fn text_of<'e>(entries: &'e [Entry], key: &str) -> Option<&'e str> {
    let entry = entries.iter().find(|entry| entry.key == key)?;
    match &entry.node.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// What to do about a text in the place of a mapping, by the path of its field.
pub(crate) fn text_for_mapping(path: &str, text: &str) -> Option<String> {
    if path.ends_with("spec.prompt") && !text.starts_with("system:") {
        return Some(
            "write `prompt: {system: …}`, or name a file with `prompt: {systemRef: …}`".to_owned(),
        );
    }
    let (name, value) = text.split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
    (is_name && !value.is_empty() && !value.starts_with(['/', ' ']))
        .then(|| format!("put a space after the colon: `{name}: …`"))
}

/// What to write where a secret was written out, or named the way a shell does.
pub(crate) fn secret_as_text(field: &str, owner: &str, written: &str) -> String {
    match variable(written) {
        Some(name) => format!("write `{field}: {{valueFrom: {{env: {name}}}}}`"),
        None => format!(
            "keep it out of the file: `gdn secret set {owner} {field}` asks for it; then write \
             `{field}: {{valueFrom: {{secretRef: {{ref: Secret/{owner}, key: {field}}}}}}}`. Or set a \
             variable in `.env.local` and write `{field}: {{valueFrom: {{env: {}}}}}`",
            variable_of(field)
        ),
    }
}

/// The environment variable that a text names: `$NAME`, `${NAME}`, `${{ env.NAME }}`, or `NAME` itself.
pub(crate) fn variable(text: &str) -> Option<&str> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
            && name
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    let inner = text
        .trim_start_matches('$')
        .trim_matches(['{', '}', ' ', '%'])
        .trim_start_matches("env.")
        .trim_start_matches("env:")
        .trim_start_matches("secrets.");
    let is_marked = inner.len() < text.len() || inner.contains('_');
    // Keys of some providers are upper case letters and digits only.
    (is_marked && is_name(inner)).then_some(inner)
}

/// `apiKey` as a variable is called: `API_KEY`.
fn variable_of(field: &str) -> String {
    let mut name = String::new();
    for c in field.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(if c == '-' {
            '_'
        } else {
            c.to_ascii_uppercase()
        });
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_surely_a_variable_is_taken_for_one() {
        for (text, name) in [
            ("$OPENAI_API_KEY", Some("OPENAI_API_KEY")),
            ("${OPENAI_API_KEY}", Some("OPENAI_API_KEY")),
            ("${{ secrets.KEY }}", Some("KEY")),
            ("OPENAI_API_KEY", Some("OPENAI_API_KEY")),
            ("AKIAIOSFODNN7", None),
            ("sk-ant-x", None),
            ("hunter2", None),
        ] {
            assert_eq!(variable(text), name, "{text}");
        }
        assert_eq!(variable_of("signingSecret"), "SIGNING_SECRET");
        assert_eq!(variable_of("hmac"), "HMAC");
    }

    #[test]
    fn every_shape_that_is_spoken_of_exists() {
        let schema = crate::schema(None).unwrap().to_string();
        for (shape, keys, _) in OTHER_NAMES {
            assert!(!keys.is_empty());
            // An unknown provider's Model has a shape that no schema names.
            let is_known = shape.is_empty() || *shape == "ModelSpec";
            assert!(
                is_known || schema.contains(&format!("\"{shape}\"")),
                "{shape}"
            );
        }
    }
}
