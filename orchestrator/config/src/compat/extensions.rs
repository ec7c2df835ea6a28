//! Converts the settings of the extensions of `@goondan/base`, with their former defaults.

use goondan_protocol::base_package::BASE_PACKAGE;

use super::CompatConversion;
use crate::edit::{
    as_text, at, at_mut, boolean, entries_mut, entry, items, list, mapping, number, put, rename,
    take, text, text_at,
};
use crate::place::SourceLocation;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// Minimum size of a window.
const WINDOW_MIN: u64 = 4;

/// Converts the settings of each extension of the package that an Agent lists.
pub(super) fn settings(spec: &mut YamlNode, agent: &str, cx: &mut CompatConversion<'_>) {
    let Some(node) = at_mut(spec, &["extensions"]) else {
        return;
    };
    let YamlValue::List(items) = &mut node.value else {
        return;
    };
    let omits_prompt = items.iter().any(omits_prompt);
    let kept = std::mem::take(items)
        .into_iter()
        .filter_map(|item| rewritten(item, agent, cx));
    *items = kept.collect();
    if omits_prompt && let Some(prompt) = take(spec, "prompt") {
        let what =
            "`includeAgentPrompt: false` of `context-message`: the agent's prompt is not sent";
        cx.note(prompt.key_place, what.to_owned(), "remove the `prompt`");
    }
}

/// True if an agent's extension `context-message` leaves out the agent's prompt.
fn omits_prompt(item: &YamlNode) -> bool {
    let is_it = builtin_name(item).as_deref() == Some("context-message");
    let config = at(item, &["config"]);
    is_it && config.is_some_and(|config| !truth_of(config, "includeAgentPrompt", true))
}

/// The name of an extension of the package.
fn builtin_name(item: &YamlNode) -> Option<String> {
    let reference = at(item, &["ref"]).unwrap_or(item);
    let is_of_package = text_at(reference, &["package"]) == Some(BASE_PACKAGE);
    let name = text_at(reference, &["name"]).filter(|_| is_of_package)?;
    Some(name.to_owned())
}

fn rewritten(item: YamlNode, agent: &str, cx: &mut CompatConversion<'_>) -> Option<YamlNode> {
    let Some(name) = builtin_name(&item) else {
        return Some(item);
    };
    let place = item.place;
    let mut item = match at(&item, &["ref"]) {
        Some(_) => item,
        None => mapping(place, vec![entry("ref", item)]),
    };
    let mut config =
        take(&mut item, "config").map_or_else(|| mapping(place, Vec::new()), |config| config.node);
    let is_kept = match name.as_str() {
        "message-window" => window(&mut config, cx),
        "message-compaction" => compaction(&mut item, &mut config, cx),
        "context-message" => context(&mut config, agent, cx),
        "tool-search" => search(&mut config),
        "logging" => logging(&mut config, cx),
        "required-tools-guard" => guard(&mut config),
        _ => true,
    };
    if !is_kept {
        return None;
    }
    put(&mut item, entry("config", config));
    Some(item)
}

fn number_of(config: &YamlNode, name: &str) -> Option<u64> {
    match &at(config, &[name])?.value {
        YamlValue::Number(number) => number.as_u64(),
        _ => None,
    }
}

fn truth_of(config: &YamlNode, name: &str, default: bool) -> bool {
    match at(config, &[name]).map(|node| &node.value) {
        Some(YamlValue::Bool(value)) => *value,
        _ => default,
    }
}

fn set(config: &mut YamlNode, name: &str, value: YamlNode) {
    take(config, name);
    put(config, entry(name, value));
}

/// `{maxMessages: 80}`.
fn window(config: &mut YamlNode, cx: &mut CompatConversion<'_>) -> bool {
    let place = config.place;
    put(config, entry("maxMessages", number(place, 80)));
    raise_window(config, cx);
    true
}

fn raise_window(config: &mut YamlNode, cx: &mut CompatConversion<'_>) {
    let place = config.place;
    if number_of(config, "maxMessages").is_some_and(|most| most < WINDOW_MIN) {
        set(config, "maxMessages", number(place, WINDOW_MIN));
        let what = format!("`maxMessages` is less than {WINDOW_MIN}; the minimum is used");
        cx.note(place, what, format!("write `maxMessages: {WINDOW_MIN}`"));
    }
}

/// `{maxMessages: 40, maxCharacters: 12000, retainLastMessages: 8, mode: remove, appendSummary:
/// true}`. Without a summary it becomes a window.
fn compaction(item: &mut YamlNode, config: &mut YamlNode, cx: &mut CompatConversion<'_>) -> bool {
    let place = config.place;
    put(config, entry("maxMessages", number(place, 40)));
    put(config, entry("maxCharacters", number(place, 12_000)));
    put(config, entry("retainLastMessages", number(place, 8)));
    take(config, "mode");
    let has_summary = truth_of(config, "appendSummary", true);
    take(config, "appendSummary");
    raise_window(config, cx);
    if has_summary {
        rename(config, "retainLastMessages", "keepMessages");
        if number_of(config, "maxCharacters").is_some_and(|most| most < 1_000) {
            set(config, "maxCharacters", number(place, 1_000));
        }
        let what = "`message-compaction` writes summaries with the agent's own model".to_owned();
        cx.note(
            place,
            what,
            "settings: `maxMessages`, `maxCharacters`, `keepMessages`",
        );
        return true;
    }
    take(config, "retainLastMessages");
    take(config, "maxCharacters");
    if let Some(name) = at_mut(item, &["ref", "name"]) {
        *name = text(name.place, "message-window");
    }
    let what = "`message-compaction` without a summary is now `message-window`".to_owned();
    cx.note(place, what, "write `message-window`");
    true
}

