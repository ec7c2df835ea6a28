//! References from one resource to another: `Kind/name`, or `{kind, name, package?}`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use goondan_connectors::BUILTINS;
use goondan_packages::PackageName;
use goondan_protocol::base_package::{BASE_PACKAGE, EXTENSIONS, tool_exports, tool_names};

use crate::approve;
use crate::codes;
use crate::dependency::SHARED_KINDS;
use crate::fields::{Fields, Label, one_of};
use crate::kind::ResourceKind;
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::shape::{Field, FieldType, Shape};
use crate::similar::nearest;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

impl Fields<'_> {
    /// Reads a reference to a resource of the kind in the shape.
    pub(crate) fn reference(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Option<Reference> {
        let (entry, content) = self.ask(name)?;
        let label = self.label.field(name);
        let FieldType::Reference(kind) = content else {
            debug_assert!(false, "{label} is not a reference field");
            return None;
        };
        Reference::read(&entry.node, &label, kind, report)
    }

    /// Reads the references of a list field; unreadable ones are skipped.
    pub(crate) fn references(
        &mut self,
        name: &'static str,
        report: &mut ProblemReport,
    ) -> Vec<Reference> {
        self.items(name, report)
            .into_iter()
            .filter_map(|(node, label, content)| {
                let FieldType::Listed(shape) = content else {
                    debug_assert!(false, "{label} is not a reference field");
                    return None;
                };
                Reference::read_listed(node, &label, shape, report)
            })
            .collect()
    }
}

/// Connectors of [`BASE_PACKAGE`]: those with processes, and the local client.
pub(crate) fn builtin_connectors() -> impl Iterator<Item = &'static str> {
    let described = BUILTINS.into_iter().map(|connector| connector.name);
    described.chain([LOCAL_CLIENT])
}

/// The local client's connector and the name of its events.
pub(crate) const LOCAL_CLIENT: &str = "cli";

/// A reference in mapping form.
pub(crate) static REFERENCE: Shape = Shape::of(
    "Reference",
    "A reference to a resource, in mapping form.",
    &[
        Field::required("kind", FieldType::Text, "The resource's kind."),
        Field::required("name", FieldType::Text, "The resource's name."),
        Field::optional(
            "package",
            FieldType::Text,
            "The package it comes from. Default: this project.",
        ),
    ],
);

/// A reference as written; the field determines its kind.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) kind: ResourceKind,
    pub(crate) name: String,
    /// True if it refers to [`BASE_PACKAGE`] rather than a resource of the project.
    pub(crate) builtin: bool,
    /// The installed package that it refers to, if any, with its place.
    pub(crate) package: Option<(PackageName, SourceLocation)>,
    pub(crate) place: SourceLocation,
    /// Settings next to the reference in a list.
    pub(crate) config: Option<ListedConfig>,
    /// Approval rules next to the reference in a list.
    pub(crate) approve: approve::ConfiguredApprovals,
}

/// Settings next to a reference.
#[derive(Debug, Clone)]
pub(crate) struct ListedConfig {
    pub(crate) label: Label,
    pub(crate) entries: Vec<MappingEntry>,
}

