//! The kinds of resources, by name.

use std::fmt;

/// A kind of resource. Each is declared where its `spec` is read, as a constant of this type; which there
/// are, `crate::kinds` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind(&'static str);

impl Kind {
    /// The kind that documents of this `kind` are of.
    pub(crate) const fn named(name: &'static str) -> Self {
        Self(name)
    }

    pub(crate) const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
