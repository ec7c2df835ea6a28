//! Atomic creation of new directories.

use std::path::Path;

use goondan_durable::disk::Folder;

use crate::error::{IoContext as _, TreeError};
use crate::manifest::Manifest;

/// Name of an incomplete new directory. The next attempt removes the remains of a crash under this
/// name.
fn partial_name(name: &str) -> String {
    format!(".{name}.partial")
}

/// Creates a directory `name`, filled by `fill`; durable when it returns. `fill` must sync its
/// files.
pub(crate) fn build<T>(
    parent: &dyn Folder,
    name: &str,
    fill: impl FnOnce(&dyn Folder) -> Result<(Manifest, T), TreeError>,
) -> Result<(Manifest, T), TreeError> {
    let partial = partial_name(name);
    let (partial_path, path) = (Path::new(&partial), Path::new(name));
    if parent.look(path).during("inspect", name)?.is_some() {
        return Err(TreeError::Taken {
            name: name.to_owned(),
        });
    }
    remove_all(parent, partial_path)?;
    parent
        .create_dir(partial_path, 0o700)
        .during("create", &partial)?;
    let filled = parent
        .below(partial_path)
        .during("open", &partial)
        .and_then(|folder| {
            let filled = fill(folder.as_ref())?;
            sync_directories(folder.as_ref(), &filled.0)?;
            Ok(filled)
        })
        .and_then(|filled| {
            parent
                .rename_new(partial_path, path)
                .during("rename into place", name)?;
            Ok(filled)
        });
    match filled {
        Ok(filled) => {
            parent.sync_dir(Path::new("")).during("sync", ".")?;
            Ok(filled)
        }
        Err(error) => {
            // The next attempt retries a failed removal; the first error is the relevant one.
            drop(remove_all(parent, partial_path));
            Err(error)
        }
    }
}

fn sync_directories(folder: &dyn Folder, manifest: &Manifest) -> Result<(), TreeError> {
    for (path, entry) in manifest.entries() {
        if entry.is_directory() {
            folder.sync_dir(path.as_path()).during("sync", path)?;
        }
    }
    folder.sync_dir(Path::new("")).during("sync", ".")
}

/// Removes a file, link or directory recursively, without following links. A missing path is not an
/// error.
///
/// # Errors
///
/// [`TreeError::Io`]; the removal may be partial then.
pub fn remove_all(folder: &dyn Folder, path: &Path) -> Result<(), TreeError> {
    folder.remove_tree(path).during("remove", path.display())
}
