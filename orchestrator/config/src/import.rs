//! Converts a project of the goondan library, a successor of goondan 0.0.3, as far as its parts have
//! counterparts.

use std::collections::BTreeMap;
use std::path::Path;

use goondan_protocol::base_package::tools as builtin_tools;
use goondan_protocol::ids::{AgentName, ResourceName};

use crate::codes;
use crate::diagnostic::Diagnostics;
use crate::edit::{as_text, at, boolean, entry, items, list, mapping, text, text_at};
use crate::frame::API_VERSION;
use crate::limits::MAX_YAML_BYTES;
use crate::migrate::yaml;
use crate::misplaced_fields;
use crate::place::SourceLocation;
use crate::report::{Problem, ProblemReport};
use crate::successor;
use crate::tree::{self, MappingEntry, YamlNode, YamlValue};

/// Providers whose models can be imported, with the variables of their keys.
const PROVIDERS: [(&str, &str); 3] = [
    ("anthropic", "ANTHROPIC_API_KEY"),
    ("google", "GOOGLE_GENERATIVE_AI_API_KEY"),
    ("openai", "OPENAI_API_KEY"),
];

/// Parameters of a model that both formats have.
const PARAMS: [&str; 5] = ["temperature", "topP", "maxTokens", "stop", "seed"];

/// Names of a model whose provider is not known.
const UNKNOWN_MODEL: &str = "main";

/// Tool with which agents send requests to others.
const AGENTS_TOOL: &str = "agents";

/// Marks of placeholders in prompts.
const PLACEHOLDER: &str = "{{";

/// A converted project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedProject {
    /// Text of its `goondan.yaml`, in the short form.
    pub yaml: String,
    /// Parts that were left out or need a person, in the order of the file.
    pub notes: Vec<ImportNote>,
}

/// A part of the library's project that was left out, or needs a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportNote {
    /// Its line, counted from 1.
    pub line: usize,
    pub text: String,
}

/// Converts the text of a project file of the goondan library. `read_prompt` returns the text of a
/// prompt's file, by its path in the project file.
///
/// # Errors
///
/// The file is not YAML, is not a project of the library, or has no usable agents.
pub fn import(
    path: &Path,
    text: &str,
    read_prompt: &dyn Fn(&str) -> Option<String>,
) -> Result<ImportedProject, Diagnostics> {
    let mut report = ProblemReport::of(&misplaced_fields::VOCABULARY);
    let file = report.add_file(path, text);
    let start = SourceLocation::start_of(file);
    if text.len() > MAX_YAML_BYTES {
        let message = format!("the file has more than {MAX_YAML_BYTES} bytes");
        report.add(Problem::new(codes::TOO_LARGE, start, message));
        return Err(report.into_diagnostics());
    }
    let documents = tree::parse(file, text, &mut report);
    if report.has_errors() {
        return Err(report.into_diagnostics());
    }
    let library = match documents.as_deref() {
        Some([only]) if successor::library(only).is_some() => only,
        Some(_) | None => {
            let message = "this is not a project file of the goondan library";
            let problem = Problem::new(codes::UNKNOWN_KIND, start, message);
            report.add(problem.help(
                "pass a file with `agents` and `routes`, `flow` or `resources`; for a project of goondan 0.0.3: `gdn \
                 config migrate`",
            ));
            return Err(report.into_diagnostics());
        }
    };
    let agents = at(library, &["agents"]).map_or(&[][..], YamlNode::entries);
    if agents.is_empty() {
        let message = "the file defines no `agents`";
        let problem = Problem::new(codes::MISSING_FIELD, library.place, message);
        report.add(problem.help("import the file that defines them"));
    }
    for agent in agents {
        if AgentName::new(&agent.key).is_err() {
            let message = format!("`{}` is not a name of an Agent", agent.key);
            let problem = Problem::new(codes::INVALID_VALUE, agent.key_place, message);
            report.add(problem.help("rename it: letters, digits, `-`, `_` and `.`"));
        }
    }
    if report.has_errors() {
        return Err(report.into_diagnostics());
    }
    let mut import = Import {
        library,
        agents,
        models: BTreeMap::new(),
        notes: Vec::new(),
        read_prompt,
    };
    let yaml = import.project();
    import.notes.sort_by_key(|note| note.line);
    Ok(ImportedProject {
        yaml,
        notes: import.notes,
    })
}

