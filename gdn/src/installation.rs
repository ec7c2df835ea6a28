//! Versions installed side by side (`REL-1`).
//!
//! ```text
//! PREFIX/versions/0.1.0-3f2a91b7c0de/   the programs of one build
//! PREFIX/current  -> versions/…         the version to start
//! PREFIX/previous -> versions/…         the version before it
//! PREFIX/bin/gdn  -> ../current/gdn     for PATH; likewise the other programs
//! PREFIX/upgrade.json                   journal of an upgrade in progress
//! PREFIX/upgrade.lock                   held by the process that changes any of this
//! ```
//!
//! A version's directory gets its name once it is complete, and is immutable from then on. A program finds the others
//! of its version in its own directory, so a running daemon is not affected by changes to `current`.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::programs::{FURTHER_PROGRAMS, PROGRAMS};

const VERSIONS: &str = "versions";

/// Number of digest digits in a version's name.
const BUILD_DIGITS: usize = 12;

/// Maximum length of the version number in a name, in bytes.
const NUMBER_BYTES_MAX: usize = 64;

/// Name of an installed version: its number and a prefix of the digest of all its files. Two builds with the same
/// number are two versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct VersionName {
    number: String,
    build: String,
}

/// Error for a string that is not a version name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of an installed version")]
pub(crate) struct NoVersionName(String);

impl VersionName {
    /// Builds a name from the version number and the hexadecimal digest of the files.
    pub(crate) fn new(number: &str, digest: &str) -> Result<Self, NoVersionName> {
        let build: String = digest.chars().take(BUILD_DIGITS).collect();
        format!("{number}-{build}").try_into()
    }

    pub(crate) fn number(&self) -> &str {
        &self.number
    }

    pub(crate) fn build(&self) -> &str {
        &self.build
    }
}

impl TryFrom<String> for VersionName {
    type Error = NoVersionName;

    fn try_from(name: String) -> Result<Self, NoVersionName> {
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        match name.rsplit_once('-') {
            Some((number, build))
                if build.len() == BUILD_DIGITS
                    && build.chars().all(is_digit)
                    && number.len() <= NUMBER_BYTES_MAX
                    && number.starts_with(|c: char| c.is_ascii_digit())
                    && number.chars().all(is_plain) =>
            {
                Ok(Self {
                    number: number.to_owned(),
                    build: build.to_owned(),
                })
            }
            _ => Err(NoVersionName(name)),
        }
    }
}

impl From<VersionName> for String {
    fn from(name: VersionName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for VersionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.build)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionLink {
    Current,
    Previous,
}

impl VersionLink {
    fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Previous => "previous",
        }
    }
}

/// A directory of versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installation {
    prefix: PathBuf,
}

impl Installation {
    /// Installation in an absolute directory.
    pub(crate) fn at(prefix: PathBuf) -> Self {
        Self { prefix }
    }

    /// Installation that contains this program; none if it was installed in another way.
    pub(crate) fn of_this_program() -> Option<Self> {
        Self::of(&std::env::current_exe().ok()?).map(|(installation, _)| installation)
    }

    /// Installation that contains a program, and the program's version.
    pub(crate) fn of(program: &Path) -> Option<(Self, VersionName)> {
        let program = program.canonicalize().ok()?;
        let dir = program.parent()?;
        let name = VersionName::try_from(dir.file_name()?.to_str()?.to_owned()).ok()?;
        let versions = dir.parent()?;
        let prefix = versions.parent()?.to_owned();
        (versions.file_name()? == VERSIONS).then_some((Self { prefix }, name))
    }

    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Directory of the versions, also used while a version is installed.
    pub(crate) fn versions(&self) -> PathBuf {
        self.prefix.join(VERSIONS)
    }

    pub(crate) fn dir_of(&self, version: &VersionName) -> PathBuf {
        self.versions().join(version.to_string())
    }

    pub(crate) fn program(&self, version: &VersionName, program: &str) -> PathBuf {
        self.dir_of(version).join(program)
    }

    /// Directory of the current version's programs, by its link.
    pub(crate) fn current_dir(&self) -> PathBuf {
        self.prefix.join(VersionLink::Current.name())
    }

    pub(crate) fn bin_dir(&self) -> PathBuf {
        self.prefix.join("bin")
    }

    pub(crate) fn journal_file(&self) -> PathBuf {
        self.prefix.join("upgrade.json")
    }

    /// Returns the version that a link points to; none if the link does not exist or points elsewhere.
    ///
    /// # Errors
    ///
    /// If the link cannot be read.
    pub(crate) fn linked(&self, link: VersionLink) -> io::Result<Option<VersionName>> {
        let target = match fs::read_link(self.prefix.join(link.name())) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let name = target.strip_prefix(VERSIONS).ok().and_then(Path::to_str);
        let name = name.and_then(|name| VersionName::try_from(name.to_owned()).ok());
        Ok(name.filter(|name| self.dir_of(name).is_dir()))
    }

