//! A project in a temporary directory, defined in the test that loads it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use goondan_config::{Diagnostics, Environment, Loader, ProjectConfig};
use goondan_protocol::secret::{SecretProblem, SecretStore};
use tempfile::TempDir;

/// One scripted agent: the smallest valid project.
pub(crate) const SMALLEST: &str = "\
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: Hello}]}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: helper}
spec: {modelConfig: {modelRef: Model/main}}
";

/// A project under construction.
pub(crate) struct Project {
    directory: TempDir,
    variables: BTreeMap<String, String>,
    secrets: BTreeMap<(String, String), String>,
}

impl Project {
    /// A project with this `goondan.yaml`.
    pub(crate) fn new(goondan_yaml: &str) -> Self {
        Self::empty().file("goondan.yaml", goondan_yaml)
    }

    /// [`SMALLEST`] with further documents.
    pub(crate) fn with(documents: &str) -> Self {
        Self::new(&format!("{SMALLEST}---\n{documents}"))
    }

    /// A directory without `goondan.yaml`.
    pub(crate) fn empty() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            variables: BTreeMap::new(),
            secrets: BTreeMap::new(),
        }
    }

    /// Adds or replaces a file.
    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, content.as_ref());
        self
    }

    /// Adds `Connector/http`, a program of the project, which takes any settings.
    pub(crate) fn own_connector(self) -> Self {
        let connector = "apiVersion: goondan.ai/v1\nkind: Connector\nmetadata: {name: http}\n\
                         spec: {entry: connectors/http.py}\n";
        self.file("connectors/http.py", "")
            .file("resources/http.yaml", connector)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(self, path: &str, target: impl AsRef<Path>) -> Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Sets an entry of a secret.
    pub(crate) fn secret(mut self, name: &str, key: &str, value: &str) -> Self {
        let entry = (name.to_owned(), key.to_owned());
        self.secrets.insert(entry, value.to_owned());
        self
    }

    pub(crate) fn loader(&self) -> Loader<'_> {
        Loader::new(self).with_secrets(self)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().to_path_buf()
    }

    pub(crate) fn try_load(&self) -> Result<ProjectConfig, Diagnostics> {
        self.loader().load(&self.root()).bundle
    }

    /// The warnings of a project that must be valid, as `code line:column message`.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let checked = self.loader().check(&self.root());
        assert!(checked.bundle.is_ok(), "{:?}", checked.bundle);
        let warnings = checked.warnings.iter();
        warnings
            .map(|warning| {
                let (line, column) = (warning.line, warning.column);
                format!("{} {line}:{column} {}", warning.code, warning.message)
            })
            .collect()
    }

    /// Loads a project that must be valid.
    pub(crate) fn load(&self) -> ProjectConfig {
        self.try_load()
            .unwrap_or_else(|problems| panic!("the project was refused:\n{problems}"))
    }

    /// Loads a project that must be invalid; returns its problems as `code line:column message`.
    pub(crate) fn problems(&self) -> Vec<String> {
        problem_lines(&self.refused())
    }

    /// Loads a project that must be invalid.
    pub(crate) fn refused(&self) -> Diagnostics {
        self.try_load().expect_err("the project was accepted")
    }
}

/// Formats problems as `code line:column message`.
pub(crate) fn problem_lines(found: &Diagnostics) -> Vec<String> {
    let lines = found.as_slice().iter().map(|problem| {
        let (line, column) = (problem.line, problem.column);
        format!("{} {line}:{column} {}", problem.code, problem.message)
    });
    lines.collect()
}

impl Environment for Project {
    fn get(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }
}

impl SecretStore for Project {
    fn find(&self, name: &str, key: &str) -> Result<String, SecretProblem> {
        if name == "damaged" {
            return Err(SecretProblem::Unreadable {
                message: "failed to use the secret in `damaged.sops.yaml`".into(),
                help: "put it back from a backup".into(),
            });
        }
        let of_name = |(entry, _): &(&(String, String), &String)| entry.0 == name;
        let mut keys = self
            .secrets
            .iter()
            .filter(of_name)
            .map(|((_, key), _)| key.clone());
        if let Some(value) = self.secrets.get(&(name.to_owned(), key.to_owned())) {
            return Ok(value.clone());
        }
        if keys.clone().next().is_none() {
            let names = self.secrets.keys().map(|(name, _)| name.clone()).collect();
            return Err(SecretProblem::NoSecret { names });
        }
        let keys = keys.by_ref().collect();
        Err(SecretProblem::NoKey { keys })
    }
}

#[expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]
pub(crate) fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]
pub(crate) fn rename(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

/// The schema of every document, without built-in connectors. Their own pages document and test
/// that part.
pub(crate) fn schema_without_connectors() -> serde_json::Value {
    let mut schema = goondan_config::schema(None).unwrap();
    let definitions = schema["definitions"].as_object_mut().unwrap();
    definitions.retain(|name, _| {
        let connector = name.strip_suffix("Config").or(name.strip_suffix("Secrets"));
        let connector = connector.map(str::to_lowercase);
        connector.is_none_or(|name| goondan_connectors::find(&name).is_none())
    });
    forget_conditions(&mut schema);
    schema
}

/// Removes what settings of connectors require of each other, which names them again.
fn forget_conditions(schema: &mut serde_json::Value) {
    use serde_json::Value;

    match schema {
        Value::Object(fields) => {
            let of_connector = fields
                .get("if")
                .is_some_and(|it| it.to_string().contains("connectorRef"));
            if of_connector && let Some(Value::Object(then)) = fields.get_mut("then") {
                then.remove("allOf");
            }
            fields.values_mut().for_each(forget_conditions);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_conditions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The schema without built-in tools and extensions, for the same reason.
pub(crate) fn schema_without_builtins() -> serde_json::Value {
    let mut schema = schema_without_connectors();
    let definitions = schema["definitions"].as_object_mut().unwrap();
    definitions
        .retain(|name, _| !name.ends_with("ToolConfig") && !name.ends_with("ExtensionConfig"));
    schema
}
