//! `policy.changesets` of a Swarm: changes that agents may make to their own configuration
//! (`BUNDLE-7`).

use crate::fields::Fields;
use crate::report::ProblemReport;
use crate::shape::{Field, FieldDefault, FieldType, Shape};
use crate::{ChangeRule, ChangesetPolicy};

const AUTOMATIC: &str = "automatic";
const APPROVAL: &str = "approval";
const NEVER: &str = "never";

pub(crate) const OF_SWARM: Field = Field::optional(
    "changesets",
    FieldType::Mapping(&CHANGESETS),
    "Parts of its own configuration that an agent with the tool `swarm-bundle` may change, for its own conversation.",
)
.or(FieldDefault::Meaning("nothing"));

static CHANGESETS: Shape = Shape::of(
    "Changesets",
    "Parts of its own configuration that an agent may change.",
    &[
        Field::optional(
            "prompts",
            FieldType::Word(&[AUTOMATIC, APPROVAL, NEVER]),
            "Its prompt and its description: on its own, after a person's approval, or never.",
        )
        .or(FieldDefault::Text(AUTOMATIC)),
        Field::optional(
            "tools",
            FieldType::Word(&[APPROVAL, NEVER]),
            "Its tools and their descriptions.",
        )
        .or(FieldDefault::Text(APPROVAL)),
        Field::optional(
            "models",
            FieldType::Word(&[APPROVAL, NEVER]),
            "Its model and the model's parameters.",
        )
        .or(FieldDefault::Text(APPROVAL)),
    ],
);

/// Reads the field; `None` if it is absent.
pub(crate) fn read(policy: &mut Fields<'_>, report: &mut ProblemReport) -> Option<ChangesetPolicy> {
    let mut fields = policy.nested("changesets", report)?;
    let mut rule = |name, default| match fields.word(name, report).map(|word| word.value) {
        Some(AUTOMATIC) => ChangeRule::Automatic,
        Some(APPROVAL) => ChangeRule::Approval,
        Some(NEVER) => ChangeRule::Never,
        _ => default,
    };
    let default = ChangesetPolicy::default();
    let read = ChangesetPolicy {
        prompts: rule("prompts", default.prompts),
        tools: rule("tools", default.tools),
        models: rule("models", default.models),
    };
    fields.close();
    Some(read)
}
