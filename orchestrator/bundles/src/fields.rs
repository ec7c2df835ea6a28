//! Field-by-field classification of configuration changes, and the policy for each class
//! (`BUNDLE-7`).
//!
//! Fields that are not listed here as the agent's own can never be changed by an agent: the
//! sandbox, limits, budgets, allow-lists, secrets, extensions, and the approval rules.

use std::collections::{BTreeMap, BTreeSet};

use goondan_config::{ChangeRule, ChangesetPolicy, is_resource_file, resources_of};
use goondan_protocol::ids::AgentName;
use serde_json::Value;

use crate::tree::{Tree, changed_paths};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Prompt of the agent's own model.
    Prompts,
    Tools,
    Models,
    /// Never allowed.
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldChange {
    /// The field, such as `Agent/writer spec.prompt.system`, or a file.
    pub(crate) what: String,
    pub(crate) class: Class,
    /// Reason why only a user can change it, in the project's files.
    pub(crate) why: &'static str,
}

const NOT_AN_AGENTS: &str = "agents never change this";
const OF_ANOTHER: &str =
    "it belongs to another agent, which uses the files of its own conversation";
const SHARED: &str = "all conversations of the workspace share it; propose it to a user instead";
const MAY_HOLD_SECRETS: &str =
    "only a user can change fields with external values, such as secrets";
const APPROVALS: &str = "only a user can change approval rules of tools";
const UNUSED: &str = "it is neither a resource file nor an agent's prompt";
const ONLY_NAMED: &str = "module files cannot be changed";

/// Decision about changes under the swarm's policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PolicyDecision {
    /// Allowed without approval.
    Automatic,
    /// Requires approval, for these reasons.
    Approval(String),
    /// Not allowed.
    Refused(String),
}

/// Reason why files cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComparisonError(pub(crate) String);

/// Unparsed resources by kind and name.
type Resources = BTreeMap<(String, String), Value>;

fn resources(tree: &Tree) -> Result<Resources, ComparisonError> {
    let mut found = Resources::new();
    for (path, text) in tree {
        let Some(text) = text.as_ref().filter(|_| is_resource_file(path.as_ref())) else {
            continue;
        };
        let written = resources_of(path.as_ref(), text);
        let written = written.map_err(|problems| ComparisonError(problems.to_string()))?;
        for resource in written {
            let text = |value: Option<&Value>| {
                value.and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let kind = text(resource.get("kind"));
            let name = text(resource.get("metadata").and_then(|it| it.get("name")));
            if found
                .insert((kind.clone(), name.clone()), resource)
                .is_some()
            {
                return Err(ComparisonError(format!("{kind} `{name}` is defined twice")));
            }
        }
    }
    Ok(found)
}

/// Returns the prompt files referenced by an agent.
fn prompt_files(resources: &Resources, own: &AgentName) -> BTreeSet<String> {
    let agent = resources.get(&("Agent".to_owned(), own.to_string()));
    let named = agent.and_then(|agent| agent.pointer("/spec/prompt/systemRef"));
    let named = named.and_then(Value::as_str).map(plain);
    named.into_iter().collect()
}

/// Normalizes a path by removing `.` components.
fn plain(path: &str) -> String {
    let parts = path.split('/');
    let parts: Vec<&str> = parts
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    parts.join("/")
}

/// Returns the changes between two configurations, in order.
///
/// # Errors
///
/// [`ComparisonError`] if a resource file is not valid YAML.
pub(crate) fn changes(
    before: &Tree,
    after: &Tree,
    own: &AgentName,
) -> Result<Vec<FieldChange>, ComparisonError> {
    let (was, is) = (resources(before)?, resources(after)?);
    let mut prompts = prompt_files(&was, own);
    prompts.extend(prompt_files(&is, own));
    let mut found = BTreeSet::new();
    for path in changed_paths(before, after) {
        if is_resource_file(path.as_ref()) {
            continue;
        }
        let is_named = matches!(before.get(&path), Some(None));
        let (class, why) = match () {
            () if is_named => (Class::Never, ONLY_NAMED),
            () if prompts.contains(&path) => (Class::Prompts, ""),
            () => (Class::Never, UNUSED),
        };
        found.insert(FieldChange {
            what: path,
            class,
            why,
        });
    }
    let keys: BTreeSet<&(String, String)> = was.keys().chain(is.keys()).collect();
    for key in keys {
        resource_changes(key, was.get(key), is.get(key), own, &mut found);
    }
    Ok(found.into_iter().collect())
}

fn resource_changes(
    (kind, name): &(String, String),
    was: Option<&Value>,
    is: Option<&Value>,
    own: &AgentName,
    found: &mut BTreeSet<FieldChange>,
) {
    let mut add = |field: &str, (class, why): (Class, &'static str)| {
        let what = format!("{kind}/{name} {field}").trim_end().to_owned();
        found.insert(FieldChange { what, class, why });
    };
    match (was, is) {
        (Some(was), Some(is)) => {
            let mut fields = Vec::new();
            differing(was, is, String::new(), &mut fields);
            for (field, value) in fields {
                add(&field, class_of(kind, name, &field, value, own));
            }
            if kind == "Agent" && approvals_differ(was, is) {
                add("spec.tools[].approve", (Class::Never, APPROVALS));
            }
        }
        (None, Some(is)) if kind == "Tool" => match why_no_new_tool(is) {
            Some(why) => add("(new)", (Class::Never, why)),
            None => add("(new)", (Class::Tools, "")),
        },
        (Some(_), None) if kind == "Tool" => add("(removed)", (Class::Tools, "")),
        (None, Some(_)) => add("(new)", (Class::Never, shared_or_not(kind))),
        (Some(_), None) => add("(removed)", (Class::Never, shared_or_not(kind))),
        (None, None) => {}
    }
}

/// Returns the name in a reference of any form.
fn referred(reference: &Value) -> Option<&str> {
    match reference {
        Value::String(text) => text.split_once('/').map(|(_, name)| name),
        other => other.get("name")?.as_str(),
    }
}

/// Returns the approval rules of an agent's tools, by unique tool name.
fn approvals(agent: &Value) -> BTreeMap<&str, Option<&Value>> {
    let tools = agent.pointer("/spec/tools").and_then(Value::as_array);
    let tools = tools.into_iter().flatten();
    let said = tools.filter_map(|tool| {
        let reference = tool.get("ref").unwrap_or(tool);
        Some((referred(reference)?, tool.get("approve")))
    });
    said.collect()
}

/// True if the approval rule of a remaining tool changes.
fn approvals_differ(was: &Value, is: &Value) -> bool {
    let before = approvals(was);
    approvals(is)
        .iter()
        .any(|(tool, said)| before.get(tool).is_some_and(|before| before != said))
}

fn shared_or_not(kind: &str) -> &'static str {
    match kind {
        "Model" | "Connection" | "Connector" => SHARED,
        _ => NOT_AN_AGENTS,
    }
}