/// Instruction below the catalog, unless `swarmCatalogInstruction` replaces it.
const CATALOG_INSTRUCTION: &str =
    "Send work to one of these agents. If in doubt which one, list them with `agents__catalog`.";

/// The agents that the Swarm lists, if it lists any.
fn members(cx: &CompatConversion<'_>) -> Option<Vec<String>> {
    let listed = at(cx.swarm.as_ref()?, &["spec", "agents"])?;
    let names = items(listed).iter().filter_map(|item| {
        let reference = at(item, &["ref"]).unwrap_or(item);
        match as_text(reference) {
            Some(text) => Some(text.rsplit('/').next()?.to_owned()),
            None => text_at(reference, &["name"]).map(str::to_owned),
        }
    });
    Some(names.collect())
}

/// `{includeAgentPrompt: true, includeSwarmCatalog: false, includeRouteSummary: false,
/// includeInboundContext: false, includeCallContext: false, swarmCatalogInstruction: …}`. Every step
/// includes the prompt anyway, unless it is not wanted; the rest becomes the text of the message.
fn context(config: &mut YamlNode, agent: &str, cx: &mut CompatConversion<'_>) -> bool {
    let place = config.place;
    if at(config, &["text"]).is_some() {
        return true;
    }
    let mut lines = Vec::new();
    if truth_of(config, "includeSwarmCatalog", false) {
        let agents = members(cx).unwrap_or_else(|| cx.resources.names("Agent"));
        let others: Vec<&str> = agents
            .iter()
            .map(String::as_str)
            .filter(|it| *it != agent)
            .collect();
        let swarm = cx.swarm.as_ref();
        let swarm = swarm.and_then(|swarm| text_at(swarm, &["metadata", "name"]));
        let swarm = swarm.map_or_else(String::new, |name| format!(" of the swarm `{name}`"));
        lines.push(format!("You are the agent `{agent}`{swarm}."));
        if !others.is_empty() {
            lines.push(format!("Other agents: {}.", others.join(", ")));
        }
        let instruction = at(config, &["swarmCatalogInstruction"]).and_then(as_text);
        let instruction = instruction.unwrap_or(CATALOG_INSTRUCTION);
        if !instruction.trim().is_empty() {
            lines.push(instruction.to_owned());
        }
    }
    if truth_of(config, "includeInboundContext", false) {
        lines.push("${inbound}".to_owned());
    }
    if truth_of(config, "includeCallContext", false) {
        lines.push("${call}".to_owned());
    }
    if truth_of(config, "includeRouteSummary", false) {
        lines
            .push("This message came by ${source}; the conversation is ${instanceKey}.".to_owned());
    }
    let omits_prompt = !truth_of(config, "includeAgentPrompt", true);
    if let Some(entries) = entries_mut(config) {
        entries.clear();
    }
    if lines.is_empty() && omits_prompt {
        return false;
    }
    if lines.is_empty() {
        let what =
            "`context-message` has no effect: an agent's prompt is sent with every step anyway"
                .to_owned();
        cx.note(place, what, "remove it, or give it a `text`");
        return false;
    }
    put(config, entry("text", text(place, lines.join("\n"))));
    true
}

/// `{toolName: tool-search__search, maxResults: 10, minQueryLength: 1, persistSelection: true}`.
fn search(config: &mut YamlNode) -> bool {
    let place = config.place;
    put(
        config,
        entry("toolName", text(place, "tool-search__search")),
    );
    put(config, entry("maxResults", number(place, 10)));
    true
}

/// `{level: info, includeToolArgs: false}`.
fn logging(config: &mut YamlNode, cx: &mut CompatConversion<'_>) -> bool {
    let place = config.place;
    rename(config, "includeToolArgs", "content");
    if let Some(MappingEntry { node, .. }) = take(config, "level")
        && as_text(&node) != Some("info")
    {
        let what = "`level` of `logging` is ignored".to_owned();
        cx.note(
            place,
            what,
            "filter by level when you read the log: `gdn logs --level`",
        );
    }
    true
}

/// `{requiredTools: [], errorMessage: ""}`: one of the tools is sufficient.
fn guard(config: &mut YamlNode) -> bool {
    let place: SourceLocation = config.place;
    rename(config, "requiredTools", "tools");
    let tools = at(config, &["tools"]).map_or_else(Vec::new, |node| items(node).to_vec());
    if tools.is_empty() {
        return false;
    }
    set(config, "tools", list(place, tools));
    put(config, entry("anyOf", boolean(place, true)));
    if let Some(message) = take(config, "errorMessage")
        && as_text(&message.node).is_some_and(|text| !text.trim().is_empty())
    {
        put(config, entry("message", message.node));
    }
    true
}
