//! Which files a project is made of, and why one of them is not read (`ROOT-5`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::codes;
use crate::limits::{MAX_RESOURCE_DEPTH, MAX_RESOURCE_FILES};
use crate::report::{Place, Problem};

/// The name of a project's definition.
pub(crate) const PROJECT_FILE: &str = "goondan.yaml";

/// The directory of further resource files.
pub(crate) const RESOURCES_DIR: &str = "resources";

/// Why a file of the project is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileFailure {
    #[error("the path `{0}` is empty or absolute; paths are relative to the Project Root")]
    NotRelative(String),
    #[error("the path `{0}` holds `..`; paths stay within the Project Root")]
    HoldsParent(String),
    #[error("`{0}` leads out of the Project Root through a symbolic link")]
    LeadsOutside(String),
    #[error("there is no file `{0}` in the Project Root")]
    NotFound(String),
    #[error("there is no file `{0}`, which was named as an environment file")]
    NoEnvironmentFile(String),
    #[error("`{0}` is not a regular file")]
    NotAFile(String),
    #[error("`{0}` is not a directory")]
    NotADirectory(String),
    #[error("`{path}` is larger than {limit} bytes")]
    TooLarge { path: String, limit: usize },
    #[error("`{0}` is not UTF-8 text")]
    NotText(String),
    #[error(
        "`{RESOURCES_DIR}/` holds more than {MAX_RESOURCE_FILES} YAML files or directories, or more \
         than {MAX_RESOURCE_DEPTH} levels of them"
    )]
    TooManyFiles,
    #[error("`{path}` cannot be read: {reason}")]
    Unreadable { path: String, reason: io::ErrorKind },
}

impl FileFailure {
    fn code(&self) -> &'static str {
        match self {
            Self::NotRelative(_) | Self::HoldsParent(_) | Self::LeadsOutside(_) => {
                codes::PATH_OUTSIDE
            }
            Self::NotFound(_) | Self::NoEnvironmentFile(_) => codes::MISSING_FILE,
            Self::NotAFile(_)
            | Self::NotADirectory(_)
            | Self::NotText(_)
            | Self::Unreadable { .. } => codes::UNREADABLE_FILE,
            Self::TooLarge { .. } | Self::TooManyFiles => codes::TOO_LARGE,
        }
    }

    fn suggestion(&self) -> &'static str {
        match self {
            Self::NotRelative(_) | Self::HoldsParent(_) | Self::LeadsOutside(_) => {
                "put the file into the project and name it relative to the Project Root"
            }
            Self::NotFound(_) => "create the file or correct its path",
            Self::NoEnvironmentFile(_) => {
                "create it, or name others: `gdn run --env-file FILE`, `gdn run --no-env-file`"
            }
            Self::NotAFile(_) => "name a file, not a directory or device",
            Self::NotADirectory(_) => "name a directory",
            Self::TooLarge { .. } => "split the file or make it smaller",
            Self::NotText(_) => "save the file as UTF-8",
            Self::TooManyFiles => "put several documents into one file, separated by `---`",
            Self::Unreadable { .. } => "check who owns the file and its permissions",
        }
    }

    /// The failure as a problem of the field, or file, that asked for it.
    pub(crate) fn at(&self, place: Place) -> Problem {
        Problem::new(self.code(), place, self.to_string()).help(self.suggestion())
    }

    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        let path = path.display().to_string();
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound(path),
            reason => Self::Unreadable { path, reason },
        }
    }
}

pub(crate) fn is_yaml(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml"))
}

/// [`PROJECT_FILE`], then the YAML files in [`RESOURCES_DIR`] and its directories, by path.
pub(crate) fn list_resource_files(root: &Path) -> Result<Vec<PathBuf>, FileFailure> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::from(RESOURCES_DIR)];
    let mut looked_into = 0;
    while let Some(directory) = directories.pop() {
        looked_into += 1;
        let io = |error: &io::Error| FileFailure::io(&directory, error);
        let listing = match fs::read_dir(root.join(&directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            listing => listing.map_err(|error| io(&error))?,
        };
        for entry in listing {
            let entry = entry.map_err(|error| io(&error))?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let path = directory.join(entry.file_name());
            // Through a link, too; what leads nowhere is told when it is read.
            if fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir()) {
                directories.push(path);
            } else if is_yaml(&path) {
                files.push(path);
            }
        }
        let too_deep = directories
            .iter()
            .any(|directory| directory.components().count() > MAX_RESOURCE_DEPTH);
        let too_many = files.len() > MAX_RESOURCE_FILES
            || looked_into + directories.len() > MAX_RESOURCE_FILES;
        if too_deep || too_many {
            return Err(FileFailure::TooManyFiles);
        }
    }
    files.sort();
    files.insert(0, PathBuf::from(PROJECT_FILE));
    Ok(files)
}
