//! The short form of a project: one document that lists its resources by kind and name.
//!
//! A document with `apiVersion` and without `kind`, `metadata` and `spec` is expanded to the
//! resources that it lists, before anything else is read. One reader, one schema and one list of
//! values therefore serve both forms. Every value keeps its place, so problems point to the text of
//! the user.

use std::collections::BTreeSet;

use goondan_protocol::base_package::BASE_PACKAGE;

use crate::document::check_api_version;
use crate::edit::{
    as_text, document, entries_mut, entry, from_environment, mapping, put, take, text,
};
use crate::fields::{Fields, Label};
use crate::frame::API_VERSION;
use crate::inherit::is_template;
use crate::kind::{LISTS, ResourceKind};
use crate::node::REFERENCE;
use crate::place::SourceLocation;
use crate::report::ProblemReport;
use crate::shape::{Field, FieldType, Shape};
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// Field with the version of the format.
const API_VERSION_FIELD: &str = "apiVersion";

/// Name of the Swarm that a short document describes.
const SWARM: &str = "default";

/// Resources by name. Their fields are checked once they are expanded.
const LISTED: FieldType = FieldType::Entries(&FieldType::Anything);

/// Fields of a short document.
pub(crate) static SHORT_FORM: Shape = Shape::of(
    "ShortForm",
    "Several resources of a project, listed by kind and name.",
    &[
        Field::required(
            API_VERSION_FIELD,
            FieldType::Text,
            "The version of this format.",
        ),
        Field::optional(
            "package",
            FieldType::Anything,
            "Name of the Package, or a mapping of `name` and fields of its `spec`.",
        ),
        Field::optional("models", LISTED, "Models, by name."),
        Field::optional("tools", LISTED, "Tools, by name."),
        Field::optional("extensions", LISTED, "Extensions, by name."),
        Field::optional("connectors", LISTED, "Connectors, by name."),
        Field::optional("agents", LISTED, "Agents, by name."),
        Field::optional("connections", LISTED, "Connections, by name."),
        Field::optional("oauthApps", LISTED, "OAuthApps, by name."),
        Field::optional(
            "entryAgent",
            FieldType::Anything,
            "Agent that receives events without another target. Default: the only one.",
        ),
        Field::optional(
            "instanceKey",
            FieldType::Anything,
            "Default conversation of commands such as `gdn send`.",
        ),
        Field::optional("policy", FieldType::Anything, "Policy of the Swarm."),
    ],
);

/// Fields of a reference in a list, and fields beside such a reference.
const REFERENCE_FIELDS: [&str; 8] = [
    "ref",
    "kind",
    "name",
    "package",
    "selector",
    "overrides",
    "approve",
    "config",
];

/// Expands the short documents of a file; other documents are unchanged.
pub(crate) fn expand(documents: Vec<YamlNode>, report: &mut ProblemReport) -> Vec<YamlNode> {
    let mut expanded = Vec::with_capacity(documents.len());
    for written in documents {
        if is_short(&written) {
            match ShortForm::read(&written, report) {
                Some(short) => expanded.extend(short.resources()),
                None => report.set_partial(),
            }
        } else {
            expanded.push(written);
        }
    }
    expanded
}

/// True for a document with a version of the format and a field of the short form, and without the
/// other fields of a resource.
fn is_short(node: &YamlNode) -> bool {
    let lists = |entry: &MappingEntry| {
        entry.key != API_VERSION_FIELD && SHORT_FORM.field(&entry.key).is_some()
    };
    has(node, API_VERSION_FIELD)
        && !["kind", "metadata", "spec"]
            .iter()
            .any(|name| has(node, name))
        && node.entries().iter().any(lists)
}

/// A short document whose top level is valid.
struct ShortForm<'n> {
    package: Option<&'n MappingEntry>,
    listed: Vec<(ResourceKind, &'n MappingEntry)>,
    /// Fields of the Swarm's `spec`.
    swarm: Vec<&'n MappingEntry>,
    names: DeclaredNames<'n>,
}

/// Names of the resources that the document lists.
struct DeclaredNames<'n>(BTreeSet<(ResourceKind, &'n str)>);