    /// Atomically points a link to a version.
    ///
    /// # Errors
    ///
    /// File system errors.
    pub(crate) fn point(&self, link: VersionLink, version: &VersionName) -> io::Result<()> {
        let target = Path::new(VERSIONS).join(version.to_string());
        replace_link(&self.prefix, link.name(), &target)
    }

    /// Creates links to all programs in `bin`, including those that only some builds have.
    ///
    /// # Errors
    ///
    /// File system errors.
    pub(crate) fn link_programs(&self) -> io::Result<()> {
        let bin = self.bin_dir();
        fs::create_dir_all(&bin)?;
        for program in PROGRAMS.into_iter().chain(FURTHER_PROGRAMS) {
            let target = Path::new("..")
                .join(VersionLink::Current.name())
                .join(program);
            if fs::read_link(bin.join(program)).ok().as_ref() != Some(&target) {
                replace_link(&bin, program, &target)?;
            }
        }
        sync_dir(&self.prefix)
    }

    /// Installed versions, by name.
    ///
    /// # Errors
    ///
    /// If the directory cannot be listed.
    pub(crate) fn installed(&self) -> io::Result<Vec<VersionName>> {
        let entries = match fs::read_dir(self.versions()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().into_string().unwrap_or_default();
            names.extend(VersionName::try_from(name).ok());
        }
        names.sort();
        Ok(names)
    }

    /// Takes the lock; none if another process holds it. It is released when the process exits.
    ///
    /// # Errors
    ///
    /// File system errors.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.prefix.join("upgrade.lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Path of a program that stays valid across upgrades: through `current`, if the program belongs to the current
/// version.
pub(crate) fn lasting(program: PathBuf) -> PathBuf {
    let by_current = || {
        let (installation, version) = Installation::of(&program)?;
        let current = installation.linked(VersionLink::Current).ok()??;
        let name = program.file_name()?;
        (current == version).then(|| installation.current_dir().join(name))
    };
    by_current().unwrap_or(program)
}

fn replace_link(dir: &Path, name: &str, target: &Path) -> io::Result<()> {
    let temp = dir.join(format!(".{name}.new"));
    match fs::remove_file(&temp) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    symlink(target, &temp)?;
    rename(&temp, &dir.join(name))?;
    sync_dir(dir)
}

#[expect(
    clippy::disallowed_methods,
    reason = "installs programs, not state of the daemon"
)]
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Makes created and renamed entries of a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> VersionName {
        VersionName::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn rel_1_the_name_of_a_version_is_its_number_and_build() {
        let parsed = name("0.2.0-rc.1+x-3f2a91b7c0de");
        assert_eq!(
            (parsed.number(), parsed.build()),
            ("0.2.0-rc.1+x", "3f2a91b7c0de")
        );
        assert_eq!(
            VersionName::new("0.1.0", &"ab".repeat(32)).unwrap(),
            name("0.1.0-abababababab")
        );
        for bad in [
            "0.1.0",
            "0.1.0-3f2a91b7c0d",
            "0.1.0-3F2A91B7C0DE",
            "../x-3f2a91b7c0de",
            "-3f2a91b7c0de",
            "0/1-3f2a91b7c0de",
        ] {
            assert!(VersionName::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn rel_1_a_link_leads_to_the_one_or_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let there = Installation::at(dir.path().to_owned());
        let (old, new) = (name("0.1.0-aaaaaaaaaaaa"), name("0.1.0-bbbbbbbbbbbb"));
        assert_eq!(there.linked(VersionLink::Current).unwrap(), None);
        for version in [&old, &new] {
            fs::create_dir_all(there.dir_of(version)).unwrap();
            // A leftover of a kill does no harm.
            drop(symlink("nowhere", there.prefix().join(".current.new")));
            there.point(VersionLink::Current, version).unwrap();
            assert_eq!(
                there.linked(VersionLink::Current).unwrap().as_ref(),
                Some(version)
            );
        }
        assert_eq!(there.installed().unwrap(), [old, new.clone()]);
        assert_eq!(there.linked(VersionLink::Previous).unwrap(), None);
        // A link to a deleted version counts as missing.
        fs::remove_dir(there.dir_of(&new)).unwrap();
        assert_eq!(there.linked(VersionLink::Current).unwrap(), None);
    }

    #[test]
    fn rel_1_one_at_a_time_changes_an_installation() {
        let dir = tempfile::tempdir().unwrap();
        let there = Installation::at(dir.path().to_owned());
        let held = there.lock().unwrap();
        assert!(held.is_some() && there.lock().unwrap().is_none());
        drop(held);
        assert!(there.lock().unwrap().is_some());
    }
}
