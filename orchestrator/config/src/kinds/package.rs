//! `kind: Package`: name and requirements of the project.

use goondan_packages::{PackageName, Registries, Requirement};
use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::permissions::Permissions;

use super::permissions;
use crate::Package;
use crate::codes;
use crate::contract::{BaseRange, OLDER_RANGE};
use crate::dependency::Dependency;
use crate::document::Document;
use crate::fields::{Fields, LocatedValue};
use crate::kind::ResourceKind;
use crate::limits::MAX_PACKAGE_NAME_BYTES;
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::shape::{Field, FieldDefault, FieldType, Shape};
use crate::similar::nearest;

impl ResourceKind {
    pub(crate) const PACKAGE: Self = Self::named("Package");
}

/// Shape of a Package's `spec`.
pub(crate) static SPEC: Shape = Shape::of(
    "PackageSpec",
    "Name and labels of the project.",
    &[
        Field::optional(
            "version",
            FieldType::Text,
            "Semantic version, such as `0.1.0`.",
        ),
        Field::optional("description", FieldType::Text, "Description for people."),
        Field::optional(
            "access",
            FieldType::Word(&["public", "restricted"]),
            "Visibility of the published package.",
        )
        .or(FieldDefault::Text("restricted")),
        permissions::FIELD,
        Field::optional(
            "dependencies",
            FieldType::List(&FieldType::Mapping(&DEPENDENCY)),
            "Packages with resources that the project refers to.",
        ),
        Field::optional(
            "registries",
            FieldType::List(&FieldType::Mapping(&REGISTRY)),
            "Registries for packages that are required by a version range.",
        ),
    ],
);

static DEPENDENCY: Shape = Shape::of(
    "Dependency",
    "A package with resources that the project refers to.",
    &[
        Field::required(
            "name",
            FieldType::Text,
            "Its name, such as `@goondan/base`.",
        ),
        Field::required(
            "version",
            FieldType::Text,
            "A version range, such as `^0.1`, or a location: `file:PATH`.",
        ),
    ],
);

static REGISTRY: Shape = Shape::of(
    "Registry",
    "Registries for packages that are required by a version range.",
    &[
        Field::required("url", FieldType::Text, "Its URL: `https://HOST`."),
        Field::optional(
            "scope",
            FieldType::Text,
            "The scope of packages it serves, such as `@acme`. Without it, all packages whose scope has no registry.",
        ),
    ],
);

/// Reads a Package document. All fields of its `spec` are optional, and so is the `spec`.
pub(crate) fn read(
    document: &Document<'_>,
    report: &mut ProblemReport,
) -> (Option<Package>, Vec<Dependency>) {
    let name = read_name(&document.name, report);
    let mut version = None;
    let mut is_public = false;
    let mut asked = Permissions::default();
    let mut registries = Registries::default();
    let mut dependencies: Vec<Dependency> = Vec::new();
    if let Some(mut spec) = document.optional_spec(report) {
        version = spec.text("version", report);
        let _description = spec.text("description", report);
        let access = spec.word("access", report);
        is_public = access.is_some_and(|access| access.value == "public");
        asked = permissions::read(&mut spec, report);
        for dependency in spec.mappings("dependencies", report).into_iter().flatten() {
            let Some((at, dependency)) = read_dependency(dependency, report) else {
                continue;
            };
            let is_known = |it: &Dependency| it.name == dependency.name;
            if dependencies.iter().any(is_known) {
                let message = format!("package `{}` is required twice", dependency.name);
                let problem = Problem::new(codes::DUPLICATE_REFERENCE, at, message);
                report.add(problem.help("remove one of the two"));
            } else {
                dependencies.push(dependency);
            }
        }
        registries = read_registries(&mut spec, report);
        spec.close();
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
    let required = dependencies.iter();
    let required = required.map(|it| (it.name.clone(), it.requirement.clone()));
    let package = name.map(|name| Package {
        name,
        version: version.map(|version| version.value.to_owned()),
        requires: required.collect(),
        registries,
        is_public,
        permissions: asked,
    });
    (package, dependencies)
}

fn read_registries(spec: &mut Fields<'_>, report: &mut ProblemReport) -> Registries {
    let mut registries = Registries::default();
    for mut fields in spec.mappings("registries", report).into_iter().flatten() {
        let url = fields.text("url", report);
        let scope = fields.text("scope", report);
        fields.close();
        let Some(url) = url else {
            continue;
        };
        let place = scope.as_ref().map_or(url.place, |scope| scope.place);
        let scope = scope.as_ref().map(|scope| scope.value);
        match url.value.parse() {
            Err(error) => {
                let error: goondan_packages::InvalidRegistry = error;
                report.add(Problem::new(
                    codes::INVALID_VALUE,
                    url.place,
                    error.to_string(),
                ));
            }
            Ok(parsed) => {
                if let Err(error) = registries.add(scope, parsed) {
                    report.add(Problem::new(codes::INVALID_VALUE, place, error.to_string()));
                }
            }
        }
    }
    registries
}

/// Reads a requirement, with the place of its name. `None` for the built-in package.
fn read_dependency(
    mut fields: Fields<'_>,
    report: &mut ProblemReport,
) -> Option<(SourceLocation, Dependency)> {
    let name = fields.text("name", report);
    let version = fields.text("version", report);
    fields.close();
    let (name, version) = (name?, version?);
    if name.value == BASE_PACKAGE {
        check_builtin(&version, report);
        return None;
    }
    let parsed: Result<PackageName, _> = name.value.parse();
    let requirement: Result<Requirement, _> = version.value.parse();
    if let Err(error) = &parsed {
        let problem = Problem::new(codes::INVALID_VALUE, name.place, error.to_string());
        report.add(problem.did_you_mean(nearest(name.value, [BASE_PACKAGE])));
    }
    if let Err(error) = &requirement {
        report.add(Problem::new(
            codes::INVALID_VALUE,
            version.place,
            error.to_string(),
        ));
    }
    let dependency = Dependency {
        name: parsed.ok()?,
        requirement: requirement.ok()?,
        place: version.place,
    };
    Some((name.place, dependency))
}

/// Checks that the version of the built-in package is one that this program provides.
fn check_builtin(version: &LocatedValue<&str>, report: &mut ProblemReport) {
    let own = env!("CARGO_PKG_VERSION");
    let written = version.value;
    let message = match BaseRange::of(written) {
        BaseRange::Older | BaseRange::Current | BaseRange::Both => return,
        BaseRange::Neither => {
            format!("`{BASE_PACKAGE}` is built in with version {own}, which `{written}` excludes")
        }
        BaseRange::Elsewhere => {
            format!("`{BASE_PACKAGE}` is built in, and `{written}` is not a range of versions")
        }
        BaseRange::Invalid => format!("`{written}` is not a range of versions"),
    };
    report.add(
        Problem::new(codes::INVALID_VALUE, version.place, message).help(format!(
            "write `^{own}`, or `{OLDER_RANGE}` for a project of goondan 0.0.3"
        )),
    );
}

fn read_name(name: &LocatedValue<&str>, report: &mut ProblemReport) -> Option<String> {
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
