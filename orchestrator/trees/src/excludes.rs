//! What is left out of a tree, by patterns.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// A pattern cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is no pattern of names; escape what is meant as it stands")]
pub struct ExcludeError {
    pattern: String,
    #[source]
    source: globset::Error,
}

/// Patterns of what is left out, in the way of `.gitignore` without its exceptions: a pattern without `/`
/// but at its end fits at any depth, others from the root; with `/` at its end it fits directories only.
#[derive(Debug, Clone)]
pub struct Excludes {
    set: GlobSet,
    /// The patterns of the set, and whether each fits directories only.
    patterns: Vec<(String, bool)>,
}

impl Excludes {
    /// Reads patterns.
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
        })
    }

    /// The pattern that leaves a path out, if one does.
    pub(crate) fn matching(&self, path: &[u8], is_directory: bool) -> Option<&str> {
        let matches = self.set.matches(Path::new(OsStr::from_bytes(path)));
        matches.into_iter().find_map(|index| {
            let (pattern, only_directories) = self.patterns.get(index)?;
            (is_directory || !only_directories).then_some(pattern.as_str())
        })
    }
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
}
