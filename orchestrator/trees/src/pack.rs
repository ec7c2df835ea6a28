//! Packing of a tree into an archive for [`extract_listed`](crate::extract::extract_listed).

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use goondan_durable::disk::{Folder, NodeKind};

use crate::error::{IoContext as _, TreeError};
use crate::excludes::Excludes;
use crate::limits::Limits;
use crate::manifest::{Digest, Manifest, ManifestBuilder, TreeEntry};
use crate::path::{Names, RelativePath};
use crate::read::drain;
use crate::survey::{SurveyedPath, Unreadable, Writers, survey};
use crate::tar_entry::{padding, push_header};

/// Two blocks of zeros end an archive.
const END: [u8; 1024] = [0; 1024];

/// Writes a gzip archive of a tree without concurrent writers, and returns the list of its entries.
/// Directories, files and links are kept as they are, including links that point out of the tree.
///
/// # Errors
///
/// [`TreeError`], [`TreeError::Changing`] if another program writes anyway. The partial output is
/// not a valid archive.
pub fn pack(
    source: &dyn Folder,
    excludes: &Excludes,
    limits: Limits,
    out: &mut dyn Write,
) -> Result<Manifest, TreeError> {
    let survey = survey(
        source,
        excludes,
        limits,
        Writers::AtRest,
        Unreadable::Refused,
    )?;
    let mut listed = ManifestBuilder::new(limits, Names::Local);
    let mut out = GzEncoder::new(out, Compression::default());
    for found in survey.found {
        let entry = entry(source, &found, &mut out)?;
        listed.add(found.path, entry)?;
    }
    let ended = out.write_all(&END).and_then(|()| out.finish().map(drop));
    ended.during("write", "archive")?;
    Ok(listed.finish())
}

fn entry(
    source: &dyn Folder,
    found: &SurveyedPath,
    out: &mut GzEncoder<&mut dyn Write>,
) -> Result<TreeEntry, TreeError> {
    let (path, stat) = (&found.path, &found.stat);
    let mode = stat.mode;
    let entry = match (stat.kind, &found.target) {
        (NodeKind::Directory, _) => TreeEntry::Directory { mode },
        (NodeKind::Link, Some(target)) => TreeEntry::Link {
            target: target.clone(),
        },
        // The digest is known after the file is written.
        (NodeKind::File, _) => TreeEntry::File {
            mode,
            bytes: stat.len,
            sha256: Digest::of(&[]),
        },
        (NodeKind::Link | NodeKind::Special, _) => {
            let path = path.clone();
            return Err(TreeError::Special { path });
        }
    };
    let mut head = Vec::new();
    push_header(&mut head, path, stat, &entry);
    out.write_all(&head).during("write", "archive")?;
    match entry {
        TreeEntry::File { mode, bytes, .. } => {
            let sha256 = content(source, path, bytes, out)?;
            Ok(TreeEntry::File {
                mode,
                bytes,
                sha256,
            })
        }
        other => Ok(other),
    }
}

/// Writes a file's content and padding; returns its digest.
fn content(
    source: &dyn Folder,
    path: &RelativePath,
    bytes: u64,
    out: &mut dyn Write,
) -> Result<Digest, TreeError> {
    let mut file = source.read(path.as_path()).during("open", path)?;
    let read = drain(file.as_mut(), bytes, |piece| out.write_all(piece));
    let changing = || TreeError::Changing { path: path.clone() };
    let (read, sha256) = match read {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Err(changing()),
        read => read.during("read", path)?,
    };
    if read != bytes {
        return Err(changing());
    }
    out.write_all(padding(bytes)).during("write", "archive")?;
    Ok(sha256)
}

/// Syncs the files and directories of a list after the tree was written.
///
/// # Errors
///
/// [`TreeError::Io`].
pub fn sync_listed(folder: &dyn Folder, listed: &Manifest) -> Result<(), TreeError> {
    let mut directories = vec![Path::new("")];
    for (path, entry) in listed.entries() {
        match entry {
            TreeEntry::File { .. } => {
                let mut file = folder.read(path.as_path()).during("open", path)?;
                file.sync().during("sync", path)?;
            }
            TreeEntry::Directory { .. } => directories.push(path.as_path()),
            TreeEntry::Link { .. } => {}
        }
    }
    for path in directories.into_iter().rev() {
        folder.sync_dir(path).during("sync", path.display())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use goondan_durable::disk::{Disk as _, RealDisk, append_all};

    use super::*;
    use crate::RealFolder;
    use crate::extract::extract_listed;

    fn write(path: &Path, bytes: &[u8]) {
        let mut file = RealDisk.create(path).unwrap();
        append_all(file.as_mut(), bytes).unwrap();
    }

    #[test]
    fn packed_tree_is_unpacked_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let deep = from.join("a/ö").join("x".repeat(150));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir(&to).unwrap();
        std::fs::create_dir(from.join("empty")).unwrap();
        for (name, bytes, mode) in [
            ("a/run.sh", 700_usize, 0o775),
            ("read only", 0, 0o444),
            ("block", 512, 0o600),
        ] {
            let path = from.join(name);
            write(&path, &vec![7; bytes]);
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        write(&deep.join("file"), b"deep");
        symlink("/somewhere/else", from.join("link")).unwrap();
        symlink(format!("a/{}", "y/".repeat(100)), from.join("long link")).unwrap();
        let none = Excludes::new::<&str>(&[]).unwrap();
        let source = RealFolder::open(&from).unwrap();
        let mut archive = Vec::new();
        let listed = pack(&source, &none, Limits::default(), &mut archive).unwrap();
        let into = RealFolder::open(&to).unwrap();
        extract_listed(archive.as_slice(), &listed, &into, &|_| true).unwrap();
        sync_listed(&into, &listed).unwrap();
        let again = pack(&into, &none, Limits::default(), &mut io::sink()).unwrap();
        assert_eq!(again, listed);
        assert_eq!(again.entries().count(), 10);
    }
}
