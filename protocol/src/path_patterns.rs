//! Patterns that select paths of a project (`PROP-8`).
//!
//! The loader checks them, and the check of a proposal uses them.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// A pattern is invalid.
#[derive(Debug, thiserror::Error)]
#[error("invalid pattern `{pattern}`: {problem}")]
pub struct PatternError {
    pattern: String,
    problem: String,
}

/// Patterns from the root of a tree: `*` matches within a name, `**` any directories. A trailing
/// `/` selects everything in a directory.
#[derive(Debug, Clone)]
pub struct PathPatterns(GlobSet);

impl PathPatterns {
    /// Parses patterns.
    ///
    /// # Errors
    ///
    /// [`PatternError`] for an invalid pattern, and for one that can match no path of a tree.
    pub fn new<P: AsRef<str>>(patterns: &[P]) -> Result<Self, PatternError> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let error = |problem: String| PatternError {
                pattern: pattern.to_owned(),
                problem,
            };
            if pattern.is_empty() || pattern.starts_with('/') {
                return Err(error(
                    "write it relative to the project's directory".to_owned(),
                ));
            }
            if pattern.split('/').any(|name| matches!(name, "." | "..")) {
                return Err(error("`.` and `..` are not allowed".to_owned()));
            }
            let glob = match pattern.strip_suffix('/') {
                Some(directory) => format!("{directory}/**"),
                None => pattern.to_owned(),
            };
            let mut builder = GlobBuilder::new(&glob);
            let glob = builder.literal_separator(true).backslash_escape(true);
            set.add(
                glob.build()
                    .map_err(|problem| error(problem.kind().to_string()))?,
            );
        }
        let set = set.build().map_err(|problem| PatternError {
            pattern: String::new(),
            problem: problem.to_string(),
        })?;
        Ok(Self(set))
    }

    /// True if a pattern matches a path relative to the root.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        self.0.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_from_the_root() {
        for (pattern, path, expected) in [
            ("docs/**", "docs/a/b.md", true),
            ("docs/**", "docs", false),
            ("docs/**", "x/docs/a.md", false),
            ("docs/", "docs/a/b.md", true),
            ("*.md", "a.md", true),
            ("*.md", "docs/a.md", false),
            ("**/*.md", "docs/a.md", true),
            ("**", "a/b", true),
            ("docs/{a,b}.md", "docs/b.md", true),
            ("docs/*", "docs/a/b.md", false),
            ("DOCS/**", "docs/a.md", false),
        ] {
            let patterns = PathPatterns::new(&[pattern]).unwrap();
            let is_matched = patterns.matches(Path::new(path));
            assert_eq!(is_matched, expected, "{pattern} {path}");
        }
        for wrong in ["", "/etc/**", "docs/../**", "./docs", "a["] {
            assert!(PathPatterns::new(&[wrong]).is_err(), "{wrong}");
        }
    }
}
