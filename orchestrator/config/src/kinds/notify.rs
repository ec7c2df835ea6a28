//! `notify` of an Agent: notifications about waiting tasks (`TASK-8`).

use goondan_protocol::task::{Notice, NotifyOn, TemplatePart, parts_of};

use super::{Context, keyword_lists};
use crate::codes;
use crate::fields::{Fields, Label, LocatedValue, one_of};
use crate::kind::ResourceKind;
use crate::limits::MAX_NOTIFY_ENTRIES;
use crate::node::{MappingEntry, YamlNode, YamlValue};
use crate::reference::Reference;
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::shape::{Field, FieldDefault, FieldType, Shape};
use crate::similar::nearest;

pub(crate) const OF_AGENT: Field = Field::optional(
    "notify",
    FieldType::List(&ENTRY),
    "Messages that connections send when a task waits for a person or ends.",
);

static ENTRY: FieldType = FieldType::Mapping(&NOTIFY);

static NOTIFY: Shape = Shape::of(
    "Notify",
    "A message that a connection sends about a task.",
    &[
        Field::required(
            "connection",
            FieldType::Reference(ResourceKind::CONNECTION),
            "The Connection that sends it.",
        ),
        Field::required(
            "action",
            FieldType::Text,
            "The action of its service, such as `send`.",
        ),
        Field::optional(
            "args",
            FieldType::Entries(&FieldType::Anything),
            "The arguments of the action. Placeholders in texts: `${message}` is the complete \
             message, `${json}` is the same as JSON; `${taskId}`, `${title}`, `${on}`, `${need}`, \
             `${command}` and `${workspaceId}` are its parts.",
        ),
        Field::optional(
            "on",
            FieldType::List(&FieldType::Word(&NotifyOn::WORDS)),
            "When.",
        )
        .or(FieldDefault::Meaning(
            "everything that waits for a person: question, permission, dependency, review, budget",
        )),
    ],
);

/// An entry as written.
#[derive(Debug)]
pub(crate) struct NotifySpec {
    pub(crate) connection: Reference,
    pub(crate) action: LocatedValue<String>,
    /// Place of `args`, or of the entry if it has none.
    pub(crate) args_place: SourceLocation,
    pub(crate) args: Vec<MappingEntry>,
    pub(crate) args_label: Label,
    pub(crate) on: Vec<NotifyOn>,
}

/// Reads the field; unreadable entries are skipped.
pub(crate) fn read(spec: &mut Fields<'_>, cx: &mut Context<'_>) -> Vec<NotifySpec> {
    let place = spec.place_of("notify");
    let entries = spec.mappings("notify", &mut cx.report);
    if let Some(place) = place.filter(|_| entries.len() > MAX_NOTIFY_ENTRIES) {
        let message = format!(
            "`notify` has {} entries; at most {MAX_NOTIFY_ENTRIES} are allowed",
            entries.len()
        );
        cx.report
            .add(Problem::new(codes::INVALID_VALUE, place, message).help("remove some"));
    }
    let entries = entries.into_iter().flatten();
    entries.filter_map(|entry| read_entry(entry, cx)).collect()
}

fn read_entry(mut fields: Fields<'_>, cx: &mut Context<'_>) -> Option<NotifySpec> {
    let connection = fields.reference("connection", &mut cx.report);
    let action = fields.text("action", &mut cx.report);
    let args_place = fields.place_of("args").unwrap_or(fields.place);
    let args_label = fields.label.field("args");
    let args = fields.entries("args", &mut cx.report).to_vec();
    let is_right = check_entries(&args, &args_label, &mut cx.report);
    let on = keyword_lists::read(&mut fields, "on", &NotifyOn::WORDS, NotifyOn::of_word, cx);
    let on = on.unwrap_or_else(|| NotifyOn::WAITS.to_vec());
    fields.close();
    if !is_right {
        return None;
    }
    Some(NotifySpec {
        connection: connection?,
        action: action.map(|action| LocatedValue {
            value: action.value.to_owned(),
            place: action.place,
        })?,
        args_place,
        args,
        args_label,
        on,
    })
}

/// Reports every unknown `${name}`; returns false if there is one.
fn check_places(node: &YamlNode, label: &Label, report: &mut ProblemReport) -> bool {
    match &node.value {
        YamlValue::Text(text) => {
            let parts = parts_of(text).into_iter();
            let wrong = parts.filter(|part| !check_place(*part, node.place, label, report));
            wrong.count() == 0
        }
        YamlValue::List(items) => {
            let items = items.iter().enumerate();
            let wrong = items.filter(|(index, it)| !check_places(it, &label.item(*index), report));
            wrong.count() == 0
        }
        YamlValue::Mapping(entries) => check_entries(entries, label, report),
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) => true,
    }
}

fn check_entries(entries: &[MappingEntry], label: &Label, report: &mut ProblemReport) -> bool {
    let entries = entries.iter();
    let wrong = entries.filter(|it| !check_places(&it.node, &label.field(&it.key), report));
    wrong.count() == 0
}

fn check_place(
    part: TemplatePart<'_>,
    place: SourceLocation,
    label: &Label,
    report: &mut ProblemReport,
) -> bool {
    let (message, meant) = match part {
        TemplatePart::Open(_) => (format!("{label} has a `${{` without `}}`"), None),
        TemplatePart::Place(name) if !Notice::PLACES.contains(&name) => {
            let known = one_of(Notice::PLACES);
            let message =
                format!("{label} has an unknown placeholder `${{{name}}}`; expected {known}");
            (message, nearest(name, Notice::PLACES))
        }
        TemplatePart::Place(_) | TemplatePart::Text(_) => return true,
    };
    let problem = Problem::new(codes::INVALID_VALUE, place, message);
    let problem = problem.help("write `$${` for a literal `${`");
    report.add(problem.did_you_mean(meant));
    false
}
