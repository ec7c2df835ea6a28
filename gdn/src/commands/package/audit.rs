//! `gdn package audit`: checks a project's packages against the advisories of registries.

use std::collections::BTreeMap;

use goondan_packages::{PackageName, Range, Version};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::ProjectPackages;
use super::registry::{ANSWER_BYTES_MAX, Registry, RegistryError, address};
use super::web::WebError;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// Bulk advisory endpoint of the npm registry protocol.
const PATH: &str = "-/npm/v1/security/advisories/bulk";

/// Advisory about a version.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Advisory {
    name: String,
    version: String,
    severity: String,
    title: String,
    url: String,
    vulnerable_versions: String,
}

/// Advisory as sent by a registry.
#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    title: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    severity: String,
    #[serde(default)]
    vulnerable_versions: String,
}

type Versions = BTreeMap<PackageName, Version>;

pub(super) async fn audit(context: &Context) -> Result<(), Failure> {
    let plan = ProjectPackages::read(context.project()?)?;
    let registry = Registry::new(context, plan.registries.clone())?;
    let mut by_registry: BTreeMap<String, Versions> = BTreeMap::new();
    let (mut asked, mut unasked) = (0_u64, 0_u64);
    for (name, locked) in plan.lock.packages() {
        if !locked.resolved.starts_with("http") {
            unasked += 1;
            continue;
        }
        asked += 1;
        let of = registry.of(name)?.to_string();
        let versions = by_registry.entry(of).or_default();
        versions.insert(name.clone(), locked.version.clone());
    }
    let mut found = Vec::new();
    for (of, versions) in &by_registry {
        found.extend(advisories(of, versions, &registry).await?);
    }
    tell(&found, asked, unasked, context)
}

/// Queries one registry. Only names and versions are sent.
async fn advisories(
    of: &str,
    versions: &Versions,
    registry: &Registry<'_>,
) -> Result<Vec<Advisory>, Failure> {
    let listed = versions.iter();
    let question: BTreeMap<String, [String; 1]> = listed
        .map(|(name, version)| (name.to_string(), [version.to_string()]))
        .collect();
    let body = serde_json::to_vec(&question).map_err(std::io::Error::other)?;
    let url = address(&format!("{of}/{PATH}"))?;
    let mut answer = Vec::new();
    let asking = registry.ask(Method::POST, url, Some(body), ANSWER_BYTES_MAX, &mut answer);
    asking.await.map_err(|asked| match asked {
        RegistryError::Web(WebError::Status {
            status: 404 | 405, ..
        }) => Failure::new(
            Exit::NotFound,
            format!("{of} has no advisories endpoint"),
            "its packages cannot be audited; check the announcements of their authors",
        ),
        asked => asked.into(),
    })?;
    read(&answer, versions).map_err(|error| {
        let hint = "try again later; if the problem persists, check the registry's address";
        let mut failure = Failure::of(Exit::Conflict, &error, hint);
        failure.message = format!("cannot read the advisories of {of}: {}", failure.message);
        failure
    })
}

/// Parses a response and keeps the advisories for the versions in use. An advisory with an unreadable range is kept.
fn read(answer: &[u8], versions: &Versions) -> Result<Vec<Advisory>, serde_json::Error> {
    let said: BTreeMap<String, Vec<Value>> = serde_json::from_slice(answer)?;
    let mut found = Vec::new();
    for (name, version) in versions {
        for it in said.get(name.as_str()).into_iter().flatten() {
            let it: Wire = serde_json::from_value(it.clone())?;
            let range = Range::parse(&it.vulnerable_versions);
            if range.is_ok_and(|range| !range.satisfies_with_prerelease(version, true)) {
                continue;
            }
            found.push(Advisory {
                name: name.to_string(),
                version: version.to_string(),
                severity: it.severity,
                title: it.title,
                url: it.url,
                vulnerable_versions: it.vulnerable_versions,
            });
        }
    }
    Ok(found)
}

fn tell(found: &[Advisory], asked: u64, unasked: u64, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    output.object(
        schemas::PACKAGE_AUDIT,
        &serde_json::json!({"packages": asked, "notAsked": unasked, "advisories": found}),
    )?;
    if unasked > 0 {
        let count = text::count(unasked, "package");
        output.note(format!("{count} not from a registry: not checked"));
    }
    if found.is_empty() {
        let count = text::count(asked, "package");
        return output.data(format!("{count}: no known advisories"));
    }
    let mut table = Table::new([
        Column::new("PACKAGE"),
        Column::new("VERSION"),
        Column::new("SEVERITY"),
        Column::new("WHAT"),
        Column::new("MORE").below(1, "more"),
    ]);
    for it in found {
        table.row([
            text::printable(&it.name).into(),
            it.version.clone().into(),
            Cell::styled(text::one_line(&it.severity), style::BAD),
            text::one_line(&it.title).into(),
            text::one_line(&it.url).into(),
        ]);
    }
    output.data(table.render(output.canvas()).trim_end())?;
    let count = text::count(found.len() as u64, "warning");
    let hint = format!(
        "update to newer versions: `{}`",
        context.command("package update")
    );
    Err(Failure::new(
        Exit::Degraded,
        format!("{count} about the packages"),
        hint,
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pkg_3_advisories_are_those_of_the_versions_in_use() {
        let versions: Versions = [("a", "1.2.0"), ("b", "2.0.0-rc.1")]
            .into_iter()
            .map(|(name, version)| (name.parse().unwrap(), Version::parse(version).unwrap()))
            .collect();
        let one = |range: &str| json!({"id": 1, "title": range, "severity": "high", "vulnerable_versions": range});
        let answer = json!({
            "a": [one("<1.2.0"), one("<=1.2.0"), one("odd!")],
            "b": [one("<2")  , one("<3")],
            "c": [one("*")],
        });
        let found = read(answer.to_string().as_bytes(), &versions).unwrap();
        let titles: Vec<&str> = found.iter().map(|it| it.title.as_str()).collect();
        assert_eq!(titles, ["<=1.2.0", "odd!", "<2", "<3"]);
        assert!(read(b"[]", &versions).is_err());
    }
}
