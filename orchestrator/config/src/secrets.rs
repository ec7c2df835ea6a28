//! Secret values, which must never be shown (`SEC-2`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Values of a project that are or may be secrets: those given in place of a secret, and those
/// taken from elsewhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    values: BTreeSet<String>,
    names: BTreeSet<String>,
    refused: BTreeMap<String, BTreeSet<String>>,
    is_any_written_out: bool,
}

impl Secrets {
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(String::as_str)
    }

    /// True if a file of the project itself contains a secret. A copy of that file would contain it
    /// in plain text (`SEC-1`).
    #[must_use]
    pub fn is_any_written_out(&self) -> bool {
        self.is_any_written_out
    }

    /// Existing secrets without a person's consent, each with the resources that use it, such as
    /// `Connection/hook`.
    #[must_use]
    pub fn refused(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.refused
    }

    pub(crate) fn refuse(&mut self, name: &str, resource: &str) {
        let resources = self.refused.entry(name.to_owned()).or_default();
        resources.insert(resource.to_owned());
    }

    /// The names of all referenced secrets, existing or not.
    pub(crate) fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    pub(crate) fn name(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    pub(crate) fn take(&mut self, value: &str) {
        self.values.insert(value.to_owned());
    }

    pub(crate) fn write_out(&mut self, value: &str) {
        self.is_any_written_out = true;
        self.take(value);
    }
}

impl fmt::Debug for Secrets {
    /// Only shows the number of values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.values.len())
    }
}
