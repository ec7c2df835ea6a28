//! Finds the format of a project (`COMPAT-1`).
//!
//! The version of `@goondan/base` that the Package requires decides. If it requires none, or a range
//! that includes both contracts, a form decides that only 0.0.3 had. Each of these forms is an error
//! in the current format, or is reported as an older form. Therefore a valid project of the current
//! format is never taken for an older one without a note.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::base_package::{BASE_PACKAGE, BaseContract, EXTENSIONS};

use super::connections::{is_older_event, is_older_setting};
use super::references::has_unknown_field;
use super::resources::{OLDER_CONNECTORS, OLDER_TOOLS};
use crate::contract::BaseRange;
use crate::edit::{as_text, at, items, text_at};
use crate::place::SourceLocation;
use crate::report::FileId;
use crate::tree::{MappingEntry, YamlNode};

/// Settings that only the older extensions have.
const OLDER_SETTINGS: [(&str, &[&str]); 4] = [
    (
        "context-message",
        &[
            "includeAgentPrompt",
            "includeCallContext",
            "includeInboundContext",
            "includeRouteSummary",
            "includeSwarmCatalog",
            "swarmCatalogInstruction",
        ],
    ),
    ("logging", &["includeToolArgs", "level"]),
    (
        "message-compaction",
        &["appendSummary", "mode", "retainLastMessages"],
    ),
    ("required-tools-guard", &["errorMessage", "requiredTools"]),
];

/// The format of a project, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProjectFormat {
    /// The Package requires versions of `@goondan/base` with this contract only.
    Required(BaseContract),
    /// A form that only 0.0.3 had.
    Form(OlderForm),
    /// Neither.
    Current,
}

/// A form that only 0.0.3 had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OlderForm {
    pub(crate) place: SourceLocation,
    /// The form, for messages.
    pub(crate) what: String,
}

impl ProjectFormat {
    pub(crate) fn of(trees: &[(FileId, Vec<YamlNode>)]) -> Self {
        match required(trees) {
            Some(contract) => Self::Required(contract),
            None => find_form(trees).map_or(Self::Current, Self::Form),
        }
    }

    pub(crate) fn contract(&self) -> BaseContract {
        match self {
            Self::Required(contract) => *contract,
            Self::Form(_) => BaseContract::V0_0_3,
            Self::Current => BaseContract::Own,
        }
    }
}

/// The contract that the Package, the first document, requires.
fn required(trees: &[(FileId, Vec<YamlNode>)]) -> Option<BaseContract> {
    let first = trees.first().and_then(|(_, documents)| documents.first());
    let package = first.filter(|document| text_at(document, &["kind"]) == Some("Package"))?;
    let dependencies = at(package, &["spec", "dependencies"]).map_or(&[][..], items);
    let base = dependencies
        .iter()
        .find(|dependency| text_at(dependency, &["name"]) == Some(BASE_PACKAGE))?;
    match BaseRange::of(text_at(base, &["version"])?) {
        BaseRange::Older => Some(BaseContract::V0_0_3),
        BaseRange::Current | BaseRange::Neither | BaseRange::Invalid => Some(BaseContract::Own),
        BaseRange::Both | BaseRange::Elsewhere => None,
    }
}

/// A sign of 0.0.3 that two different kinds of must agree on, because a typo can look like one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hint {
    /// A resource of `@goondan/base` without the package's name.
    Unpackaged,
    /// An export of a module without description or parameters.
    ShortExport,
    SecondSwarm,
}

struct FormSearch<'t> {
    /// Kinds and names of the project's documents.
    defined: BTreeSet<(&'t str, &'t str)>,
    hints: BTreeMap<Hint, OlderForm>,
    /// The first `{ref: …}` in `agents` of a Swarm.
    wrapped_member: Option<SourceLocation>,
    /// True if a list of an Agent has a `{ref: …}`.
    has_wrapped_use: bool,
    /// True if a list of references has an item in another form than those of 0.0.3.
    has_other_item: bool,
}

