//! All effective values of a project with their origins, for `gdn config show`.

use std::path::PathBuf;

use goondan_protocol::secret::SECRET_PREFIX;
use serde_json::Value as Json;

use crate::diagnostic::Diagnostics;
use crate::document::Document;
use crate::environment::{VariableOrigin, Variables};
use crate::kind::ResourceKind;
use crate::kinds;
use crate::kinds::swarm::POLICY;
use crate::load::{self, ExternalSources};
use crate::misplaced_fields;
use crate::project_files::ProjectFiles;
use crate::report::{ProblemReport, SourceLocation};
use crate::shape::{Field, FieldType, Shape};
use crate::tree::{MappingEntry, YamlNode, YamlValue};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The resource: `Agent/helper`. Defaults of a Swarm belong to `Swarm` in a project without
    /// one.
    pub resource: String,
    /// Its path within `spec`: `policy.maxStepsPerTurn`.
    pub path: String,
    pub value: SettingValue,
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingValue {
    Plain(Json),
    /// Not a single value, but described by this text: `every Agent of the project`.
    Meaning(&'static str),
    /// A secret, or a value from the environment, which may be a secret. Never shown (`SEC-2`).
    Masked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The default.
    Default,
    /// A file of the project.
    File {
        /// Relative to the Project Root.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
    },
    Environment {
        variable: String,
        /// The environment file and line that sets it; `None` for the process's environment.
        file: Option<(PathBuf, usize)>,
    },
    /// An entry of the secret store.
    Secret { name: String, key: String },
}

/// See [`crate::effective()`].
pub(crate) fn effective(
    files: &ProjectFiles,
    outside: ExternalSources<'_>,
) -> Result<Vec<Setting>, Diagnostics> {
    let reading = load::read(files, outside);
    if reading.bundle.is_none() {
        return Err(reading.report.into_diagnostics());
    }
    // Problems were already reported when the documents were first read.
    let mut unheeded = ProblemReport::of(&misplaced_fields::VOCABULARY);
    let documents: Vec<Document<'_>> = reading
        .trees
        .iter()
        .flat_map(|(_, nodes)| nodes)
        .filter_map(|node| Document::read(node, kinds::spec_of, &mut unheeded))
        .collect();
    let mut walk = SettingsWalk {
        report: &reading.report,
        variables: &reading.variables,
        resource: String::new(),
        settings: Vec::new(),
    };
    for document in &documents {
        walk.resource = format!("{}/{}", document.kind, document.name.value);
        let node = document.spec_node();
        walk.content(kinds::spec_of(document.kind), node, String::new());
    }
    if !documents
        .iter()
        .any(|document| document.kind == ResourceKind::SWARM)
    {
        walk.resource = ResourceKind::SWARM.to_string();
        walk.field(&POLICY, None, "");
    }
    Ok(walk.settings)
}

struct SettingsWalk<'r> {
    report: &'r ProblemReport,
    variables: &'r Variables<'r>,
    resource: String,
    settings: Vec<Setting>,
}

