//! The fields that all resources share: `apiVersion`, `kind`, `metadata.name`, `spec`.

use crate::advice::{self, ForeignDocument};
use crate::codes;
use crate::fields::{Fields, Label, LocatedValue, one_of};
use crate::frame::{API_VERSION, FRAME};
use crate::kind::ResourceKind;
use crate::report::{Problem, ProblemReport};
use crate::shape::FieldType;
use crate::similar::nearest;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// A document with a valid frame; its `spec` is not read yet.
#[derive(Debug)]
pub(crate) struct Document<'n> {
    pub(crate) kind: ResourceKind,
    pub(crate) name: LocatedValue<&'n str>,
    pub(crate) label: Label,
    spec: Option<&'n MappingEntry>,
    /// Content of `spec`, by kind.
    content: FieldType,
}

impl<'n> Document<'n> {
    /// True if a document declares this kind, even if the rest is invalid.
    pub(crate) fn claims(node: &YamlNode, kind: ResourceKind) -> bool {
        let YamlValue::Mapping(entries) = &node.value else {
            return false;
        };
        entries.iter().any(|entry| {
            let is_name = matches!(&entry.node.value, YamlValue::Text(name) if name == kind.name());
            entry.key == "kind" && is_name
        })
    }

    /// Reads a document's frame. `None` if the resource cannot be identified. `spec_of` returns the
    /// content of a kind's `spec`.
    pub(crate) fn read(
        node: &'n YamlNode,
        spec_of: fn(ResourceKind) -> FieldType,
        report: &mut ProblemReport,
    ) -> Option<Self> {
        if let Some(foreign) = advice::foreign(node.entries(), |name| report.kind(name).is_some()) {
            let ForeignDocument { message, help } = foreign;
            report.add(Problem::new(codes::UNKNOWN_KIND, node.place, message).help(help));
            return None;
        }
        let label = Label::of("this document");
        let frame = FieldType::Mapping(&FRAME);
        let mut fields = Fields::open(node, node.place, label, frame, report)?;
        check_api_version(&mut fields, report);
        let kind = read_kind(&mut fields, report);
        let spec = fields.get("spec");
        let name = fields.nested("metadata", report).and_then(|mut metadata| {
            let name = metadata.text("name", report);
            check_labels(metadata.entries("labels", report), report);
            let _annotations = metadata.entries("annotations", report);
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
            content: spec_of(kind),
        })
    }

    /// Adds the place of the document's name to a result.
    pub(crate) fn located<T>(&self, read: Option<T>) -> Option<LocatedValue<T>> {
        let place = self.name.place;
        read.map(|value| LocatedValue { value, place })
    }

    /// Adds the document's name to a result.
    pub(crate) fn named<T>(&self, read: Option<T>) -> Option<(String, T)> {
        Some((self.name.value.to_owned(), read?))
    }

    /// The node of `spec`, if present.
    pub(crate) fn spec_node(&self) -> Option<&'n YamlNode> {
        self.spec.map(|entry| &entry.node)
    }

    /// The fields of `spec`; reports a missing `spec`.
    pub(crate) fn spec(&self, report: &mut ProblemReport) -> Option<Fields<'n>> {
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

    /// The fields of `spec`, if present.
    pub(crate) fn optional_spec(&self, report: &mut ProblemReport) -> Option<Fields<'n>> {
        let entry = self.spec?;
        let label = self.label.field("spec");
        Fields::open(&entry.node, entry.key_place, label, self.content, report)
    }
}

fn check_labels(labels: &[MappingEntry], report: &mut ProblemReport) {
    for label in labels {
        if !matches!(label.node.value, YamlValue::Text(_)) {
            let message = format!(
                "the label `{}` must be text, not {}",
                label.key,
                label.node.value.noun()
            );
            let problem = Problem::new(codes::WRONG_TYPE, label.node.place, message);
            report.add(problem.help("put the value in quotes").quote());
        }
    }
}

pub(crate) fn check_api_version(fields: &mut Fields<'_>, report: &mut ProblemReport) {
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

fn read_kind(fields: &mut Fields<'_>, report: &mut ProblemReport) -> Option<ResourceKind> {
    let written = fields.text("kind", report)?;
    let kind = report.kind(written.value);
    if kind.is_none() {
        let kinds = report.kinds();
        report.add(
            Problem::new(
                codes::UNKNOWN_KIND,
                written.place,
                format!(
                    "unknown kind `{}`; expected {}",
                    written.value,
                    one_of(&kinds)
                ),
            )
            .rename(
                written.value,
                nearest(written.value, kinds.into_iter().map(ResourceKind::name)),
            ),
        );
    }
    kind
}
