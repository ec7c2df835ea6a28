//! Reads files of the Project Root only (`ROOT-5`). Never writes (`ROOT-2`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use goondan_protocol::ids::ResourceName;
use sha2::{Digest, Sha256};

use crate::file_list::{
    FileFailure, Layout, PROJECT_FILE, RESOURCES_DIR, has_older_name, is_yaml, list_resource_files,
};
use crate::imports;
use crate::last_good_files::ProjectSnapshot;
use crate::limits::{MAX_ENV_FILE_BYTES, MAX_IMPORT_PLACES, MAX_IMPORTING_BYTES};
use crate::sources::{FileState, Sources};
use crate::successor::{HARNESS_MODULES, HARNESS_RESOURCES};

/// The files of one Project Root.
#[derive(Debug)]
pub(crate) struct ProjectFiles {
    /// Absolute and free of symbolic links.
    root: PathBuf,
    /// Texts that replace the content of files, by path.
    instead: BTreeMap<PathBuf, String>,
    /// Absolute paths of named environment files; the last one takes precedence.
    env_files: Vec<PathBuf>,
    /// The Swarm to run; `None` for the first one.
    swarm: Option<ResourceName>,
    /// True for the files of a package, whose modules run from its own folder.
    is_package: bool,
    /// Stored files that are read instead of the project, except for environment files.
    kept: Option<ProjectSnapshot>,
    /// Everything that was accessed, with its state.
    seen: RefCell<Sources>,
}

impl ProjectFiles {
    /// Opens a Project Root; the path may contain symbolic links.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        if root.is_dir() {
            Ok(Self {
                seen: RefCell::new(Sources::of(&root)),
                root,
                instead: BTreeMap::new(),
                env_files: Vec::new(),
                swarm: None,
                is_package: false,
                kept: None,
            })
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// Adds environment files to the project's own; the last one takes precedence.
    pub(crate) fn with_env_files(self, env_files: Vec<PathBuf>) -> Self {
        Self { env_files, ..self }
    }

    /// Selects the Swarm to run.
    pub(crate) fn with_swarm(self, swarm: Option<ResourceName>) -> Self {
        Self { swarm, ..self }
    }

    /// The Swarm to run; `None` for the first one.
    pub(crate) fn swarm(&self) -> Option<&ResourceName> {
        self.swarm.as_ref()
    }

    /// Marks the files as those of a package.
    pub(crate) fn of_package(self) -> Self {
        Self {
            is_package: true,
            ..self
        }
    }

    /// True if a `SKILL.md` alone can define the package.
    pub(crate) fn may_be_skill(&self) -> bool {
        self.is_package
    }

    /// The path to start a checked module with: relative to the Project Root, or absolute for a
    /// package.
    pub(crate) fn started_as(&self, path: PathBuf) -> PathBuf {
        if self.is_package {
            self.root.join(path)
        } else {
            path
        }
    }

    /// Adds the accessed files of a package.
    pub(crate) fn add_sources(&self, package: Self) {
        self.seen.borrow_mut().add_files(package.into_sources());
    }

    /// Records that a folder does not exist.
    pub(crate) fn note_absent(&self, folder: &Path) {
        self.note(&folder.join(PROJECT_FILE), FileState::Absent);
    }

    /// Reads stored files instead of current ones. Environment files are not stored, and are read
    /// from their places.
    pub(crate) fn reading_kept(self, kept: ProjectSnapshot) -> Self {
        Self {
            kept: Some(kept),
            ..self
        }
    }

    /// True if stored files are read.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// The named environment files; the last one takes precedence.
    pub(crate) fn env_files(&self) -> &[PathBuf] {
        &self.env_files
    }

    /// Files of the project that were read, or a link that led to one; `None` for stored files.
    pub(crate) fn project_sources(&self) -> Option<Result<BTreeSet<String>, PathBuf>> {
        (!self.is_kept()).then(|| self.seen.borrow().in_project())
    }

    /// Returns everything that was accessed.
    pub(crate) fn into_sources(self) -> Sources {
        self.seen.into_inner()
    }

    fn note(&self, path: &Path, state: FileState) {
        let path = self.root.join(path);
        self.seen.borrow_mut().note(path, state);
    }

