//! `permissions` of a Package: permissions of its modules beyond those of every module (`PKG-3`).

use std::collections::BTreeSet;
use std::path::{Component, Path};

use goondan_protocol::base_package::tool_names;
use goondan_protocol::permissions::Permissions;
use goondan_protocol::sandbox::ReachableHost;

use crate::codes;
use crate::fields::{Fields, LocatedValue};
use crate::limits::MAX_PERMISSIONS;
use crate::reference::builtin_connectors;
use crate::report::{Problem, ProblemReport};
use crate::shape::{Field, FieldType, Shape};
use crate::similar::nearest;

const TEXTS: FieldType = FieldType::List(&FieldType::Text);

pub(crate) const FIELD: Field = Field::optional(
    "permissions",
    FieldType::Mapping(&PERMISSIONS),
    "Permissions that the package's modules need. They must be granted at installation; the \
     modules can access nothing else.",
);

static PERMISSIONS: Shape = Shape::of(
    "Permissions",
    "Permissions that a package's modules need. Modules may always read the system's programs, the \
     project and their own folder, and write in the work directory.",
    &[
        Field::optional(
            "hosts",
            TEXTS,
            "Hosts that they connect to: `example.org`, `*.example.org` or an address, followed by \
             `:port` for ports other than 80 and 443.",
        ),
        Field::optional(
            "read",
            TEXTS,
            "Additional paths that they read and execute: absolute, below `~/`, or within the project that uses them.",
        ),
        Field::optional(
            "write",
            TEXTS,
            "Additional paths that they change: absolute, below `~/`, or within the project that uses them.",
        ),
        Field::optional(
            "secrets",
            TEXTS,
            "Names of secrets that they receive, from `secrets` of a Connection or of a task.",
        ),
        Field::optional(
            "connections",
            TEXTS,
            "Built-in connectors whose Connections its Tools use, such as `telegram`.",
        ),
        Field::optional(
            "tools",
            TEXTS,
            "Built-in tools that its Tools wrap, such as `bash`.",
        ),
    ],
);

pub(crate) fn read(spec: &mut Fields<'_>, report: &mut ProblemReport) -> Permissions {
    let Some(mut fields) = spec.nested("permissions", report) else {
        return Permissions::default();
    };
    let connectors: Vec<&str> = builtin_connectors().collect();
    let tools: Vec<&str> = tool_names().collect();
    let permissions = Permissions {
        hosts: texts(&mut fields, "hosts", report, check_host),
        read: texts(&mut fields, "read", report, check_path),
        write: texts(&mut fields, "write", report, check_path),
        secrets: texts(&mut fields, "secrets", report, check_secret),
        connections: texts(&mut fields, "connections", report, |it| {
            known(it, "connector", &connectors)
        }),
        tools: texts(&mut fields, "tools", report, |it| known(it, "tool", &tools)),
    };
    fields.close();
    permissions
}

fn texts(
    fields: &mut Fields<'_>,
    name: &'static str,
    report: &mut ProblemReport,
    check: impl Fn(&LocatedValue<&str>) -> Option<Problem>,
) -> BTreeSet<String> {
    let place = fields.place_of(name);
    let listed = fields.texts(name, report);
    if let Some(place) = place.filter(|_| listed.len() > MAX_PERMISSIONS) {
        let message = format!(
            "`{name}` lists {}; at most {MAX_PERMISSIONS} are allowed",
            listed.len()
        );
        let problem = Problem::new(codes::INVALID_VALUE, place, message);
        report
            .add(problem.help("combine entries, for example into a directory or `*.example.org`"));
        return BTreeSet::new();
    }
    let mut found = BTreeSet::new();
    for text in listed {
        match check(&text) {
            Some(problem) => report.add(problem),
            None => drop(found.insert(text.value.to_owned())),
        }
    }
    found
}

fn check_host(text: &LocatedValue<&str>) -> Option<Problem> {
    let error = text.value.parse::<ReachableHost>().err()?;
    let message = format!("`{}` {error}", text.value);
    Some(Problem::new(codes::INVALID_VALUE, text.place, message))
}

/// Links are resolved later, on the machine that runs the project.
fn check_path(text: &LocatedValue<&str>) -> Option<Problem> {
    let path = Path::new(text.value);
    let climbs = path.components().any(|it| it == Component::ParentDir);
    (text.value.is_empty() || climbs || text.value.contains(char::is_control)).then(|| {
        let message = format!("`{}` is not a valid sandbox path", text.value);
        let problem = Problem::new(codes::SANDBOX_PATH, text.place, message);
        problem
            .help("write an absolute path, or one below `~/` or within the project, without `..`")
    })
}

fn check_secret(text: &LocatedValue<&str>) -> Option<Problem> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (text.value.is_empty() || !text.value.chars().all(is_name)).then(|| {
        let message = format!("`{}` is not a valid secret name", text.value);
        let problem = Problem::new(codes::INVALID_VALUE, text.place, message);
        problem.help("use letters, digits, `-`, `_` and `.`")
    })
}

fn known(text: &LocatedValue<&str>, what: &str, known: &[&str]) -> Option<Problem> {
    (!known.contains(&text.value)).then(|| {
        let message = format!("unknown built-in {what} `{}`", text.value);
        let problem = Problem::new(codes::UNKNOWN_REFERENCE, text.place, message);
        problem.did_you_mean(nearest(text.value, known.iter().copied()))
    })
}
