//! Converts projects of the bundle format 0.0.3 to the current format (`COMPAT-1`).
//!
//! Older forms are rewritten before anything is read, so that one reader, one schema and one list
//! of values serve both formats. Each value keeps its place, and each older form is reported once,
//! as a note.
//!
//! * `edit`: manipulation of trees.
//! * `resources`: resources by name and label.
//! * `references`: references with `ref`, selectors, overrides, and names of the package without
//!   it.
//! * `agents`: older forms of Agents, Models, Tools and Packages.
//! * `extensions`: settings of the extensions of `@goondan/base`, with their defaults.
//! * `connections`: names of connectors, of their events, settings and secrets.
//! * `implied`: Connections that tools of `@goondan/base` had implicitly.

mod agents;
mod connections;
mod edit;
mod extensions;
mod implied;
mod references;
mod resources;

use std::collections::BTreeSet;

use goondan_protocol::base_package::{BASE_PACKAGE, BaseContract};

use crate::codes;
use crate::contract::asks_for_older;
use crate::environment::Variables;
use crate::kind::ResourceKind;
use crate::report::{FileId, Problem, ProblemReport, SourceLocation};
use crate::tree::YamlNode;
use edit::{entries_mut, text_at};
use resources::Resources;

/// Content of the resource files, in reading order.
pub(crate) type Trees = Vec<(FileId, Vec<YamlNode>)>;

struct CompatConversion<'r> {
    contract: BaseContract,
    resources: Resources,
    report: &'r mut ProblemReport,
    /// Forms that were already reported.
    mentioned: BTreeSet<String>,
    /// Additional documents of the project that result from older forms.
    added: Vec<YamlNode>,
    /// Fields to override in a document, by its kind and name.
    patches: Vec<(ResourceKind, String, YamlNode)>,
}

impl CompatConversion<'_> {
    /// Reports an older form, once for each `what`.
    fn note(&mut self, place: SourceLocation, what: String, today: impl Into<String>) {
        self.report.add_older_place(place);
        if self.mentioned.insert(what.clone()) {
            self.report
                .add(Problem::note(codes::OLDER_FORM, place, what).help(today));
        }
    }

    /// True if the project is written for `@goondan/base` 0.0.3.
    fn is_older(&self) -> bool {
        self.contract == BaseContract::V0_0_3
    }
}

/// Converts a project to the current format, and returns the contract of `@goondan/base` that it
/// requires.
pub(crate) fn modernize(
    mut trees: Trees,
    variables: &Variables<'_>,
    report: &mut ProblemReport,
) -> (Trees, BaseContract) {
    let contract = contract_of(&trees);
    let mut rewriting = CompatConversion {
        contract,
        resources: Resources::of(&trees, contract),
        report,
        mentioned: BTreeSet::new(),
        added: Vec::new(),
        patches: Vec::new(),
    };
    for (_, documents) in &mut trees {
        for document in documents {
            rewrite(document, variables, &mut rewriting);
        }
    }
    let patches = std::mem::take(&mut rewriting.patches);
    references::apply(patches, &mut trees, &mut rewriting);
    if rewriting.is_older() {
        let implied = implied::connections(&trees, variables, &mut rewriting);
        rewriting.added.extend(implied);
    }
    let added = rewriting.added;
    if let Some((_, documents)) = trees.last_mut() {
        documents.extend(added);
    }
    (trees, contract)
}

fn rewrite(document: &mut YamlNode, variables: &Variables<'_>, cx: &mut CompatConversion<'_>) {
    let (Some(kind), Some(name)) = (
        text_at(document, &["kind"]),
        text_at(document, &["metadata", "name"]),
    ) else {
        return;
    };
    let (kind, name) = (kind.to_owned(), name.to_owned());
    let Some(spec) = edit::at_mut(document, &["spec"]) else {
        return;
    };
    if entries_mut(spec).is_none() {
        return;
    }
    match kind.as_str() {
        "Package" => agents::package(spec, cx),
        "Model" => agents::model(spec, variables, cx),
        "Agent" => agents::agent(spec, &name, cx),
        "Swarm" => agents::swarm(spec, cx),
        "Tool" => agents::tool(spec, cx),
        "Connection" => connections::connection(spec, cx),
        _ => {}
    }
}

/// The contract of `@goondan/base` that the Package, the first document, requires.
pub(crate) fn contract_of(trees: &Trees) -> BaseContract {
    let first = trees.first().and_then(|(_, documents)| documents.first());
    let dependencies = first
        .filter(|document| text_at(document, &["kind"]) == Some("Package"))
        .and_then(|package| edit::at(package, &["spec", "dependencies"]));
    let older = dependencies
        .map_or(&[][..], edit::items)
        .iter()
        .any(|dependency| {
            text_at(dependency, &["name"]) == Some(BASE_PACKAGE)
                && text_at(dependency, &["version"])
                    .and_then(|range| semver::VersionReq::parse(range).ok())
                    .is_some_and(|range| asks_for_older(&range))
        });
    match older {
        true => BaseContract::V0_0_3,
        false => BaseContract::Own,
    }
}
