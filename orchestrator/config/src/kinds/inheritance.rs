//! Fields of Agents for inheritance, which is resolved before Agents are read.

use super::Context;
use crate::fields::Fields;
use crate::shape::{Field, FieldType};

/// Field with the name of the Agent to inherit from.
pub(crate) const INHERIT: &str = "inherit";
/// Field that makes an Agent a template.
pub(crate) const TEMPLATE: &str = "template";

pub(crate) const INHERIT_FIELD: Field = Field::optional(
    INHERIT,
    FieldType::Text,
    "Name of the Agent or template whose fields hold where this Agent does not set them.",
);

pub(crate) const TEMPLATE_FIELD: Field = Field::optional(
    TEMPLATE,
    FieldType::Boolean,
    "True for a template: it only passes its fields on, and never runs.",
);

/// Reads the fields of inheritance, which is already resolved, to report wrong types.
pub(crate) fn check_inheritance(spec: &mut Fields<'_>, cx: &mut Context<'_>) {
    spec.text(INHERIT, &mut cx.report);
    spec.boolean(TEMPLATE, &mut cx.report);
}