impl Reference {
    /// Reads a reference to a resource of kind `expected`.
    pub(crate) fn read(
        node: &YamlNode,
        label: &Label,
        expected: ResourceKind,
        report: &mut ProblemReport,
    ) -> Option<Self> {
        match &node.value {
            YamlValue::Text(text) => Self::from_text(text, node.place, label, expected, report),
            YamlValue::Mapping(_) => Self::from_mapping(node, label, expected, report),
            other @ (YamlValue::Null
            | YamlValue::Bool(_)
            | YamlValue::Number(_)
            | YamlValue::List(_)) => {
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

    /// Reads a reference in a list, which may also have the form `{ref: …}`, with settings if the
    /// shape has them.
    pub(crate) fn read_listed(
        node: &YamlNode,
        label: &Label,
        shape: &'static Shape,
        report: &mut ProblemReport,
    ) -> Option<Self> {
        let Some(FieldType::Reference(kind)) = shape.field("ref").map(|field| field.content) else {
            debug_assert!(false, "{} has no reference field", shape.name);
            return None;
        };
        let is_wrapped = matches!(&node.value, YamlValue::Mapping(entries)
            if entries.iter().any(|entry| entry.key == "ref"));
        if !is_wrapped {
            return Self::read(node, label, kind, report);
        }
        let content = FieldType::Mapping(shape);
        let mut fields = Fields::open(node, node.place, label.clone(), content, report)?;
        let reference = fields.reference("ref", report);
        let config = match shape.field("config") {
            Some(_) => Some(ListedConfig {
                label: fields.label.field("config"),
                entries: fields.entries("config", report).to_vec(),
            }),
            None => None,
        };
        let approve = match shape.field("approve") {
            Some(_) => approve::read(&mut fields, report),
            None => approve::ConfiguredApprovals::new(),
        };
        fields.close();
        reference.map(|reference| Self {
            config,
            approve,
            ..reference
        })
    }

    fn from_text(
        text: &str,
        place: SourceLocation,
        label: &Label,
        expected: ResourceKind,
        report: &mut ProblemReport,
    ) -> Option<Self> {
        let Some((kind, name)) = text.split_once('/').filter(|(_, name)| !name.is_empty()) else {
            report.add(
                Problem::new(
                    codes::INVALID_VALUE,
                    place,
                    format!("{label} must be a reference of the form `{expected}/name`"),
                )
                .help(written_as(expected, text.trim_end_matches('/'))),
            );
            return None;
        };
        check_kind(kind, expected, place, label, report)?;
        Some(Self {
            kind: expected,
            name: name.to_owned(),
            builtin: false,
            package: None,
            place,
            config: None,
            approve: approve::ConfiguredApprovals::new(),
        })
    }

    fn from_mapping(
        node: &YamlNode,
        label: &Label,
        expected: ResourceKind,
        report: &mut ProblemReport,
    ) -> Option<Self> {
        let content = FieldType::Mapping(&REFERENCE);
        let mut fields = Fields::open(node, node.place, label.clone(), content, report)?;
        let kind = fields.text("kind", report);
        let name = fields.text("name", report);
        let package = fields.text("package", report);
        fields.close();

        let (kind, name) = (kind?, name?);
        check_kind(kind.value, expected, kind.place, label, report)?;
        let builtin = package.as_ref().is_some_and(|it| it.value == BASE_PACKAGE);
        let package = match package.filter(|_| !builtin) {
            None => None,
            Some(package) => match package.value.parse() {
                Ok(name) => Some((name, package.place)),
                Err(_) => {
                    report.add(unknown_package(package.value, package.place, &[]));
                    return None;
                }
            },
        };
        Some(Self {
            kind: expected,
            name: name.value.to_owned(),
            builtin,
            package,
            place: name.place,
            config: None,
            approve: approve::ConfiguredApprovals::new(),
        })
    }
}

/// The key of a resource: its name and, unless it belongs to the project, its package. The
/// separator is a line break, which no resource name contains.
pub(crate) fn qualified<'n>(package: Option<&PackageName>, name: &'n str) -> Cow<'n, str> {
    match package {
        Some(package) => Cow::Owned(format!("{package}\n{name}")),
        None => Cow::Borrowed(name),
    }
}

impl Reference {
    /// The key of the resource it names.
    pub(crate) fn key(&self) -> Cow<'_, str> {
        qualified(self.package.as_ref().map(|(name, _)| name), &self.name)
    }
}

/// Problem of a package that the project does not require.
fn unknown_package(name: &str, place: SourceLocation, required: &[&str]) -> Problem {
    let required = required.iter().copied().chain([BASE_PACKAGE]);
    Problem::new(
        codes::UNKNOWN_REFERENCE,
        place,
        format!("the project does not require the package `{name}`"),
    )
    .help("add it: `gdn package add NAME`")
    .did_you_mean(nearest(name, required))
}

fn check_kind(
    written: &str,
    expected: ResourceKind,
    place: SourceLocation,
    label: &Label,
    report: &mut ProblemReport,
) -> Option<()> {
    if written == expected.name() {
        return Some(());
    }
    report.add(if report.kind(written).is_some() {
        Problem::new(
            codes::WRONG_KIND,
            place,
            format!("{label} must refer to kind `{expected}`, not `{written}`"),
        )
    } else {
        Problem::new(
            codes::UNKNOWN_KIND,
            place,
            format!(
                "unknown kind `{written}`; expected {}",
                one_of(report.kinds())
            ),
        )
        .help(if written.starts_with(['“', '”', '‘', '’']) {
            "these quotes are not YAML quotes: write `\"` or `'`, or none".to_owned()
        } else {
            format!("write `{expected}/name`")
        })
    });
    None
}

fn is_builtin(kind: ResourceKind, name: &str) -> bool {
    match kind {
        ResourceKind::TOOL => !tool_exports(name).is_empty(),
        ResourceKind::CONNECTOR => builtin_connectors().any(|known| known == name),
        ResourceKind::EXTENSION => EXTENSIONS.contains(&name),
        _ => false,
    }
}

/// Syntax of a reference to `name`: to a built-in resource if one has this name.
fn written_as(kind: ResourceKind, name: &str) -> String {
    if is_builtin(kind, name) {
        format!("write `{{kind: {kind}, name: {name}, package: \"{BASE_PACKAGE}\"}}`")
    } else {
        format!("write `{kind}/{name}`")
    }
}

/// Checks a name in [`BASE_PACKAGE`].
pub(crate) fn check_builtin(
    kind: ResourceKind,
    name: &str,
    place: SourceLocation,
    report: &mut ProblemReport,
) -> Option<()> {
    let known = match kind {
        ResourceKind::TOOL => tool_names().collect(),
        ResourceKind::CONNECTOR => builtin_connectors().collect(),
        ResourceKind::EXTENSION => EXTENSIONS.to_vec(),
        _ => Vec::new(),
    };
    if known.contains(&name) {
        return Some(());
    }
    report.add(
        Problem::new(
            codes::UNKNOWN_REFERENCE,
            place,
            format!(
                "package `{BASE_PACKAGE}` has no {kind} `{name}`; it has {}",
                one_of(&known)
            ),
        )
        .did_you_mean(nearest(name, known.iter().copied())),
    );
    None
}

