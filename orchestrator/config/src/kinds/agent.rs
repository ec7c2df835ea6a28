//! `kind: Agent`: a model, a prompt and tools.

use goondan_protocol::ids::AgentName;

use super::{Context, id, read_named_file};
use crate::document::{Document, Kind};
use crate::limits::MAX_PROMPT_BYTES;
use crate::reference::Reference;

/// An Agent as written.
#[derive(Debug)]
pub(crate) struct AgentSpec {
    pub(crate) name: AgentName,
    pub(crate) model: Option<Reference>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) tools: Vec<Reference>,
}

/// Reads an Agent document with its prompt.
pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<AgentSpec> {
    let name = id(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let model = spec
        .require_nested("modelConfig", &mut cx.report)
        .and_then(|mut config| {
            let label = config.label.field("modelRef");
            let field = config.require("modelRef", &mut cx.report);
            config.close(&mut cx.report);
            Reference::read(&field?.node, &label, Kind::Model, &mut cx.report)
        });
    let system_prompt = spec
        .nested("prompt", &mut cx.report)
        .and_then(|mut prompt| {
            prompt.exclude("system", "systemRef", &mut cx.report);
            let inline = prompt.text("system", &mut cx.report);
            let path = prompt.text("systemRef", &mut cx.report);
            prompt.close(&mut cx.report);
            match (inline, path) {
                (Some(inline), _) => Some(inline.value.to_owned()),
                (None, Some(path)) => {
                    read_named_file(&path, MAX_PROMPT_BYTES, cx).map(|(_, text)| text)
                }
                (None, None) => None,
            }
        });
    let tools = spec
        .items("tools", &mut cx.report)
        .into_iter()
        .filter_map(|(node, label)| Reference::read(node, &label, Kind::Tool, &mut cx.report))
        .collect();
    spec.close(&mut cx.report);
    Some(AgentSpec {
        name: name?,
        model,
        system_prompt,
        tools,
    })
}
