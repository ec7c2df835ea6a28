//! How a project is read: with which environment, from which files.

use std::path::{Path, PathBuf};

use goondan_protocol::secret::{NoSecrets, SecretStore};

use crate::autofix::{self, FixedFile};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::effective::{self, Setting};
use crate::kept::KeptFiles;
use crate::load::{self, Outside};
use crate::machine::{AnyMachine, Machine};
use crate::migrate::{self, MigratedFile};
use crate::project_files::ProjectFiles;
use crate::report::Report;
use crate::secrets::Secrets;
use crate::sources::Sources;
use crate::{Bundle, Checked, Environment};

/// Reads projects.
pub struct Loader<'e> {
    outside: Outside<'e>,
    env_files: Vec<PathBuf>,
}

/// What came of reading a project.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The project, or everything that is wrong with it.
    pub bundle: Result<Bundle, Diagnostics>,
    /// What keeps it from nothing, ordered by file and line.
    pub warnings: Vec<Diagnostic>,
    /// What it was read from.
    pub sources: Sources,
    /// Which of its values nobody is to see.
    pub secrets: Secrets,
}

impl<'e> Loader<'e> {
    /// A loader that takes variables from `env`, and from the project's `.env.local` and `.env`, and
    /// knows no secrets and nothing of the machine.
    #[must_use]
    pub fn new(env: &'e dyn Environment) -> Self {
        let (store, machine) = (&NoSecrets, &AnyMachine);
        Self {
            outside: Outside {
                env,
                store,
                machine,
            },
            env_files: Vec::new(),
        }
    }

    /// Takes variables from these files, too; the last one wins. They are absolute, need not belong to
    /// the project, and must be there.
    #[must_use]
    pub fn with_env_files(self, env_files: &[PathBuf]) -> Self {
        Self {
            env_files: env_files.to_vec(),
            ..self
        }
    }

    /// Takes secrets from this store.
    #[must_use]
    pub fn with_secrets(self, store: &'e dyn SecretStore) -> Self {
        let outside = Outside {
            store,
            ..self.outside
        };
        Self { outside, ..self }
    }

    /// Checks that this machine has what the project's modules and programs need.
    #[must_use]
    pub fn with_machine(self, machine: &'e dyn Machine) -> Self {
        let outside = Outside {
            machine,
            ..self.outside
        };
        Self { outside, ..self }
    }

    /// Reads the project in `root`. Blocks on the file system.
    #[must_use]
    pub fn load(&self, root: &Path) -> Loaded {
        self.read(root, None)
    }

    /// Reads the project of `root` from the files that were kept of it. Environment files are read where
    /// they are; what is wrong in them is passed over. Blocks on the file system.
    #[must_use]
    pub fn load_kept(&self, root: &Path, kept: &KeptFiles) -> Loaded {
        self.read(root, Some(kept))
    }

    fn read(&self, root: &Path, kept: Option<&KeptFiles>) -> Loaded {
        let mut report = Report::default();
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
        Loaded {
            bundle: bundle.ok_or_else(|| Diagnostics::new(errors)),
            warnings,
            sources,
            secrets,
        }
    }

    /// See [`crate::check`].
    #[must_use]
    pub fn check(&self, root: &Path) -> Checked {
        let Loaded {
            bundle, warnings, ..
        } = self.load(root);
        Checked { bundle, warnings }
    }

    /// See [`crate::effective()`].
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the project: what does not hold cannot be shown.
    pub fn effective(&self, root: &Path) -> Result<Vec<Setting>, Diagnostics> {
        let mut report = Report::default();
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
        let mut report = Report::default();
        match self.open(root, &mut report) {
            Some(files) => Ok(autofix::autofix(files, self.outside)),
            None => Err(report.into_diagnostics()),
        }
    }

    /// The files of a project of the format 0.0.3 that are written otherwise today, by path. Nothing is written.
    /// Blocks on the file system.
    ///
    /// # Errors
    ///
    /// What is wrong with the older forms, or with the files themselves.
    pub fn migrate(&self, root: &Path) -> Result<Vec<MigratedFile>, Diagnostics> {
        let mut report = Report::default();
        match self.open(root, &mut report) {
            Some(files) => migrate::migrate(&files, self.outside),
            None => Err(report.into_diagnostics()),
        }
    }

    fn open(&self, root: &Path, report: &mut Report) -> Option<ProjectFiles> {
        let files = load::open(root, report)?;
        Some(files.with_env_files(self.env_files.clone()))
    }
}
