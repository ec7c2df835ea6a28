//! Treats a folder with only a `SKILL.md` (Agent Skills) as a package, by deriving its
//! `goondan.yaml` (`PKG-2`).
//!
//! A skill becomes one Extension of its name, which tells the model about the skill and the
//! location of its instructions. The model reads them when it needs them.

use std::path::Path;

use serde_json::{Value, json};

use crate::codes;
use crate::frame::API_VERSION;
use crate::limits::{MAX_PROMPT_BYTES, MAX_SKILL_DESCRIPTION_CHARS};
use crate::project_files::ProjectFiles;
use crate::report::{FileId, Problem, ProblemReport, SourceLocation};
use crate::tree;

/// File that marks a folder as a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// File with optional metadata of a published skill.
const NPM_FILE: &str = "package.json";

/// Delimiter of the front matter.
const FENCE: &str = "---";

/// Default version of a skill.
const UNVERSIONED: &str = "0.0.0";

/// The project file derived for a skill; `None` if the folder is not a skill, or an invalid one,
/// which is reported.
pub(crate) fn project_text(files: &ProjectFiles, report: &mut ProblemReport) -> Option<String> {
    let text = files.read(Path::new(SKILL_FILE), MAX_PROMPT_BYTES).ok()?;
    let file = report.add_file(Path::new(SKILL_FILE), text.as_str());
    let said = front_matter(&text).and_then(|said| said_in(file, said, report));
    let field = |name: &str| {
        let value = said.as_ref()?.get(name)?.as_str()?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let (Some(name), Some(description)) = (field("name"), field("description")) else {
        let message = format!(
            "`{SKILL_FILE}` does not begin with the `name` and the `description` of a skill"
        );
        let problem = Problem::new(
            codes::INVALID_VALUE,
            SourceLocation::start_of(file),
            message,
        );
        report.add(
            problem
                .help("write `---`, `name: …`, `description: …` and `---` above everything else"),
        );
        return None;
    };
    let npm = files.read(Path::new(NPM_FILE), MAX_PROMPT_BYTES).ok();
    let npm: Option<Value> = npm.and_then(|text| serde_json::from_str(&text).ok());
    let published = |field: &str| npm.as_ref()?.get(field)?.as_str().map(str::to_owned);
    let of_metadata = said.as_ref().and_then(|it| it.pointer("/metadata/version"));
    let of_metadata = of_metadata.and_then(Value::as_str).map(str::to_owned);
    let version = published("version").or(of_metadata).or(field("version"));
    let version = version.unwrap_or_else(|| UNVERSIONED.to_owned());
    let package = json!({
        "apiVersion": API_VERSION, "kind": "Package",
        "metadata": {"name": published("name").unwrap_or_else(|| name.clone())},
        "spec": {"version": version},
    });
    let extension = json!({
        "apiVersion": API_VERSION, "kind": "Extension", "metadata": {"name": name},
        "spec": {"builtin": "context-message", "config": {"text": skill_text(&name, &description, files.root())}},
    });
    Some(format!("{package}\n{FENCE}\n{extension}\n"))
}

/// Text about a skill for the model.
fn skill_text(name: &str, description: &str, folder: &Path) -> String {
    let words: Vec<&str> = description.split_whitespace().collect();
    let description: String = words
        .join(" ")
        .chars()
        .take(MAX_SKILL_DESCRIPTION_CHARS)
        .collect();
    let (place, folder) = (folder.join(SKILL_FILE), folder.display());
    format!(
        "Skill `{name}`: {description}\nBefore you use this skill, read its instructions in `{}`. \
         The files it refers to are in `{folder}`.",
        place.display()
    )
}

fn front_matter(text: &str) -> Option<&str> {
    let text = text.strip_prefix(FENCE)?;
    let text = text.strip_prefix('\r').unwrap_or(text).strip_prefix('\n')?;
    let end = text.find(&format!("\n{FENCE}"))?;
    text.get(..end)
}

fn said_in(file: FileId, front_matter: &str, report: &mut ProblemReport) -> Option<Value> {
    let documents = tree::parse(file, front_matter, report)?;
    documents.first().map(tree::YamlNode::to_json)
}
