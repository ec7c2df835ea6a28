//! Agents that inherit fields from other Agents, or from templates.
//!
//! Inheritance is resolved in the trees, before older forms are converted and before anything is
//! read. One reader, one schema and one list of values therefore serve Agents with and without
//! `inherit`. Every value keeps its place, so problems point to the document that sets it.

use std::collections::{BTreeMap, BTreeSet};

use crate::codes;
use crate::document::Document;
use crate::edit::{as_text, at, at_mut, entries_mut, items, take, text_at};
use crate::kind::ResourceKind;
use crate::kinds;
use crate::kinds::inheritance::{INHERIT, TEMPLATE};
use crate::limits::{MAX_ANCESTORS, MAX_INHERITED_NODES};
use crate::place::{FileId, SourceLocation};
use crate::report::{Problem, ProblemReport};
use crate::shape::{FieldConstraint, FieldType};
use crate::similar::nearest;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// Content of the resource files, in reading order.
type Trees = Vec<(FileId, Vec<YamlNode>)>;

/// Position of a document: its file, and its index there.
type Position = (usize, usize);

/// The Agents by name, templates included.
struct Agents<'t> {
    by_name: BTreeMap<&'t str, &'t YamlNode>,
}

/// The `spec` of an Agent, and those of its ancestors, the nearest first.
struct Lineage<'t> {
    names: Vec<&'t str>,
    specs: Vec<&'t YamlNode>,
}

/// Reason why an Agent's ancestors cannot be determined.
enum LineageError {
    Problem(Box<Problem>),
    /// The problem is reported for another Agent.
    Elsewhere,
}

