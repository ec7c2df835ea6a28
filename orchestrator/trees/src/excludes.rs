//! Patterns that exclude paths from a tree.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::path::RelativePath;

/// Reason why a path is excluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    Excluded(String),
    Rule(&'static str),
    /// Not among the chosen paths.
    NotChosen,
    /// Not a file, directory or link.
    Special,
    /// A link that points out of the tree.
    OutsideLink,
    /// The user has no right to read it.
    Unreadable,
    /// A file with holes that is longer than the limit of the tree.
    Sparse {
        /// Its length in bytes.
        bytes: u64,
    },
}

/// A pattern is invalid.
#[derive(Debug, thiserror::Error)]
#[error("invalid pattern `{pattern}`; escape literal special characters")]
pub struct ExcludeError {
    pattern: String,
    #[source]
    source: globset::Error,
}

/// A predicate of excluded paths and its name.
type ExcludeRule = (fn(&Path) -> bool, &'static str);

/// Exclude patterns with the syntax of `.gitignore`, except negation. A pattern without `/`, other
/// than a trailing one, matches at any depth; others match from the root. A trailing `/` matches
/// directories only.
///
/// In addition, a tree can be limited to [chosen](Self::only) paths, and paths can be included
/// [unconditionally](Self::except).
#[derive(Debug, Clone)]
pub struct Excludes {
    set: GlobSet,
    /// Patterns of the set; true for directories only.
    patterns: Vec<(String, bool)>,
    /// Chosen paths; `None` includes everything.
    only: Option<BTreeSet<RelativePath>>,
    except: BTreeSet<RelativePath>,
    /// Rule by path, with its name.
    rule: Option<ExcludeRule>,
    /// Rules of `.gitignore` files, in order.
    ignored: Option<GitignoreRules>,
}

/// Rules of `.gitignore` files; the last match wins.
#[derive(Debug, Clone)]
struct GitignoreRules {
    set: GlobSet,
    rules: Vec<IgnoreRule>,
}

/// One line of a `.gitignore`, as a pattern from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
struct IgnoreRule {
    line: String,
    /// True if the rule negates an earlier one (`!`).
    is_exception: bool,
    only_directories: bool,
}

/// Parses a line of a directory's `.gitignore`; returns the pattern with the rule. `None` for a
/// line without a pattern.
fn ignore_rule(directory: &str, line: &str) -> Option<(String, IgnoreRule)> {
    let text = line.trim_end_matches(['\r', '\n']).trim_end();
    let (is_exception, pattern) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if pattern.is_empty() || pattern.starts_with('#') {
        return None;
    }
    let (pattern, only_directories) = match pattern.strip_suffix('/') {
        Some(name) => (name, true),
        None => (pattern, false),
    };
    // Git does not support alternatives in braces.
    let pattern = pattern.replace('{', "\\{").replace('}', "\\}");
    let pattern = match pattern.strip_prefix('/') {
        Some(rooted) => rooted.to_owned(),
        None if pattern.contains('/') => pattern,
        None => format!("**/{pattern}"),
    };
    let below = match directory {
        "" => pattern,
        directory => format!("{}/{pattern}", globset::escape(directory)),
    };
    let rule = IgnoreRule {
        line: text.to_owned(),
        is_exception,
        only_directories,
    };
    Some((below, rule))
}

impl GitignoreRules {
    /// Reads lines, each with the directory of its `.gitignore`. As in git, an invalid pattern is
    /// ignored.
    fn read<'l>(lines: impl Iterator<Item = (&'l str, &'l str)>) -> Option<Self> {
        let mut set = GlobSetBuilder::new();
        let mut rules = Vec::new();
        for (directory, line) in lines {
            let Some((pattern, rule)) = ignore_rule(directory, line) else {
                continue;
            };
            let mut builder = GlobBuilder::new(&pattern);
            let glob = builder.literal_separator(true).backslash_escape(true);
            if let Ok(glob) = glob.build() {
                set.add(glob);
                rules.push(rule);
            }
        }
        let set = set.build().ok().filter(|set| !set.is_empty())?;
        Some(Self { set, rules })
    }

    /// The line that leaves a path out, if one does.
    fn matching(&self, path: &[u8], is_directory: bool) -> Option<&str> {
        let matches = self.set.matches(Path::new(OsStr::from_bytes(path)));
        let rules = matches
            .into_iter()
            .rev()
            .filter_map(|at| self.rules.get(at));
        let mut rules = rules.filter(|rule| is_directory || !rule.only_directories);
        let last = rules.next()?;
        (!last.is_exception).then_some(last.line.as_str())
    }
}

