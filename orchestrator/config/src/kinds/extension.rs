//! `kind: Extension`: what stands around an agent's turns, steps and tool calls.

use super::{Context, id, refuse_entry};
use crate::document::Document;
use crate::shape::{Content, Field, Shape};
use goondan_protocol::ids::ResourceName;

/// What an Extension's `spec` holds.
pub(crate) static SPEC: Shape = Shape::of(
    "ExtensionSpec",
    "What stands around an agent's turns, steps and tool calls. Not supported by this version.",
    &[
        Field::required("entry", Content::Path, "Path of the module."),
        Field::optional(
            "config",
            Content::Entries(&Content::Anything),
            "The extension's settings.",
        ),
    ],
);

/// Checks an Extension document as far as it goes, and says that it cannot run yet.
pub(crate) fn check(document: &Document<'_>, cx: &mut Context<'_>) {
    let _name: Option<ResourceName> = id(&document.name, &mut cx.report);
    let Some(mut spec) = document.spec(&mut cx.report) else {
        return;
    };
    refuse_entry(document, &mut spec, cx);
    let _config = spec.entries("config", &mut cx.report);
    spec.close();
}
