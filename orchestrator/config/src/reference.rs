//! References from one resource to another: `Kind/name`, or `{kind, name, package?}`.

use std::collections::BTreeMap;

use crate::codes;
use crate::document::Kind;
use crate::fields::{Fields, Label, one_of};
use crate::report::{Place, Problem, Report};
use crate::similar::nearest;
use crate::tree::{Node, Value};

/// The package of everything that is built in.
pub(crate) const BASE_PACKAGE: &str = "@goondan/base";

/// The tools of [`BASE_PACKAGE`].
pub(crate) const BUILTIN_TOOLS: &[&str] = &["bash", "file-system"];

/// What each of [`BUILTIN_TOOLS`] exports.
pub(crate) fn builtin_exports(tool: &str) -> &'static [&'static str] {
    match tool {
        "bash" => &["exec"],
        "file-system" => &["read", "write", "edit", "list"],
        _ => &[],
    }
}

/// The connectors of [`BASE_PACKAGE`].
pub(crate) const BUILTIN_CONNECTORS: &[&str] = &["webhook"];

/// A reference as written; its kind is the one the field takes.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// Whether it names something of [`BASE_PACKAGE`] rather than a resource of the project.
    pub(crate) builtin: bool,
    pub(crate) place: Place,
}

impl Reference {
    /// Reads a reference to a resource of kind `expected`.
    pub(crate) fn read(
        node: &Node,
        label: &Label,
        expected: Kind,
        report: &mut Report,
    ) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Self::from_text(text, node.place, label, expected, report),
            Value::Mapping(_) => Self::from_mapping(node, label, expected, report),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_)) => {
                report.add(
                    Problem::new(
                        codes::WRONG_TYPE,
                        node.place,
                        format!("{label} must be a reference, not {}", other.noun()),
                    )
                    .help(format!("write `{expected}/name`")),
                );
                None
            }
        }
    }

    fn from_text(
        text: &str,
        place: Place,
        label: &Label,
        expected: Kind,
        report: &mut Report,
    ) -> Option<Self> {
        let Some((kind, name)) = text.split_once('/').filter(|(_, name)| !name.is_empty()) else {
            report.add(
                Problem::new(
                    codes::INVALID_VALUE,
                    place,
                    format!("{label} must be a reference of the form `{expected}/name`"),
                )
                .help(format!("write `{expected}/{}`", text.trim_end_matches('/'))),
            );
            return None;
        };
        check_kind(kind, expected, place, label, report)?;
        Some(Self {
            kind: expected,
            name: name.to_owned(),
            builtin: false,
            place,
        })
    }

    fn from_mapping(
        node: &Node,
        label: &Label,
        expected: Kind,
        report: &mut Report,
    ) -> Option<Self> {
        let mut fields = Fields::open(node, node.place, label.clone(), report)?;
        let kind = fields.require_text("kind", report);
        let name = fields.require_text("name", report);
        let package = fields.text("package", report);
        fields.close(report);

        let (kind, name) = (kind?, name?);
        check_kind(kind.value, expected, kind.place, label, report)?;
        if let Some(package) = package.as_ref().filter(|p| p.value != BASE_PACKAGE) {
            report.add(
                Problem::new(
                    codes::UNSUPPORTED,
                    package.place,
                    format!(
                        "package `{}` cannot be used: this version has no packages but \
                         `{BASE_PACKAGE}`",
                        package.value
                    ),
                )
                .did_you_mean(nearest(package.value, [BASE_PACKAGE])),
            );
            return None;
        }
        Some(Self {
            kind: expected,
            name: name.value.to_owned(),
            builtin: package.is_some(),
            place: name.place,
        })
    }
}

fn check_kind(
    written: &str,
    expected: Kind,
    place: Place,
    label: &Label,
    report: &mut Report,
) -> Option<()> {
    if written == expected.name() {
        return Some(());
    }
    report.add(if Kind::from_name(written).is_some() {
        Problem::new(
            codes::WRONG_KIND,
            place,
            format!("{label} takes a reference to kind `{expected}`, not `{written}`"),
        )
    } else {
        let names = Kind::ALL.map(|kind| format!("`{kind}`"));
        Problem::new(
            codes::UNKNOWN_KIND,
            place,
            format!("unknown kind `{written}`; expected {}", one_of(&names)),
        )
        .help(format!("write `{expected}/name`"))
    });
    None
}

/// Checks a name of [`BASE_PACKAGE`].
pub(crate) fn check_builtin(
    kind: Kind,
    name: &str,
    place: Place,
    report: &mut Report,
) -> Option<()> {
    let known = match kind {
        Kind::Tool => BUILTIN_TOOLS,
        Kind::Connector => BUILTIN_CONNECTORS,
        Kind::Package
        | Kind::Model
        | Kind::Agent
        | Kind::Swarm
        | Kind::Extension
        | Kind::Connection => &[],
    };
    if known.contains(&name) {
        return Some(());
    }
    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    report.add(
        Problem::new(
            codes::UNKNOWN_REFERENCE,
            place,
            format!(
                "package `{BASE_PACKAGE}` has no {kind} `{name}`; it has {}",
                one_of(&names)
            ),
        )
        .did_you_mean(nearest(name, known.iter().copied())),
    );
    None
}

/// Every resource of the project by kind and name, with its place.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<(Kind, String), Place>);

impl Names {
    /// Registers a resource; reports a second one of the same kind and name.
    pub(crate) fn register(&mut self, kind: Kind, name: &str, place: Place, report: &mut Report) {
        if let Some(first) = self.0.get(&(kind, name.to_owned())) {
            let first = report.locate(*first);
            report.add(
                Problem::new(
                    codes::DUPLICATE_RESOURCE,
                    place,
                    format!("{kind} `{name}` is defined twice; first at {first}"),
                )
                .help("rename one of the two or remove it"),
            );
        } else {
            self.0.insert((kind, name.to_owned()), place);
        }
    }

    /// Checks that what a reference names is there.
    pub(crate) fn check(&self, reference: &Reference, report: &mut Report) -> Option<()> {
        let Reference {
            kind, name, place, ..
        } = reference;
        if reference.builtin {
            return check_builtin(*kind, name, *place, report);
        }
        if self.0.contains_key(&(*kind, name.clone())) {
            return Some(());
        }
        if !report.is_partial() {
            report.add(self.unknown(*kind, name, *place));
        }
        None
    }

    fn unknown(&self, kind: Kind, name: &str, place: Place) -> Problem {
        let problem = Problem::new(
            codes::UNKNOWN_REFERENCE,
            place,
            format!("there is no {kind} `{name}`"),
        );
        let same_kind = self.0.keys().filter(|(other, _)| *other == kind);
        if let Some(meant) = nearest(name, same_kind.map(|(_, name)| name.as_str())) {
            return problem.help(format!("did you mean `{kind}/{meant}`?"));
        }
        let builtin = match kind {
            Kind::Tool => BUILTIN_TOOLS.contains(&name),
            Kind::Connector => BUILTIN_CONNECTORS.contains(&name),
            _ => false,
        };
        if builtin {
            return problem.help(format!(
                "for the built-in write `{{kind: {kind}, name: {name}, package: \"{BASE_PACKAGE}\"}}`"
            ));
        }
        problem.help(format!("add a document of kind `{kind}` with this name"))
    }
}
