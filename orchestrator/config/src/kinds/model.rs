//! `kind: Model`: who answers.

use goondan_protocol::definition::{ModelDefinition, ModelProvider};
use goondan_protocol::script::Script;

use super::{Context, id, read_named_file, script};
use crate::codes;
use crate::document::Document;
use crate::fields::{Fields, Label};
use crate::limits::MAX_YAML_BYTES;
use crate::report::{Problem, Report};
use crate::similar::nearest;
use crate::tree;

/// The embedded model's provider: the only one of this version, and the name of its only model.
const SCRIPTED: &str = "scripted";

/// Reads a Model document with its script.
pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<ModelDefinition> {
    let name = id(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let provider = spec.require_text("provider", &mut cx.report);
    let model = spec.text("model", &mut cx.report);
    if let Some(provider) = provider.as_ref().filter(|p| p.value != SCRIPTED) {
        cx.report.add(
            Problem::new(
                codes::UNSUPPORTED,
                provider.place,
                format!(
                    "provider `{}` is not part of this version; the only provider is `{SCRIPTED}`",
                    provider.value
                ),
            )
            .help(format!("write `provider: {SCRIPTED}`"))
            .did_you_mean(nearest(provider.value, [SCRIPTED])),
        );
        // Its options are another provider's; nothing can be said about them.
        return None;
    }
    let options = spec.require_nested("options", &mut cx.report);
    spec.close(&mut cx.report);
    let script = read_script(options?, cx);
    provider?;
    Some(ModelDefinition {
        name: name?,
        model: model.map_or_else(|| SCRIPTED.to_owned(), |model| model.value.to_owned()),
        provider: ModelProvider::Scripted { script: script? },
    })
}

fn read_script(mut options: Fields<'_>, cx: &mut Context<'_>) -> Option<Script> {
    options.exclude("script", "rules", &mut cx.report);
    let script = if options.get("script").is_some() {
        let path = options.text("script", &mut cx.report);
        path.and_then(|path| {
            let (path, text) = read_named_file(&path, MAX_YAML_BYTES, cx)?;
            read_script_file(&path, &text, &mut cx.report)
        })
    } else if options.get("rules").is_some() {
        script::read_rules(&mut options, &mut cx.report)
    } else {
        cx.report.add(
            Problem::new(
                codes::MISSING_FIELD,
                options.place,
                format!("{} needs `script` or `rules`", options.label),
            )
            .help("name a script file with `script: path/of/script.yaml`"),
        );
        None
    };
    options.close(&mut cx.report);
    script
}

fn read_script_file(path: &std::path::Path, text: &str, report: &mut Report) -> Option<Script> {
    let text = crate::load::with_yaml_line_ends(text);
    let file = report.add_file(path, text.as_ref());
    let documents = tree::parse(file, &text, report)?;
    let label = Label::of("the script");
    let [document] = documents.as_slice() else {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                crate::report::Place::start_of(file),
                format!(
                    "a script is one YAML document, but `{}` holds {}",
                    path.display(),
                    documents.len()
                ),
            )
            .help("begin the file with `rules:`"),
        );
        return None;
    };
    let mut fields = Fields::open(document, document.place, label, report)?;
    let script = script::read_rules(&mut fields, report);
    fields.close(report);
    script
}