/// A form that only 0.0.3 had: the first decisive one, the first of two different hints, or
/// `{ref: …}` throughout.
fn find_form(trees: &[(FileId, Vec<YamlNode>)]) -> Option<OlderForm> {
    let documents = || trees.iter().flat_map(|(_, documents)| documents);
    let named = documents().filter_map(|document| {
        let kind = text_at(document, &["kind"])?;
        Some((kind, text_at(document, &["metadata", "name"])?))
    });
    let mut search = FormSearch {
        defined: named.collect(),
        hints: BTreeMap::new(),
        wrapped_member: None,
        has_wrapped_use: false,
        has_other_item: false,
    };
    let mut has_swarm = false;
    for document in documents() {
        let (Some(kind), Some(spec)) = (text_at(document, &["kind"]), at(document, &["spec"]))
        else {
            continue;
        };
        let found = match kind {
            "Agent" => search.agent(spec),
            "Swarm" => {
                if std::mem::replace(&mut has_swarm, true) {
                    search.hint(Hint::SecondSwarm, document.place, "a second Swarm");
                }
                search.swarm(spec)
            }
            "Connection" => search.connection(spec),
            "Tool" => {
                search.tool(spec);
                None
            }
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    let throughout = search.wrapped_throughout();
    let mut hints = search.hints.into_values();
    match (hints.next(), hints.next()) {
        (Some(first), Some(second)) => Some(OlderForm {
            what: format!("{} and {}", first.what, second.what),
            ..first
        }),
        _ => throughout,
    }
}

impl FormSearch<'_> {
    fn hint(&mut self, hint: Hint, place: SourceLocation, what: impl Into<String>) {
        let what = what.into();
        self.hints.entry(hint).or_insert(OlderForm { place, what });
    }

    fn agent(&mut self, spec: &YamlNode) -> Option<OlderForm> {
        if let Some(prompts) = entry_at(spec, "prompts") {
            return Some(decisive(prompts.key_place, "`prompts` of an Agent"));
        }
        let model = at(spec, &["modelConfig", "modelRef"]);
        if let Some(found) = model.and_then(|model| self.single("modelRef", model)) {
            return Some(found);
        }
        for list in ["tools", "extensions"] {
            for item in at(spec, &[list]).map_or(&[][..], items) {
                match is_wrapped(item, &["config"]) {
                    true => self.has_wrapped_use = true,
                    false => self.has_other_item = true,
                }
                let found = self.listed(item).or_else(|| self.extension_setting(item));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    fn swarm(&mut self, spec: &YamlNode) -> Option<OlderForm> {
        let entry = at(spec, &["entryAgent"]);
        if let Some(found) = entry.and_then(|entry| self.single("entryAgent", entry)) {
            return Some(found);
        }
        let agents = at(spec, &["agents"]).map_or(&[][..], items);
        for item in agents {
            match is_wrapped(item, &[]) {
                true => self.wrapped_member = self.wrapped_member.or(Some(item.place)),
                false => self.has_other_item = true,
            }
        }
        agents.iter().find_map(|item| self.listed(item))
    }

    /// The form of a project whose lists of references all use `{ref: …}`, for the Agents of a Swarm
    /// and for tools and extensions. The current format allows this, but its documentation does not
    /// show it.
    fn wrapped_throughout(&self) -> Option<OlderForm> {
        let place = self.wrapped_member?;
        let is_throughout = self.has_wrapped_use && !self.has_other_item;
        is_throughout.then(|| decisive(place, "`{ref: …}` in all lists of references"))
    }

    /// Notes exports of a module without fields that are required now.
    fn tool(&mut self, spec: &YamlNode) {
        if at(spec, &["entry"]).is_none() {
            return;
        }
        for export in at(spec, &["exports"]).map_or(&[][..], items) {
            let missing = ["description", "parameters"]
                .into_iter()
                .find(|name| at(export, &[*name]).is_none());
            if let Some(missing) = missing.filter(|_| text_at(export, &["name"]).is_some()) {
                let what = format!("an export without `{missing}`");
                self.hint(Hint::ShortExport, export.place, what);
            }
        }
    }

    fn connection(&mut self, spec: &YamlNode) -> Option<OlderForm> {
        if let Some(verify) = entry_at(spec, "verify") {
            return Some(decisive(verify.key_place, "`verify` of a Connection"));
        }
        for name in ["connectorRef", "swarmRef"] {
            let node = at(spec, &[name]);
            if let Some(found) = node.and_then(|node| self.single(name, node)) {
                return Some(found);
            }
        }
        let rules = at(spec, &["ingress", "rules"]).map_or(&[][..], items);
        for rule in rules {
            let agent = at(rule, &["route", "agentRef"]);
            if let Some(found) = agent.and_then(|agent| self.single("agentRef", agent)) {
                return Some(found);
            }
        }
        let reference = at(spec, &["connectorRef"])?;
        let (name, today) = self.builtin_connector(reference)?;
        if name != today {
            let what = format!("the connector `{name}`");
            return Some(decisive(reference.place, &what));
        }
        for rule in rules {
            let event = at(rule, &["match", "event"]);
            if let Some((node, event)) = event.and_then(|node| Some((node, as_text(node)?)))
                && is_older_event(today, event)
            {
                return Some(decisive(node.place, &format!("the event `{event}`")));
            }
        }
        let written = ["config", "secrets"].map(|name| at(spec, &[name]));
        let mut entries = written.into_iter().flatten().flat_map(YamlNode::entries);
        let older = entries.find(|entry| is_older_setting(today, &entry.key))?;
        let what = format!("`{}` of a Connection", older.key);
        Some(decisive(older.key_place, &what))
    }

    /// The built-in connector that a Connection refers to, by its written and its current name.
    fn builtin_connector<'n>(&self, reference: &'n YamlNode) -> Option<(&'n str, &'static str)> {
        let name = self.builtin("Connector", reference)?;
        let mut known = OLDER_CONNECTORS.into_iter();
        let (_, today) = known.find(|(older, _)| *older == name)?;
        Some((name, today))
    }

    /// The name in a reference of this kind, if it refers to `@goondan/base`.
    fn builtin<'n>(&self, kind: &str, reference: &'n YamlNode) -> Option<&'n str> {
        let (written, name, package) = parts(reference)?;
        if written != kind {
            return None;
        }
        let is_builtin = match package {
            Some(package) => package == BASE_PACKAGE,
            None => !self.defined.contains(&(kind, name)),
        };
        is_builtin.then_some(name)
    }

    /// A decisive form of a field with a single reference.
    fn single(&mut self, field: &str, node: &YamlNode) -> Option<OlderForm> {
        for name in ["selector", "ref"] {
            if let Some(entry) = entry_at(node, name) {
                let what = format!("`{name}` in `{field}`");
                return Some(decisive(entry.key_place, &what));
            }
        }
        self.note_unpackaged(node);
        None
    }

    /// A decisive form of an item in a list of references.
    fn listed(&mut self, item: &YamlNode) -> Option<OlderForm> {
        for name in ["selector", "overrides"] {
            if let Some(entry) = entry_at(item, name) {
                let what = format!("`{name}` in a reference");
                return Some(decisive(entry.key_place, &what));
            }
        }
        let Some(wrapped) = entry_at(item, "ref") else {
            self.note_unpackaged(item);
            return None;
        };
        if let Some(package) = entry_at(item, "package") {
            return Some(decisive(package.key_place, "`package` beside `ref`"));
        }
        let (kind, name) = self.unpackaged(&wrapped.node)?;
        let what = format!("`{{ref: {kind}/{name}}}` of `{BASE_PACKAGE}` without `package`");
        Some(decisive(wrapped.node.place, &what))
    }

    fn note_unpackaged(&mut self, reference: &YamlNode) {
        if let Some((kind, name)) = self.unpackaged(reference) {
            let what = format!("`{kind}/{name}` of `{BASE_PACKAGE}` without `package`");
            self.hint(Hint::Unpackaged, reference.place, what);
        }
    }

    /// Kind and name of a resource that only `@goondan/base` has, in a reference without package.
    fn unpackaged<'n>(&self, reference: &'n YamlNode) -> Option<(&'n str, &'n str)> {
        let (kind, name, package) = parts(reference)?;
        let is_of_package = match kind {
            "Tool" => OLDER_TOOLS.contains(&name),
            "Extension" => EXTENSIONS.contains(&name),
            "Connector" => OLDER_CONNECTORS.iter().any(|(older, _)| *older == name),
            _ => false,
        };
        let is_it = package.is_none() && is_of_package && !self.defined.contains(&(kind, name));
        is_it.then_some((kind, name))
    }

    /// A setting of an extension of the package that only 0.0.3 had.
    fn extension_setting(&self, item: &YamlNode) -> Option<OlderForm> {
        let name = self.builtin("Extension", at(item, &["ref"])?)?;
        let mut known = OLDER_SETTINGS.iter();
        let (_, settings) = known.find(|(extension, _)| *extension == name)?;
        let mut written = at(item, &["config"])?.entries().iter();
        let older = written.find(|entry| settings.contains(&entry.key.as_str()))?;
        let what = format!("`{}` of the extension `{name}`", older.key);
        Some(decisive(older.key_place, &what))
    }
}

/// True for `{ref: …}` with no other fields than these.
fn is_wrapped(item: &YamlNode, others: &[&str]) -> bool {
    let entries = item.entries();
    let is_known = |name: &str| name == "ref" || others.contains(&name);
    entry_at(item, "ref").is_some() && entries.iter().all(|entry| is_known(&entry.key))
}

fn decisive(place: SourceLocation, what: &str) -> OlderForm {
    OlderForm {
        place,
        what: what.to_owned(),
    }
}

fn entry_at<'n>(node: &'n YamlNode, name: &str) -> Option<&'n MappingEntry> {
    node.entries().iter().find(|entry| entry.key == name)
}

/// Kind, name and package of a reference.
fn parts(node: &YamlNode) -> Option<(&str, &str, Option<&str>)> {
    if let Some(written) = as_text(node) {
        let (kind, name) = written.split_once('/')?;
        return Some((kind, name, None));
    }
    if has_unknown_field(node) {
        return None;
    }
    let kind = text_at(node, &["kind"])?;
    let name = text_at(node, &["name"])?;
    let package = at(node, &["package"]);
    Some((
        kind,
        name,
        package.map(|package| as_text(package).unwrap_or_default()),
    ))
}
