//! The rules of a `scripted` model.

use std::collections::BTreeMap;

use goondan_protocol::ids::ToolName;
use goondan_protocol::script::{Rule, Script, ScriptedCall, When};

use super::id;
use crate::codes;
use crate::fields::{Fields, Label};
use crate::limits::MAX_SCRIPT_DELAY_MS;
use crate::report::{Problem, Report};
use crate::tree::{Node, entries_to_json};

/// Reads the field `rules` of a script file or of a Model's options.
pub(crate) fn read_rules(fields: &mut Fields<'_>, report: &mut Report) -> Option<Script> {
    let place = fields.require("rules", report)?.key_place;
    let items = fields.items("rules", report);
    let count = items.len();
    let rules: Vec<Rule> = items
        .into_iter()
        .filter_map(|(node, label)| read_rule(node, label, report))
        .collect();
    if count == 0 {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                place,
                format!("{} needs at least one rule", fields.label),
            )
            .help("add `- say: Hello` below `rules:`"),
        );
    }
    (count > 0 && rules.len() == count).then_some(Script { rules })
}

fn read_rule(node: &Node, label: Label, report: &mut Report) -> Option<Rule> {
    let mut fields = Fields::open(node, node.place, label, report)?;
    let when = fields
        .nested("when", report)
        .map(|when| read_when(when, report));
    let say = fields.text("say", report);
    let call: Vec<ScriptedCall> = fields
        .items("call", report)
        .into_iter()
        .filter_map(|(node, label)| read_call(node, label, report))
        .collect();
    let fail = fields.text("fail", report);
    let delay_ms = fields.integer("delayMs", 0..=MAX_SCRIPT_DELAY_MS, report);

    fields.exclude("say", "fail", report);
    fields.exclude("call", "fail", report);
    let acts = ["say", "call", "fail"].map(|name| fields.get(name).is_some());
    if !acts.contains(&true) {
        report.add(
            Problem::new(
                codes::MISSING_FIELD,
                node.place,
                format!("{} does nothing", fields.label),
            )
            .help("add `say`, `call` or `fail`"),
        );
    }
    fields.close(report);
    Some(Rule {
        when: when.unwrap_or_default(),
        say: say.map(|text| text.value.to_owned()),
        call,
        fail: fail.map(|text| text.value.to_owned()),
        delay_ms,
    })
}

fn read_when(mut fields: Fields<'_>, report: &mut Report) -> When {
    let when = When {
        user: read_pattern(&mut fields, "user", report),
        tool: read_tool(&mut fields, report).map(|name| name.as_str().to_owned()),
        result: read_pattern(&mut fields, "result", report),
        error: fields.boolean("error", report),
        system: read_pattern(&mut fields, "system", report),
        history: read_pattern(&mut fields, "history", report),
        step: fields
            .integer("step", 1..=u64::from(u32::MAX), report)
            .and_then(|step| u32::try_from(step).ok()),
    };
    fields.close(report);
    when
}

fn read_pattern(
    fields: &mut Fields<'_>,
    name: &'static str,
    report: &mut Report,
) -> Option<String> {
    let pattern = fields.text(name, report)?;
    if let Err(error) = regex_lite::Regex::new(pattern.value) {
        report.add(
            Problem::new(
                codes::INVALID_PATTERN,
                pattern.place,
                format!(
                    "{} is not a regular expression: {error}",
                    fields.label.field(name)
                ),
            )
            .help("put `\\` before a character that is meant as itself"),
        );
    }
    Some(pattern.value.to_owned())
}

fn read_tool(fields: &mut Fields<'_>, report: &mut Report) -> Option<ToolName> {
    let tool = fields.text("tool", report)?;
    id(&tool, report)
}

fn read_call(node: &Node, label: Label, report: &mut Report) -> Option<ScriptedCall> {
    let mut fields = Fields::open(node, node.place, label, report)?;
    let _present = fields.require("tool", report);
    let tool = read_tool(&mut fields, report);
    let args = entries_to_json(fields.entries("args", report));
    fields.close(report);
    Some(ScriptedCall {
        tool: tool?.as_str().to_owned(),
        args: args.into_iter().collect::<BTreeMap<_, _>>(),
    })
}
