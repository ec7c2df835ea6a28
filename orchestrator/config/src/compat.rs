//! Projects of the bundle format 0.0.3, in today's words (`COMPAT-1`).
//!
//! What is written in the older form is rewritten before anything is read, so that one reader, one schema
//! and one list of values serve both. Each value keeps its place, and each older form is mentioned once,
//! as a note.
//!
//! * `edit`: how trees are taken apart and put together.
//! * `resources`: which resources there are, by what they are called and labelled.
//! * `references`: references with `ref`, selectors, overrides, and names of the package without it.
//! * `agents`: what Agents, Models, Tools and Packages say otherwise.
//! * `extensions`: the settings of the extensions of `@goondan/base`, with their defaults.
//! * `connections`: names of connectors, of their events, settings and secrets.
//! * `implied`: the Connections that tools of `@goondan/base` had without one being written.

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
use crate::kind::Kind;
use crate::report::{FileId, Place, Problem, Report};
use crate::tree::Node;
use edit::{entries_mut, text_at};
use resources::Resources;

/// What the resource files hold, in the order read.
pub(crate) type Trees = Vec<(FileId, Vec<Node>)>;

/// What rewriting works with.
struct Rewriting<'r> {
    contract: BaseContract,
    resources: Resources,
    report: &'r mut Report,
    /// What was mentioned already.
    mentioned: BTreeSet<String>,
    /// Documents that come of what is written, to be added to the project.
    added: Vec<Node>,
    /// Fields put over those of a document, by its kind and name.
    patches: Vec<(Kind, String, Node)>,
}

impl Rewriting<'_> {
    /// Mentions, once for each `what`, that something is of an older form.
    fn note(&mut self, place: Place, what: String, today: impl Into<String>) {
        if self.mentioned.insert(what.clone()) {
            self.report
                .add(Problem::note(codes::OLDER_FORM, place, what).help(today));
        }
    }

    /// Whether the project is written for `@goondan/base` 0.0.3.
    fn is_older(&self) -> bool {
        self.contract == BaseContract::V0_0_3
    }
}

/// Rewrites a project in today's words, and says which contract it asks of `@goondan/base`.
pub(crate) fn modernize(
    mut trees: Trees,
    variables: &Variables<'_>,
    report: &mut Report,
) -> (Trees, BaseContract) {
    let contract = contract_of(&trees);
    let mut rewriting = Rewriting {
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

fn rewrite(document: &mut Node, variables: &Variables<'_>, cx: &mut Rewriting<'_>) {
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

/// Which contract of `@goondan/base` the Package, the first document of all, asks for.
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
