//! Installs a version: unpacks an archive or copies a directory to a temporary directory, checks it there, and then
//! moves it to the other versions (`REL-1`).
//!
//! Archives are untrusted: a path outside the directory, a link, a duplicate file, or an exceeded limit rejects the
//! whole archive, and everything unpacked is removed.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;
use ring::digest::{Context, Digest, SHA256};
use tar::{Archive, EntryType};
use tempfile::TempDir;

use super::limits::{
    ARCHIVE_BYTES_MAX, ARCHIVE_ENTRIES_MAX, ARCHIVE_PATH_BYTES_MAX, SUMS_BYTES_MAX,
    UNPACKED_BYTES_MAX,
};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::installation::{Installation, NoVersionName, VersionName, rename, sync_dir};
use crate::programs::{FURTHER_PROGRAMS, PROGRAMS};

/// File with the digests of all other files, in the format of `sha256sum`.
pub(super) const SUMS: &str = "SHA256SUMS";

/// Directory name prefix of a version being installed.
const INCOMING: &str = ".incoming-";

/// Directory name prefix of a version being replaced.
const OUTGOING: &str = ".outgoing-";

/// Read size, in bytes.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Reason why the source is not installed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The source cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file of the installation cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The source contains something that no goondan version contains.
    #[error("{} is refused: {problem}", path.display())]
    Refused { path: PathBuf, problem: String },
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let (exit, hint) = match &error {
            SourceError::Read { .. } => (
                Exit::NotFound,
                "pass an archive (`.tar.gz`) of goondan, or a directory with its four programs",
            ),
            SourceError::Write { .. } => (
                Exit::Internal,
                "check that the directory is writable and the disk is not full: `df -h`",
            ),
            SourceError::Refused { .. } => (
                Exit::Damaged,
                "nothing was changed; get the archive again, and compare its digest: `sha256sum FILE`",
            ),
        };
        Self::of(exit, &error, hint)
    }
}

/// A version that has not been moved to its final name. Deleted on drop.
#[derive(Debug)]
pub(super) struct StagedVersion {
    /// Temporary directory with all files.
    holder: TempDir,
    /// Directory of the programs: the temporary directory, or the only directory in it.
    dir: PathBuf,
    /// Digest of each file, by its path below `dir`.
    sums: BTreeMap<String, String>,
}

