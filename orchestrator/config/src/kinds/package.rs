//! `kind: Package`: what the project is called.

use crate::Package;
use crate::codes;
use crate::document::Document;
use crate::fields::Located;
use crate::limits::MAX_PACKAGE_NAME_BYTES;
use crate::report::{Problem, Report};

/// Reads a Package document. All fields of its `spec` are optional, and so is the `spec`.
pub(crate) fn read(document: &Document<'_>, report: &mut Report) -> Option<Package> {
    let name = read_name(&document.name, report);
    let mut version = None;
    if let Some(mut spec) = document.optional_spec(report) {
        version = spec.text("version", report);
        let _description = spec.text("description", report);
        spec.close(report);
    }
    if let Some(version) = &version
        && let Err(error) = semver::Version::parse(version.value)
    {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                version.place,
                format!("`{}` is not a semantic version: {error}", version.value),
            )
            .help("write three numbers, such as `1.0.0`"),
        );
    }
    Some(Package {
        name: name?,
        version: version.map(|version| version.value.to_owned()),
    })
}

fn read_name(name: &Located<&str>, report: &mut Report) -> Option<String> {
    let plain = match name.value.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/'),
        None => Some(("goondan", name.value)),
    };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    let is_valid = name.value.len() <= MAX_PACKAGE_NAME_BYTES
        && plain.is_some_and(|(scope, name)| is_part(scope) && is_part(name));
    if is_valid {
        return Some(name.value.to_owned());
    }
    report.add(
        Problem::new(
            codes::INVALID_VALUE,
            name.place,
            format!(
                "`{}` is not a package name; allowed are `name` and `@scope/name` of letters, \
                 digits, `-`, `_` and `.`, at most {MAX_PACKAGE_NAME_BYTES} bytes",
                name.value
            ),
        )
        .help("write a name such as `@goondan/sample-10`"),
    );
    None
}
