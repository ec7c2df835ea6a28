//! `kind: Connector`: a built-in connector under a name of its own.

use std::collections::BTreeMap;

use goondan_protocol::ids::ResourceName;

use super::{Context, id, refuse_entry};
use crate::codes;
use crate::document::{Document, Kind};
use crate::fields::Fields;
use crate::reference::check_builtin;
use crate::report::{Problem, Report};
use crate::shape::{Case, Choice, Content, Field, Rule, Shape};

/// What a Connector's `spec` holds.
pub(crate) static SPEC: Choice = Choice {
    field: "entry",
    cases: &[(Case::IsThere, &MODULE_SPEC)],
    otherwise: &BUILTIN_SPEC,
};

const EVENTS: Field = Field::optional(
    "events",
    Content::List(&LISTED_EVENT),
    "The events it brings. If they are listed, the rules of its Connections are checked by them.",
);

static BUILTIN_SPEC: Shape = Shape::of(
    "BuiltinConnectorSpec",
    "A built-in connector under a name of its own.",
    &[
        Field::required("builtin", Content::Text, "`webhook`."),
        EVENTS,
    ],
);

static MODULE_SPEC: Shape = Shape::of(
    "ModuleConnectorSpec",
    "A connector that is a program of the project. Not supported by this version.",
    &[
        Field::required("entry", Content::Path, "Path of the program."),
        Field::optional("builtin", Content::Text, "Not together with `entry`."),
        EVENTS,
    ],
)
.with(&[Rule::NotBoth("builtin", "entry")]);

static LISTED_EVENT: Content = Content::Mapping(&EVENT);

static EVENT: Shape = Shape::of(
    "Event",
    "An event that a connector brings.",
    &[
        Field::required("name", Content::Text, "The event's name."),
        Field::optional(
            "properties",
            Content::Entries(&Content::Anything),
            "Its properties by name, each with whatever you want to say of it.",
        ),
    ],
);

/// A Connector as written.
#[derive(Debug)]
pub(crate) struct ConnectorSpec {
    /// The built-in's name.
    pub(crate) builtin: ResourceName,
    /// The properties of each event by its name. Empty: nothing is said of them.
    pub(crate) events: BTreeMap<String, Vec<String>>,
}

/// Reads a Connector document.
pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<ConnectorSpec> {
    let name: Option<ResourceName> = id(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let is_module = spec.has("entry");
    if is_module {
        refuse_entry(document, &mut spec, cx);
    }
    let report = &mut cx.report;
    let builtin = spec.text("builtin", report);
    let events = read_events(&mut spec, report);
    spec.close();

    let builtin = builtin.filter(|_| !is_module)?;
    check_builtin(Kind::Connector, builtin.value, builtin.place, report)?;
    name?;
    Some(ConnectorSpec {
        builtin: id(&builtin, report)?,
        events,
    })
}

fn read_events(spec: &mut Fields<'_>, report: &mut Report) -> BTreeMap<String, Vec<String>> {
    let mut events = BTreeMap::new();
    for mut event in spec.mappings("events", report).into_iter().flatten() {
        let name = event.text("name", report);
        let properties = event.entries("properties", report);
        event.close();
        let Some(name) = name else { continue };
        let properties = properties.iter().map(|entry| entry.key.clone()).collect();
        if events.insert(name.value.to_owned(), properties).is_some() {
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