struct Import<'n> {
    library: &'n YamlNode,
    agents: &'n [MappingEntry],
    /// The models by name, with their fields.
    models: BTreeMap<String, YamlNode>,
    notes: Vec<ImportNote>,
    read_prompt: &'n dyn Fn(&str) -> Option<String>,
}

impl Import<'_> {
    fn note(&mut self, place: SourceLocation, text: impl Into<String>) {
        let text = text.into();
        let line = place.line;
        let note = ImportNote { line, text };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The whole project as text.
    fn project(&mut self) -> String {
        let place = self.library.place;
        let mut agents = Vec::new();
        for agent in self.agents {
            let spec = self.agent(agent);
            agents.push(MappingEntry {
                node: spec,
                ..agent.clone()
            });
        }
        let is_template = |agent: &&MappingEntry| {
            at(&agent.node, &["template"])
                .is_some_and(|it| matches!(it.value, YamlValue::Bool(true)))
        };
        let mut running = agents.iter().filter(|agent| !is_template(agent));
        let first = running.next().map(|agent| agent.key.clone());
        let has_main = running.any(|agent| agent.key == "main");
        let entry_agent = match self.entry_agent() {
            Some(named) => Some(named),
            None if has_main => Some("main".to_owned()),
            None => first,
        };
        self.top_level();
        let models = std::mem::take(&mut self.models).into_iter();
        let models = models.map(|(name, spec)| entry(&name, spec)).collect();
        let mut fields = vec![entry("apiVersion", text(place, API_VERSION))];
        fields.push(entry("models", mapping(place, models)));
        fields.push(entry("agents", mapping(place, agents)));
        fields.extend(entry_agent.map(|agent| entry("entryAgent", text(place, agent))));
        yaml::document(&mapping(place, fields))
    }

    /// The agent that `flow` begins with.
    fn entry_agent(&mut self) -> Option<String> {
        let flow = at(self.library, &["flow"])?;
        let begins = ["in", "entry", "start"];
        let mut named = begins.iter().filter_map(|name| text_at(flow, &[*name]));
        let named = as_text(flow).or_else(|| named.next());
        let found = named.filter(|name| self.agents.iter().any(|agent| agent.key == *name));
        if found.is_none() || flow.entries().len() > 1 {
            let what = "`flow` was left out, except for the agent that it begins with: write rules in `ingress` of a \
                        Connection, or let the agents send requests to each other";
            self.note(flow.place, what);
        }
        found.map(str::to_owned)
    }

    /// Notes the fields at the top that have no counterparts.
    fn top_level(&mut self) {
        for field in self.library.entries() {
            let place = field.key_place;
            match field.key.as_str() {
                "agents" | "flow" | "version" => {}
                "routes" => {
                    for route in items(&field.node) {
                        let of = |name: &str| text_at(route, &[name]).unwrap_or("?").to_owned();
                        let what = format!(
                            "the route from `{}` to `{}` was left out: let the agent send requests with the tool \
                             `{AGENTS_TOOL}`, or write a rule in `ingress` of a Connection",
                            of("from"),
                            of("to")
                        );
                        self.note(route.place, what);
                    }
                }
                "resources" => {
                    let others = field.node.entries().iter().filter(|it| it.key != "models");
                    let others: Vec<&MappingEntry> = others.collect();
                    for other in others {
                        let what = format!("`resources.{}` was left out", other.key);
                        self.note(other.key_place, what);
                    }
                    for file in items(&field.node) {
                        let named = as_text(file).unwrap_or("a resource");
                        let what = format!(
                            "`{named}` was left out: import its agents separately, or write documents into `resources/`"
                        );
                        self.note(file.place, what);
                    }
                }
                "extends" => self.note(
                    place,
                    "`extends` was left out: write the fields of that project here",
                ),
                other => {
                    let what = format!("`{other}` was left out: it has no counterpart");
                    self.note(place, what);
                }
            }
        }
    }

    fn agent(&mut self, agent: &MappingEntry) -> YamlNode {
        let (name, place) = (agent.key.as_str(), agent.node.place);
        let mut fields = Vec::new();
        let mut inherits = false;
        let mut model = None;
        let mut params = Vec::new();
        for field in agent.node.entries() {
            let key_place = field.key_place;
            match field.key.as_str() {
                "description" if as_text(&field.node).is_some() => fields.push(field.clone()),
                "inherit" if self.knows(as_text(&field.node)) => {
                    inherits = true;
                    fields.insert(0, field.clone());
                }
                "template" | "abstract" if matches!(field.node.value, YamlValue::Bool(true)) => {
                    fields.insert(0, entry("template", boolean(key_place, true)));
                }
                "model" => model = Some(self.model(name, &field.node)),
                "params" => params = self.params(name, &field.node),
                "systemMessage" | "prompt" | "system" => {
                    fields.extend(self.prompt(name, field));
                }
                "tools" => {
                    let tools = self.tools(name, &field.node);
                    if !tools.is_empty() {
                        fields.push(entry("tools", list(key_place, tools)));
                    }
                }
                other => {
                    let what =
                        format!("`{other}` of agent `{name}` was left out: it has no counterpart");
                    self.note(key_place, what);
                }
            }
        }
        let is_template = fields.iter().any(|field| field.key == "template");
        if model.is_none() && !inherits && !is_template {
            let unknown = text(place, UNKNOWN_MODEL);
            model = Some(self.model(name, &unknown));
        }
        let is_scripted = model.as_ref().is_some_and(|model| {
            let model = self.models.get(model);
            model.is_some_and(|model| text_at(model, &["provider"]) == Some("scripted"))
        });
        if is_scripted && !params.is_empty() {
            let what =
                format!("`params` of agent `{name}` were left out, because its model is not known");
            self.note(place, what);
            params.clear();
        }
        if params.is_empty() {
            fields.extend(model.map(|model| entry("model", text(place, model))));
        } else {
            let model = model.map(|model| entry("modelRef", text(place, format!("Model/{model}"))));
            let params = entry("params", mapping(place, params));
            let config = model.into_iter().chain([params]).collect();
            fields.push(entry("modelConfig", mapping(place, config)));
        }
        mapping(place, fields)
    }

    /// True for the name of an agent of the file.
    fn knows(&self, name: Option<&str>) -> bool {
        name.is_some_and(|name| self.agents.iter().any(|agent| agent.key == name))
    }

    /// Name of the Model for a model of the library, which is added if it is new.
    fn model(&mut self, agent: &str, written: &YamlNode) -> String {
        let place = written.place;
        let library = self.library;
        let named = as_text(written);
        let resource = named.and_then(|name| at(library, &["resources", "models", name]));
        let described = resource.unwrap_or(written);
        let of_mapping = || {
            let id = text_at(described, &["model"]).or_else(|| text_at(described, &["name"]));
            Some((text_at(described, &["provider"])?, id?))
        };
        let of_text = || as_text(described)?.split_once(['/', ':']);
        let known = of_mapping().or_else(of_text).and_then(|(provider, id)| {
            let found = PROVIDERS.iter().find(|(name, _)| *name == provider);
            found.map(|(provider, variable)| (*provider, *variable, id))
        });
        let label = named.or_else(|| known.map(|(_, _, id)| id));
        let name = resource_name(label.unwrap_or(UNKNOWN_MODEL));
        let spec = match known {
            Some((provider, variable, id)) => {
                let what =
                    format!("set the environment variable `{variable}` for the Model `{name}`");
                self.note(place, what);
                vec![
                    entry("provider", text(place, provider)),
                    entry("model", text(place, id)),
                    entry("apiKey", text(place, format!("${variable}"))),
                ]
            }
            None => {
                let what = format!(
                    "the provider of the model of agent `{agent}` is not known: the Model `{name}` is a script until you \
                     set its `provider` and `model`"
                );
                self.note(place, what);
                let says = format!("Set the provider of the Model {name} in goondan.yaml.");
                let rule = mapping(place, vec![entry("say", text(place, says))]);
                let rules = entry("rules", list(place, vec![rule]));
                vec![
                    entry("provider", text(place, "scripted")),
                    entry("options", mapping(place, vec![rules])),
                ]
            }
        };
        self.models
            .entry(name.clone())
            .or_insert_with(|| mapping(place, spec));
        name
    }

    fn params(&mut self, agent: &str, written: &YamlNode) -> Vec<MappingEntry> {
        let mut params = Vec::new();
        for field in written.entries() {
            if PARAMS.contains(&field.key.as_str()) {
                params.push(field.clone());
            } else {
                let what = format!("`params.{}` of agent `{agent}` was left out", field.key);
                self.note(field.key_place, what);
            }
        }
        params
    }

    fn prompt(&mut self, agent: &str, field: &MappingEntry) -> Option<MappingEntry> {
        let place = field.key_place;
        let node = &field.node;
        let file = ["template", "file", "path"];
        let mut file = file.iter().filter_map(|name| text_at(node, &[*name]));
        let inline = as_text(node)
            .or_else(|| text_at(node, &["text"]))
            .or_else(|| text_at(node, &["content"]));
        let prompt = match (inline, file.next()) {
            (Some(inline), _) => Some(inline.to_owned()),
            (None, Some(file)) => (self.read_prompt)(file),
            (None, None) => None,
        };
        let Some(prompt) = prompt else {
            let what =
                format!("the prompt of agent `{agent}` was left out: its text cannot be read");
            self.note(place, what);
            return None;
        };
        if prompt.contains(PLACEHOLDER) {
            let what = format!(
                "the prompt of agent `{agent}` has placeholders (`{PLACEHOLDER}…`), which goondan does not fill in"
            );
            self.note(place, what);
        }
        Some(entry("prompt", text(place, prompt)))
    }

    fn tools(&mut self, agent: &str, written: &YamlNode) -> Vec<YamlNode> {
        let builtin = builtin_tools();
        let mut names: Vec<String> = Vec::new();
        for item in items(written) {
            let place = item.place;
            let other = text_at(item, &["agent"]);
            let name = match (as_text(item), other) {
                (Some(name), _) if builtin.contains_key(name) => name.to_owned(),
                (_, Some(other)) if self.knows(Some(other)) => {
                    let what = format!(
                        "agent `{agent}` calls agent `{other}` with `{AGENTS_TOOL}__request` instead of a tool of its own"
                    );
                    self.note(place, what);
                    AGENTS_TOOL.to_owned()
                }
                (name, other) => {
                    let name = name.or(other).or_else(|| text_at(item, &["name"]));
                    let what = format!(
                        "the tool `{}` of agent `{agent}` was left out: write a Tool with its module",
                        name.unwrap_or("?")
                    );
                    self.note(place, what);
                    continue;
                }
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let place = written.place;
        names.into_iter().map(|name| text(place, name)).collect()
    }
}

/// A valid name of a Model that is similar to a text.
fn resource_name(written: &str) -> String {
    let name: String = written
        .chars()
        .map(|c| match c.is_ascii_alphanumeric() {
            true => c,
            false => '-',
        })
        .collect();
    let name = name.trim_matches('-').to_owned();
    match ResourceName::new(&name) {
        Ok(_) => name,
        Err(_) => UNKNOWN_MODEL.to_owned(),
    }
}
