//! `kind: Connector`: a program of the project, or a built-in connector under a custom name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use goondan_protocol::ids::ResourceName;

use super::{Context, id, read_entry};
use crate::codes;
use crate::document::Document;
use crate::fields::Fields;
use crate::kind::ResourceKind;
use crate::reference::check_builtin;
use crate::report::{Problem, ProblemReport};
use crate::shape::{Case, Field, FieldConstraint, FieldType, Shape, ShapeChoice};

impl ResourceKind {
    pub(crate) const CONNECTOR: Self = Self::named("Connector");
}

/// Shape of a Connector's `spec`.
pub(crate) static SPEC: ShapeChoice = ShapeChoice {
    field: "entry",
    cases: &[(Case::IsThere, &MODULE_SPEC)],
    otherwise: &BUILTIN_SPEC,
};

const EVENTS: Field = Field::optional(
    "events",
    FieldType::List(&LISTED_EVENT),
    "The events it emits. If they are listed, the rules of its Connections are checked against the list.",
);

static BUILTIN_SPEC: Shape = Shape::of(
    "BuiltinConnectorSpec",
    "A built-in connector with a custom name.",
    &[
        Field::required(
            "builtin",
            FieldType::Text,
            "Name of the built-in connector, such as `webhook`.",
        ),
        EVENTS,
    ],
);

static MODULE_SPEC: Shape = Shape::of(
    "ModuleConnectorSpec",
    "A connector that is a program of the project.",
    &[
        Field::required(
            "entry",
            FieldType::Path,
            "Path of the program: an executable, or a source file for python3, bun, deno or node.",
        ),
        Field::optional("builtin", FieldType::Text, "Not together with `entry`."),
        EVENTS,
    ],
)
.with(&[FieldConstraint::NotBoth("builtin", "entry")]);

static LISTED_EVENT: FieldType = FieldType::Mapping(&EVENT);

static EVENT: Shape = Shape::of(
    "Event",
    "An event that a connector emits.",
    &[
        Field::required("name", FieldType::Text, "The event's name."),
        Field::optional(
            "properties",
            FieldType::Entries(&FieldType::Anything),
            "Its properties by name, each with your own notes.",
        ),
    ],
);

#[derive(Debug)]
pub(crate) struct ConnectorSpec {
    /// The program that does the work.
    pub(crate) program: Program,
    /// The properties of each event, by name; `None` if any are possible. Empty if the events are
    /// not declared.
    pub(crate) events: Events,
}

#[derive(Debug, Clone)]
pub(crate) enum Program {
    /// The built-in connector of this name.
    Builtin(ResourceName),
    /// A project file with its path and SHA-256, under the Connector's own name.
    Entry(ResourceName, PathBuf, String),
}

/// Events by name, with their possible properties.
pub(crate) type Events = BTreeMap<String, Option<Vec<String>>>;

pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<ConnectorSpec> {
    let name: Option<ResourceName> = id(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let is_module = spec.has("entry");
    let entry = if is_module {
        let entry = spec.text("entry", &mut cx.report);
        entry.and_then(|entry| read_entry(&entry, cx))
    } else {
        None
    };
    let report = &mut cx.report;
    let builtin = spec.text("builtin", report);
    let events = read_events(&mut spec, report);
    spec.close();

    let program = if is_module {
        let entry = entry?;
        let digest = cx.files.digest(&entry);
        Program::Entry(name?, cx.files.started_as(entry), digest)
    } else {
        let builtin = builtin?;
        check_builtin(
            ResourceKind::CONNECTOR,
            builtin.value,
            builtin.place,
            report,
        )?;
        name?;
        Program::Builtin(id(&builtin, report)?)
    };
    Some(ConnectorSpec { program, events })
}

fn read_events(spec: &mut Fields<'_>, report: &mut ProblemReport) -> Events {
    let mut events = BTreeMap::new();
    for mut event in spec.mappings("events", report).into_iter().flatten() {
        let name = event.text("name", report);
        let properties = event.entries("properties", report);
        event.close();
        let Some(name) = name else { continue };
        let properties = properties.iter().map(|entry| entry.key.clone()).collect();
        let earlier = events.insert(name.value.to_owned(), Some(properties));
        if earlier.is_some() {
            report.add(
                Problem::new(
                    codes::DUPLICATE_REFERENCE,
                    name.place,
                    format!("the event `{}` is listed twice", name.value),
                )
                .help("remove one of the two"),
            );
        }
    }
    events
}
