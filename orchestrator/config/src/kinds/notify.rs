//! `notify` of an Agent: notifications about waiting tasks (`TASK-8`).

use goondan_protocol::task::{Notice, NotifyOn, Part, parts_of};

use super::{Context, words};
use crate::codes;
use crate::fields::{Fields, Label, Located, one_of};
use crate::kind::Kind;
use crate::limits::MAX_NOTIFY_ENTRIES;
use crate::node::{Entry, Node, Value};
use crate::reference::Reference;
use crate::report::{Place, Problem, Report};
use crate::shape::{Content, Default, Field, Shape};
use crate::similar::nearest;

/// The field.
pub(crate) const OF_AGENT: Field = Field::optional(
    "notify",
    Content::List(&ENTRY),
    "Messages that connections send when a task waits for a person or ends.",
);

static ENTRY: Content = Content::Mapping(&NOTIFY);

static NOTIFY: Shape = Shape::of(
    "Notify",
    "A message that a connection sends about a task.",
    &[
        Field::required(
            "connection",
            Content::Reference(Kind::CONNECTION),
            "The Connection that sends it.",
        ),
        Field::required(
            "action",
            Content::Text,
            "The action of its service, such as `send`.",
        ),
        Field::optional(
            "args",
            Content::Entries(&Content::Anything),
            "The arguments of the action. Placeholders in texts: `${message}` is the complete \
             message, `${json}` is the same as JSON; `${taskId}`, `${title}`, `${on}`, `${need}`, \
             `${command}` and `${workspaceId}` are its parts.",
        ),
        Field::optional(
            "on",
            Content::List(&Content::Word(&NotifyOn::WORDS)),
            "When.",
        )
        .or(Default::Meaning(
            "everything that waits for a person: question, permission, dependency, review, budget",
        )),
    ],
);

/// An entry as written.
#[derive(Debug)]
pub(crate) struct NotifySpec {
    pub(crate) connection: Reference,
    pub(crate) action: Located<String>,
    /// Place of `args`, or of the entry if it has none.
    pub(crate) args_place: Place,
    pub(crate) args: Vec<Entry>,
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
    let on = words::read(&mut fields, "on", &NotifyOn::WORDS, NotifyOn::of_word, cx);
    let on = on.unwrap_or_else(|| NotifyOn::WAITS.to_vec());
    fields.close();
    if !is_right {
        return None;
    }
    Some(NotifySpec {
        connection: connection?,
        action: action.map(|action| Located {
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
fn check_places(node: &Node, label: &Label, report: &mut Report) -> bool {
    match &node.value {
        Value::Text(text) => {
            let parts = parts_of(text).into_iter();
            let wrong = parts.filter(|part| !check_place(*part, node.place, label, report));
            wrong.count() == 0
        }
        Value::List(items) => {
            let items = items.iter().enumerate();
            let wrong = items.filter(|(index, it)| !check_places(it, &label.item(*index), report));
            wrong.count() == 0
        }
        Value::Mapping(entries) => check_entries(entries, label, report),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn check_entries(entries: &[Entry], label: &Label, report: &mut Report) -> bool {
    let entries = entries.iter();
    let wrong = entries.filter(|it| !check_places(&it.node, &label.field(&it.key), report));
    wrong.count() == 0
}

fn check_place(part: Part<'_>, place: Place, label: &Label, report: &mut Report) -> bool {
    let (message, meant) = match part {
        Part::Open(_) => (format!("{label} has a `${{` without `}}`"), None),
        Part::Place(name) if !Notice::PLACES.contains(&name) => {
            let known = one_of(Notice::PLACES);
            let message =
                format!("{label} has an unknown placeholder `${{{name}}}`; expected {known}");
            (message, nearest(name, Notice::PLACES))
        }
        Part::Place(_) | Part::Text(_) => return true,
    };
    let problem = Problem::new(codes::INVALID_VALUE, place, message);
    let problem = problem.help("write `$${` for a literal `${`");
    report.add(problem.did_you_mean(meant));
    false
}