impl Excludes {
    /// Parses patterns.
    ///
    /// # Errors
    ///
    /// [`ExcludeError`].
    pub fn new<P: AsRef<str>>(patterns: &[P]) -> Result<Self, ExcludeError> {
        let mut set = GlobSetBuilder::new();
        let mut known = Vec::new();
        let error = |pattern: &str, source| ExcludeError {
            pattern: pattern.to_owned(),
            source,
        };
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let (name, only_directories) = match pattern.strip_suffix('/') {
                Some(name) => (name, true),
                None => (pattern, false),
            };
            let glob = match name.strip_prefix('/') {
                Some(rooted) => rooted.to_owned(),
                None if name.contains('/') => name.to_owned(),
                None => format!("**/{name}"),
            };
            let mut builder = GlobBuilder::new(&glob);
            let glob = builder
                .literal_separator(true)
                .backslash_escape(true)
                .build();
            set.add(glob.map_err(|source| error(pattern, source))?);
            known.push((pattern.to_owned(), only_directories));
        }
        let set = set.build().map_err(|source| error("", source))?;
        Ok(Self {
            set,
            patterns: known,
            only: None,
            except: BTreeSet::new(),
            rule: None,
            ignored: None,
        })
    }

    /// Leaves out, too, what `.gitignore` files say: their lines in order, those of a directory before those of one below
    /// it, each with the path of its directory, which is empty for the root.
    #[must_use]
    pub fn ignoring<'l>(self, lines: impl Iterator<Item = (&'l str, &'l str)>) -> Self {
        Self {
            ignored: GitignoreRules::read(lines),
            ..self
        }
    }

    /// Restricts the selection to these paths and everything below them.
    #[must_use]
    pub fn only(self, paths: impl IntoIterator<Item = RelativePath>) -> Self {
        Self {
            only: Some(paths.into_iter().collect()),
            ..self
        }
    }

    /// Includes these paths and everything below them, overriding patterns and rules.
    #[must_use]
    pub fn except(self, paths: impl IntoIterator<Item = RelativePath>) -> Self {
        Self {
            except: paths.into_iter().collect(),
            ..self
        }
    }

    /// Also excludes files that match `rule`. `what` names the rule.
    #[must_use]
    pub fn rule(self, rule: fn(&Path) -> bool, what: &'static str) -> Self {
        Self {
            rule: Some((rule, what)),
            ..self
        }
    }

    /// Returns the reason why a path is excluded, if it is. Invalid tree paths are matched by
    /// patterns only.
    #[must_use]
    pub fn reason(&self, path: &[u8], is_directory: bool) -> Option<Reason> {
        let relative = RelativePath::new(path).ok();
        if let (Some(only), Some(relative)) = (&self.only, &relative)
            && !is_among(only, relative)
            && !(is_directory && is_above(only, relative))
        {
            return Some(Reason::NotChosen);
        }
        if let Some(relative) = &relative
            && (is_among(&self.except, relative)
                || (is_directory && is_above(&self.except, relative)))
        {
            return None;
        }
        let ignored = self.ignored.as_ref();
        let ignored = || ignored?.matching(path, is_directory);
        if let Some(pattern) = self.matching(path, is_directory).or_else(ignored) {
            return Some(Reason::Excluded(pattern.to_owned()));
        }
        let (rule, what) = self.rule?;
        let is_ruled_out = rule(Path::new(OsStr::from_bytes(path)));
        is_ruled_out.then_some(Reason::Rule(what))
    }

    /// Returns the pattern that excludes a path, if any.
    fn matching(&self, path: &[u8], is_directory: bool) -> Option<&str> {
        let matches = self.set.matches(Path::new(OsStr::from_bytes(path)));
        matches.into_iter().find_map(|index| {
            let (pattern, only_directories) = self.patterns.get(index)?;
            (is_directory || !only_directories).then_some(pattern.as_str())
        })
    }
}

