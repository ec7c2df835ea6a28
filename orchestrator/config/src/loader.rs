//! Loading of projects: environment and options.

use std::path::{Path, PathBuf};

use goondan_protocol::secret::{NoSecrets, SecretStore};

use crate::autofix::{self, FixedFile};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::effective::{self, Setting};
use crate::kept::ProjectSnapshot;
use crate::load::{self, ExternalSources};
use crate::machine::{AnyMachine, HostMachine};
use crate::migrate::{self, MigratedFile};
use crate::project_files::ProjectFiles;
use crate::report::ProblemReport;
use crate::secrets::Secrets;
use crate::sources::Sources;
use crate::{Environment, ProjectCheck, ProjectConfig};

pub struct Loader<'e> {
    outside: ExternalSources<'e>,
    env_files: Vec<PathBuf>,
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
            },
            env_files: Vec::new(),
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
        let (bundle, report, sources, secrets) = match self.open(root, &mut report) {
            None => (None, report, Sources::of(root), Secrets::default()),
            Some(files) => {
                let files = match kept {
                    Some(kept) => files.reading_kept(kept.clone()),
                    None => files,
                };
                let reading = load::read(&files, self.outside);
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
        Some(files.with_env_files(self.env_files.clone()))
    }
}
