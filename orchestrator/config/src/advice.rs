//! Suggestions for common mistakes of beginners and of users of other systems.
//!
//! Pure tables and searches: each function suggests a fix for a problem that a reader has already
//! found.

use crate::kind::LISTS;
use crate::tree::{MappingEntry, YamlValue};

/// Servers with an API compatible to `openai`: their usual names, and the URL to configure.
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

/// Other names of the supported providers.
const PROVIDER_ALIASES: &[(&[&str], &str)] = &[
    (&["claude"], "anthropic"),
    (&["gpt", "chatgpt", "open-ai", "open_ai"], "openai"),
    (&["gemini", "googleai", "google-ai", "google_ai"], "google"),
    (&["mock", "fake", "test", "script"], "scripted"),
];

/// Cloud platforms that serve the models of providers, with a suggestion.
const PLATFORMS: &[(&[&str], &str)] = &[
    (
        &["bedrock", "aws", "amazon", "aws-bedrock", "amazon-bedrock"],
        "write `provider: anthropic` and `bedrock: {region: …}`",
    ),
    (
        &[
            "vertex",
            "vertexai",
            "vertex-ai",
            "vertex_ai",
            "google-vertex",
        ],
        "write `provider: google` for Gemini or `provider: anthropic` for Claude, and `vertex: \
         {project: …, location: …}`",
    ),
];

/// Suggestion for an unknown provider.
pub(crate) fn provider(written: &str) -> String {
    let lower = written.to_lowercase();
    let is = |names: &[&str]| names.contains(&lower.as_str());
    if let Some((_, name)) = PROVIDER_ALIASES.iter().find(|(names, _)| is(names)) {
        return format!("write `provider: {name}`");
    }
    if let Some((_, help)) = PLATFORMS.iter().find(|(names, _)| is(names)) {
        return (*help).to_owned();
    }
    match OPENAI_COMPATIBLE.iter().find(|(names, _)| is(names)) {
        Some((_, endpoint)) => format!(
            "{written} is compatible with the OpenAI API: write `provider: openai` and `endpoint: {endpoint}`"
        ),
        None => "for a server with a compatible API, write for example `provider: openai` and \
            `endpoint: URL`, up to and including the version, such as `http://127.0.0.1:8080/v1`"
            .to_owned(),
    }
}

/// A document of another system, recognized by its top-level fields, with a suggestion.
pub(crate) struct ForeignDocument {
    pub(crate) message: String,
    pub(crate) help: &'static str,
}

const BEGIN: &str =
    "create a project with `gdn init`, or pass a project directory: `gdn --project DIR …`";

/// Recognizes a document without any of goondan's top-level fields. `is_kind` returns true for the
/// name of a kind.
pub(crate) fn foreign(
    entries: &[MappingEntry],
    is_kind: impl Fn(&str) -> bool,
) -> Option<ForeignDocument> {
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    let has_any = |keys: &[&str]| keys.iter().any(|key| has(key));
    if let Some(version) = text_of(entries, "apiVersion") {
        let is_cluster = !version.contains("goondan")
            && (version == "v1" || version.ends_with("/v1") || version.contains("k8s.io"));
        let kind = text_of(entries, "kind")?;
        return (is_cluster && !is_kind(kind)).then(|| ForeignDocument {
            message: format!("this is a Kubernetes `{kind}`, not a goondan resource"),
            help: BEGIN,
        });
    }
    if has_any(&["kind", "metadata", "spec"]) {
        return None;
    }
    let what = if has("services") {
        "a Docker Compose file"
    } else if has("jobs") && has_any(&["on", "true"]) {
        "a GitHub Actions workflow"
    } else if has_any(&["dependencies", "devDependencies", "scripts"]) {
        "a JavaScript package manifest"
    } else if has_any(&["openapi", "swagger"]) {
        "an HTTP API description"
    } else if LISTS.iter().any(|(list, _)| has(list)) {
        return Some(ForeignDocument {
            message: "this document has no `apiVersion`".to_owned(),
            help: "start it with `apiVersion: goondan.ai/v1`; with this line, it is in the short form",
        });
    } else if entries.is_empty() || has_any(&["name", "agent", "model"]) {
        return (!entries.is_empty()).then(|| ForeignDocument {
            message: "this document has no resource fields (`apiVersion`, `kind`, `metadata` and \
                `spec`)"
                .to_owned(),
            help: "start it with `apiVersion: goondan.ai/v1`, `kind: Agent` and `metadata: {name: \
                …}`, and write the rest below `spec:`; `gdn init` creates an example",
        });
    } else {
        return None;
    };
    Some(ForeignDocument {
        message: format!("this is {what}, not a goondan project"),
        help: BEGIN,
    })
}

fn text_of<'e>(entries: &'e [MappingEntry], key: &str) -> Option<&'e str> {
    let entry = entries.iter().find(|entry| entry.key == key)?;
    match &entry.node.value {
        YamlValue::Text(text) => Some(text),
        _ => None,
    }
}

/// Suggestion for a string in place of a mapping, by the path of the field.
pub(crate) fn text_for_mapping(path: &str, text: &str) -> Option<String> {
    if path.ends_with("spec.prompt") && !text.starts_with("system:") {
        return Some(
            "write `prompt: {system: …}`, or refer to a file with `prompt: {systemRef: …}`"
                .to_owned(),
        );
    }
    let (name, value) = text.split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
    (is_name && !value.is_empty() && !value.starts_with(['/', ' ']))
        .then(|| format!("put a space after the colon: `{name}: …`"))
}

/// Suggestion for a secret that is written out or referenced in shell syntax.
pub(crate) fn secret_as_text(field: &str, owner: &str, written: &str) -> String {
    match variable(written) {
        Some(name) => format!("write `{field}: {{valueFrom: {{env: {name}}}}}`"),
        None => format!(
            "keep it out of the file: run `gdn secret set {owner} {field} --for .`, then write \
             `{field}: {{valueFrom: {{secretRef: {{ref: Secret/{owner}, key: {field}}}}}}}`. Or \
             set a variable in `.env.local` and write `{field}: {{valueFrom: {{env: {}}}}}`",
            variable_of(field)
        ),
    }
}

/// The environment variable that a text refers to: `$NAME`, `${NAME}`, `${{ env.NAME }}`, or `NAME`
/// itself.
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
    // Keys of some providers only consist of upper-case letters and digits.
    (is_marked && is_name(inner)).then_some(inner)
}

/// The usual environment variable of a field: `API_KEY` for `apiKey`.
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
    fn only_certain_variable_names_are_taken_as_variables() {
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
}