impl From<Problem> for LineageError {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

/// Replaces the `spec` of each Agent with `inherit` by the result of its inheritance. An Agent with
/// a problem keeps its `inherit`. Returns the places of the values that are inherited.
pub(crate) fn resolve(trees: &mut Trees, report: &mut ProblemReport) -> BTreeSet<SourceLocation> {
    let mut places = BTreeSet::new();
    let mut resolved: Vec<(Position, YamlNode)> = Vec::new();
    let mut nodes = 0;
    let agents = Agents::of(trees, report);
    for (position, name, spec) in agents_in(trees) {
        let Some(inherit) = at(spec, &[INHERIT]).filter(|it| as_text(it).is_some()) else {
            continue;
        };
        let merged = agents
            .lineage(name, spec)
            .and_then(|lineage| lineage.merged(inherit.place));
        match merged {
            Ok(merged) => {
                nodes += count(&merged);
                if nodes > MAX_INHERITED_NODES {
                    report.add(too_many(inherit.place));
                    break;
                }
                add_places(&merged, &mut places);
                resolved.push((position, merged));
            }
            Err(LineageError::Problem(problem)) => report.add(*problem),
            Err(LineageError::Elsewhere) => {}
        }
    }
    let inherited = agents.inherited(trees);
    agents.warn_unused(&inherited, trees, report);
    for ((file, index), merged) in resolved {
        let documents = trees.get_mut(file).map(|(_, documents)| documents);
        let document = documents.and_then(|documents| documents.get_mut(index));
        if let Some(spec) = document.and_then(|document| at_mut(document, &["spec"])) {
            *spec = merged;
        }
    }
    for document in trees.iter_mut().flat_map(|(_, documents)| documents) {
        if Document::claims(document, ResourceKind::AGENT)
            && let Some(spec) = at_mut(document, &["spec"])
            && at(spec, &[TEMPLATE]).is_some_and(|it| matches!(it.value, YamlValue::Bool(false)))
        {
            take(spec, TEMPLATE);
        }
    }
    places
}

/// Adds the places of all values and names of fields.
fn add_places(node: &YamlNode, places: &mut BTreeSet<SourceLocation>) {
    places.insert(node.place);
    match &node.value {
        YamlValue::List(items) => items.iter().for_each(|item| add_places(item, places)),
        YamlValue::Mapping(entries) => {
            for entry in entries {
                places.insert(entry.key_place);
                add_places(&entry.node, places);
            }
        }
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => {}
    }
}

/// Removes and returns the templates, which never run.
pub(crate) fn take_templates(trees: &mut Trees) -> Vec<YamlNode> {
    let mut templates = Vec::new();
    for (_, documents) in trees {
        let taken = documents.extract_if(.., |document| {
            Document::claims(document, ResourceKind::AGENT)
                && at(document, &["spec"]).is_some_and(is_template)
        });
        templates.extend(taken);
    }
    templates
}

/// True for the `spec` of a template.
pub(crate) fn is_template(spec: &YamlNode) -> bool {
    at(spec, &[TEMPLATE]).is_some_and(|it| matches!(it.value, YamlValue::Bool(true)))
}

/// The Agents with a name and a mapping as their `spec`.
fn agents_in(trees: &Trees) -> impl Iterator<Item = (Position, &str, &YamlNode)> {
    let files = trees.iter().enumerate();
    let documents = files.flat_map(|(file, (_, documents))| {
        let documents = documents.iter().enumerate();
        documents.map(move |(index, document)| ((file, index), document))
    });
    documents.filter_map(|(position, document)| {
        let is_agent = Document::claims(document, ResourceKind::AGENT);
        let name = text_at(document, &["metadata", "name"]).filter(|_| is_agent)?;
        let spec = at(document, &["spec"])?;
        let is_mapping = matches!(spec.value, YamlValue::Mapping(_));
        is_mapping.then_some((position, name, spec))
    })
}

/// The Agent that a `spec` inherits from: `NAME` or `Agent/NAME`.
fn parent_of(spec: &YamlNode) -> Option<(&str, SourceLocation)> {
    let written = at(spec, &[INHERIT])?;
    let name = as_text(written)?;
    let name = match name.split_once('/') {
        Some((kind, name)) if kind == ResourceKind::AGENT.name() => name,
        Some(_) | None => name,
    };
    Some((name, written.place))
}

impl<'t> Agents<'t> {
    /// The first Agent of each name. Reports templates with the name of another Agent; two Agents
    /// with one name are reported when they are read.
    fn of(trees: &'t Trees, report: &mut ProblemReport) -> Self {
        let mut by_name: BTreeMap<&str, &YamlNode> = BTreeMap::new();
        for (_, name, spec) in agents_in(trees) {
            let Some(first) = by_name.get(name) else {
                by_name.insert(name, spec);
                continue;
            };
            if is_template(first) || is_template(spec) {
                let first = report.locate(first.place);
                let message = format!("Agent `{name}` exists twice; first at {first}");
                let problem = Problem::new(codes::DUPLICATE_RESOURCE, spec.place, message);
                report.add(problem.help("rename the Agent or the template"));
            }
        }
        Self { by_name }
    }

    fn lineage(&self, name: &'t str, spec: &'t YamlNode) -> Result<Lineage<'t>, LineageError> {
        let mut lineage = Lineage {
            names: vec![name],
            specs: vec![spec],
        };
        let mut last = spec;
        while let Some((parent, place)) = parent_of(last) {
            let is_own = lineage.names.len() == 1;
            if let Some(start) = lineage.names.iter().position(|name| *name == parent) {
                return Err(circle(&lineage.names, start, name, spec));
            }
            if lineage.names.len() > MAX_ANCESTORS {
                return Err(LineageError::from(too_deep(name, spec)));
            }
            let Some((&parent, &spec)) = self.by_name.get_key_value(parent) else {
                return Err(match is_own {
                    true => LineageError::from(self.unknown(parent, name, place)),
                    false => LineageError::Elsewhere,
                });
            };
            lineage.names.push(parent);
            lineage.specs.push(spec);
            last = spec;
        }
        Ok(lineage)
    }

    fn unknown(&self, parent: &str, of: &str, place: SourceLocation) -> Problem {
        let message = format!("Agent `{of}` inherits from `{parent}`, which does not exist");
        let others = self.by_name.keys().copied().filter(|name| *name != of);
        let problem = Problem::new(codes::UNKNOWN_REFERENCE, place, message);
        problem
            .help("write the name of an Agent, or add one with `template: true`")
            .did_you_mean(nearest(parent, others))
    }

