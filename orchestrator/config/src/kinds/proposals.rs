//! `policy.proposals` of a Swarm: proposals that agents may apply (`PROP-8`).

use goondan_protocol::path_patterns::PathPatterns;

use crate::codes;
use crate::fields::Fields;
use crate::kind::ResourceKind;
use crate::reference::Reference;
use crate::report::{Problem, ProblemReport};
use crate::shape::{Field, FieldDefault, FieldType, Shape};

pub(crate) const OF_SWARM: Field = Field::optional(
    "proposals",
    FieldType::Mapping(&PROPOSALS),
    "Decisions about the proposals of workers.",
);

static PROPOSALS: Shape = Shape::of(
    "Proposals",
    "Decisions about the proposals of workers.",
    &[Field::optional(
        "apply",
        FieldType::List(&EACH),
        "Agents that may apply the proposals of other agents, and the paths that these may change.",
    )
    .or(FieldDefault::Meaning("only people apply proposals"))],
);

static EACH: FieldType = FieldType::Mapping(&APPLY);

static APPLY: Shape = Shape::of(
    "ApplyRule",
    "An agent that may apply proposals.",
    &[
        Field::required(
            "agent",
            FieldType::Reference(ResourceKind::AGENT),
            "The Agent, which must not be the author of the proposal.",
        ),
        Field::required(
            "paths",
            FieldType::List(&FieldType::Text),
            "Patterns of the paths, relative to the project, such as `docs/**`. A proposal that \
             changes any other path is refused as a whole.",
        ),
    ],
);

/// One rule as written.
#[derive(Debug, Clone)]
pub(crate) struct ApplyRuleSpec {
    pub(crate) agent: Reference,
    pub(crate) paths: Vec<String>,
}

pub(crate) fn read(policy: &mut Fields<'_>, report: &mut ProblemReport) -> Vec<ApplyRuleSpec> {
    let Some(mut fields) = policy.nested("proposals", report) else {
        return Vec::new();
    };
    let written = fields.mappings("apply", report);
    let rules = written.into_iter().flatten();
    let rules = rules.filter_map(|rule| read_rule(rule, report)).collect();
    fields.close();
    rules
}

fn read_rule(mut fields: Fields<'_>, report: &mut ProblemReport) -> Option<ApplyRuleSpec> {
    let agent = fields.reference("agent", report);
    let mut paths = Vec::new();
    for path in fields.texts("paths", report) {
        match PathPatterns::new(&[path.value]) {
            Ok(_) => paths.push(path.value.to_owned()),
            Err(error) => report.add(
                Problem::new(codes::INVALID_VALUE, path.place, error.to_string())
                    .help("write a pattern such as `docs/**` or `src/*.md`"),
            ),
        }
    }
    fields.close();
    Some(ApplyRuleSpec {
        agent: agent?,
        paths,
    })
}