/// All resources of the project by kind and name, with their places.
#[derive(Debug, Default)]
pub(crate) struct Names {
    places: BTreeMap<(ResourceKind, String), SourceLocation>,
    /// Resources of the required packages, as far as they could be read.
    packages: BTreeMap<PackageName, Option<BTreeSet<(ResourceKind, String)>>>,
    used: RefCell<BTreeSet<(ResourceKind, String)>>,
}

impl Names {
    /// Registers a resource; reports a duplicate of the same kind and name.
    pub(crate) fn register(
        &mut self,
        kind: ResourceKind,
        name: &str,
        place: SourceLocation,
        report: &mut ProblemReport,
    ) {
        if let Some(first) = self.places.get(&(kind, name.to_owned())) {
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
            self.places.insert((kind, name.to_owned()), place);
        }
    }

    /// Records that a package is required.
    pub(crate) fn require(&mut self, package: &PackageName) {
        self.packages.entry(package.clone()).or_default();
    }

    /// Records the resources of a package.
    pub(crate) fn install(&mut self, package: &PackageName, names: &Self) {
        let shared = names.places.keys().cloned();
        self.packages
            .insert(package.clone(), Some(shared.collect()));
    }

    fn check_packaged(
        &self,
        reference: &Reference,
        package: &PackageName,
        place: SourceLocation,
        report: &mut ProblemReport,
    ) -> Option<()> {
        let Some(has) = self.packages.get(package) else {
            let required: Vec<&str> = self.packages.keys().map(PackageName::as_str).collect();
            report.add(unknown_package(package.as_str(), place, &required));
            return None;
        };
        // Unreadable packages were already reported.
        let has = has.as_ref()?;
        let Reference { kind, name, .. } = reference;
        if !SHARED_KINDS.contains(kind) {
            let kinds = one_of(SHARED_KINDS.map(ResourceKind::name));
            let message = format!("a package cannot share {kind} resources; it can share {kinds}");
            report.add(Problem::new(codes::UNKNOWN_REFERENCE, place, message));
            return None;
        }
        if has.contains(&(*kind, name.clone())) {
            return Some(());
        }
        if !report.is_partial() {
            let same_kind = has.iter().filter(|(other, _)| other == kind);
            let names: Vec<&str> = same_kind.map(|(_, name)| name.as_str()).collect();
            let message = match names.as_slice() {
                [] => format!("package `{package}` has no {kind}"),
                names => format!(
                    "package `{package}` has no {kind} `{name}`; it has {}",
                    one_of(names)
                ),
            };
            let problem = Problem::new(codes::UNKNOWN_REFERENCE, reference.place, message);
            report.add(problem.did_you_mean(nearest(name, names)));
        }
        None
    }

    /// Checks that the referenced resource exists, and marks it as used.
    pub(crate) fn check(&self, reference: &Reference, report: &mut ProblemReport) -> Option<()> {
        let Reference {
            kind, name, place, ..
        } = reference;
        if reference.builtin {
            return check_builtin(*kind, name, *place, report);
        }
        if let Some((package, place)) = &reference.package {
            return self.check_packaged(reference, package, *place, report);
        }
        let key = (*kind, name.clone());
        if self.places.contains_key(&key) {
            self.used.borrow_mut().insert(key);
            return Some(());
        }
        if !report.is_partial() {
            report.add(self.unknown(*kind, name, *place));
        }
        None
    }

    pub(crate) fn warn_unused(&self, kinds: &[ResourceKind], report: &mut ProblemReport) {
        let used = self.used.borrow();
        for (key, place) in &self.places {
            let (kind, name) = key;
            if kinds.contains(kind) && !used.contains(key) {
                report.add(
                    Problem::warning(
                        codes::UNUSED_RESOURCE,
                        *place,
                        format!("nothing refers to {kind} `{name}`"),
                    )
                    .help("refer to it or remove it"),
                );
            }
        }
    }

    fn unknown(&self, kind: ResourceKind, name: &str, place: SourceLocation) -> Problem {
        let problem = Problem::new(
            codes::UNKNOWN_REFERENCE,
            place,
            format!("{kind} `{name}` does not exist"),
        );
        let same_kind = self.places.keys().filter(|(other, _)| *other == kind);
        if let Some(meant) = nearest(name, same_kind.map(|(_, name)| name.as_str())) {
            return problem.help(format!("did you mean `{kind}/{}`?", meant.name));
        }
        if is_builtin(kind, name) {
            return problem.help(format!(
                "for the built-in resource, {}",
                written_as(kind, name)
            ));
        }
        problem.help(format!("add a document of kind `{kind}` with this name"))
    }
}
