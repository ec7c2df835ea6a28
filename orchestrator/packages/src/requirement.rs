//! Requirements for a package: a version range, or the location of the package.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use nodejs_semver::Range;
use serde::{Deserialize, Serialize};

use crate::limits::REQUIREMENT_BYTES_MAX;
use crate::name::PackageName;
use crate::npm_ranges::as_known;

/// Requirements of a package or project, by name.
pub type Requires = BTreeMap<PackageName, Requirement>;

/// A requirement, as in `version` of a dependency.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Requirement {
    text: String,
    source: RequirementSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RequirementSource {
    Range(Range),
    Folder(String),
    ArchiveFile(String),
    ArchiveUrl(String),
    Git(GitSource),
}

/// A repository, its revision, and the package's folder in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSource {
    /// URL for git: `https://host/path`.
    pub url: String,
    /// A branch, a tag or a commit; `None` for the default branch.
    pub revision: Option<String>,
    /// The folder; `None` for the root of the repository.
    pub folder: Option<String>,
}

/// Text that is not a valid requirement.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is neither a range of versions nor the place of a package: {reason}")]
pub struct InvalidRequirement {
    text: String,
    reason: &'static str,
}

/// File name suffixes of archives.
const ARCHIVE_ENDINGS: [&str; 3] = [".tgz", ".tar.gz", ".tar"];

impl Requirement {
    /// Returns the version range, for a package of a registry.
    #[must_use]
    pub fn range(&self) -> Option<&Range> {
        match &self.source {
            RequirementSource::Range(range) => Some(range),
            _ => None,
        }
    }

    /// Returns the path of a folder that is used in place.
    #[must_use]
    pub fn folder(&self) -> Option<&str> {
        match &self.source {
            RequirementSource::Folder(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the path of an archive.
    #[must_use]
    pub fn archive_file(&self) -> Option<&str> {
        match &self.source {
            RequirementSource::ArchiveFile(path) => Some(path),
            _ => None,
        }
    }

    #[must_use]
    pub fn archive_url(&self) -> Option<&str> {
        match &self.source {
            RequirementSource::ArchiveUrl(url) => Some(url),
            _ => None,
        }
    }

    #[must_use]
    pub fn git(&self) -> Option<&GitSource> {
        match &self.source {
            RequirementSource::Git(source) => Some(source),
            _ => None,
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn git(rest: &str) -> Result<RequirementSource, &'static str> {
    let (url, reference) = match rest.split_once('#') {
        Some((url, reference)) => (url, Some(reference)),
        None => (rest, None),
    };
    let schemes = ["https://", "http://", "ssh://", "file://"];
    if !schemes
        .iter()
        .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
    {
        return Err("write `git+https://host/path#revision:folder`");
    }
    let (revision, folder) = match reference.map(|it| it.split_once(':').unwrap_or((it, ""))) {
        Some((revision, folder)) => (revision, folder),
        None => ("", ""),
    };
    let is_plain = |text: &str| !text.starts_with('-') && !text.contains(char::is_whitespace);
    if !is_plain(revision) || !folder.split('/').all(|part| part != ".." && part != ".git") {
        return Err("invalid revision or folder of a repository");
    }
    let some = |text: &str| Some(text.trim_matches('/').to_owned()).filter(|it| !it.is_empty());
    Ok(RequirementSource::Git(GitSource {
        url: url.to_owned(),
        revision: some(revision),
        folder: some(folder),
    }))
}

fn is_archive(path: &str) -> bool {
    ARCHIVE_ENDINGS.iter().any(|ending| path.ends_with(ending))
}

fn source_of(text: &str) -> Result<RequirementSource, &'static str> {
    // npm accepts a tab in a range as a space.
    let is_odd = |c: char| c.is_control() && c != '\t';
    if text.len() > REQUIREMENT_BYTES_MAX || text.contains(is_odd) {
        return Err("the text is too long or has control characters");
    }
    if text.contains('\t') && text.contains(':') {
        return Err("addresses and paths cannot have a tab");
    }
    if let Some(rest) = text.strip_prefix("git+") {
        return git(rest);
    }
    if let Some(path) = text.strip_prefix("file:") {
        return match path {
            "" => Err("`file:` is followed by a path"),
            path if is_archive(path) => Ok(RequirementSource::ArchiveFile(path.to_owned())),
            path => Ok(RequirementSource::Folder(path.to_owned())),
        };
    }
    if text.starts_with("https://") || text.starts_with("http://") {
        return Ok(RequirementSource::ArchiveUrl(text.to_owned()));
    }
    let range = |text: &str| {
        let known = as_known(text);
        let range = known.and_then(|known| Range::parse(known).ok());
        range.ok_or("write a range such as `^1.2`, or `file:PATH`")
    };
    // Each alternative is parsed alone, because the parser ignores an invalid one among others.
    for alternative in text.split("||").filter(|it| !it.trim().is_empty()) {
        range(alternative)?;
    }
    range(text).map(RequirementSource::Range)
}

impl FromStr for Requirement {
    type Err = InvalidRequirement;

    fn from_str(text: &str) -> Result<Self, InvalidRequirement> {
        match source_of(text) {
            Ok(source) => Ok(Self {
                text: text.to_owned(),
                source,
            }),
            Err(reason) => Err(InvalidRequirement {
                text: text.to_owned(),
                reason,
            }),
        }
    }
}

impl TryFrom<String> for Requirement {
    type Error = InvalidRequirement;

    fn try_from(text: String) -> Result<Self, InvalidRequirement> {
        text.parse()
    }
}

impl From<Requirement> for String {
    fn from(requirement: Requirement) -> Self {
        requirement.text
    }
}

impl GitSource {
    /// Returns the requirement of one commit of the repository, which is immutable.
    #[must_use]
    pub fn pinned(&self, commit: &str) -> String {
        let folder = self.folder.as_deref();
        let folder = folder.map_or_else(String::new, |folder| format!(":{folder}"));
        format!("git+{}#{commit}{folder}", self.url)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Requirement {
        text.parse().unwrap()
    }

    #[test]
    fn pkg_3_a_requirement_is_a_range_or_a_place() {
        assert!(read("^1.2 || >=3.0.0-rc.1 <4").range().is_some());
        assert_eq!(read("file:../tools").folder(), Some("../tools"));
        assert_eq!(read("file:a/b.tgz").archive_file(), Some("a/b.tgz"));
        assert_eq!(
            read("https://h/a.tgz").archive_url(),
            Some("https://h/a.tgz")
        );
        let git = read("git+https://h/r.git#v1:packages/a/");
        let git = git.git().unwrap();
        assert_eq!(git.url, "https://h/r.git");
        assert_eq!(git.revision.as_deref(), Some("v1"));
        assert_eq!(git.folder.as_deref(), Some("packages/a"));
        let pinned = git.pinned("0123");
        assert_eq!(pinned, "git+https://h/r.git#0123:packages/a");
        assert_eq!(read(&pinned).git().unwrap().folder, git.folder);
        assert_eq!(read("git+ssh://git@h/r").git().unwrap().revision, None);
        for wrong in [
            "latest!",
            "file:",
            "git+ext::sh -c x",
            "git+https://",
            "git+https://h/r#--upload-pack=x",
            "git+https://h/r#a:../b",
            "git+https://h/r#a:.git/hooks",
            "^1\n2",
        ] {
            assert!(wrong.parse::<Requirement>().is_err(), "{wrong}");
        }
    }
}
