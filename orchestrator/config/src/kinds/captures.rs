//! Captures of a script rule: names defined by its patterns, and their uses as `${name}`.
//!
//! `agent-process` applies the same rules when it executes scripts, but would only find mistakes in
//! the middle of a conversation.

use std::collections::BTreeMap;

use regex_lite::Regex;

use crate::codes;
use crate::fields::{Label, LocatedValue};
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::similar::nearest;
use crate::tree::{YamlNode, YamlValue};

/// Predefined captures: the latest user message, the latest tool result, the step number.
const BUILTIN: [&str; 4] = ["header", "input", "result", "step"];

/// The names that a rule may use.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// With the places of their patterns.
    named: BTreeMap<String, SourceLocation>,
    /// True if a pattern does not compile, so that its captures are unknown.
    partial: bool,
}

impl Captures {
    /// Adds the named groups of a pattern; reports a pattern that does not compile or that
    /// redefines a name.
    pub(crate) fn add(
        &mut self,
        pattern: &LocatedValue<&str>,
        label: &Label,
        report: &mut ProblemReport,
    ) {
        let regex = match Regex::new(pattern.value) {
            Ok(regex) => regex,
            Err(error) => {
                self.partial = true;
                report.add(
                    Problem::new(
                        codes::INVALID_PATTERN,
                        pattern.place,
                        format!("{label} is not a regular expression: {error}"),
                    )
                    .help("escape special characters with `\\`"),
                );
                return;
            }
        };
        for name in regex.capture_names().flatten() {
            let taken = if BUILTIN.contains(&name) {
                "is always defined"
            } else if self.named.insert(name.to_owned(), pattern.place).is_some() {
                "another pattern of the rule also captures"
            } else {
                continue;
            };
            report.add(
                Problem::new(
                    codes::INVALID_PATTERN,
                    pattern.place,
                    format!("{label} captures `{name}`, which {taken}"),
                )
                .help("choose another name"),
            );
        }
    }

    /// Reports every `${name}` of a text without a capture. `$${` is a literal `${`.
    pub(crate) fn check_text(
        &self,
        text: &str,
        place: SourceLocation,
        label: &Label,
        report: &mut ProblemReport,
    ) {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            rest = after;
            if before.ends_with('$') {
                continue;
            }
            let Some((name, after)) = after.split_once('}') else {
                report.add(
                    Problem::new(
                        codes::INVALID_VALUE,
                        place,
                        format!("{label} has a `${{` without `}}`"),
                    )
                    .help("write `$${` for a literal `${`"),
                );
                return;
            };
            rest = after;
            let is_known = BUILTIN.contains(&name) || self.named.contains_key(name);
            if !is_known && !self.partial {
                report.add(self.unknown(name, place, label));
            }
        }
    }

    /// Reports every unknown `${name}` in the strings of a value. Names of fields are not replaced.
    pub(crate) fn check_node(&self, node: &YamlNode, label: &Label, report: &mut ProblemReport) {
        match &node.value {
            YamlValue::Text(text) => self.check_text(text, node.place, label, report),
            YamlValue::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.check_node(item, &label.item(index), report);
                }
            }
            YamlValue::Mapping(entries) => {
                for entry in entries {
                    self.check_node(&entry.node, &label.field(&entry.key), report);
                }
            }
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) => {}
        }
    }

    fn unknown(&self, name: &str, place: SourceLocation, label: &Label) -> Problem {
        let known = || {
            let named = self.named.keys().map(String::as_str);
            named.chain(BUILTIN)
        };
        let listed: Vec<String> = known().map(|name| format!("`{name}`")).collect();
        Problem::new(
            codes::INVALID_VALUE,
            place,
            format!(
                "{label} uses `{name}`, which no pattern captures; expected {}",
                listed.join(", ")
            ),
        )
        .help("write `$${` for a literal `${`")
        .did_you_mean(nearest(name, known()))
    }
}