    /// Absolute path of a checked path on this machine.
    pub(crate) fn place_of(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// From now on treats a file as having this text.
    pub(crate) fn pretend(&mut self, path: &Path, text: String) {
        self.instead.insert(path.to_path_buf(), text);
    }

    /// Checks that a configured path stays within the project lexically: it is relative and has no
    /// `..`.
    pub(crate) fn check_text(path: &str) -> Result<PathBuf, FileFailure> {
        let mut clean = PathBuf::new();
        for component in Path::new(path).components() {
            match component {
                Component::Normal(name) => clean.push(name),
                Component::CurDir => {}
                Component::ParentDir => return Err(FileFailure::HoldsParent(path.to_owned())),
                Component::RootDir | Component::Prefix(_) => {
                    return Err(FileFailure::NotRelative(path.to_owned()));
                }
            }
        }
        if clean.as_os_str().is_empty() {
            return Err(FileFailure::NotRelative(path.to_owned()));
        }
        Ok(clean)
    }

    /// Resolves a path to a regular file of the project. `path` is relative to the Project Root and
    /// has passed [`Self::check_text`]. Symbolic links are followed as long as they stay inside.
    fn find(&self, path: &Path) -> Result<PathBuf, FileFailure> {
        let target = self.target_of(path)?;
        // Checked before opening, because opening a named pipe would block.
        let metadata = fs::metadata(&target).map_err(|error| FileFailure::io(path, &error))?;
        if metadata.is_file() {
            Ok(target)
        } else {
            Err(FileFailure::NotAFile(path.display().to_string()))
        }
    }

    /// Resolves a path within the project, regardless of its kind.
    fn target_of(&self, path: &Path) -> Result<PathBuf, FileFailure> {
        let target = self.root.join(path).canonicalize();
        let target = target.map_err(|error| FileFailure::io(path, &error))?;
        if target.starts_with(&self.root) {
            Ok(target)
        } else {
            Err(FileFailure::LeadsOutside(path.display().to_string()))
        }
    }

    /// Checks that a path leads to a directory of the project. Not possible for stored files.
    pub(crate) fn check_is_directory(&self, path: &Path) -> Result<(), FileFailure> {
        if self.is_kept() || self.target_of(path)?.is_dir() {
            return Ok(());
        }
        Err(FileFailure::NotADirectory(path.display().to_string()))
    }

    /// SHA-256 of a checked module and all its imports from the project, in hexadecimal. Empty for
    /// stored files, which do not include modules.
    pub(crate) fn digest(&self, entry: &Path) -> String {
        let own = match FileState::of(&self.root.join(entry)) {
            FileState::File(own) if self.kept.is_none() => own,
            FileState::File(_) | FileState::Absent | FileState::Other => return String::new(),
        };
        let imported = self.imported_by(entry);
        if imported.is_empty() {
            return hex::encode(own);
        }
        let mut hash = Sha256::new_with_prefix(own);
        for (path, digest) in imported {
            hash.update(path.as_os_str().as_encoded_bytes());
            hash.update([0]);
            hash.update(digest);
        }
        hex::encode(hash.finalize())
    }

    /// All direct and indirect imports of a module, with their digests. Missing candidates are
    /// recorded as well, so that their creation is noticed.
    fn imported_by(&self, entry: &Path) -> BTreeMap<PathBuf, [u8; 32]> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![entry.to_path_buf()];
        let mut places_left = MAX_IMPORT_PLACES;
        while let Some(file) = waiting.pop() {
            let Ok(target) = self.find(&file) else {
                continue;
            };
            let Ok(text) = read_text(&target, &file, MAX_IMPORTING_BYTES) else {
                continue;
            };
            // Behind a link, relative paths start at the real file.
            let place = target.strip_prefix(&self.root).unwrap_or(&file);
            for places in imports::named_in(entry, place, &text) {
                for path in places {
                    let Some(left) = places_left.checked_sub(1) else {
                        return found;
                    };
                    places_left = left;
                    let is_known = path == entry || found.contains_key(&path);
                    if is_known {
                        break;
                    }
                    if let Some(digest) = self.look_for(&path) {
                        waiting.push(path.clone());
                        found.insert(path, digest);
                        break;
                    }
                }
            }
        }
        found
    }

