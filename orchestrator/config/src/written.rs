//! Resources in written form, for comparing two versions of a configuration.

use std::path::Path;

use serde_json::Value;

use crate::compat;
use crate::diagnostic::Diagnostics;
use crate::file_list::{PROJECT_FILE, RESOURCES_DIR, has_older_name, is_yaml};
use crate::report::ProblemReport;
use crate::short_form;
use crate::tree::YamlNode;

/// True if a file, by its path in the project, is a resource file. Files with names only known to
/// 0.0.3 count as well, because their content is compared anyway.
#[must_use]
pub fn is_resource_file(path: &Path) -> bool {
    path == Path::new(PROJECT_FILE)
        || (path.starts_with(RESOURCES_DIR) && is_yaml(path))
        || has_older_name(path)
}

/// The documents of a resource file in written form, with short documents expanded: references are
/// not resolved, and only the YAML syntax is checked.
///
/// # Errors
///
/// Syntax errors, and unknown fields of short documents.
pub fn resources_of(path: &Path, text: &str) -> Result<Vec<Value>, Diagnostics> {
    let mut report = ProblemReport::default();
    let file = report.add_file(path, text);
    let documents = compat::parse(file, text, &mut report);
    let documents = documents.map(|documents| short_form::expand(documents, &mut report));
    match documents {
        Some(documents) if !report.has_errors() => {
            Ok(documents.iter().map(YamlNode::to_json).collect())
        }
        _ => Err(report.into_diagnostics()),
    }
}