impl StagedVersion {
    /// Unpacks a version from an archive or a directory, and verifies its files against its digests. `wanted` is the
    /// expected digest of the archive.
    pub(super) fn take(
        source: &Path,
        wanted: Option<&str>,
        installation: &Installation,
    ) -> Result<Self, SourceError> {
        let versions = installation.versions();
        let unwritable = |source| SourceError::Write {
            path: versions.clone(),
            source,
        };
        let holder = tempfile::Builder::new()
            .prefix(INCOMING)
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir_in(&versions)
            .map_err(unwritable)?;
        let mut taking = VersionCopier {
            source,
            dir: holder.path().to_owned(),
            sums: BTreeMap::new(),
            bytes: 0,
        };
        let is_dir = source.metadata().map_err(|error| taking.unread(error))?;
        if is_dir.is_dir() {
            if wanted.is_some() {
                return Err(taking.refused("a directory has no digest"));
            }
            taking.directory()?;
        } else {
            taking.archive(wanted)?;
        }
        let (dir, sums) = taking.finished()?;
        Ok(Self { holder, dir, sums })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Name of this version, from the version number that its programs report.
    pub(super) fn name(&self, number: &str) -> Result<VersionName, NoVersionName> {
        let digest = ring::digest::digest(&SHA256, text_of(&self.sums).as_bytes());
        VersionName::new(number, &digits(&digest))
    }

    /// Moves it to the installed versions. An existing version with this name is kept if its files match, and replaced
    /// otherwise.
    pub(super) fn settle(
        self,
        name: &VersionName,
        installation: &Installation,
    ) -> Result<(), SourceError> {
        let place = installation.dir_of(name);
        let failed = |source| SourceError::Write {
            path: place.clone(),
            source,
        };
        if place.is_dir() {
            if holds(&place, &self.sums) {
                return Ok(());
            }
            let away = tempfile::Builder::new()
                .prefix(OUTGOING)
                .tempdir_in(installation.versions())
                .map_err(failed)?;
            rename(&place, &away.path().join("damaged")).map_err(failed)?;
        }
        rename(&self.dir, &place).map_err(failed)?;
        sync_dir(&installation.versions()).map_err(failed)?;
        if self.dir == self.holder.path() {
            // The directory was renamed, so there is nothing to delete.
            drop(self.holder.keep());
        }
        Ok(())
    }
}

/// Removes leftovers of installations that were killed.
pub(super) fn clear_away(installation: &Installation) {
    let entries = fs::read_dir(installation.versions());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(INCOMING) || name.starts_with(OUTGOING) {
            // A leftover does no harm, and the next call tries again.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// True if the files of a directory have the expected digests.
fn holds(dir: &Path, sums: &BTreeMap<String, String>) -> bool {
    sums.iter().all(|(path, sum)| {
        let digest = File::open(dir.join(path)).and_then(|mut file| digest_of(&mut file));
        digest.is_ok_and(|digest| digest == *sum)
    })
}

/// Copies files into the temporary directory.
struct VersionCopier<'s> {
    source: &'s Path,
    dir: PathBuf,
    sums: BTreeMap<String, String>,
    /// Bytes copied so far.
    bytes: u64,
}

impl VersionCopier<'_> {
    /// Copies the programs of a directory, and its digests.
    fn directory(&mut self) -> Result<(), SourceError> {
        let sums = self.source.join(SUMS);
        let is_there = |program: &&&str| self.source.join(program).is_file();
        let further = FURTHER_PROGRAMS.iter().filter(is_there);
        let programs = PROGRAMS.iter().chain(further);
        let named = programs.map(|program| (*program, 0o755));
        let named = named.chain(sums.is_file().then_some((SUMS, 0o644)));
        for (name, mode) in named.collect::<Vec<_>>() {
            let path = self.source.join(name);
            let file = File::open(&path).map_err(|source| SourceError::Read { path, source })?;
            self.file(name, mode, file)?;
        }
        Ok(())
    }

    fn archive(&mut self, wanted: Option<&str>) -> Result<(), SourceError> {
        let mut file = File::open(self.source).map_err(|error| self.unread(error))?;
        let length = file.metadata().map_err(|error| self.unread(error))?.len();
        if length > ARCHIVE_BYTES_MAX {
            return Err(self.refused(format!("it is larger than {ARCHIVE_BYTES_MAX} bytes")));
        }
        if let Some(wanted) = wanted {
            let found = digest_of(&mut file).map_err(|error| self.unread(error))?;
            if !found.eq_ignore_ascii_case(wanted) {
                return Err(self.refused(format!("its SHA-256 is {found}, not {wanted}")));
            }
            file.rewind().map_err(|error| self.unread(error))?;
        }
        // The limit includes tar headers.
        let unpacked = GzDecoder::new(io::BufReader::new(file)).take(UNPACKED_BYTES_MAX);
        let mut archive = Archive::new(unpacked);
        let no_archive = |error: io::Error| SourceError::Refused {
            path: self.source.to_owned(),
            problem: format!("it is not a complete `.tar.gz`: {error}"),
        };
        let mut count = 0;
        for entry in archive.entries().map_err(no_archive)? {
            let entry = entry.map_err(no_archive)?;
            count += 1;
            if count > ARCHIVE_ENTRIES_MAX {
                return Err(self.refused(format!("it has more than {ARCHIVE_ENTRIES_MAX} files")));
            }
            let kind = entry.header().entry_type();
            if kind == EntryType::XGlobalHeader {
                continue;
            }
            let bytes = entry.path_bytes().into_owned();
            let shown = String::from_utf8_lossy(&bytes).into_owned();
            let path = plain(&bytes).ok_or_else(|| {
                self.refused(format!(
                    "the path {shown:?} leads out of the archive or is invalid"
                ))
            })?;
            match kind {
                EntryType::Directory => self.make_dir(&path)?,
                EntryType::Regular => {
                    let is_program = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
                    self.file(&path, if is_program { 0o755 } else { 0o644 }, entry)?;
                }
                _ => {
                    return Err(
                        self.refused(format!("{shown:?} is neither a file nor a directory"))
                    );
                }
            }
        }
        Ok(())
    }

    fn make_dir(&self, path: &str) -> Result<(), SourceError> {
        let path = self.dir.join(path);
        fs::create_dir_all(&path).map_err(|source| self.unwritten(&path, source))
    }

    /// Writes one file, which must not exist yet.
    fn file(&mut self, path: &str, mode: u32, content: impl Read) -> Result<(), SourceError> {
        let place = self.dir.join(path);
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.make_dir(parent)?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&place);
        let mut file = file.map_err(|source| self.unwritten(&place, source))?;
        let mut content = content.take(UNPACKED_BYTES_MAX.saturating_sub(self.bytes) + 1);
        let mut context = Context::new(&SHA256);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = match content.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) => {
                    return Err(self.refused(format!("{path:?} cannot be read: {error}")));
                }
            };
            let read = chunk.get(..length).unwrap_or_default();
            context.update(read);
            self.bytes += u64::try_from(length).unwrap_or(u64::MAX);
            if self.bytes > UNPACKED_BYTES_MAX {
                return Err(
                    self.refused(format!("it contains more than {UNPACKED_BYTES_MAX} bytes"))
                );
            }
            file.write_all(read)
                .map_err(|source| self.unwritten(&place, source))?;
        }
        file.sync_all()
            .map_err(|source| self.unwritten(&place, source))?;
        self.sums.insert(path.to_owned(), digits(&context.finish()));
        Ok(())
    }

    /// Returns the directory of the programs and the digests of its files, once everything is checked and synced.
    fn finished(mut self) -> Result<(PathBuf, BTreeMap<String, String>), SourceError> {
        self.enter_only_dir();
        if let Some(missing) = PROGRAMS.iter().find(|it| !self.sums.contains_key(**it)) {
            return Err(self.refused(format!("it does not contain {missing}")));
        }
        match self.sums.remove(SUMS) {
            Some(_) => self.compare()?,
            None => self.write_sums()?,
        }
        let mut dirs = vec![self.dir.clone()];
        let parents = self.sums.keys().filter_map(|path| Path::new(path).parent());
        dirs.extend(parents.map(|parent| self.dir.join(parent)));
        dirs.dedup();
        for dir in dirs {
            sync_dir(&dir).map_err(|source| self.unwritten(&dir, source))?;
        }
        Ok((self.dir, self.sums))
    }

    /// Archives often contain a single top-level directory.
    fn enter_only_dir(&mut self) {
        let first = self
            .sums
            .keys()
            .next()
            .and_then(|path| path.split_once('/'));
        let Some((first, _)) = first.map(|(first, rest)| (format!("{first}/"), rest)) else {
            return;
        };
        let below = |path: &String| path.strip_prefix(&first).map(str::to_owned);
        let all: Option<BTreeMap<String, String>> = self
            .sums
            .iter()
            .map(|(path, sum)| Some((below(path)?, sum.clone())))
            .collect();
        if let Some(all) = all {
            self.dir = self.dir.join(first.trim_end_matches('/'));
            self.sums = all;
        }
    }

    /// Verifies the files against the version's digests.
    fn compare(&self) -> Result<(), SourceError> {
        let path = self.dir.join(SUMS);
        let mut text = String::new();
        File::open(&path)
            .and_then(|file| file.take(SUMS_BYTES_MAX).read_to_string(&mut text))
            .map_err(|source| SourceError::Read { path, source })?;
        let listed = parsed(&text).ok_or_else(|| self.refused(format!("its {SUMS} is empty")))?;
        for (path, sum) in &self.sums {
            match listed.get(path) {
                Some(listed) if listed.eq_ignore_ascii_case(sum) => {}
                Some(_) => {
                    return Err(self.refused(format!("{path} does not match {SUMS}")));
                }
                None => return Err(self.refused(format!("{SUMS} does not list {path}"))),
            }
        }
        Ok(())
    }

    fn write_sums(&self) -> Result<(), SourceError> {
        let path = self.dir.join(SUMS);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)
            .and_then(|mut file| {
                file.write_all(text_of(&self.sums).as_bytes())?;
                file.sync_all()
            });
        written.map_err(|source| self.unwritten(&path, source))
    }

    fn unread(&self, source: io::Error) -> SourceError {
        SourceError::Read {
            path: self.source.to_owned(),
            source,
        }
    }

    /// Duplicate entries, or an entry that is both file and directory, are errors of the archive.
    fn unwritten(&self, path: &Path, source: io::Error) -> SourceError {
        let shown = path.strip_prefix(&self.dir).unwrap_or(path);
        match source.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                self.refused(format!("{} is duplicated", shown.display()))
            }
            _ => SourceError::Write {
                path: path.to_owned(),
                source,
            },
        }
    }

    fn refused(&self, problem: impl Into<String>) -> SourceError {
        SourceError::Refused {
            path: self.source.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Parses a path of plain names; none for any other path.
fn plain(bytes: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(bytes).ok()?;
    if path.len() > ARCHIVE_PATH_BYTES_MAX || path.contains(char::is_control) {
        return None;
    }
    let mut names = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => names.push(name.to_str()?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    let path = names.join("/");
    Some(if path.is_empty() {
        ".".to_owned()
    } else {
        path
    })
}

/// Parses a file in the format of `sha256sum`; none if a line is not valid.
fn parsed(text: &str) -> Option<BTreeMap<String, String>> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let said = lines.map(|line| {
        let (sum, path) = line.split_once(' ')?;
        let path = path.strip_prefix(['*', ' '])?;
        let path = path.strip_prefix("./").unwrap_or(path);
        let is_sum = sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit());
        is_sum.then(|| (path.to_owned(), sum.to_owned()))
    });
    said.collect()
}

fn text_of(sums: &BTreeMap<String, String>) -> String {
    let lines = sums.iter().map(|(path, sum)| format!("{sum}  {path}\n"));
    lines.collect()
}

fn digest_of(file: &mut impl Read) -> io::Result<String> {
    let mut context = Context::new(&SHA256);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = file.read(&mut chunk)?;
        if length == 0 {
            return Ok(digits(&context.finish()));
        }
        context.update(chunk.get(..length).unwrap_or_default());
    }
}

fn digits(digest: &Digest) -> String {
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

#[cfg(test)]
#[path = "incoming_tests.rs"]
mod tests;