    /// Digest of a file, if it exists.
    fn look_for(&self, path: &Path) -> Option<[u8; 32]> {
        if let Err(FileFailure::LeadsOutside(_)) = self.find(path) {
            return None;
        }
        let state = FileState::of(&self.root.join(path));
        self.note(path, state);
        match state {
            FileState::File(digest) => Some(digest),
            FileState::Absent | FileState::Other => None,
        }
    }

    /// Checks that a path leads to a regular file of the project.
    pub(crate) fn check_is_file(&self, path: &Path) -> Result<(), FileFailure> {
        if let Some(kept) = &self.kept {
            return match kept.has(path) {
                true => Ok(()),
                false => Err(FileFailure::NotFound(path.display().to_string())),
            };
        }
        self.note(path, FileState::of(&self.root.join(path)));
        self.seen.borrow_mut().name(path);
        self.find(path).map(drop)
    }

    /// Reads a text file of at most `limit` bytes.
    pub(crate) fn read(&self, path: &Path, limit: usize) -> Result<String, FileFailure> {
        if let Some(text) = self.instead.get(path) {
            return Ok(text.clone());
        }
        if let Some(kept) = &self.kept {
            let text = kept.text(path).map(str::to_owned);
            return text.ok_or_else(|| FileFailure::NotFound(path.display().to_string()));
        }
        let read = self
            .find(path)
            .and_then(|target| read_text(&target, path, limit));
        match &read {
            Ok(text) => {
                self.note(path, FileState::of_bytes(text.as_bytes()));
                self.seen.borrow_mut().keep(path, text);
            }
            Err(_) => self.note(path, FileState::of(&self.root.join(path))),
        }
        read
    }

    /// Reads an environment file: one of the project, or a named one, which may be anywhere.
    pub(crate) fn read_env_file(&self, path: &Path) -> Result<String, FileFailure> {
        self.note(path, FileState::of(&self.root.join(path)));
        if !path.is_absolute() {
            let target = self.find(path)?;
            return read_text(&target, path, MAX_ENV_FILE_BYTES);
        }
        // Checked before opening, because opening a named pipe would block.
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => read_text(path, path, MAX_ENV_FILE_BYTES),
            Ok(_) => Err(FileFailure::NotAFile(path.display().to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(FileFailure::NoEnvironmentFile(path.display().to_string()))
            }
            Err(error) => Err(FileFailure::io(path, &error)),
        }
    }

    /// The files whose documents form the project, in reading order: `goondan.yaml`, then the YAML
    /// files of the `layout`, sorted by path. Hidden files are skipped, because editors create
    /// them.
    pub(crate) fn resource_files(&self, layout: Layout) -> Result<Vec<PathBuf>, FileFailure> {
        if let Some(kept) = &self.kept {
            let is_resource_file = |path: &Path| match layout {
                Layout::Older if has_older_name(path) => true,
                Layout::Own | Layout::Older => path.starts_with(RESOURCES_DIR) && is_yaml(path),
            };
            let mut files: Vec<PathBuf> = kept.with_text(is_resource_file).collect();
            files.insert(0, PathBuf::from(PROJECT_FILE));
            return Ok(files);
        }
        let found = list_resource_files(&self.root, layout);
        let listed = found.as_ref().ok().cloned();
        self.seen.borrow_mut().list(layout, listed);
        found
    }

    /// A common misspelling of [`PROJECT_FILE`] that exists.
    pub(crate) fn misnamed_project_file(&self) -> Option<&'static str> {
        ["goondan.yml", "Goondan.yaml", "goondan.json"]
            .into_iter()
            .find(|name| self.root.join(name).is_file())
    }

    /// A file of the TypeScript harness that exists.
    pub(crate) fn harness_file(&self) -> Option<&'static str> {
        HARNESS_MODULES
            .into_iter()
            .chain(HARNESS_RESOURCES)
            .find(|name| self.root.join(name).is_file())
    }
}

fn read_text(target: &Path, path: &Path, limit: usize) -> Result<String, FileFailure> {
    let shown = || path.display().to_string();
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX);
    fs::File::open(target)
        .and_then(|file| file.take(most.saturating_add(1)).read_to_end(&mut bytes))
        .map_err(|error| FileFailure::io(path, &error))?;
    if bytes.len() > limit {
        return Err(FileFailure::TooLarge {
            path: shown(),
            limit,
        });
    }
    String::from_utf8(bytes).map_err(|_| FileFailure::NotText(shown()))
}
