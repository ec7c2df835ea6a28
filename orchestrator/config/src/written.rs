//! Resources as they are written, for whoever compares two sides of a configuration.

use std::path::Path;

use serde_json::Value;

use crate::diagnostic::Diagnostics;
use crate::listing::{PROJECT_FILE, RESOURCES_DIR, has_older_name, is_yaml};
use crate::report::Report;
use crate::tree;

/// Whether a file, by its path in the project, is one whose documents make up the project. Whether it has a name that
/// only 0.0.3 knew is not asked: what it says is compared in any case.
#[must_use]
pub fn is_resource_file(path: &Path) -> bool {
    path == Path::new(PROJECT_FILE)
        || (path.starts_with(RESOURCES_DIR) && is_yaml(path))
        || has_older_name(path)
}

/// The documents of a resource file, as they are written: with no reference followed and nothing checked but that
/// they are valid YAML.
///
/// # Errors
///
/// What is no valid YAML in it.
pub fn resources_of(path: &Path, text: &str) -> Result<Vec<Value>, Diagnostics> {
    let mut report = Report::default();
    let file = report.add_file(path, text);
    match tree::parse(file, text, &mut report) {
        Some(documents) if !report.has_errors() => {
            Ok(documents.iter().map(tree::Node::to_json).collect())
        }
        _ => Err(report.into_diagnostics()),
    }
}