fn takes_values(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(key, value)| key == "valueFrom" || takes_values(value)),
        Value::Array(items) => items.iter().any(takes_values),
        _ => false,
    }
}

/// Returns the reason why an agent cannot add a tool, if there is one.
fn why_no_new_tool(tool: &Value) -> Option<&'static str> {
    let spec = tool.get("spec")?;
    if takes_values(spec) {
        return Some(MAY_HOLD_SECRETS);
    }
    let fields = ["config", "limits", "sandbox", "secrets", "timeoutSeconds"];
    let has_any = fields.iter().any(|field| spec.get(field).is_some());
    has_any.then_some(NOT_AN_AGENTS)
}

/// Returns the differing fields of two values, with their new values. Lists are compared as a
/// whole.
fn differing<'v>(
    was: &'v Value,
    is: &'v Value,
    at: String,
    found: &mut Vec<(String, Option<&'v Value>)>,
) {
    let (Value::Object(was), Value::Object(is)) = (was, is) else {
        if was != is {
            found.push((at, Some(is)));
        }
        return;
    };
    let keys: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    for key in keys {
        let at = if at.is_empty() {
            key.clone()
        } else {
            format!("{at}.{key}")
        };
        match (was.get(key), is.get(key)) {
            (Some(was), Some(is)) => differing(was, is, at, found),
            (_, is) => found.push((at, is)),
        }
    }
}

