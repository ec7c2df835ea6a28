//! Suggestions for misplaced fields and for field names of other systems.

use crate::frame::FRAME;
use crate::kind::ResourceKind;
use crate::kinds;
use crate::report::Vocabulary;
use crate::shape::{FieldType, Shape};

/// Search depth for a field below the mapping in which it was written.
const MAX_SEARCH_DEPTH: usize = 3;

/// Field names of other systems, by shape; an empty shape matches any.
const OTHER_NAMES: &[(&str, &[&str], &str)] = &[
    (
        "AgentSpec",
        &["model", "llm", "modelRef", "modelName"],
        "a model is a separate document of `kind: Model`; write `modelConfig: {modelRef: Model/name}` here",
    ),
    (
        "ModelConfig",
        &["model", "name", "provider", "llm"],
        "a model is a separate document of `kind: Model`; write `modelRef: Model/name` here",
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
        "an MCP server is a Connection with the connector `mcp`; its tools are a Tool that refers to it",
    ),
    (
        "AgentSpec",
        &["memory", "mem", "cpu", "cpus", "resources", "limits"],
        "limit the process with `runtime: {limits: {memoryMiB: 512}}`; the agent's memory needs no \
         setting",
    ),
    (
        "ModelSpec",
        &["memory", "mem", "cpu", "cpus", "resources"],
        "limit the process with `limits: {memoryMiB: 512}`",
    ),
    (
        "ConnectionSpec",
        &["memory", "mem", "cpu", "cpus", "resources"],
        "limit the process with `limits: {memoryMiB: 512}`",
    ),
    (
        "ModuleToolSpec",
        &["memory", "mem", "cpu", "cpus", "resources"],
        "limit the process with `limits: {memoryMiB: 512}`",
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
        "write `endpoint: URL`, up to and including the version, such as `http://127.0.0.1:8080/v1`",
    ),
    (
        "HostedModelSpec",
        &["memory", "mem", "cpu", "cpus", "resources"],
        "limit the process with `limits: {memoryMiB: 512}`",
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
        "CliAgentSpec",
        &[
            "modelConfig",
            "prompt",
            "tools",
            "extensions",
            "requiredTools",
        ],
        "an Agent with `runtime.kind: cli` is a program that has its own model, prompt and tools: \
         remove the field, or write `kind: llm`",
    ),
    (
        "CliAgentSpec",
        &["command", "preset", "resume", "format", "guide"],
        "move it into `runtime`",
    ),
    (
        "CliRuntime",
        &["cwdMode", "cwd"],
        "a program with `runtime.kind: cli` always works in its task's work area",
    ),
    (
        "CliRuntime",
        &["env", "variables"],
        "write `environment: {NAME: value}`; secrets are passed to each task",
    ),
    (
        "CliRuntime",
        &["args", "arguments"],
        "write arguments after the program: `command: [program, argument]`",
    ),
    (
        "",
        &["env", "environment"],
        "use environment variables with `valueFrom: {env: NAME}`; set them in `.env.local`",
    ),
];

/// Information about all kinds, for readers of documents.
pub(crate) static VOCABULARY: Vocabulary = Vocabulary {
    kinds: || kinds::all().collect(),
    advise,
};

/// Suggestion for an unknown field of a mapping with this shape. `outer` is the kind of the `spec`
/// that contains the mapping, if any.
fn advise(shape: &'static Shape, outer: Option<ResourceKind>, key: &str) -> Option<String> {
    unknown_field(shape, key).or_else(|| field_of_spec(outer?, key))
}

/// Suggestion for an unknown field of a mapping with this shape.
fn unknown_field(shape: &'static Shape, key: &str) -> Option<String> {
    let known = OTHER_NAMES
        .iter()
        .find(|(name, keys, _)| (name.is_empty() || *name == shape.name) && keys.contains(&key));
    if let Some((_, _, words)) = known {
        return Some((*words).to_owned());
    }
    let is_frame = std::ptr::eq(shape, &raw const FRAME);
    let path = path_below(shape, key, MAX_SEARCH_DEPTH).or_else(|| {
        let is_known = is_frame && kinds::all().any(|kind| spec_has(kind, key));
        is_known.then(|| "spec".to_owned())
    })?;
    Some(format!(
        "`{key}` is a field of `{path}`: indent it below `{path}`"
    ))
}

/// Suggestion for a field of the `spec` that is indented too far.
fn field_of_spec(kind: ResourceKind, key: &str) -> Option<String> {
    spec_has(kind, key)
        .then(|| format!("`{key}` is a field of `spec`: indent it like the other fields of `spec`"))
}

fn spec_has(kind: ResourceKind, key: &str) -> bool {
    match kinds::spec_of(kind) {
        FieldType::Mapping(shape) => shape.field(key).is_some(),
        FieldType::Choice(choice) => {
            let cases = choice.cases.iter().map(|(_, shape)| *shape);
            let mut shapes = cases.chain([choice.otherwise]);
            shapes.any(|shape| shape.field(key).is_some())
        }
        _ => false,
    }
}

/// Shortest path to a field of this name below a mapping with this shape.
fn path_below(shape: &'static Shape, key: &str, depth: usize) -> Option<String> {
    let below = |content| match content {
        FieldType::Mapping(shape) => Some(shape),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_that_is_spoken_of_exists() {
        let schema = crate::schema(None).unwrap().to_string();
        for (shape, keys, _) in OTHER_NAMES {
            assert!(!keys.is_empty());
            // The Model of an unknown provider has a shape that is not in the schemas.
            let is_known = shape.is_empty() || *shape == "ModelSpec";
            assert!(
                is_known || schema.contains(&format!("\"{shape}\"")),
                "{shape}"
            );
        }
    }
}