impl<'n> ShortForm<'n> {
    fn read(node: &'n YamlNode, report: &mut ProblemReport) -> Option<Self> {
        let label = Label::of("this document");
        let mut fields = Fields::open(
            node,
            node.place,
            label,
            FieldType::Mapping(&SHORT_FORM),
            report,
        )?;
        check_api_version(&mut fields, report);
        // An unknown field may hold what others refer to.
        if node
            .entries()
            .iter()
            .any(|entry| SHORT_FORM.field(&entry.key).is_none())
        {
            report.set_partial();
        }
        let package = fields.get("package");
        let mut listed = Vec::new();
        for (name, kind) in LISTS {
            let resources = fields.entries(name, report).iter();
            listed.extend(resources.map(|resource| (kind, resource)));
        }
        let swarm = ["entryAgent", "instanceKey", "policy"];
        let swarm = swarm
            .into_iter()
            .filter_map(|name| fields.get(name))
            .collect();
        fields.close();
        let names = listed
            .iter()
            .map(|(kind, resource)| (*kind, resource.key.as_str()));
        let names = DeclaredNames(names.collect());
        Some(Self {
            package,
            listed,
            swarm,
            names,
        })
    }

    fn resources(&self) -> Vec<YamlNode> {
        let mut resources: Vec<YamlNode> = self.package.map(package).into_iter().collect();
        for (kind, listed) in &self.listed {
            let place = listed.key_place;
            let mut spec = listed.node.clone();
            if matches!(spec.value, YamlValue::Null) {
                spec = mapping(place, Vec::new());
            }
            match *kind {
                ResourceKind::MODEL => self.names.model(&mut spec),
                ResourceKind::AGENT => self.names.agent(&mut spec),
                ResourceKind::CONNECTION => self.names.connection(&mut spec),
                _ => {}
            }
            resources.push(document(place, kind.name(), &listed.key, spec));
        }
        resources.extend(self.swarm());
        resources
    }

    /// The Swarm, if the document has a field of it.
    fn swarm(&self) -> Option<YamlNode> {
        let place = self.swarm.first()?.key_place;
        let mut spec = mapping(place, self.swarm.iter().copied().cloned().collect());
        if let Some(mut entry) = take(&mut spec, "entryAgent") {
            entry.node = named(&entry.node, ResourceKind::AGENT);
            put(&mut spec, entry);
        } else {
            let is_agent = |(kind, listed): &&(ResourceKind, &MappingEntry)| {
                *kind == ResourceKind::AGENT && !is_template(&listed.node)
            };
            let mut agents = self.listed.iter().filter(is_agent);
            if let (Some((_, only)), None) = (agents.next(), agents.next()) {
                let agent = text(only.key_place, format!("Agent/{}", only.key));
                put(&mut spec, entry("entryAgent", agent));
            }
        }
        Some(document(place, ResourceKind::SWARM.name(), SWARM, spec))
    }
}

/// The Package of `package: NAME` or `package: {name: NAME, …}`.
fn package(written: &MappingEntry) -> YamlNode {
    let place = written.node.place;
    let mut spec = written.node.clone();
    let name = match &spec.value {
        YamlValue::Mapping(_) => take(&mut spec, "name").map(|entry| entry.node),
        _ => Some(std::mem::replace(&mut spec, mapping(place, Vec::new()))),
    };
    let metadata = mapping(
        place,
        name.map(|name| entry("name", name)).into_iter().collect(),
    );
    mapping(
        place,
        vec![
            entry("apiVersion", text(place, API_VERSION)),
            entry("kind", text(place, ResourceKind::PACKAGE.name())),
            entry("metadata", metadata),
            entry("spec", spec),
        ],
    )
}

/// `Kind/name` for a plain name; everything else is a reference already.
fn named(node: &YamlNode, kind: ResourceKind) -> YamlNode {
    match as_text(node) {
        Some(name) if !name.contains('/') => text(node.place, format!("{kind}/{name}")),
        _ => node.clone(),
    }
}

