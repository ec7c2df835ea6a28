//! Sources of a loaded project: detection of changes, and directories to watch.
//!
//! Loading only depends on the environment, the secrets, the listing of `resources/` and the files
//! recorded here, including missing files and imports of modules. While [`Sources::is_current`] is
//! true and the secrets are unchanged, loading again gives the same result.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::file_list::{
    Layout, PROJECT_FILE, RESOURCES_DIR, has_older_name, is_foreign, list_resource_files,
};
use crate::last_good_files::ProjectSnapshot;
use crate::limits::MAX_COMPARED_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileState {
    Absent,
    /// A regular file with this SHA-256.
    File([u8; 32]),
    /// Something that cannot be read as a file.
    Other,
}

impl FileState {
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self::File(Sha256::digest(bytes).into())
    }

    /// Current state of a path, following symbolic links.
    pub(crate) fn of(path: &Path) -> Self {
        // Checked before opening, because opening a named pipe would block.
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::Absent,
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) | Err(_) => return Self::Other,
        }
        let Ok(mut file) = fs::File::open(path).map(|file| file.take(MAX_COMPARED_BYTES)) else {
            return Self::Other;
        };
        let mut hash = Sha256::new();
        match io::copy(&mut file, &mut hash) {
            Ok(_) => Self::File(hash.finalize().into()),
            Err(_) => Self::Other,
        }
    }
}

/// Sources of a loaded project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    root: PathBuf,
    files: BTreeMap<PathBuf, FileState>,
    /// The listed resource files, if they were listed; `None` inside if listing failed.
    listing: Option<(Layout, Option<Vec<PathBuf>>)>,
    kept: ProjectSnapshot,
    secrets: BTreeSet<String>,
}

impl Sources {
    /// Sources of a project that could not be read: its root and its project file.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        let mut sources = Self {
            root: root.to_path_buf(),
            ..Self::default()
        };
        let project_file = root.join(PROJECT_FILE);
        sources.note(project_file.clone(), FileState::of(&project_file));
        sources
    }

    /// The files that can be stored and loaded again without the project.
    #[must_use]
    pub fn kept(&self) -> &ProjectSnapshot {
        &self.kept
    }

    /// The names of all referenced secrets, existing or not.
    #[must_use]
    pub fn secrets(&self) -> &BTreeSet<String> {
        &self.secrets
    }

    /// Adds the secrets of another configuration that was loaded instead.
    pub fn add_secrets(&mut self, names: &BTreeSet<String>) {
        self.secrets.extend(names.iter().cloned());
    }

    /// True if every file is unchanged. Blocks on the file system.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let is_listed_alike = self.listing.as_ref().is_none_or(|(layout, listed)| {
            *listed == list_resource_files(&self.root, *layout).ok()
        });
        is_listed_alike
            && self
                .files
                .iter()
                .all(|(path, state)| FileState::of(path) == *state)
    }

    /// Absolute paths of the files that were read, sorted.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let read = self
            .files
            .iter()
            .filter(|(_, state)| matches!(state, FileState::File(_)));
        read.map(|(path, _)| path.as_path())
    }

    /// The files within the project, relative to its root.
    ///
    /// # Errors
    ///
    /// One that a symbolic link leads to, or whose name is not UTF-8: it cannot be protected from
    /// programs that write beside the link.
    pub(crate) fn in_project(&self) -> Result<BTreeSet<String>, PathBuf> {
        let mut found = BTreeSet::new();
        for path in self.files() {
            let clean = without_climbs(path);
            let Ok(relative) = clean.strip_prefix(&self.root) else {
                continue;
            };
            let is_plain = path.canonicalize().is_ok_and(|real| real == clean);
            match relative.to_str() {
                Some(relative) if is_plain => found.insert(relative.to_owned()),
                Some(_) | None => return Err(path.to_owned()),
            };
        }
        Ok(found)
    }

    /// Directories in which changes of the sources are visible: the directory of each file or its
    /// nearest existing ancestor, the targets of symbolic links, and the parent of the Project
    /// Root, in case the root is replaced. Blocks on the file system.
    #[must_use]
    pub fn directories(&self) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        let root = [self.root.clone(), self.root.join(RESOURCES_DIR)];
        for path in self.files.keys().chain(&root) {
            directories.extend(nearest_directory(path));
            if let Ok(target) = path.canonicalize() {
                directories.extend(nearest_directory(&target));
            }
        }
        let mut waiting = match self.layout() {
            Layout::Own => vec![self.root.join(RESOURCES_DIR)],
            Layout::Older => vec![self.root.clone()],
        };
        while let Some(directory) = waiting.pop() {
            let Ok(listing) = fs::read_dir(&directory) else {
                continue;
            };
            let below = listing.flatten().map(|entry| entry.path());
            // Links to directories are followed, as in reading; the limit ends loops.
            let is_passed_over = |path: &Path| {
                is_hidden(path) || (self.layout() == Layout::Older && is_foreign(path))
            };
            waiting.extend(below.filter(|path| path.is_dir() && !is_passed_over(path)));
            directories.insert(directory);
            if directories.len() > crate::limits::MAX_RESOURCE_FILES {
                break;
            }
        }
        directories
    }

    /// True if a change at `path` may affect the sources.
    #[must_use]
    pub fn concerns(&self, path: &Path) -> bool {
        let is_on_the_way = |source: &Path| source.starts_with(path);
        // A file with a known name, or a directory that may contain some.
        let may_be_older = has_older_name(path) || path.extension().is_none();
        if self.layout() == Layout::Older && may_be_older && path.starts_with(&self.root) {
            return true;
        }
        if path.starts_with(self.root.join(RESOURCES_DIR)) || is_on_the_way(&self.root) {
            return true;
        }
        self.files.keys().any(|source| {
            let target = source.canonicalize().ok();
            let target = target.as_deref().filter(|target| *target != source);
            // Behind a link, any sibling may be a part of the link's path.
            let is_beside_a_link = target.is_some() && path.parent() == source.parent();
            is_on_the_way(source) || target.is_some_and(is_on_the_way) || is_beside_a_link
        })
    }

    /// Adds the files of a package. They are not stored, because a package stays in its place.
    pub(crate) fn add_files(&mut self, package: Self) {
        self.files.extend(package.files);
    }

    pub(crate) fn note(&mut self, path: PathBuf, state: FileState) {
        self.files.insert(path, state);
    }

    pub(crate) fn list(&mut self, layout: Layout, found: Option<Vec<PathBuf>>) {
        self.listing = Some((layout, found));
    }

    fn layout(&self) -> Layout {
        self.listing
            .as_ref()
            .map(|(layout, _)| *layout)
            .unwrap_or_default()
    }

    pub(crate) fn keep(&mut self, path: &Path, text: &str) {
        self.kept.add(path, Some(text));
    }

    pub(crate) fn name(&mut self, path: &Path) {
        self.kept.add(path, None);
    }
}

/// The path without `..`, which only imports of modules have.
fn without_climbs(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => clean.push(part),
        }
    }
    clean
}

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// The directory of a path, or its nearest existing ancestor.
fn nearest_directory(path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors().skip(1);
    above.find(|dir| dir.is_dir()).map(Path::to_path_buf)
}
