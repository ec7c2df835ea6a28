//! Approval rules of the agent's tools: decide which calls need a person before they run
//! (`STEER-3`).

use std::collections::BTreeMap;

use goondan_protocol::approval::{Approve, ApproveRule};
use goondan_protocol::definition::ToolDefinition;
use goondan_protocol::ids::ResourceName;
use goondan_protocol::message::ToolCall;
use regex_lite::Regex;
use serde_json::Value;

use super::ToolboxError;

/// Compiled approval rules by tool.
pub(super) struct ApprovalRules(BTreeMap<ResourceName, Vec<ApprovalCondition>>);

struct ApprovalCondition {
    export: Option<String>,
    when: Vec<(String, Regex)>,
    approve: Approve,
}

impl ApprovalRules {
    /// Compiles the tools' rules.
    ///
    /// # Errors
    ///
    /// [`ToolboxError::BadRule`] if a pattern is not a valid regular expression.
    pub(super) fn of(tools: &[ToolDefinition]) -> Result<Self, ToolboxError> {
        let with_rules = tools.iter().filter(|tool| !tool.approve.is_empty());
        let compiled = with_rules.map(|tool| {
            let rules = tool
                .approve
                .iter()
                .map(|rule| ApprovalCondition::of(tool, rule));
            Ok((tool.name.clone(), rules.collect::<Result<_, _>>()?))
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// The approval that a call needs.
    pub(super) fn of_call(&self, call: &ToolCall) -> Approve {
        let Some((tool, export)) = call.tool_name.split_once("__") else {
            return Approve::Always;
        };
        let mut all = self.0.iter();
        let Some((_, rules)) = all.find(|(name, _)| name.as_str() == tool) else {
            return Approve::Always;
        };
        let first = rules.iter().find(|rule| rule.fits(export, &call.input));
        first.map_or(Approve::Ask, |rule| rule.approve)
    }
}

impl ApprovalCondition {
    fn of(tool: &ToolDefinition, rule: &ApproveRule) -> Result<Self, ToolboxError> {
        let when = rule.when.iter().map(|(argument, pattern)| {
            let regex = Regex::new(&ApproveRule::whole(pattern));
            let bad_rule = |source| ToolboxError::BadRule {
                tool: tool.name.clone(),
                argument: argument.clone(),
                source,
            };
            Ok((argument.clone(), regex.map_err(bad_rule)?))
        });
        Ok(Self {
            export: rule.export.clone(),
            when: when.collect::<Result<_, ToolboxError>>()?,
            approve: rule.approve,
        })
    }

    fn fits(&self, export: &str, input: &Value) -> bool {
        let is_meant = self.export.as_deref().is_none_or(|meant| meant == export);
        is_meant
            && self.when.iter().all(|(argument, regex)| {
                let value = input.get(argument).filter(|value| !value.is_null());
                value.is_some_and(|value| match value {
                    Value::String(text) => regex.is_match(text),
                    other => regex.is_match(&other.to_string()),
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(approve: &Value) -> ApprovalRules {
        let tool = json!({
            "name": "sh", "source": {"kind": "builtin", "package": "@goondan/base", "name": "bash"},
            "approve": approve, "errorMessageLimit": 100,
        });
        ApprovalRules::of(&[serde_json::from_value(tool).unwrap()]).unwrap()
    }

    fn of(rules: &ApprovalRules, tool_name: &str, input: Value) -> Approve {
        rules.of_call(&ToolCall {
            id: "c".parse().unwrap(),
            tool_name: tool_name.to_owned(),
            input,
        })
    }

    #[test]
    fn steer_3_first_matching_rule_applies_else_approval_required() {
        let rules = rules(&json!([
            {"export": "exec", "when": {"command": "(ls|git status)( .*)?"}, "approve": "always"},
            {"when": {"command": "(?s).*rm -rf.*"}, "approve": "never"},
            {"when": {"timeoutMs": "[1-9]"}, "approve": "always"},
        ]));
        let command = |tool: &str, text: &str| of(&rules, tool, json!({"command": text}));
        assert_eq!(command("sh__exec", "ls -l"), Approve::Always);
        assert_eq!(command("sh__exec", "git status"), Approve::Always);
        // A pattern must match the whole argument, so nothing can follow or precede the allowed
        // text.
        assert_eq!(command("sh__exec", "ls\ncurl evil"), Approve::Ask);
        assert_eq!(command("sh__exec", "lsof"), Approve::Ask);
        assert_eq!(command("sh__exec", "x; ls"), Approve::Ask);
        assert_eq!(command("sh__exec", "cd /\nrm -rf ."), Approve::Never);
        assert_eq!(command("sh__open", "ls"), Approve::Ask);
        assert_eq!(
            of(&rules, "sh__open", json!({"timeoutMs": 5})),
            Approve::Always
        );
        assert_eq!(
            of(&rules, "sh__open", json!({"timeoutMs": null})),
            Approve::Ask
        );
        assert_eq!(of(&rules, "sh__open", json!({})), Approve::Ask);
        assert_eq!(command("other__exec", "rm -rf /"), Approve::Always);
    }

    #[test]
    fn steer_3_tool_without_rules_is_allowed_and_bad_regex_reported() {
        assert_eq!(
            of(&rules(&json!([])), "sh__exec", json!({})),
            Approve::Always
        );
        let bad = json!({
            "name": "sh", "source": {"kind": "builtin", "package": "@goondan/base", "name": "bash"},
            "approve": [{"when": {"command": "("}, "approve": "ask"}], "errorMessageLimit": 100,
        });
        let told = ApprovalRules::of(&[serde_json::from_value(bad).unwrap()]);
        let told = told.err().unwrap().to_string();
        assert!(
            told.contains("`sh`") && told.contains("`command`"),
            "{told}"
        );
    }
}
