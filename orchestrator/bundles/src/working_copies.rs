//! Working copies of changesets (`BUNDLE-3`): `changesets/`, which the agent's process writes
//! concurrently.
//!
//! All access is beneath that directory and follows no link, because an agent must not redirect the
//! daemon's reads and writes.

use std::io;
use std::path::{Path, PathBuf};

use goondan_durable::IoContext as _;
use goondan_durable::disk::{Folder, NodeKind, append_all, read_all};
use goondan_protocol::ids::ChangesetId;
use goondan_trees::{FileAccess, remove_all};

use crate::error::BundleError;
use crate::limits::{FILES_MAX, PATH_BYTES_MAX, TREE_BYTES_MAX};
use crate::tree::{Tree, too_large};

/// Directory of changesets in a bundle's directory.
pub(crate) const CHANGESETS: &str = "changesets";
const WORKDIR: &str = "workdir";
const DIFF: &str = "diff.patch";
/// Temporary file beside the working copy.
const PARTIAL: &str = ".partial";

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Returns the path of a changeset's working copy in the directory of changesets.
pub(crate) fn workdir_in(changesets: &Path, id: &ChangesetId) -> PathBuf {
    changesets.join(id.as_str()).join(WORKDIR)
}

/// The working copies of one conversation.
#[derive(Debug)]
pub(crate) struct WorkingCopies {
    folder: Box<dyn Folder>,
    root: PathBuf,
}

impl WorkingCopies {
    /// Opens the working copies in the existing directory `root`.
    pub(crate) fn open(files: &dyn FileAccess, root: PathBuf) -> Result<Self, BundleError> {
        let folder = files.folder(&root).during("open", &root)?;
        Ok(Self { folder, root })
    }

    fn of(id: &ChangesetId) -> PathBuf {
        PathBuf::from(id.as_str())
    }

    fn workdir(id: &ChangesetId) -> PathBuf {
        workdir_in(Path::new(""), id)
    }

    /// Adds the file to an error.
    fn during<T>(
        &self,
        operation: &'static str,
        path: &Path,
        result: io::Result<T>,
    ) -> Result<T, BundleError> {
        Ok(result.during(operation, &self.root.join(path))?)
    }

    /// Creates or replaces a working copy.
    pub(crate) fn stage(&self, id: &ChangesetId, tree: &Tree) -> Result<(), BundleError> {
        let workdir = Self::workdir(id);
        self.remove_all(&workdir)?;
        self.make_directory(&workdir)?;
        for (path, text) in tree {
            if let Some(text) = text {
                self.put(id, &workdir.join(path), text.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Writes or removes a file of a working copy.
    pub(crate) fn write(
        &self,
        id: &ChangesetId,
        path: &str,
        text: Option<&str>,
    ) -> Result<(), BundleError> {
        let path = Self::workdir(id).join(path);
        match text {
            Some(text) => self.put(id, &path, text.as_bytes()),
            None => self.during("remove", &path, self.folder.remove(&path)),
        }
    }

    /// Stores the diff of a changeset beside its working copy.
    pub(crate) fn write_diff(&self, id: &ChangesetId, diff: &str) -> Result<(), BundleError> {
        self.put(id, &Self::of(id).join(DIFF), diff.as_bytes())
    }

    pub(crate) fn remove(&self, id: &ChangesetId) -> Result<(), BundleError> {
        self.remove_all(&Self::of(id))
    }

    /// Reads a working copy, together with the files that `base` only references.
    pub(crate) fn read(&self, id: &ChangesetId, base: &Tree) -> Result<Tree, BundleError> {
        let named = base.iter().filter(|(_, text)| text.is_none());
        let mut tree: Tree = named.map(|(path, _)| (path.clone(), None)).collect();
        let mut bytes = 0;
        let root = Self::workdir(id);
        let mut waiting = vec![PathBuf::new()];
        while let Some(below) = waiting.pop() {
            let dir = root.join(&below);
            for name in self.during("list", &dir, self.folder.names(&dir))? {
                let path = below.join(name);
                let file = root.join(&path);
                let name = named_in_text(&path)?;
                let found = self.during("inspect", &file, self.folder.look(&file))?;
                match found.map(|stat| stat.kind) {
                    // The file was removed in the meantime.
                    None => {}
                    Some(NodeKind::Directory) => waiting.push(path),
                    Some(NodeKind::File) => {
                        let text = self.text_of(&file, &name)?;
                        bytes += text.len();
                        tree.insert(name, Some(text));
                    }
                    Some(NodeKind::Link | NodeKind::Special) => {
                        let text = format!("`{name}` is neither a file nor a directory");
                        return Err(BundleError::Invalid(text));
                    }
                }
                if tree.len() > FILES_MAX || bytes > TREE_BYTES_MAX || waiting.len() > FILES_MAX {
                    return Err(too_large());
                }
            }
        }
        Ok(tree)
    }

    fn text_of(&self, file: &Path, name: &str) -> Result<String, BundleError> {
        let mut opened = self.during("open", file, self.folder.read(file))?;
        let read = read_all(opened.as_mut(), TREE_BYTES_MAX);
        let text = String::from_utf8(self.during("read", file, read)?);
        text.map_err(|_| BundleError::Invalid(format!("`{name}` is not UTF-8 text")))
    }

    /// Atomically writes a file in a changeset's directory, replacing an existing file or link.
    fn put(&self, id: &ChangesetId, path: &Path, content: &[u8]) -> Result<(), BundleError> {
        let parent = path.parent().unwrap_or(Path::new(""));
        self.make_directory(parent)?;
        let partial = Self::of(id).join(PARTIAL);
        self.remove_all(&partial)?;
        let written = self
            .folder
            .create(&partial, FILE_MODE)
            .and_then(|mut file| append_all(file.as_mut(), content).and_then(|()| file.sync()));
        self.during("write", path, written)?;
        let found = self.during("inspect", path, self.folder.look(path))?;
        if found.is_some_and(|stat| stat.kind == NodeKind::Directory) {
            self.remove_all(&partial)?;
            let text = format!("`{}` is a directory", path.display());
            return Err(BundleError::Invalid(text));
        }
        let installed = match found {
            None => self.folder.rename_new(&partial, path),
            Some(_) => self
                .folder
                .exchange(&partial, path)
                .and_then(|()| self.folder.remove(&partial)),
        };
        self.during("rename into place", path, installed)?;
        self.during("sync", parent, self.folder.sync_dir(parent))
    }

    /// Creates a directory and its parents.
    fn make_directory(&self, path: &Path) -> Result<(), BundleError> {
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        for dir in above.into_iter().filter(|dir| !dir.as_os_str().is_empty()) {
            match self.folder.create_dir(dir, DIRECTORY_MODE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => self.during("create", dir, made)?,
            }
            let parent = dir.parent().unwrap_or(Path::new(""));
            self.during("sync", parent, self.folder.sync_dir(parent))?;
        }
        Ok(())
    }

    fn remove_all(&self, path: &Path) -> Result<(), BundleError> {
        remove_all(self.folder.as_ref(), path).map_err(|error| BundleError::NotRemoved {
            path: self.root.join(path),
            source: Box::new(error),
        })
    }
}

fn named_in_text(path: &Path) -> Result<String, BundleError> {
    let Some(name) = path.to_str() else {
        let text = format!("the file name `{}` is not UTF-8", path.display());
        return Err(BundleError::Invalid(text));
    };
    if name.len() > PATH_BYTES_MAX {
        let text = format!("a path may have {PATH_BYTES_MAX} bytes");
        return Err(BundleError::Invalid(text));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
#[path = "working_copies_tests.rs"]
mod tests;