impl SettingsWalk<'_> {
    fn add(&mut self, path: String, value: SettingValue, origin: Origin) {
        self.settings.push(Setting {
            resource: self.resource.clone(),
            path,
            value,
            origin,
        });
    }

    fn field(&mut self, field: &Field, node: Option<&YamlNode>, parent: &str) {
        let path = within(parent, field.name);
        match (node, field.default) {
            (None, Some(default)) => {
                let value = default.value();
                let value = value.map_or_else(SettingValue::Meaning, SettingValue::Plain);
                self.add(path, value, Origin::Default);
            }
            (node, _) => self.content(field.content, node, path),
        }
    }

    fn content(&mut self, content: FieldType, node: Option<&YamlNode>, path: String) {
        let entries = node.map_or(&[][..], entries_of);
        match content {
            FieldType::Secret => {
                if let Some(node) = node {
                    self.secret(node, path);
                }
            }
            FieldType::Mapping(_) | FieldType::Choice(_) => {
                if let Some(shape) = content.shape(entries) {
                    self.shape(shape, entries, &path);
                }
            }
            FieldType::WordOr(_, shape) => match node.map(|node| &node.value) {
                Some(YamlValue::Mapping(_)) => self.shape(shape, entries, &path),
                _ => {
                    if let Some(node) = node {
                        self.plain(node, path);
                    }
                }
            },
            FieldType::List(content) => {
                let Some(node) = node else { return };
                let YamlValue::List(items) = &node.value else {
                    return;
                };
                if items.is_empty() {
                    self.plain(node, path);
                    return;
                }
                for (index, item) in items.iter().enumerate() {
                    self.content(*content, Some(item), format!("{path}[{index}]"));
                }
            }
            FieldType::Entries(content) => {
                for entry in entries {
                    self.content(*content, Some(&entry.node), within(&path, &entry.key));
                }
            }
            FieldType::Settings | FieldType::Variables => {
                if let Some(node) = node {
                    self.settings(node, path);
                }
            }
            FieldType::Text
            | FieldType::Path
            | FieldType::Word(_)
            | FieldType::Number(..)
            | FieldType::Boolean
            | FieldType::Amount
            | FieldType::Anything
            | FieldType::Reference(_)
            | FieldType::Listed(_) => {
                if let Some(node) = node {
                    self.plain(node, path);
                }
            }
        }
    }

    fn shape(&mut self, shape: &'static Shape, entries: &[MappingEntry], path: &str) {
        for field in shape.fields {
            let entry = entries
                .iter()
                .find(|entry| entry.key == field.name)
                .filter(|entry| !matches!(entry.node.value, YamlValue::Null));
            self.field(field, entry.map(|entry| &entry.node), path);
        }
    }

    fn settings(&mut self, node: &YamlNode, path: String) {
        match &node.value {
            YamlValue::Mapping(entries) => match taken(entries) {
                Some(taken) => self.taken(taken, path),
                None => {
                    for entry in entries {
                        self.settings(&entry.node, within(&path, &entry.key));
                    }
                }
            },
            YamlValue::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.settings(item, format!("{path}[{index}]"));
                }
            }
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => {
                self.plain(node, path);
            }
        }
    }

    fn secret(&mut self, node: &YamlNode, path: String) {
        match taken(entries_of(node)) {
            Some(taken) => self.taken(taken, path),
            None => {
                let origin = self.file(node.place);
                self.add(path, SettingValue::Masked, origin);
            }
        }
    }

    fn taken(&mut self, taken: ValueSource<'_>, path: String) {
        let variable = match taken {
            ValueSource::Variable(variable) => variable,
            ValueSource::Secret { name, key } => {
                let (name, key) = (name.to_owned(), key.to_owned());
                return self.add(path, SettingValue::Masked, Origin::Secret { name, key });
            }
        };
        let file = match self.variables.get(variable).map(|found| found.setter) {
            Some(VariableOrigin::File { path, line }) => Some((path, line)),
            Some(VariableOrigin::Process) | None => None,
        };
        let origin = Origin::Environment {
            variable: variable.to_owned(),
            file,
        };
        self.add(path, SettingValue::Masked, origin);
    }

    fn plain(&mut self, node: &YamlNode, path: String) {
        let origin = self.file(node.place);
        self.add(path, SettingValue::Plain(node.to_json()), origin);
    }

    fn file(&self, place: SourceLocation) -> Origin {
        Origin::File {
            file: self.report.path_of(place).to_path_buf(),
            line: place.line,
            column: place.column,
        }
    }
}

fn within(parent: &str, name: &str) -> String {
    let dot = if parent.is_empty() { "" } else { "." };
    format!("{parent}{dot}{name}")
}

fn entries_of(node: &YamlNode) -> &[MappingEntry] {
    match &node.value {
        YamlValue::Mapping(entries) => entries,
        _ => &[],
    }
}

#[derive(Clone, Copy)]
enum ValueSource<'n> {
    Variable(&'n str),
    Secret { name: &'n str, key: &'n str },
}

/// Parses the source named by `{valueFrom: …}`.
fn taken(entries: &[MappingEntry]) -> Option<ValueSource<'_>> {
    let source = entries_of(field(entries, "valueFrom")?);
    if let Some(variable) = field(source, "env") {
        return text(variable).map(ValueSource::Variable);
    }
    let secret = entries_of(field(source, "secretRef")?);
    let name = text(field(secret, "ref")?)?.strip_prefix(SECRET_PREFIX)?;
    let key = text(field(secret, "key")?)?;
    Some(ValueSource::Secret { name, key })
}

fn field<'n>(entries: &'n [MappingEntry], name: &str) -> Option<&'n YamlNode> {
    let entry = entries.iter().find(|entry| entry.key == name);
    entry.map(|entry| &entry.node)
}

fn text(node: &YamlNode) -> Option<&str> {
    match &node.value {
        YamlValue::Text(text) => Some(text),
        _ => None,
    }
}
