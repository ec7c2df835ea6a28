//! Converts projects of the bundle format 0.0.3 to the current format (`COMPAT-1`).
//!
//! Older forms are rewritten before anything is read, so that one reader, one schema and one list
//! of values serve both formats. Each value keeps its place, and each older form is reported once,
//! as a note.
//!
//! * `format`: the format of a project, by its requirements and forms.
//! * `resources`: resources by name and label.
//! * `references`: references with `ref`, selectors, overrides, and names of the package without
//!   it.
//! * `agents`: older forms of Agents, Models, Tools and Packages.
//! * `extensions`: settings of the extensions of `@goondan/base`, with their defaults.
//! * `connections`: names of connectors, of their events, settings and secrets.
//! * `implied_connections`: Connections that tools of `@goondan/base` had implicitly.
//! * `text`: text of resource files, whose older parser accepted some texts without quotes.

mod agents;
mod connections;
mod extensions;
mod format;
mod implied_connections;
mod references;
mod resources;
mod text;

use std::collections::BTreeSet;

use goondan_protocol::base_package::{BASE_PACKAGE, BaseContract};
use goondan_protocol::ids::ResourceName;

use crate::codes;
use crate::contract::OLDER_RANGE;
use crate::edit::{self, entries_mut, text_at};
use crate::environment::Variables;
use crate::kind::ResourceKind;
use crate::report::{FileId, Problem, ProblemReport, SourceLocation};
use crate::tree::YamlNode;
pub(crate) use connections::older_events;
use format::OlderForm;
pub(crate) use format::ProjectFormat;
use resources::Resources;
pub(crate) use text::parse;

/// Content of the resource files, in reading order.
pub(crate) type Trees = Vec<(FileId, Vec<YamlNode>)>;

struct CompatConversion<'r> {
    contract: BaseContract,
    resources: Resources,
    /// The document of the Swarm that runs, before its conversion.
    swarm: Option<YamlNode>,
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
/// requires. The Swarm `swarm` runs, or the first one.
pub(crate) fn modernize(
    mut trees: Trees,
    swarm: Option<&ResourceName>,
    variables: &Variables<'_>,
    report: &mut ProblemReport,
) -> (Trees, BaseContract) {
    let format = ProjectFormat::of(&trees);
    let contract = format.contract();
    if let ProjectFormat::Form(form) = &format {
        report.add(note_of_form(form));
    }
    let mut rewriting = CompatConversion {
        contract,
        resources: Resources::of(&trees, contract),
        swarm: find_swarm(&trees, swarm).cloned(),
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
        let mut implied = implied_connections::connections(&trees, variables, &mut rewriting);
        for document in &mut implied {
            // The same as if the project had them.
            rewrite(document, variables, &mut rewriting);
        }
        rewriting.added.extend(implied);
    }
    let added = rewriting.added;
    if let Some((_, documents)) = trees.last_mut() {
        documents.extend(added);
    }
    (trees, contract)
}

/// The document of the named Swarm, or of the first one.
fn find_swarm<'t>(trees: &'t Trees, named: Option<&ResourceName>) -> Option<&'t YamlNode> {
    let documents = trees.iter().flat_map(|(_, documents)| documents);
    let mut swarms = documents.filter(|document| text_at(document, &["kind"]) == Some("Swarm"));
    match named {
        None => swarms.next(),
        Some(named) => {
            swarms.find(|document| text_at(document, &["metadata", "name"]) == Some(named.as_str()))
        }
    }
}

/// Note of the form that decided for the older contract.
fn note_of_form(form: &OlderForm) -> Problem {
    let own = env!("CARGO_PKG_VERSION");
    let message = format!(
        "{} makes this a project of goondan 0.0.3: its modules and tools get the older contract",
        form.what
    );
    Problem::note(codes::OLDER_FORM, form.place, message).help(format!(
        "to select a contract yourself, require `{BASE_PACKAGE}` in `dependencies` of the Package: `{OLDER_RANGE}` for \
         the older one, `^{own}` for the current one"
    ))
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
        "Connection" => connections::connection(spec, variables, cx),
        _ => {}
    }
}