    /// Names that Agents inherit from.
    fn inherited(&self, trees: &Trees) -> BTreeSet<String> {
        let parents = agents_in(trees).filter_map(|(_, _, spec)| parent_of(spec));
        let parents = parents.filter(|(name, _)| self.by_name.contains_key(*name));
        parents.map(|(name, _)| name.to_owned()).collect()
    }

    fn warn_unused(&self, inherited: &BTreeSet<String>, trees: &Trees, report: &mut ProblemReport) {
        for (_, name, spec) in agents_in(trees) {
            if is_template(spec) && !inherited.contains(name) {
                let message = format!("no Agent inherits from the template `{name}`");
                let problem = Problem::warning(codes::UNUSED_RESOURCE, spec.place, message);
                report.add(problem.help("remove it, or set `inherit` in an Agent"));
            }
        }
    }
}

impl Lineage<'_> {
    /// The `spec` with everything that it inherits; `place` is that of its `inherit`.
    fn merged(&self, place: SourceLocation) -> Result<YamlNode, LineageError> {
        let mut specs = self.specs.iter().rev();
        let Some(first) = specs.next() else {
            return Err(LineageError::Elsewhere);
        };
        let content = kinds::spec_of(ResourceKind::AGENT);
        let mut merged = (*first).clone();
        for (index, spec) in specs.enumerate() {
            take(&mut merged, TEMPLATE);
            if let (Some(kind), Some(own)) = (runtime_of(&merged), runtime_of(spec))
                && kind != own
            {
                // An ancestor's problem is reported for the ancestor.
                let is_own = index + 2 == self.specs.len();
                return Err(match is_own {
                    true => LineageError::from(self.other_runtime(own, kind, place)),
                    false => LineageError::Elsewhere,
                });
            }
            merge(&mut merged, spec, content);
            merged.place = spec.place;
        }
        take(&mut merged, INHERIT);
        Ok(merged)
    }

    fn other_runtime(&self, own: &str, inherited: &str, place: SourceLocation) -> Problem {
        let name = |index: usize| self.names.get(index).copied().unwrap_or_default();
        let message = format!(
            "Agent `{}` has the runtime `{own}`, but inherits from Agent `{}` with the runtime `{inherited}`",
            name(0),
            name(1)
        );
        Problem::new(codes::INVALID_VALUE, place, message)
            .help("inherit from an Agent with the same `runtime.kind`")
    }
}

/// Runtime that an Agent sets.
fn runtime_of(spec: &YamlNode) -> Option<&str> {
    text_at(spec, &["runtime", "kind"])
}

/// Place of an Agent's own `inherit`.
fn inherit_place(spec: &YamlNode) -> SourceLocation {
    at(spec, &[INHERIT]).map_or(spec.place, |it| it.place)
}

/// Problem of Agents that inherit from each other; reported once, for the first by name.
fn circle(names: &[&str], start: usize, name: &str, spec: &YamlNode) -> LineageError {
    let circle = names.get(start..).unwrap_or_default();
    if circle.iter().min() != Some(&name) {
        return LineageError::Elsewhere;
    }
    let path: Vec<String> = circle
        .iter()
        .chain([&name])
        .map(|name| format!("`{name}`"))
        .collect();
    let message = format!(
        "Agent `{name}` inherits from itself: {}",
        path.join(" from ")
    );
    let problem = Problem::new(codes::INVALID_VALUE, inherit_place(spec), message);
    LineageError::from(problem.help("remove one `inherit` of the circle"))
}

fn too_deep(name: &str, spec: &YamlNode) -> Problem {
    let message = format!("Agent `{name}` inherits over more than {MAX_ANCESTORS} levels");
    Problem::new(codes::INVALID_VALUE, inherit_place(spec), message)
        .help("inherit from an Agent with fewer ancestors")
}

