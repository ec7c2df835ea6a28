//! Joins of a Connection: events that reach an agent together.

use goondan_protocol::event_join::JoinTimeout;
use goondan_protocol::ids::ResourceName;

use super::id;
use crate::fields::{Fields, LocatedValue};
use crate::limits::{DEFAULT_JOIN_TIMEOUT_SECONDS, MAX_JOIN_TIMEOUT_SECONDS};
use crate::report::ProblemReport;
use crate::shape::{Field, FieldDefault, FieldType, Shape};

const DELIVER: &str = "deliver";
const DROP: &str = "drop";

/// Shape of an item of `ingress.joins`.
pub(super) static JOIN: Shape = Shape::of(
    "Join",
    "Events that reach an agent together, as one input, when each part has arrived. Its parts are \
     the rules that name it.",
    &[
        Field::required("name", FieldType::Text, "Its name."),
        Field::optional(
            "timeoutSeconds",
            FieldType::Number(1, MAX_JOIN_TIMEOUT_SECONDS),
            "Time after the first part in which the others must arrive.",
        )
        .or(FieldDefault::Number(DEFAULT_JOIN_TIMEOUT_SECONDS)),
        Field::optional(
            "onTimeout",
            FieldType::Word(&[DELIVER, DROP]),
            "`deliver`: the agent gets the parts that arrived in time; `drop`: they end without a turn.",
        )
        .or(FieldDefault::Text(DELIVER)),
    ],
);

/// Shape of a rule's `join`.
pub(super) static PART: Shape = Shape::of(
    "JoinPart",
    "The part of a join that the events of a rule are.",
    &[
        Field::required("name", FieldType::Text, "The join."),
        Field::required("part", FieldType::Text, "Name of the part."),
        Field::optional(
            "keyProperty",
            FieldType::Text,
            "Only events with the same value of this property belong together.",
        )
        .or(FieldDefault::Meaning(
            "all in the conversation belong together",
        )),
    ],
);

/// A join as written.
pub(crate) struct JoinSpec {
    pub(crate) name: LocatedValue<ResourceName>,
    pub(crate) timeout_ms: u64,
    pub(crate) on_timeout: JoinTimeout,
}

/// A part as written.
pub(crate) struct PartSpec {
    pub(crate) join: LocatedValue<ResourceName>,
    pub(crate) part: ResourceName,
    pub(crate) key_property: Option<String>,
}

pub(super) fn read(mut join: Fields<'_>, report: &mut ProblemReport) -> Option<JoinSpec> {
    let name = read_name(&mut join, "name", report);
    let timeout_seconds = join.number("timeoutSeconds", report);
    let on_timeout = join.word("onTimeout", report);
    join.close();
    Some(JoinSpec {
        name: name?,
        timeout_ms: timeout_seconds.unwrap_or(DEFAULT_JOIN_TIMEOUT_SECONDS) * 1_000,
        on_timeout: match on_timeout {
            Some(word) if word.value == DROP => JoinTimeout::Drop,
            Some(_) | None => JoinTimeout::Deliver,
        },
    })
}

pub(super) fn read_part(mut part: Fields<'_>, report: &mut ProblemReport) -> Option<PartSpec> {
    let join = read_name(&mut part, "name", report);
    let name = read_name(&mut part, "part", report);
    let key_property = part.text("keyProperty", report);
    part.close();
    Some(PartSpec {
        join: join?,
        part: name?.value,
        key_property: key_property.map(|name| name.value.to_owned()),
    })
}

fn read_name(
    fields: &mut Fields<'_>,
    field: &'static str,
    report: &mut ProblemReport,
) -> Option<LocatedValue<ResourceName>> {
    let written = fields.text(field, report)?;
    let place = written.place;
    let value = id(&written, report)?;
    Some(LocatedValue { value, place })
}
