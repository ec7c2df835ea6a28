//! What a project was read from: whether it is still the same, and where to watch for changes.
//!
//! Loading depends on nothing but the environment, the secrets and files noted here (those that were not
//! there and those that modules import included) and the listing of `resources/`. So as long as
//! [`Sources::is_current`] and the secrets are as they were, loading again would come to the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::kept::KeptFiles;
use crate::limits::MAX_COMPARED_BYTES;
use crate::listing::{
    Layout, PROJECT_FILE, RESOURCES_DIR, has_older_name, is_foreign, list_resource_files,
};

/// What was found in the place of a file.
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

    /// What is there now, behind symbolic links.
    pub(crate) fn of(path: &Path) -> Self {
        // Asked before opening: opening a named pipe would wait for its writer.
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

/// What a project was read from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    root: PathBuf,
    /// Absolute paths.
    files: BTreeMap<PathBuf, FileState>,
    /// The resource files as they were listed, if they were; none inside if they could not be.
    listing: Option<(Layout, Option<Vec<PathBuf>>)>,
    kept: KeptFiles,
    secrets: BTreeSet<String>,
}

impl Sources {
    /// Of a project of which nothing could be read yet: its root, and the file that makes it one.
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

    /// The files that can be kept and read again without the project.
    #[must_use]
    pub fn kept(&self) -> &KeptFiles {
        &self.kept
    }

    /// The names of the secrets it asks for, whether they are there or not.
    #[must_use]
    pub fn secrets(&self) -> &BTreeSet<String> {
        &self.secrets
    }

    /// Adds secrets that something else asks for, which was read in its place.
    pub fn add_secrets(&mut self, names: &BTreeSet<String>) {
        self.secrets.extend(names.iter().cloned());
    }

    /// Whether every file is still as it was read. Blocks on the file system.
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

    /// The files that were read: absolute paths, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let read = self
            .files
            .iter()
            .filter(|(_, state)| matches!(state, FileState::File(_)));
        read.map(|(path, _)| path.as_path())
    }

    /// The directories in which a change of the sources can show: those of every file, or the nearest
    /// that is there; where a symbolic link leads, too; and the one above the Project Root, for when
    /// that is replaced. Blocks on the file system.
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
            // Links to directories are followed, as in reading; a loop ends with the limit.
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

    /// Whether a change at `path` may be a change of the sources.
    #[must_use]
    pub fn concerns(&self, path: &Path) -> bool {
        let is_on_the_way = |source: &Path| source.starts_with(path);
        // A file by its name, or a directory that may hold some.
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
            // Behind a link, any neighbour may be the next link of the way.
            let is_beside_a_link = target.is_some() && path.parent() == source.parent();
            is_on_the_way(source) || target.is_some_and(is_on_the_way) || is_beside_a_link
        })
    }

    /// Adds the files of a package. They are not kept: a package stays where it is.
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

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// The directory a path lies in, or the nearest above it that is there.
fn nearest_directory(path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors().skip(1);
    above.find(|dir| dir.is_dir()).map(Path::to_path_buf)
}