impl DeclaredNames<'_> {
    /// As [`named`]; a name that the document does not list is one of `@goondan/base`.
    fn named(&self, node: &YamlNode, kind: ResourceKind) -> YamlNode {
        match as_text(node) {
            Some(name) if !name.contains('/') && !self.0.contains(&(kind, name)) => {
                let place = node.place;
                let fields = [
                    ("kind", kind.name()),
                    ("name", name),
                    ("package", BASE_PACKAGE),
                ];
                let fields = fields.map(|(field, value)| entry(field, text(place, value)));
                mapping(place, fields.into())
            }
            _ => named(node, kind),
        }
    }

    fn model(&self, spec: &mut YamlNode) {
        if let Some(mut key) = take(spec, "apiKey") {
            value(&mut key.node);
            put(spec, key);
        }
    }

    fn agent(&self, spec: &mut YamlNode) {
        if !has(spec, "modelConfig")
            && let Some(mut model) = take(spec, "model")
        {
            let place = model.node.place;
            let reference = named(&model.node, ResourceKind::MODEL);
            model.key = "modelConfig".to_owned();
            model.node = mapping(place, vec![entry("modelRef", reference)]);
            put(spec, model);
        }
        if let Some(mut prompt) = take(spec, "prompt") {
            if as_text(&prompt.node).is_some() {
                let place = prompt.node.place;
                prompt.node = mapping(place, vec![entry("system", prompt.node)]);
            }
            put(spec, prompt);
        }
        self.list(spec, "tools", ResourceKind::TOOL, "approve");
        self.list(spec, "extensions", ResourceKind::EXTENSION, "config");
    }

    /// A list of names, or of mappings from a name to the value of the field `beside` the reference.
    fn list(&self, spec: &mut YamlNode, name: &str, kind: ResourceKind, beside: &str) {
        let Some(mut listed) = take(spec, name) else {
            return;
        };
        if let YamlValue::List(items) = &mut listed.node.value {
            for item in items {
                *item = match item.entries() {
                    [one] if !REFERENCE_FIELDS.contains(&one.key.as_str()) => {
                        let reference = self.named(&text(one.key_place, one.key.as_str()), kind);
                        let beside = MappingEntry {
                            key: beside.to_owned(),
                            ..one.clone()
                        };
                        mapping(item.place, vec![entry("ref", reference), beside])
                    }
                    _ => self.named(item, kind),
                };
            }
        }
        put(spec, listed);
    }

    fn connection(&self, spec: &mut YamlNode) {
        if !has(spec, "connectorRef")
            && let Some(mut connector) = take(spec, "connector")
        {
            connector.node = self.named(&connector.node, ResourceKind::CONNECTOR);
            connector.key = "connectorRef".to_owned();
            put(spec, connector);
        }
        if let Some(mut secrets) = take(spec, "secrets") {
            for secret in entries_mut(&mut secrets.node).into_iter().flatten() {
                value(&mut secret.node);
            }
            put(spec, secrets);
        }
        if !has(spec, "ingress")
            && let Some(mut rules) = take(spec, "rules")
        {
            let place = rules.node.place;
            if let YamlValue::List(items) = &mut rules.node.value {
                items.iter_mut().for_each(rule);
            }
            let ingress = mapping(place, vec![rules]);
            put(spec, entry("ingress", ingress));
        }
    }
}

fn has(node: &YamlNode, name: &str) -> bool {
    node.entries().iter().any(|entry| entry.key == name)
}

/// A rule with `event`, `properties`, `agent` and the fields of a key beside each other.
fn rule(node: &mut YamlNode) {
    if has(node, "match") || has(node, "route") {
        return;
    }
    let place = node.place;
    let mut part = |name: &str, fields: &[(&str, &str)]| {
        let taken = fields.iter().filter_map(|(short, long)| {
            let mut entry = take(node, short)?;
            (*long).clone_into(&mut entry.key);
            if *short == "agent" {
                entry.node = named(&entry.node, ResourceKind::AGENT);
            }
            Some(entry)
        });
        let taken: Vec<MappingEntry> = taken.collect();
        (!taken.is_empty()).then(|| entry(name, mapping(place, taken)))
    };
    let conditions = part("match", &[("event", "event"), ("properties", "properties")]);
    let route = part(
        "route",
        &[
            ("agent", "agentRef"),
            ("instanceKey", "instanceKey"),
            ("instanceKeyProperty", "instanceKeyProperty"),
            ("instanceKeyPrefix", "instanceKeyPrefix"),
        ],
    );
    for part in [conditions, route].into_iter().flatten() {
        put(node, part);
    }
}

/// A value from elsewhere: `$NAME` for a variable, `{secret: NAME/KEY}` for an entry of the secret
/// store.
fn value(node: &mut YamlNode) {
    let place = node.place;
    if let Some(name) = as_text(node).and_then(variable) {
        *node = from_environment(place, name);
    } else if let [secret] = node.entries()
        && secret.key == "secret"
        && let Some((name, key)) = as_text(&secret.node).and_then(|text| text.split_once('/'))
    {
        *node = from_store(secret.node.place, name, key);
    }
}

/// The variable of `$NAME`.
fn variable(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let mut letters = name.chars();
    let first = letters.next()?;
    let is_name = (first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    is_name.then_some(name)
}

/// `{valueFrom: {secretRef: {ref: Secret/NAME, key: KEY}}}`.
fn from_store(place: SourceLocation, name: &str, key: &str) -> YamlNode {
    let secret = text(
        place,
        format!("{}{name}", goondan_protocol::secret::SECRET_PREFIX),
    );
    let reference = mapping(
        place,
        vec![entry("ref", secret), entry("key", text(place, key))],
    );
    let source = mapping(place, vec![entry(REFERENCE, reference)]);
    mapping(place, vec![entry("valueFrom", source)])
}
