//! A script's rules with compiled patterns.

use std::collections::BTreeSet;

use goondan_protocol::script::{Script, ScriptRule};
use regex_lite::Regex;

use super::request::ModelError;
use super::template::{BUILTIN_CAPTURES, Captures};

/// Longest delay of a rule, in milliseconds: ten minutes. The configuration checks the same limit.
pub(crate) const MAX_DELAY_MS: u64 = 600_000;

#[derive(Debug)]
pub(crate) struct CompiledRule {
    pub(crate) rule: ScriptRule,
    /// Matched against the latest user message.
    pub(crate) user: Option<Pattern>,
    /// Matched against the latest tool result.
    pub(crate) result: Option<Pattern>,
    /// Matched against the system prompt.
    pub(crate) system: Option<Pattern>,
    pub(crate) history: Option<Pattern>,
}

/// One compiled regular expression.
#[derive(Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Adds the named groups of the first match to `captures`. Returns false if nothing matches.
    pub(crate) fn find(&self, text: &str, captures: &mut Captures) -> bool {
        let Some(found) = self.0.captures(text) else {
            return false;
        };
        for name in self.0.capture_names().flatten() {
            let value = found.name(name).map_or("", |group| group.as_str());
            captures.set(name, value);
        }
        true
    }
}

/// Compiles every rule.
///
/// # Errors
///
/// The first invalid rule, by its position from 1, and the reason.
pub(crate) fn compile(script: &Script) -> Result<Vec<CompiledRule>, ModelError> {
    let rules = script.rules.iter().zip(1..);
    rules
        .map(|(rule, place)| {
            compile_rule(rule)
                .map_err(|fault| ModelError::new(format!("rule {place} of the script: {fault}")))
        })
        .collect()
}

fn compile_rule(rule: &ScriptRule) -> Result<CompiledRule, String> {
    if rule.say.is_none() && rule.call.is_empty() && rule.fail.is_none() {
        return Err("without effect; add `say`, `call` or `fail`".to_owned());
    }
    if rule.fail.is_some() && (rule.say.is_some() || !rule.call.is_empty()) {
        return Err("`fail` cannot be combined with `say` or `call`".to_owned());
    }
    if let Some(delay_ms) = rule.delay_ms.filter(|delay| *delay > MAX_DELAY_MS) {
        return Err(format!(
            "`delayMs` is {delay_ms}; at most {MAX_DELAY_MS} is allowed"
        ));
    }
    let mut names = BTreeSet::new();
    let mut compile = |field: &str, pattern: &Option<String>| {
        let Some(pattern) = pattern else {
            return Ok(None);
        };
        let regex = Regex::new(pattern)
            .map_err(|error| format!("`when.{field}` is not a valid pattern: {error}"))?;
        for name in regex.capture_names().flatten() {
            if BUILTIN_CAPTURES.contains(&name) {
                return Err(format!(
                    "`when.{field}` captures `{name}`, which is always there; choose another name"
                ));
            }
            if !names.insert(name.to_owned()) {
                return Err(format!(
                    "`when.{field}` captures `{name}`, which another pattern of the rule captures \
                     too; choose another name"
                ));
            }
        }
        Ok(Some(Pattern(regex)))
    };
    Ok(CompiledRule {
        user: compile("user", &rule.when.user)?,
        result: compile("result", &rule.when.result)?,
        system: compile("system", &rule.when.system)?,
        history: compile("history", &rule.when.history)?,
        rule: rule.clone(),
    })
}
