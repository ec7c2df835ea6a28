//! The rules of a `scripted` model.

use goondan_protocol::ids::ToolName;
use goondan_protocol::script::{Rule, Script, ScriptedCall, When};

use super::captures::Captures;
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
    let mut captures = Captures::default();
    let when = fields
        .nested("when", report)
        .map(|when| read_when(when, &mut captures, report));
    let say = read_template(&mut fields, "say", &captures, report);
    let call: Vec<ScriptedCall> = fields
        .items("call", report)
        .into_iter()
        .filter_map(|(node, label)| read_call(node, label, &captures, report))
        .collect();
    let fail = read_template(&mut fields, "fail", &captures, report);
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
        say,
        call,
        fail,
        delay_ms,
    })
}

fn read_when(mut fields: Fields<'_>, captures: &mut Captures, report: &mut Report) -> When {
    let when = When {
        user: read_pattern(&mut fields, "user", captures, report),
        tool: read_tool(&mut fields, report).map(|name| name.as_str().to_owned()),
        result: read_pattern(&mut fields, "result", captures, report),
        error: fields.boolean("error", report),
        system: read_pattern(&mut fields, "system", captures, report),
        history: read_pattern(&mut fields, "history", captures, report),
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
    captures: &mut Captures,
    report: &mut Report,
) -> Option<String> {
    let pattern = fields.text(name, report)?;
    captures.add(&pattern, &fields.label.field(name), report);
    Some(pattern.value.to_owned())
}

fn read_template(
    fields: &mut Fields<'_>,
    name: &'static str,
    captures: &Captures,
    report: &mut Report,
) -> Option<String> {
    let text = fields.text(name, report)?;
    captures.check_text(text.value, text.place, &fields.label.field(name), report);
    Some(text.value.to_owned())
}

fn read_tool(fields: &mut Fields<'_>, report: &mut Report) -> Option<ToolName> {
    let tool = fields.text("tool", report)?;
    id(&tool, report)
}

fn read_call(
    node: &Node,
    label: Label,
    captures: &Captures,
    report: &mut Report,
) -> Option<ScriptedCall> {
    let mut fields = Fields::open(node, node.place, label, report)?;
    let _present = fields.require("tool", report);
    let tool = read_tool(&mut fields, report);
    let args = fields.entries("args", report);
    let label = fields.label.field("args");
    for entry in args {
        captures.check_node(&entry.node, &label.field(&entry.key), report);
    }
    fields.close(report);
    Some(ScriptedCall {
        tool: tool?.as_str().to_owned(),
        args: entries_to_json(args).into_iter().collect(),
    })
}