fn too_many(place: SourceLocation) -> Problem {
    let message = format!(
        "the Agents that inherit have more than {MAX_INHERITED_NODES} values with what they inherit"
    );
    Problem::new(codes::TOO_LARGE, place, message).help("shorten what they inherit")
}

/// Number of lists, mappings and scalars.
fn count(node: &YamlNode) -> usize {
    match &node.value {
        YamlValue::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        YamlValue::Mapping(entries) => {
            let entries = entries.iter().map(|entry| count(&entry.node));
            1 + entries.sum::<usize>()
        }
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => 1,
    }
}

/// Merges `over` into `under`: mappings with named fields or entries are merged by name, lists of
/// tools and extensions by their reference, and everything else is replaced.
fn merge(under: &mut YamlNode, over: &YamlNode, content: FieldType) {
    if let FieldType::List(FieldType::Listed(_)) = content {
        return merge_listed(under, over);
    }
    let YamlValue::Mapping(more) = &over.value else {
        *under = over.clone();
        return;
    };
    if !is_merged(content) {
        *under = over.clone();
        return;
    }
    let shape = content.shape(under.entries());
    let Some(entries) = entries_mut(under) else {
        *under = over.clone();
        return;
    };
    // A field replaces the fields that exclude it.
    for rule in shape.map_or(&[][..], |shape| shape.rules) {
        if let FieldConstraint::NotBoth(first, second) = rule {
            let sets = |name: &str| more.iter().any(|entry| entry.key == name);
            match (sets(first), sets(second)) {
                (true, false) => entries.retain(|entry| entry.key != *second),
                (false, true) => entries.retain(|entry| entry.key != *first),
                (true, true) | (false, false) => {}
            }
        }
    }
    for new in more {
        let of_field = match (content, shape) {
            (FieldType::Entries(content), _) => *content,
            (_, Some(shape)) => shape
                .field(&new.key)
                .map_or(FieldType::Anything, |field| field.content),
            (_, None) => FieldType::Anything,
        };
        merge_entry(entries, new, of_field);
    }
}

fn merge_entry(entries: &mut Vec<MappingEntry>, new: &MappingEntry, content: FieldType) {
    match entries.iter_mut().find(|entry| entry.key == new.key) {
        Some(old) => {
            old.key_place = new.key_place;
            merge(&mut old.node, &new.node, content);
        }
        None => entries.push(new.clone()),
    }
}

/// True for mappings that are merged. Others, such as the source of a secret, are one value.
fn is_merged(content: FieldType) -> bool {
    matches!(
        content,
        FieldType::Mapping(_)
            | FieldType::Choice(_)
            | FieldType::Entries(_)
            | FieldType::Settings
            | FieldType::Variables
    )
}

/// Adds the items of `over`. An item replaces the one with the same reference, and an empty list
/// replaces all.
fn merge_listed(under: &mut YamlNode, over: &YamlNode) {
    let YamlValue::List(inherited) = &mut under.value else {
        *under = over.clone();
        return;
    };
    let more = items(over);
    if more.is_empty() {
        *under = over.clone();
        return;
    }
    let mut known: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
    for (index, item) in inherited.iter().enumerate() {
        known.extend(identity(item).map(|identity| (identity, index)));
    }
    for item in more {
        let found = identity(item).and_then(|identity| known.get(&identity).copied());
        match found.and_then(|index| inherited.get_mut(index)) {
            Some(old) => *old = item.clone(),
            None => inherited.push(item.clone()),
        }
    }
    under.place = over.place;
}

/// Name and package in the reference of an item of a list.
fn identity(item: &YamlNode) -> Option<(String, Option<String>)> {
    let reference = at(item, &["ref"]).unwrap_or(item);
    match as_text(reference) {
        Some(text) => {
            let name = text.split_once('/').map_or(text, |(_, name)| name);
            Some((name.to_owned(), None))
        }
        None => {
            let package = text_at(reference, &["package"]).map(str::to_owned);
            Some((text_at(reference, &["name"])?.to_owned(), package))
        }
    }
}