/// True if a path is in the set or below a path in it.
fn is_among(paths: &BTreeSet<RelativePath>, path: &RelativePath) -> bool {
    !paths.is_empty()
        && (paths.contains(path) || path.ancestors().iter().any(|above| paths.contains(above)))
}

/// True if a path in the set is below this path.
fn is_above(paths: &BTreeSet<RelativePath>, path: &RelativePath) -> bool {
    // Paths below it sort after it, but also after longer names with the same prefix.
    let from = path.join(b"\x01").unwrap_or_else(|_| path.clone());
    paths
        .range(from..)
        .next()
        .is_some_and(|next| next.is_below(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_gitignore() {
        let excludes =
            Excludes::new(&["node_modules/", "*.key", "/dist", "a/*.o", ".env*"]).unwrap();
        for (path, is_directory, expected) in [
            ("node_modules", true, true),
            ("x/node_modules", true, true),
            ("node_modules", false, false),
            ("x/y/server.key", false, true),
            ("dist", true, true),
            ("x/dist", true, false),
            ("a/b.o", false, true),
            ("a/b/c.o", false, false),
            ("x/.env.local", false, true),
        ] {
            let found = excludes.matching(path.as_bytes(), is_directory).is_some();
            assert_eq!(found, expected, "{path}");
        }
        assert!(Excludes::new(&["a["]).is_err());
    }

    #[test]
    fn lines_of_gitignore_files_are_read_as_git_reads_them() {
        let root = "# built\n/target/\n*.log\n!keep.log\nout{1}\ndocs/*.pdf\n\\!odd\n[\n\n";
        let lines = root.lines().map(|line| ("", line));
        let below = ["*.rs", "!/main.rs"].map(|line| ("a/b", line));
        let excludes = Excludes::new(&["x"]).unwrap();
        let excludes = excludes.ignoring(lines.chain(below));
        for (path, is_directory, expected) in [
            ("target", true, true),
            ("target", false, false),
            ("a/target", true, false),
            ("a/b.log", false, true),
            ("a/keep.log", false, false),
            ("out{1}", false, true),
            ("out1", false, false),
            ("docs/a.pdf", false, true),
            ("docs/a/b.pdf", false, false),
            ("!odd", false, true),
            ("lib.rs", false, false),
            ("a/b/c/lib.rs", false, true),
            ("a/b/main.rs", false, false),
            ("a/b/c/main.rs", false, true),
            ("x", false, true),
        ] {
            let found = excludes.reason(path.as_bytes(), is_directory).is_some();
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn selected_paths_and_exceptions_override_exclude_patterns() {
        let path = |text: &str| RelativePath::new(text.as_bytes()).unwrap();
        let excludes = Excludes::new(&["dist/", "*.key"]).unwrap();
        let excludes = excludes
            .only(["src", "dist/a.key", "docs/x.md"].map(path))
            .except(["dist/a.key", "src/b"].map(path));
        for (tried, is_directory, expected) in [
            ("src", true, true),
            ("src/x", false, true),
            ("src/x.key", false, false),
            ("src/b/x.key", false, true),
            ("dist", true, true),
            ("dist/a.key", false, true),
            ("dist/b.key", false, false),
            ("docs", true, true),
            ("docs", false, false),
            ("docs/x.md", false, true),
            ("docs/y.md", false, false),
            ("docs-2", true, false),
            ("srcs", true, false),
        ] {
            let is_taken = excludes.reason(tried.as_bytes(), is_directory).is_none();
            assert_eq!(is_taken, expected, "{tried}");
        }
    }
}