fn class_of(
    kind: &str,
    name: &str,
    field: &str,
    value: Option<&Value>,
    own: &AgentName,
) -> (Class, &'static str) {
    let is_in = |above: &str| {
        field
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if value.is_some_and(takes_values) {
        return (Class::Never, MAY_HOLD_SECRETS);
    }
    match kind {
        "Agent" if name != own.as_str() => (Class::Never, OF_ANOTHER),
        "Agent" if is_in("spec.prompt") || is_in("spec.description") => (Class::Prompts, ""),
        "Agent" if is_in("spec.tools") => (Class::Tools, ""),
        "Agent" if is_in("spec.modelConfig") => (Class::Models, ""),
        "Tool" if is_in("spec.exports") || is_in("spec.description") => (Class::Tools, ""),
        _ => (Class::Never, shared_or_not(kind)),
    }
}

pub(crate) fn decide(changes: &[FieldChange], policy: &ChangesetPolicy) -> PolicyDecision {
    let rule_of = |class| match class {
        Class::Prompts => policy.prompts,
        Class::Tools => policy.tools,
        Class::Models => policy.models,
        Class::Never => ChangeRule::Never,
    };
    let of = |rule: ChangeRule| {
        changes
            .iter()
            .filter(move |change| rule_of(change.class) == rule)
    };
    let refused: Vec<String> = of(ChangeRule::Never)
        .map(|change| match change.why {
            "" => format!("{}: the policy of the swarm does not allow it", change.what),
            why => format!("{}: {why}", change.what),
        })
        .collect();
    if !refused.is_empty() {
        return PolicyDecision::Refused(refused.join("\n"));
    }
    let asked: Vec<&str> = of(ChangeRule::Approval)
        .map(|change| change.what.as_str())
        .collect();
    if asked.is_empty() {
        return PolicyDecision::Automatic;
    }
    PolicyDecision::Approval(format!("requires approval by a user: {}", asked.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROJECT: &str = "
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: writer}
spec:
  modelConfig: {modelRef: Model/m}
  prompt: {systemRef: ./prompts/writer.md}
  tools: [{ref: Tool/bash}, {ref: Tool/w, approve: ask}]
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: bash}
spec: {builtin: bash, config: {hosts: [a]}}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: m}
spec: {provider: scripted}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: other}
spec: {modelConfig: {modelRef: Model/m}, prompt: {system: hi}}
";

    fn tree(project: &str, prompt: &str) -> Tree {
        Tree::from([
            ("goondan.yaml".to_owned(), Some(project.to_owned())),
            ("prompts/writer.md".to_owned(), Some(prompt.to_owned())),
            ("tools/x.ts".to_owned(), None),
        ])
    }

    fn decided(after: &Tree) -> PolicyDecision {
        let own = "writer".parse().unwrap();
        let changes = changes(&tree(PROJECT, "old"), after, &own).unwrap();
        decide(&changes, &ChangesetPolicy::default())
    }

    fn edited(from: &str, to: &str) -> PolicyDecision {
        assert!(PROJECT.contains(from), "{from}");
        decided(&tree(&PROJECT.replace(from, to), "old"))
    }

    #[test]
    fn bundle_7_prompt_edits_are_automatic_and_tools_need_approval() {
        assert_eq!(decided(&tree(PROJECT, "new")), PolicyDecision::Automatic);
        let inline = edited("{systemRef: ./prompts/writer.md}", "{system: new}");
        assert_eq!(inline, PolicyDecision::Automatic);
        let approval = |decision: &PolicyDecision| matches!(decision, PolicyDecision::Approval(_));
        let refused = |decision: &PolicyDecision| matches!(decision, PolicyDecision::Refused(_));
        let two = edited("[{ref: Tool/bash}", "[{ref: Tool/x}, {ref: Tool/bash}");
        assert!(approval(&two), "{two:?}");
        let model = edited("{modelRef: Model/m}\n", "{modelRef: Model/n}\n");
        assert!(approval(&model), "{model:?}");
        let new = "spec: {provider: scripted}\n---\napiVersion: goondan.ai/v1\nkind: Tool\n\
                   metadata: {name: t}\nspec: {builtin: wait}";
        let tool = edited("spec: {provider: scripted}", new);
        assert!(approval(&tool), "{tool:?}");
        for (from, to) in [
            ("hosts: [a]", "hosts: [a, b]"),
            ("provider: scripted", "provider: openai"),
            ("{system: hi}", "{system: obey}"),
            ("  tools: [", "  sandbox: {require: none}\n  tools: ["),
            (", approve: ask}", "}"),
            ("approve: ask", "approve: always"),
            ("{ref: Tool/w, approve: ask}", "Tool/w"),
            ("{ref: Tool/w, approve: ask}", "{kind: Tool, name: w}"),
            (
                "{ref: Tool/w, approve: ask}",
                "{ref: {kind: Tool, name: w}}",
            ),
            ("{ref: Tool/bash}", "{ref: Tool/bash, approve: never}"),
            (
                "{systemRef: ./prompts/writer.md}",
                "{system: {valueFrom: {env: KEY}}}",
            ),
            (
                "spec: {provider: scripted}",
                "spec: {provider: scripted}\n---\napiVersion: goondan.ai/v1\nkind: Swarm\n\
                 metadata: {name: s}\nspec: {entryAgent: Agent/writer}",
            ),
            (
                "spec: {provider: scripted}",
                "spec: {provider: scripted}\n---\napiVersion: goondan.ai/v1\nkind: Tool\n\
                 metadata: {name: t}\nspec: {builtin: bash, config: {hosts: ['*']}}",
            ),
        ] {
            let decision = edited(from, to);
            assert!(refused(&decision), "{to}: {decision:?}");
        }
    }

    #[test]
    fn bundle_7_agent_cannot_change_module_or_unreferenced_files() {
        let mut after = tree(PROJECT, "old");
        after.insert("tools/x.ts".to_owned(), Some("evil()".to_owned()));
        assert!(matches!(decided(&after), PolicyDecision::Refused(_)));
        let mut after = tree(PROJECT, "old");
        after.insert(".env".to_owned(), Some("KEY=1".to_owned()));
        assert!(matches!(decided(&after), PolicyDecision::Refused(_)));
    }

    #[test]
    fn bundle_7_a_policy_can_be_stricter() {
        let own = "writer".parse().unwrap();
        let changes = changes(&tree(PROJECT, "old"), &tree(PROJECT, "new"), &own).unwrap();
        let policy = ChangesetPolicy {
            prompts: ChangeRule::Approval,
            ..ChangesetPolicy::default()
        };
        assert!(matches!(
            decide(&changes, &policy),
            PolicyDecision::Approval(_)
        ));
        let policy = ChangesetPolicy {
            prompts: ChangeRule::Never,
            ..policy
        };
        assert!(matches!(
            decide(&changes, &policy),
            PolicyDecision::Refused(_)
        ));
    }
}
