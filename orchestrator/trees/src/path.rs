//! Names in a tree, safe on every file system.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX, PATH_DEPTH_MAX};
use crate::quote::{from_text, quote, to_text};

/// A path below the root of a tree: bytes, names separated by `/` (`BOX-2`, `PROP-4`).
///
/// It has no empty name, no `.` or `..`, no NUL, and no leading or trailing `/`. No name is `.git`
/// on any file system known to git, unless it was created by [`allowed`](Self::allowed) with
/// [`Names::Local`]. In JSON it is text, quoted like git does if it is not UTF-8. Deserialization
/// checks it again, by default with [`Names::Portable`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativePath(Vec<u8>);

/// Names that a tree may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Portable names: none is a spelling of `.git`, and no two paths differ only in case. For
    /// trees that go into a project, and for all external input.
    Portable,
    /// All names that this machine's file system allows: for a tree that returns to its origin
    /// (`CKPT-4`). Empty names, `.` and `..` are still invalid.
    Local,
}

/// Reason why bytes are not a valid [`RelativePath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid tree path `{path}`: {problem}")]
pub struct PathProblem {
    path: String,
    problem: &'static str,
}

impl PathProblem {
    /// Returns the violated rule.
    #[must_use]
    pub fn problem(&self) -> &'static str {
        self.problem
    }
}

impl RelativePath {
    /// Checks a path.
    ///
    /// # Errors
    ///
    /// [`PathProblem`] with the first violated rule.
    pub fn new(path: &[u8]) -> Result<Self, PathProblem> {
        Self::allowed(path, Names::Portable)
    }

    /// Checks a path with the given name rules.
    ///
    /// # Errors
    ///
    /// [`PathProblem`] with the first violated rule.
    pub fn allowed(path: &[u8], names: Names) -> Result<Self, PathProblem> {
        match problem_of(path, names) {
            None => Ok(Self(path.to_vec())),
            Some(problem) => Err(PathProblem {
                path: quote(path),
                problem,
            }),
        }
    }

    /// Parses a path from its JSON text, quoted like git does if it is not UTF-8 (`BOX-2`).
    ///
    /// # Errors
    ///
    /// [`PathProblem`] as [`new`](Self::new), or if the quoting is invalid.
    pub fn from_text(text: &str) -> Result<Self, PathProblem> {
        Self::text_allowed(text, Names::Portable)
    }

    /// As [`from_text`](Self::from_text), with the given name rules.
    ///
    /// # Errors
    ///
    /// As [`from_text`](Self::from_text).
    pub fn text_allowed(text: &str, names: Names) -> Result<Self, PathProblem> {
        let problem = "the name is not quoted like git does";
        let path = from_text(text).ok_or_else(|| PathProblem {
            path: text.to_owned(),
            problem,
        })?;
        Self::allowed(&path, names)
    }

    /// Checks this path against name rules.
    ///
    /// # Errors
    ///
    /// [`PathProblem`] with the first violated rule.
    pub fn check(&self, names: Names) -> Result<(), PathProblem> {
        Self::allowed(&self.0, names).map(drop)
    }

    /// True if it is below this directory, at any depth.
    #[must_use]
    pub fn is_below(&self, directory: &Self) -> bool {
        self.0
            .strip_prefix(directory.0.as_slice())
            .is_some_and(|rest| rest.starts_with(b"/"))
    }

    /// Appends a name.
    ///
    /// # Errors
    ///
    /// [`PathProblem`] as [`new`](Self::new).
    pub fn join(&self, name: &[u8]) -> Result<Self, PathProblem> {
        self.join_allowed(name, Names::Portable)
    }

    /// Appends a name, with the given name rules.
    ///
    /// # Errors
    ///
    /// As [`allowed`](Self::allowed).
    pub fn join_allowed(&self, name: &[u8], names: Names) -> Result<Self, PathProblem> {
        Self::allowed(&[&self.0, b"/".as_slice(), name].concat(), names)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns a relative path of the operating system.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Returns the parent directory, unless it is the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let end = self.0.iter().rposition(|byte| *byte == b'/')?;
        self.0.get(..end).map(|parent| Self(parent.to_vec()))
    }

    /// Returns the parent directories, outermost first, without the root.
    #[must_use]
    pub fn ancestors(&self) -> Vec<Self> {
        let separators = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let parents = separators.filter_map(|(at, _)| self.0.get(..at));
        parents.map(|parent| Self(parent.to_vec())).collect()
    }

    /// Returns the case-folded path. Paths with equal results collide on case-insensitive file
    /// systems.
    #[must_use]
    pub fn folded(&self) -> Vec<u8> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => text.to_lowercase().into_bytes(),
            Err(_) => self.0.to_ascii_lowercase(),
        }
    }

    /// True if a link at this path to `target` points out of the tree, judged by names alone.
    pub(crate) fn leads_outside(&self, target: &[u8]) -> bool {
        if target.starts_with(b"/") {
            return true;
        }
        let mut depth = self.0.iter().filter(|byte| **byte == b'/').count();
        for name in target.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    None => return true,
                },
                _ => depth += 1,
            }
        }
        false
    }
}

