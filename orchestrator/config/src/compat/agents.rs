//! Older forms of Packages, Models, Agents, Swarms and Tools.

use goondan_protocol::base_package::BASE_PACKAGE;

use super::{CompatConversion, extensions, references};
use crate::contract::{BaseRange, OLDER_RANGE};
use crate::edit::{
    as_text, at, at_mut, entries_mut, entry, from_environment, list, mapping, put, rename, take,
    text, text_at,
};
use crate::environment::Variables;
use crate::kinds::params::PARAMS;
use crate::tree::{YamlNode, YamlValue};

/// The usual environment variable for the key of each provider.
const KEYS: [(&str, &str); 3] = [
    ("anthropic", "ANTHROPIC_API_KEY"),
    ("google", "GOOGLE_GENERATIVE_AI_API_KEY"),
    ("openai", "OPENAI_API_KEY"),
];

/// Removes a Package's publishing information, which is unused, and makes the required version of
/// `@goondan/base` name the older contract.
pub(super) fn package(spec: &mut YamlNode, cx: &mut CompatConversion<'_>) {
    if !cx.is_older() {
        return;
    }
    for name in ["registry", "dist", "files"] {
        take(spec, name);
    }
    let place = spec.place;
    put(spec, entry("dependencies", list(place, Vec::new())));
    let Some(dependencies) = at_mut(spec, &["dependencies"]) else {
        return;
    };
    let YamlValue::List(dependencies) = &mut dependencies.value else {
        return;
    };
    let base = dependencies
        .iter_mut()
        .find(|dependency| text_at(dependency, &["name"]) == Some(BASE_PACKAGE));
    let Some(base) = base else {
        let fields = vec![
            entry("name", text(place, BASE_PACKAGE)),
            entry("version", text(place, OLDER_RANGE)),
        ];
        dependencies.push(mapping(place, fields));
        return;
    };
    let Some(version) = at_mut(base, &["version"]) else {
        return;
    };
    let written = as_text(version).unwrap_or_default().to_owned();
    if BaseRange::of(&written) == BaseRange::Older {
        return;
    }
    let place = version.place;
    let what = format!("`{BASE_PACKAGE}` is built in; `{written}` selects its contract of 0.0.3");
    cx.note(place, what, format!("write `{OLDER_RANGE}`"));
    *version = text(place, OLDER_RANGE);
}

/// Adds the provider's usual environment variable to a Model without a key.
pub(super) fn model(spec: &mut YamlNode, variables: &Variables<'_>, cx: &mut CompatConversion<'_>) {
    if !cx.is_older() {
        return;
    }
    let provider = text_at(spec, &["provider"]).unwrap_or_default();
    let key = KEYS.iter().find(|(name, _)| *name == provider);
    let has_key = at(spec, &["apiKey"]).is_some() || at(spec, &["endpoint"]).is_some();
    if let Some((_, variable)) = key.filter(|_| !has_key)
        && variables.get(variable).is_some()
    {
        let place = spec.place;
        put(spec, entry("apiKey", from_environment(place, variable)));
    }
    if let Some(capabilities) = at_mut(spec, &["capabilities"]).and_then(entries_mut) {
        let known = ["toolCalling", "streaming", "images"];
        capabilities.retain(|entry| known.contains(&entry.key.as_str()));
    }
}

pub(super) fn agent(spec: &mut YamlNode, agent: &str, cx: &mut CompatConversion<'_>) {
    if let Some(place) = rename(spec, "prompts", "prompt") {
        let what = "`prompts` is the old name of `prompt`".to_owned();
        cx.note(place, what, "write `prompt: {system: …}`");
    }
    if let Some(prompt) = at_mut(spec, &["prompt"]) {
        rename(prompt, "systemPrompt", "system");
    }
    if cx.is_older() {
        move_bare_system(spec, cx);
    }
    if let Some(config) = at_mut(spec, &["modelConfig"]) {
        references::single(config, "modelRef", cx);
        if cx.is_older() {
            keep_known_params(config, cx);
        }
    }
    references::listed(spec, "tools", cx);
    references::listed(spec, "extensions", cx);
    if cx.is_older() {
        extensions::settings(spec, agent, cx);
    }
}

/// Moves `system` of an Agent into `prompt`. A tutorial of 0.0.3 writes it outside.
fn move_bare_system(spec: &mut YamlNode, cx: &mut CompatConversion<'_>) {
    // An error of the current format is clearer than a second prompt that is ignored.
    let has_prompt = ["system", "systemRef"]
        .into_iter()
        .any(|name| at(spec, &["prompt", name]).is_some());
    if has_prompt {
        return;
    }
    let Some(system) = take(spec, "system") else {
        return;
    };
    let what = "`system` of an Agent belongs to `prompt`".to_owned();
    cx.note(system.key_place, what, "write `prompt: {system: …}`");
    let place = system.node.place;
    put(spec, entry("prompt", mapping(place, Vec::new())));
    if let Some(prompt) = at_mut(spec, &["prompt"]) {
        put(prompt, system);
    }
}

pub(super) fn swarm(spec: &mut YamlNode, cx: &mut CompatConversion<'_>) {
    references::single(spec, "entryAgent", cx);
    references::listed(spec, "agents", cx);
}

/// Adds fields of an export that used to be optional.
pub(super) fn tool(spec: &mut YamlNode, cx: &mut CompatConversion<'_>) {
    if !cx.is_older() || at(spec, &["entry"]).is_none() {
        return;
    }
    let Some(exports) = at_mut(spec, &["exports"]) else {
        return;
    };
    let YamlValue::List(exports) = &mut exports.value else {
        return;
    };
    for export in exports {
        let place = export.place;
        let name = text_at(export, &["name"]).unwrap_or_default().to_owned();
        if at(export, &["description"]).is_none() {
            put(export, entry("description", text(place, name)));
        }
        if at(export, &["parameters"]).is_none() {
            let object = vec![entry("type", text(place, "object"))];
            put(export, entry("parameters", mapping(place, object)));
        }
    }
}

/// Removes parameters that are not sent to any provider.
fn keep_known_params(config: &mut YamlNode, cx: &mut CompatConversion<'_>) {
    let Some(params) = at_mut(config, &["params"]).and_then(entries_mut) else {
        return;
    };
    let (known, unknown): (Vec<_>, Vec<_>) = std::mem::take(params)
        .into_iter()
        .partition(|entry| PARAMS.field(&entry.key).is_some());
    *params = known;
    for entry in unknown {
        let what = format!("`params.{}` is ignored", entry.key);
        let today = "write provider-specific parameters into `options` of the Model";
        cx.note(entry.key_place, what, today);
    }
}
