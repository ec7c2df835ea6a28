//! Loading of projects: environment and options.

use std::path::{Path, PathBuf};

use goondan_protocol::control::PermissionDecision;
use goondan_protocol::ids::ResourceName;
use goondan_protocol::secret::{NoSecrets, SecretStore};
use serde_json::Value as Json;

use crate::autofix::{self, FixedFile};
use crate::bundle::workspace_permissions::PermissionRequest;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::documents;
use crate::effective::{self, Setting};
use crate::inherit;
use crate::last_good_files::ProjectSnapshot;
use crate::load::{self, ExternalSources};
use crate::machine::{AnyMachine, HostMachine};
use crate::migrate::{self, MigratedFile, yaml};
use crate::project_files::ProjectFiles;
use crate::report::ProblemReport;
use crate::secrets::Secrets;
use crate::sources::Sources;
use crate::tree::YamlNode;
use crate::{Environment, ProjectCheck, ProjectConfig};

pub struct Loader<'e> {
    outside: ExternalSources<'e>,
    env_files: Vec<PathBuf>,
    swarm: Option<ResourceName>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LoadResult {
    /// The project, or all its errors.
    pub bundle: Result<ProjectConfig, Diagnostics>,
    /// Warnings and notes, sorted by file and line.
    pub warnings: Vec<Diagnostic>,
    /// The files it was read from.
    pub sources: Sources,
    pub secrets: Secrets,
    /// Permissions that it can use, also if there are errors.
    pub permissions: Vec<PermissionRequest>,
}

/// A project without short documents.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpandedProject {
    pub resources: Vec<Json>,
    /// The resources as the text of a file.
    pub yaml: String,
}

impl<'e> Loader<'e> {
    /// Creates a loader that reads variables from `env` and the project's `.env.local` and `.env`.
    /// It has no secrets and no information about the machine.
    #[must_use]
    pub fn new(env: &'e dyn Environment) -> Self {
        let (store, machine) = (&NoSecrets, &AnyMachine);
        Self {
            outside: ExternalSources {
                env,
                store,
                machine,
                decisions: &[],
            },
            env_files: Vec::new(),
            swarm: None,
        }
    }

    /// Selects the Swarm to run, instead of the project's first one.
    #[must_use]
    pub fn with_swarm(self, swarm: Option<&ResourceName>) -> Self {
        Self {
            swarm: swarm.cloned(),
            ..self
        }
    }

    /// Adds environment files; the last one takes precedence. Paths must be absolute and may be
    /// outside the project; the files must exist.
    #[must_use]
    pub fn with_env_files(self, env_files: &[PathBuf]) -> Self {
        Self {
            env_files: env_files.to_vec(),
            ..self
        }
    }

    #[must_use]
    pub fn with_secrets(self, store: &'e dyn SecretStore) -> Self {
        let outside = ExternalSources {
            store,
            ..self.outside
        };
        Self { outside, ..self }
    }

    /// Sets the decisions of people about permissions of the workspace.
    #[must_use]
    pub fn with_decisions(self, decisions: &'e [PermissionDecision]) -> Self {
        let outside = ExternalSources {
            decisions,
            ..self.outside
        };
        Self { outside, ..self }
    }

    /// Enables checks that this machine has everything the project's modules and programs need.
    #[must_use]
    pub fn with_machine(self, machine: &'e dyn HostMachine) -> Self {
        let outside = ExternalSources {
            machine,
            ..self.outside
        };
        Self { outside, ..self }
    }

    /// Loads the project in `root`. Blocks on the file system.
    #[must_use]
    pub fn load(&self, root: &Path) -> LoadResult {
        self.read(root, None)
    }

    /// Loads the project of `root` from stored files. Environment files are read from their places,
    /// and their problems are ignored. Blocks on the file system.
    #[must_use]
    pub fn load_kept(&self, root: &Path, kept: &ProjectSnapshot) -> LoadResult {
        self.read(root, Some(kept))
    }

    fn read(&self, root: &Path, kept: Option<&ProjectSnapshot>) -> LoadResult {
        let mut report = ProblemReport::default();
        let mut permissions = Vec::new();
        let (bundle, report, sources, secrets) = match self.open(root, &mut report) {
            None => (None, report, Sources::of(root), Secrets::default()),
            Some(files) => {
                let files = match kept {
                    Some(kept) => files.reading_kept(kept.clone()),
                    None => files,
                };
                let reading = load::read(&files, self.outside);
                permissions = reading.permissions;
                let (report, secrets) = (reading.report, reading.secrets);
                let mut sources = files.into_sources();
                sources.add_secrets(secrets.names());
                (reading.bundle, report, sources, secrets)
            }
        };
        let (errors, warnings) = report.finish();
        LoadResult {
            bundle: bundle.ok_or_else(|| Diagnostics::new(errors)),
            warnings,
            sources,
            secrets,
            permissions,
        }
    }

    /// See [`crate::check`].
    #[must_use]
    pub fn check(&self, root: &Path) -> ProjectCheck {
        let LoadResult {
            bundle, warnings, ..
        } = self.load(root);
        ProjectCheck { bundle, warnings }
    }

    /// See [`crate::effective()`].
    ///
    /// # Errors
    ///
    /// All errors of the project, because an invalid project has no effective values.
    pub fn effective(&self, root: &Path) -> Result<Vec<Setting>, Diagnostics> {
        let mut report = ProblemReport::default();
        match self.open(root, &mut report) {
            Some(files) => effective::effective(&files, self.outside),
            None => Err(report.into_diagnostics()),
        }
    }

    /// The documents of a project in written form, with short documents expanded, and inherited
    /// fields written out. Values are as written, secrets included.
    ///
    /// # Errors
    ///
    /// Syntax errors, and unknown fields of short documents.
    pub fn expand(&self, root: &Path) -> Result<ExpandedProject, Diagnostics> {
        let mut report = ProblemReport::default();
        let mut trees = match self.open(root, &mut report) {
            Some(files) => documents::read_project(&files, &mut report),
            None => Vec::new(),
        };
        drop(inherit::resolve(&mut trees, &mut report));
        drop(inherit::take_templates(&mut trees));
        if report.has_errors() {
            return Err(report.into_diagnostics());
        }
        let documents = || trees.iter().flat_map(|(_, documents)| documents);
        let written: Vec<String> = documents().map(yaml::document).collect();
        Ok(ExpandedProject {
            resources: documents().map(YamlNode::to_json).collect(),
            yaml: written.join("---\n"),
        })
    }

    /// See [`crate::autofix()`].
    ///
    /// # Errors
    ///
    /// The Project Root cannot be opened.
    pub fn autofix(&self, root: &Path) -> Result<Vec<FixedFile>, Diagnostics> {
        let mut report = ProblemReport::default();
        match self.open(root, &mut report) {
            Some(files) => Ok(autofix::autofix(files, self.outside)),
            None => Err(report.into_diagnostics()),
        }
    }

    /// The files of a project of the format 0.0.3 that change in the current format, sorted by
    /// path. Nothing is written. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// Problems of the older forms or of the files themselves.
    pub fn migrate(&self, root: &Path) -> Result<Vec<MigratedFile>, Diagnostics> {
        let mut report = ProblemReport::default();
        match self.open(root, &mut report) {
            Some(files) => migrate::migrate(files, self.outside),
            None => Err(report.into_diagnostics()),
        }
    }

    fn open(&self, root: &Path, report: &mut ProblemReport) -> Option<ProjectFiles> {
        let files = load::open(root, report)?;
        let files = files.with_env_files(self.env_files.clone());
        Some(files.with_swarm(self.swarm.clone()))
    }
}
