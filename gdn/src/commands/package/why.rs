//! `gdn package why`: explains why a project depends on a package.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_packages::{PackageName, Requires};
use serde::Serialize;

use super::plan::ProjectPackages;
use crate::commands::names;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequirementRow {
    /// Package that requires it; the project if none.
    by: Option<String>,
    by_version: Option<String>,
    name: String,
    required: String,
}

impl RequirementRow {
    fn line(&self) -> String {
        let Self { name, required, .. } = self;
        match (&self.by, &self.by_version) {
            (Some(by), Some(version)) => format!("`{by}` {version} requires `{name}` {required}"),
            _ => format!("the project requires `{name}` {required}"),
        }
    }
}

/// Installed packages with their version and requirements.
type Graph = BTreeMap<PackageName, (String, Requires)>;

/// For each dependent of `name`, the shortest chain of requirements from the project.
fn chains(project: &Requires, graph: &Graph, name: &PackageName) -> Vec<Vec<RequirementRow>> {
    let step = |by: Option<&PackageName>, to: &PackageName, required: String| RequirementRow {
        by: by.map(ToString::to_string),
        by_version: by.and_then(|by| graph.get(by)).map(|it| it.0.clone()),
        name: to.to_string(),
        required,
    };
    let mut found = Vec::new();
    let mut seen: BTreeSet<Option<&PackageName>> = BTreeSet::from([None]);
    let mut waiting: VecDeque<(Option<&PackageName>, Vec<RequirementRow>)> =
        VecDeque::from([(None, vec![])]);
    while let Some((node, way)) = waiting.pop_front() {
        let requires = match node {
            None => Some(project),
            Some(name) => graph.get(name).map(|it| &it.1),
        };
        for (to, requirement) in requires.into_iter().flatten() {
            let mut longer = way.clone();
            longer.push(step(node, to, requirement.to_string()));
            if to == name {
                found.push(longer);
            } else if seen.insert(Some(to)) {
                waiting.push_back((Some(to), longer));
            }
        }
    }
    found
}

pub(super) fn why(name: &str, context: &Context) -> Result<(), Failure> {
    let plan = ProjectPackages::read(context.project()?)?;
    let name: PackageName = name.parse().map_err(|error| {
        let hint = format!("list the packages: `{}`", context.command("package list"));
        Failure::new(Exit::Usage, format!("{error}"), hint)
    })?;
    let folders = plan.folders()?;
    let of_folders = folders.iter().map(|(name, it)| {
        let known = (it.version.to_string(), it.requires.clone());
        (name.clone(), known)
    });
    let locked = plan.lock.packages().map(|(name, it)| {
        let known = (it.version.to_string(), it.requires.clone());
        (name.clone(), known)
    });
    let graph: Graph = locked.chain(of_folders).collect();
    let chains = chains(&plan.requires, &graph, &name);
    if chains.is_empty() {
        let list = context.command("package list");
        let known = graph.keys().map(PackageName::as_str);
        let hint = format!("list the packages: `{list}`");
        return Err(Failure::new(
            Exit::NotFound,
            format!("no package requires `{name}`"),
            names::with_near_name(name.as_str(), known, hint),
        ));
    }
    let version = graph.get(&name).map(|it| it.0.clone());
    let folder = folders.get(&name).map(|it| it.permissions.clone());
    let granted = folder.or_else(|| plan.lock.get(&name).map(|it| it.granted.clone()));
    let granted = granted.unwrap_or_default();
    context.output.object(
        schemas::PACKAGE_WHY,
        &serde_json::json!({"name": name, "version": version, "chains": chains, "granted": granted}),
    )?;
    let version = version.unwrap_or_else(|| "is not locked".to_owned());
    let mut lines = vec![format!("{name} {version}")];
    for chain in &chains {
        for (depth, step) in chain.iter().enumerate() {
            let indent = "  ".repeat(depth + 1);
            lines.push(format!("{indent}{}", text::one_line(&step.line())));
        }
    }
    if !granted.is_empty() {
        lines.push("  granted permissions:".to_owned());
        lines.extend(super::plan::lines("+", &granted));
    }
    context.output.data(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requires(listed: &[(&str, &str)]) -> Requires {
        let read = |(name, text): &(&str, &str)| (name.parse().unwrap(), text.parse().unwrap());
        listed.iter().map(read).collect()
    }

    #[test]
    fn pkg_3_all_dependency_paths_to_a_package_are_listed() {
        let graph: Graph = [
            ("a", "1.0.0", requires(&[("b", "^1"), ("c", "*")])),
            ("b", "1.1.0", requires(&[("d", "~1.2"), ("a", "1")])),
            ("c", "3.0.0", requires(&[("b", "1")])),
            ("d", "1.2.0", requires(&[("d", "1")])),
        ]
        .into_iter()
        .map(|(name, version, requires)| (name.parse().unwrap(), (version.to_owned(), requires)))
        .collect();
        let project = requires(&[("a", "^1"), ("d", "1.x")]);
        let told = |name: &str| -> Vec<Vec<String>> {
            let chains = chains(&project, &graph, &name.parse().unwrap());
            let chains = chains.iter();
            chains
                .map(|chain| chain.iter().map(RequirementRow::line).collect())
                .collect()
        };
        assert_eq!(
            told("d"),
            [
                vec!["the project requires `d` 1.x"],
                vec![
                    "the project requires `a` ^1",
                    "`a` 1.0.0 requires `b` ^1",
                    "`b` 1.1.0 requires `d` ~1.2",
                ],
            ]
        );
        assert_eq!(told("b").len(), 2);
        assert!(told("x").is_empty());
    }
}
