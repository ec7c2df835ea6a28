//! Projects of the formats that succeeded 0.0.3 elsewhere. They are recognized as a whole, because
//! each of their fields would be a problem of its own.

use crate::codes;
use crate::place::SourceLocation;
use crate::report::Problem;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// Fields of a goondan resource.
const RESOURCE_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];

/// Fields beside `agents` at the top of a file of the library.
const LIBRARY_FIELDS: [&str; 4] = ["routes", "flow", "resources", "extends"];

/// Fields of an agent of the library that no other known format has.
const LIBRARY_AGENT_FIELDS: [&str; 2] = ["systemMessage", "input"];

/// Files of the TypeScript harness that define its agents.
pub(crate) const HARNESS_MODULES: [&str; 4] = [
    "harness.config.ts",
    "harness.config.mts",
    "harness.config.js",
    "harness.config.mjs",
];

/// Files of the TypeScript harness with resources, almost like ours.
pub(crate) const HARNESS_RESOURCES: [&str; 2] = ["harness.yaml", "harness.yml"];

/// The problem of a project file in the format of the library.
pub(crate) fn library(document: &YamlNode) -> Option<Problem> {
    let entries = document.entries();
    let has = |name: &str| entries.iter().any(|entry| entry.key == name);
    if RESOURCE_FIELDS.into_iter().any(has) {
        return None;
    }
    let fields: Vec<&str> = LIBRARY_FIELDS
        .into_iter()
        .filter(|name| has(name))
        .collect();
    let agents = entries.iter().find(|entry| entry.key == "agents");
    let has_agents = agents.is_some_and(|it| matches!(it.node.value, YamlValue::Mapping(_)));
    let is_agent = |agent: &MappingEntry| {
        let mut fields = agent.node.entries().iter();
        fields.any(|field| LIBRARY_AGENT_FIELDS.contains(&field.key.as_str()))
    };
    let is_library = match has_agents {
        true => {
            let mut agents = agents.map_or(&[][..], |it| it.node.entries()).iter();
            !fields.is_empty() || agents.any(is_agent)
        }
        false => fields.contains(&"resources") && fields.len() > 1,
    };
    is_library.then(|| {
        let mut found: Vec<String> = fields.iter().map(|name| format!("`{name}`")).collect();
        if has_agents {
            found.insert(0, "`agents`".to_owned());
        }
        let message = format!(
            "this is a project of the goondan library, the successor of goondan 0.0.3, whose format is not \
             supported: it begins with {}",
            found.join(", ")
        );
        Problem::new(codes::UNKNOWN_KIND, document.place, message).help(
            "run it with that library. To use it here, run `gdn config import FILE DIR`, which converts what it can and \
             lists the rest; or run `gdn init` in a new directory and write each of its agents as a document `kind: \
             Agent`: docs/compatibility.md lists the fields",
        )
    })
}

/// The problem of a directory that has this file of the TypeScript harness instead of
/// `goondan.yaml`.
pub(crate) fn harness(file: &str, place: SourceLocation) -> Problem {
    let message = format!(
        "this is a project of the TypeScript harness OpenHarness (`{file}`), not of goondan: `goondan.yaml` does \
         not exist"
    );
    let help = match HARNESS_RESOURCES.contains(&file) {
        true => format!(
            "run it with OpenHarness. Or, since its documents are almost those of goondan, copy `{file}` to \
             `goondan.yaml` and run `gdn validate`, which lists what differs"
        ),
        false => "run it with OpenHarness (`oh run`). To use it here, run `gdn init` in a new directory and write \
             each of its agents as a document `kind: Agent`: docs/compatibility.md lists the fields"
            .to_owned(),
    };
    Problem::new(codes::MISSING_FILE, place, message).help(help)
}
