//! Lists the files of a project, and explains why a file cannot be read (`ROOT-5`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::codes;
use crate::limits::{MAX_PROJECT_DIRECTORIES, MAX_RESOURCE_DEPTH, MAX_RESOURCE_FILES};
use crate::report::{Problem, SourceLocation};

/// Name of a project's definition.
pub(crate) const PROJECT_FILE: &str = "goondan.yaml";

/// Directory of additional resource files.
pub(crate) const RESOURCES_DIR: &str = "resources";

/// Reason why a file of the project is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileFailure {
    #[error("the path `{0}` is empty or absolute; paths must be relative to the Project Root")]
    NotRelative(String),
    #[error("the path `{0}` contains `..`; paths must stay within the Project Root")]
    HoldsParent(String),
    #[error("`{0}` leads out of the Project Root through a symbolic link")]
    LeadsOutside(String),
    #[error("file `{0}` does not exist in the Project Root")]
    NotFound(String),
    #[error("environment file `{0}` does not exist")]
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
        "`{RESOURCES_DIR}/` contains more than {MAX_RESOURCE_FILES} YAML files or directories, or \
         is more than {MAX_RESOURCE_DEPTH} levels deep"
    )]
    TooManyFiles,
    #[error(
        "the project contains more than {MAX_PROJECT_DIRECTORIES} directories, or more than \
         {MAX_RESOURCE_FILES} files with names of goondan 0.0.3 resource files"
    )]
    TooManyDirectories,
    #[error("failed to read `{path}`: {reason}")]
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
            Self::TooLarge { .. } | Self::TooManyFiles | Self::TooManyDirectories => {
                codes::TOO_LARGE
            }
        }
    }

    fn suggestion(&self) -> &'static str {
        match self {
            Self::NotRelative(_) | Self::HoldsParent(_) | Self::LeadsOutside(_) => {
                "move the file into the project, and write its path relative to the Project Root"
            }
            Self::NotFound(_) => "create the file or correct its path",
            Self::NoEnvironmentFile(_) => {
                "create it, or run `gdn run --env-file FILE` or `gdn run --no-env-file`"
            }
            Self::NotAFile(_) => "write the path of a file, not of a directory or device",
            Self::NotADirectory(_) => "write the path of a directory",
            Self::TooLarge { .. } => "split the file or make it smaller",
            Self::NotText(_) => "save the file as UTF-8",
            Self::TooManyFiles => "put several documents into one file, separated by `---`",
            Self::TooManyDirectories => {
                "move unrelated files out of the project, or require this version of \
                 `@goondan/base` and put the resources into `resources/`"
            }
            Self::Unreadable { .. } => "check the file's owner and permissions",
        }
    }

    /// Converts the failure to a problem at the field or file that requires the file.
    pub(crate) fn at(&self, place: SourceLocation) -> Problem {
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

/// Locations of a project's resource files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    #[default]
    Own,
    /// In [`RESOURCES_DIR`], and anywhere else under known names, as in goondan 0.0.3 (`COMPAT-1`).
    Older,
}

/// Names of resource files in 0.0.3, without extension.
const OLDER_NAMES: [&str; 18] = [
    "agent",
    "agents",
    "connection",
    "connections",
    "connector",
    "connectors",
    "extension",
    "extensions",
    "model",
    "models",
    "oauth",
    "resources",
    "secret",
    "secrets",
    "swarm",
    "swarms",
    "tool",
    "tools",
];

/// Directories with third-party files.
const FOREIGN_DIRECTORIES: [&str; 2] = ["node_modules", "packages"];

/// True if 0.0.3 treated a file as a resource file because of its name.
pub(crate) fn has_older_name(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    is_yaml(path) && stem.is_some_and(|stem| OLDER_NAMES.contains(&stem))
}

/// [`PROJECT_FILE`], then the YAML files of the `layout`, sorted by path. Hidden files are skipped,
/// because editors create them.
pub(crate) fn list_resource_files(
    root: &Path,
    layout: Layout,
) -> Result<Vec<PathBuf>, FileFailure> {
    let mut files = RESOURCES.list(root, Path::new(RESOURCES_DIR))?;
    if layout == Layout::Older {
        let named = BY_NAME.list(root, Path::new(""))?.into_iter();
        files.extend(named.filter(|path| !path.starts_with(RESOURCES_DIR)));
    }
    files.sort();
    files.insert(0, PathBuf::from(PROJECT_FILE));
    Ok(files)
}

/// Way to search a directory.
struct DirectoryWalk {
    /// True for the path of a file that is searched for.
    is_wanted: fn(&Path) -> bool,
    /// True for an entry that is a directory to search.
    is_entered: fn(&fs::DirEntry, &Path) -> bool,
    directories_max: usize,
    too_many: fn() -> FileFailure,
}

/// All of [`RESOURCES_DIR`], including links. Broken links are reported when they are read.
const RESOURCES: DirectoryWalk = DirectoryWalk {
    is_wanted: is_yaml,
    is_entered: |entry, _| fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir()),
    directories_max: MAX_RESOURCE_FILES,
    too_many: || FileFailure::TooManyFiles,
};

/// A whole project, for file names known to 0.0.3. Skips deep and third-party directories, and
/// links.
const BY_NAME: DirectoryWalk = DirectoryWalk {
    is_wanted: has_older_name,
    is_entered: |entry, path| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_directory && !is_foreign(path) && depth_of(path) <= MAX_RESOURCE_DEPTH
    },
    directories_max: MAX_PROJECT_DIRECTORIES,
    too_many: || FileFailure::TooManyDirectories,
};

impl DirectoryWalk {
    fn list(&self, root: &Path, directory: &Path) -> Result<Vec<PathBuf>, FileFailure> {
        let mut files = Vec::new();
        let mut directories = vec![directory.to_owned()];
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
                if (self.is_entered)(&entry, &path) {
                    directories.push(path);
                } else if (self.is_wanted)(&path) {
                    files.push(path);
                }
            }
            let is_deep = |directory: &PathBuf| depth_of(directory) > MAX_RESOURCE_DEPTH;
            let is_too_much = files.len() > MAX_RESOURCE_FILES
                || looked_into + directories.len() > self.directories_max
                || directories.iter().any(is_deep);
            if is_too_much {
                return Err((self.too_many)());
            }
        }
        Ok(files)
    }
}

/// True if a directory contains third-party files.
pub(crate) fn is_foreign(directory: &Path) -> bool {
    let name = directory.file_name();
    name.is_some_and(|name| FOREIGN_DIRECTORIES.iter().any(|it| name == *it))
}

fn depth_of(path: &Path) -> usize {
    path.components().count()
}