fn problem_of(path: &[u8], allowed: Names) -> Option<&'static str> {
    if path.is_empty() {
        return Some("the path is empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return Some("the path is too long");
    }
    if path.starts_with(b"/") {
        return Some("the path is absolute");
    }
    if path.contains(&0) {
        return Some("the path has a NUL byte");
    }
    let names = || path.split(|byte| *byte == b'/');
    if names().count() > PATH_DEPTH_MAX {
        return Some("the path is too deep");
    }
    names().find_map(|name| match name {
        b"" => Some("a name is empty"),
        b"." | b".." => Some("`.` and `..` are not allowed"),
        name if name.len() > NAME_BYTES_MAX => Some("a name is too long"),
        name if allowed == Names::Portable && is_dot_git(name) => {
            Some("`.git` and its spellings are not allowed")
        }
        _ => None,
    })
}

/// True if a file system treats the name as `.git`: through case, NTFS suffixes and separators,
/// NTFS short names, or characters ignored by HFS+. The rules are those of git's own checkout
/// check.
fn is_dot_git(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'\\').any(is_dot_git_on_ntfs) || is_dot_git_on_hfs(name)
}

fn is_dot_git_on_ntfs(name: &[u8]) -> bool {
    let name = name.split(|byte| *byte == b':').next().unwrap_or_default();
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
    let name = end.and_then(|end| name.get(..=end)).unwrap_or_default();
    name.eq_ignore_ascii_case(b".git") || name.eq_ignore_ascii_case(b"git~1")
}

fn is_dot_git_on_hfs(name: &[u8]) -> bool {
    let ignored = |character: &char| {
        matches!(character, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{206a}'..='\u{206f}' | '\u{feff}')
    };
    std::str::from_utf8(name).is_ok_and(|text| {
        let seen: String = text
            .chars()
            .filter(|character| !ignored(character))
            .collect();
        seen.eq_ignore_ascii_case(".git")
    })
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_text(&self.0))
    }
}

impl fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

impl Serialize for RelativePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_text(&self.0))
    }
}

impl<'de> Deserialize<'de> for RelativePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer, Names::Portable)
    }
}

fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
    names: Names,
) -> Result<RelativePath, D::Error> {
    let text = String::deserialize(deserializer)?;
    RelativePath::text_allowed(&text, names).map_err(serde::de::Error::custom)
}

/// A path that is deserialized with [`Names::Local`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalPath(RelativePath);

impl From<LocalPath> for RelativePath {
    fn from(path: LocalPath) -> Self {
        path.0
    }
}

impl<'de> Deserialize<'de> for LocalPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer, Names::Local).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_the_tree_or_in_git_directories_are_invalid() {
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        let deep = vec!["d"; PATH_DEPTH_MAX + 1].join("/");
        for bad in [
            "",
            "/",
            "/etc",
            "a/",
            "a//b",
            ".",
            "..",
            "./a",
            "a/../b",
            "a/..",
            "a\0b",
            ".git",
            "a/.git",
            ".git/hooks",
            ".GIT",
            "a/.Git/config",
            ".git ",
            ".git.",
            ".git. .",
            "git~1",
            "GIT~1",
            ".git::$INDEX_ALLOCATION",
            ".git:x",
            "a\\.git",
            ".git\\config",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".gi\u{206f}T",
            &long,
            &deep,
        ] {
            let refused = RelativePath::new(bad.as_bytes()).unwrap_err();
            assert!(!refused.problem().is_empty());
        }
        for good in [
            "a",
            "a/b",
            ".gitignore",
            "..a",
            "a..",
            ".github/x",
            "git",
            "git~2",
            "a b",
            " ",
            "~",
            "\u{e9}",
            "a\nb",
            "\"",
            ".git_",
            "x.git",
            "-",
        ] {
            let path = RelativePath::new(good.as_bytes()).unwrap();
            let text = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<RelativePath>(&text).unwrap(), path);
        }
        let latin_1 = RelativePath::new(b"caf\xe9").unwrap();
        assert_eq!(
            serde_json::to_string(&latin_1).unwrap(),
            r#""\"caf\\351\"""#
        );
        assert!(serde_json::from_str::<RelativePath>(r#""\"..\\057x\"""#).is_err());
    }

    #[test]
    fn ckpt_3_local_paths_allow_git_names_and_no_other_refused_ones() {
        for name in [".git", ".git/hooks/x", "GIT~1", "a\\.git"] {
            let path = RelativePath::allowed(name.as_bytes(), Names::Local).unwrap();
            assert!(path.check(Names::Local).is_ok() && path.check(Names::Portable).is_err());
            let text = serde_json::to_string(&path).unwrap();
            assert!(
                serde_json::from_str::<RelativePath>(&text).is_err(),
                "{text}"
            );
            let read: RelativePath = serde_json::from_str::<LocalPath>(&text).unwrap().into();
            assert_eq!(read, path);
        }
        for name in ["", "/etc", "a//b", "..", "a/../b", "./a", "a/", "a\0b"] {
            assert!(RelativePath::allowed(name.as_bytes(), Names::Local).is_err());
        }
    }

    #[test]
    fn links_that_lead_outside_are_recognized_by_their_targets() {
        let link = RelativePath::new(b"a/b/link").unwrap();
        for outside in ["/", "/a", "../../..", "../../../x", "x/../../../../a"] {
            assert!(link.leads_outside(outside.as_bytes()), "{outside}");
        }
        for inside in ["x", "../..", "../../c", "./../x", "x/../../y"] {
            assert!(!link.leads_outside(inside.as_bytes()), "{inside}");
        }
    }
}
