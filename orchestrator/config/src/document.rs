//! The frame every resource shares: `apiVersion`, `kind`, `metadata.name`, `spec`.

use std::fmt;

use crate::advice::{self, Foreign};
use crate::codes;
use crate::fields::{Fields, Label, Located, one_of};
use crate::kinds;
use crate::report::{Problem, Report};
use crate::shape::{Content, Field, Shape};
use crate::similar::nearest;
use crate::tree::{Entry, Node, Value};

/// The only `apiVersion` there is.
pub(crate) const API_VERSION: &str = "goondan.ai/v1";

/// What every document holds. What is in `spec` is its kind's business.
pub(crate) static FRAME: Shape = Shape::of(
    "Document",
    "A resource of a goondan project.",
    &[
        Field::required("apiVersion", Content::Text, "The version of this format."),
        Field::required("kind", Content::Text, "What the document defines."),
        Field::required(
            "metadata",
            Content::Mapping(&METADATA),
            "What the resource is called.",
        ),
        Field::optional(
            "spec",
            Content::Anything,
            "What the resource is. Optional for a Package.",
        ),
    ],
);

static METADATA: Shape = Shape::of(
    "Metadata",
    "What a resource is called.",
    &[Field::required(
        "name",
        Content::Text,
        "The name, unique within its kind.",
    )],
);

/// The kinds of resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Package,
    Model,
    Agent,
    Swarm,
    Tool,
    Extension,
    Connector,
    Connection,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Package,
        Self::Model,
        Self::Agent,
        Self::Swarm,
        Self::Tool,
        Self::Extension,
        Self::Connector,
        Self::Connection,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Package => "Package",
            Self::Model => "Model",
            Self::Agent => "Agent",
            Self::Swarm => "Swarm",
            Self::Tool => "Tool",
            Self::Extension => "Extension",
            Self::Connector => "Connector",
            Self::Connection => "Connection",
        }
    }

    /// The kind of exactly this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A document whose frame is in order; its `spec` is still to be read.
#[derive(Debug)]
pub(crate) struct Document<'n> {
    pub(crate) kind: Kind,
    pub(crate) name: Located<&'n str>,
    pub(crate) label: Label,
    spec: Option<&'n Entry>,
}

impl<'n> Document<'n> {
    /// Whether a document says it is of this kind, whatever else may be wrong with it.
    pub(crate) fn claims(node: &Node, kind: Kind) -> bool {
        let Value::Mapping(entries) = &node.value else {
            return false;
        };
        entries.iter().any(|entry| {
            let is_name = matches!(&entry.node.value, Value::Text(name) if name == kind.name());
            entry.key == "kind" && is_name
        })
    }

    /// Reads a document's frame. `None` if it cannot be told what the document defines.
    pub(crate) fn read(node: &'n Node, report: &mut Report) -> Option<Self> {
        if let Some(foreign) = advice::foreign(node.entries()) {
            let Foreign { message, help } = foreign;
            report.add(Problem::new(codes::UNKNOWN_KIND, node.place, message).help(help));
            return None;
        }
        let label = Label::of("this document");
        let frame = Content::Mapping(&FRAME);
        let mut fields = Fields::open(node, node.place, label, frame, report)?;
        check_api_version(&mut fields, report);
        let kind = read_kind(&mut fields, report);
        let spec = fields.get("spec");
        let name = fields.nested("metadata", report).and_then(|mut metadata| {
            let name = metadata.text("name", report);
            metadata.close();
            name
        });
        fields.close();
        let (kind, name) = (kind?, name?);
        Some(Self {
            kind,
            label: Label::of(format!("{kind} `{}`", name.value)),
            name,
            spec,
        })
    }

    /// What stands under `spec`, if there is anything.
    pub(crate) fn spec_node(&self) -> Option<&'n Node> {
        self.spec.map(|entry| &entry.node)
    }

    /// The fields of `spec`; reports it if it is missing.
    pub(crate) fn spec(&self, report: &mut Report) -> Option<Fields<'n>> {
        let fields = self.optional_spec(report);
        if self.spec.is_none() {
            report.add(Problem::new(
                codes::MISSING_FIELD,
                self.name.place,
                format!("{} needs the field `spec`", self.label),
            ));
        }
        fields
    }

    /// The fields of `spec`, if there is one.
    pub(crate) fn optional_spec(&self, report: &mut Report) -> Option<Fields<'n>> {
        let entry = self.spec?;
        let label = self.label.field("spec");
        let content = kinds::spec_of(self.kind);
        Fields::open(&entry.node, entry.key_place, label, content, report)
    }
}

fn check_api_version(fields: &mut Fields<'_>, report: &mut Report) {
    let Some(version) = fields.text("apiVersion", report) else {
        return;
    };
    if version.value != API_VERSION {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                version.place,
                format!(
                    "`apiVersion` must be `{API_VERSION}`, not `{}`",
                    version.value
                ),
            )
            .help(format!("write `apiVersion: {API_VERSION}`"))
            .replace(version.value, API_VERSION),
        );
    }
}

fn read_kind(fields: &mut Fields<'_>, report: &mut Report) -> Option<Kind> {
    let written = fields.text("kind", report)?;
    let kind = Kind::from_name(written.value);
    if kind.is_none() {
        let names = Kind::ALL.map(|kind| format!("`{kind}`"));
        report.add(
            Problem::new(
                codes::UNKNOWN_KIND,
                written.place,
                format!(
                    "unknown kind `{}`; expected {}",
                    written.value,
                    one_of(&names)
                ),
            )
            .rename(
                written.value,
                nearest(written.value, Kind::ALL.map(Kind::name)),
            ),
        );
    }
    kind
}
